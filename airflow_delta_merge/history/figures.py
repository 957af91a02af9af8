"""Human-readable numbers, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_delta_merge.history.commit_files import PartitionChange
from airflow_delta_merge.history.records import OWN_WRITER, Commit, Table
from airflow_delta_merge.history.table_history import HistoryPage

NONE = "-"
_BLOCKS = "▁▂▃▄▅▆▇█"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
#: The phases of a merge, in their order.
PHASES = ("resolve", "source", "scan", "rewrite")
#: Numbers of files and of bytes.
HEADS_OF_PARTITIONS = ("added", "removed", "marked", "bytes added", "bytes removed")


def count(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def tenths(number: int | None) -> str:
    """A number of tenths, as a decimal."""
    return NONE if number is None else f"{number / 10:,.1f}"


def size(number: int | None) -> str:
    """A size, in powers of a thousand."""
    if number is None:
        return NONE
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.95 else f"{value:.1f} {_UNITS[unit]}"


def duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return NONE
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def moment(commit: Commit) -> str:
    return NONE if commit.time is None else f"{commit.time:%Y-%m-%d %H:%M:%S}"


def who(commit: Commit) -> str:
    """The DAG run's task and try that made a commit, or the writer."""
    task = commit.task_instance
    if task is not None:
        mapped = f"[{task.map_index}]" if task.map_index >= 0 else ""
        return f"{task.dag_id}.{task.task_id}{mapped} {task.run_id} try {task.try_number}"
    if commit.record is not None:
        return commit.record.identity.application_id
    return f"{commit.writer} (unreadable record)" if commit.writer == OWN_WRITER else commit.writer


def files_of(commit: Commit) -> str:
    """Files with a changed row, of those searched, of all."""
    files = commit.files
    if files.candidate is None:
        return NONE
    return f"{count(files.touched)} / {count(files.candidate)} / {count(files.before)}"


def row_of(commit: Commit) -> tuple[str, ...]:
    """A commit in a list: version, rows inserted, updated, deleted and copied, files, bytes written and duration."""
    rows = commit.rows
    counts = map(count, (rows.inserted, rows.updated, rows.deleted, rows.copied))
    return str(commit.version), *counts, files_of(commit), size(commit.bytes.added), duration(commit.total_ms)


def changed_rows(commit: Commit) -> int:
    rows = commit.rows
    return (rows.inserted or 0) + (rows.updated or 0) + (rows.deleted or 0)


def durations(commit: Commit) -> list[tuple[str, int]]:
    """The phases in their order, and the total."""
    return [(phase, took) for phase in (*PHASES, "total") if (took := commit.durations_ms.get(phase)) is not None]


def sparkline(values: Sequence[int]) -> str:
    """A block for each value, from 0 to the largest."""
    largest = max(values, default=0)
    if largest <= 0:
        return _BLOCKS[0] * len(values)
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, max(0, value) * len(_BLOCKS) // largest)] for value in values)


def about(table: Table) -> str:
    """A table in a line."""
    partitions = f"partitioned by {', '.join(table.partition_columns)}" if table.partition_columns else "no partitions"
    vectors = f"deletion vectors {'on' if table.has_deletion_vectors else 'off'}"
    clustered = ", clustered" if table.is_clustered else ""
    return f"version {table.version}, {partitions}{clustered}, {vectors}"


def notes(page: HistoryPage) -> list[str]:
    """Sentences about commits that are not on the page."""
    if page.cleaned_before is not None:
        if not page.commits:
            return [f"Commits before version {page.cleaned_before} are no longer in the log."]
        return [f"Commits before version {page.cleaned_before} were cleaned up; the log no longer has them."]
    return [] if page.older is None else [f"Older commits: --before {page.older}"]


def facts_of(commit: Commit) -> dict[str, str]:
    """The facts of a commit, in order, by their labels."""
    rows, files, sizes = commit.rows, commit.files, commit.bytes
    facts = {
        "time (UTC)": moment(commit),
        "operation": commit.operation,
        "by": who(commit),
        **commit.parameters,
        "rows inserted": count(rows.inserted),
        "rows updated": count(rows.updated),
        "rows deleted": count(rows.deleted),
        "rows copied": count(rows.copied),
        "files touched / searched / all": files_of(commit),
        "files added": f"{count(files.added)} ({size(sizes.added)})",
        "files removed": f"{count(files.removed)} ({size(sizes.removed)})",
        **{f"time, {phase}": duration(took) for phase, took in durations(commit)},
    }
    result = commit.result
    if result is not None:
        facts |= {
            "way": f"{result.executor}: {result.executor_reason}",
            "version read": str(result.version_read),
            "commit attempts": str(result.num_commit_attempts),
            "source kept": f"{result.source_storage_level or 'no'} {result.source_materialization_reason}".strip(),
        }
    if commit.trouble:
        facts["trouble"] = commit.trouble
    return facts


def metrics_of(commit: Commit) -> dict[str, str]:
    """All of the writer's metrics that are not 0."""
    return {name: count(value) for name, value in sorted(commit.metrics.items()) if value}


def numbers_of(partition: PartitionChange) -> tuple[str, ...]:
    """What a commit did in one partition, by :data:`HEADS_OF_PARTITIONS`."""
    files = map(count, (partition.added, partition.removed, partition.marked))
    return *files, *map(size, (partition.added_bytes, partition.removed_bytes))


def partition_text(partition: Mapping[str, str | None]) -> str:
    """A partition as Delta names its folder."""
    return "/".join(f"{name}={'NULL' if value is None else value}" for name, value in partition.items()) or "(all)"
