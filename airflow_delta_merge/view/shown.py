"""What a page shows of a table's commits: pure functions from records to values for templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta_merge.history import figures
from airflow_delta_merge.history.advice import Advice, advise
from airflow_delta_merge.history.merge_charts import Chart, merge_charts
from airflow_delta_merge.history.records import OWN_WRITER, Commit
from airflow_delta_merge.history.table_history import CommitDetails, HistoryPage

if TYPE_CHECKING:
    from airflow_delta_merge.contract.identity import TaskInstanceIdentity

#: Who merged, if it was a DAG that the user may not read. Then the condition isn't shown either.
NOT_SHOWN = "a task that is not shown to you"


@dataclass(frozen=True, kw_only=True)
class CommitRow:
    """A commit in the list of a table's commits.

    :param version: the version that it made.
    :param kind: ``merge`` (one of this package), ``other merge`` or ``other writer``.
    :param numbers: of rows and files, what was written, and how long it took.
    :param operation: what the writer says that it did.
    :param time: when, in UTC.
    :param by: who made it.
    :param task_instance: the task and try, if the user may read its DAG.
    :param trouble: why it can't be read.
    """

    version: int
    kind: str
    numbers: tuple[str, ...]
    operation: str
    time: str
    by: str
    task_instance: TaskInstanceIdentity | None
    trouble: str | None


@dataclass(frozen=True, kw_only=True)
class ShownHistory:
    """A table's page.

    :param about: the table, in a line.
    :param charts: its merges, oldest first.
    :param rows: its commits, newest first.
    :param advice: from the numbers of these commits.
    :param older: where the next page begins.
    :param note: what became of older commits, if they are gone.
    """

    about: str
    charts: list[Chart]
    rows: list[CommitRow]
    advice: list[Advice]
    older: int | None
    note: str | None


@dataclass(frozen=True, kw_only=True)
class ShownCommit:
    """A commit's page.

    :param row: the commit, as in the list.
    :param facts: its numbers and circumstances, by their labels.
    :param metrics: the writer's own metrics, without those that are 0.
    :param strategy: who merged and how, with the reason; None for other writers.
    :param partitions: what it did to files, by partition: counts, sizes, the partition.
    :param replaced: the files that it removed, in words.
    """

    row: CommitRow
    facts: Mapping[str, str]
    metrics: Mapping[str, str]
    strategy: str | None
    partitions: list[tuple[str, ...]]
    replaced: str


def shown_history(page: HistoryPage, dag_ids: Collection[str]) -> ShownHistory:
    """A table's page for a user.

    :param page: the commits.
    :param dag_ids: the DAGs that the user may read.
    """
    commits = [_for_reader(commit, dag_ids) for commit in page.commits]
    return ShownHistory(
        about=figures.about(page.table),
        charts=merge_charts(commits),
        rows=[_row(commit) for commit in commits],
        advice=advise(page.table, commits),
        older=page.older,
        note=next(iter(figures.notes(page)), None) if page.cleaned_before is not None else None,
    )


def shown_commit(details: CommitDetails, dag_ids: Collection[str]) -> ShownCommit:
    """A commit's page for a user; see :func:`shown_history`."""
    commit = _for_reader(details.commit, dag_ids)
    result = commit.result
    return ShownCommit(
        row=_row(commit),
        facts=figures.facts_of(commit),
        metrics=figures.metrics_of(commit),
        strategy=None if result is None else f"{result.executor}: {result.executor_reason}",
        partitions=[(figures.partition_text(each.partition), *figures.numbers_of(each)) for each in details.partitions],
        replaced=_replaced(details),
    )


def advice_for(version: int, page: HistoryPage, dag_ids: Collection[str]) -> list[Advice]:
    """The advice on a table for which one commit is among the evidence."""
    commits: Sequence[Commit] = [_for_reader(commit, dag_ids) for commit in page.commits]
    return [advice for advice in advise(page.table, commits) if version in advice.versions]


def _for_reader(commit: Commit, dag_ids: Collection[str]) -> Commit:
    """The commit without what tells about a DAG that the user may not read."""
    task, record = commit.task_instance, commit.record
    if task is None or record is None or task.dag_id in dag_ids:
        return commit
    identity = replace(record.identity, application_id=NOT_SHOWN, task_instance=None)
    return replace(commit, record=replace(record, identity=identity), parameters={})


def _row(commit: Commit) -> CommitRow:
    return CommitRow(
        version=commit.version,
        kind=_kind(commit),
        numbers=figures.row_of(commit)[1:],
        operation=commit.operation,
        time=figures.moment(commit),
        by=figures.who(commit),
        task_instance=commit.task_instance,
        trouble=commit.trouble,
    )


def _kind(commit: Commit) -> str:
    if commit.writer == OWN_WRITER:
        return "merge"
    return "other merge" if commit.operation == "MERGE" else "other writer"


def _replaced(details: CommitDetails) -> str:
    removed = sum(each.removed for each in details.partitions)
    marked = sum(each.marked for each in details.partitions)
    size = sum(each.removed_bytes for each in details.partitions)
    return (
        f"{figures.count(removed)} files ({figures.size(size)}) left the table; {figures.count(marked)} stayed and got "
        "another deletion vector."
    )
