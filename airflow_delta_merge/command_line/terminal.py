"""A table's history, a commit and a merge's counts on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from airflow_delta_merge.history import figures

if TYPE_CHECKING:
    from rich.console import Console

    from airflow_delta_merge.history.advice import Advice
    from airflow_delta_merge.history.records import Commit
    from airflow_delta_merge.history.table_history import CommitDetails, HistoryPage

_HEADS = ("version", "inserted", "updated", "deleted", "copied", "files", "written", "took")
_SPARKLINES: tuple[tuple[str, Callable[[Commit], int], Callable[[int], str]], ...] = (
    ("rows changed", figures.changed_rows, figures.count),
    ("rows copied", lambda commit: commit.rows.copied or 0, figures.count),
    ("written", lambda commit: commit.bytes.added or 0, figures.size),
    ("took", lambda commit: commit.total_ms or 0, figures.duration),
)


# Any writer may have written the log, so control characters are replaced. Line feeds stay.
_CONTROLS = dict.fromkeys([*range(10), *range(11, 32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}")


def print_history(console: Console, page: HistoryPage, advice: Sequence[Advice]) -> None:
    """The table in a line, curves of its commits, the commits, and advice."""
    console.print(_text(page.table.path, "bold"), _text(f"({figures.about(page.table)})"))
    merges = [commit for commit in reversed(page.commits) if commit.operation == "MERGE"]
    if len(merges) > 1 and console.encoding.lower().startswith("utf"):
        _print_sparklines(console, merges)
    if page.commits:
        _print_commits(console, page.commits)
    for note in figures.notes(page):
        console.print(_text(note))
    for commit in page.commits:
        if commit.trouble:
            console.print(_text(f"Version {commit.version}: {commit.trouble}"))
    if advice:
        console.print()
        console.print(_text("Advice from these numbers", "bold"))
    for each in advice:
        console.print(_text(f"- {each.text}"))
        console.print(Padding(_text(f"{each.because} See {each.link}", "dim"), (0, 0, 0, 2)))


def print_commit(console: Console, details: CommitDetails) -> None:
    """One commit: what it was, what it did, its files by partition, its result."""
    commit = details.commit
    console.print(_text(details.table.path, "bold"), _text(f"version {commit.version} of {details.table.version}"))
    console.print(_pairs(figures.facts_of(commit)))
    if details.partitions:
        console.print(_of_partitions(details))
    if metrics := figures.metrics_of(commit):
        console.print(_text("Metrics by the writer's names, without those that are 0", "bold"))
        console.print(_pairs(metrics))


def print_counts(console: Console, counts: Mapping[str, Any]) -> None:
    """A merge's result or plan, without its dicts."""
    for name, value in counts.items():
        if isinstance(value, Mapping):
            continue
        console.print(_text(f"{name:<32} {value:,}" if type(value) is int else f"{name:<32} {value}"))


def _print_sparklines(console: Console, oldest_first: Sequence[Commit]) -> None:
    console.print(_text(f"Merges, version {oldest_first[0].version} to {oldest_first[-1].version}:"))
    for name, value_of, written in _SPARKLINES:
        values = [value_of(commit) for commit in oldest_first]
        if any(values):
            console.print(
                _text(f"{name:<14}"), _text(figures.sparkline(values), "cyan"), _text(f"up to {written(max(values))}")
            )


def _print_commits(console: Console, commits: Sequence[Commit]) -> None:
    """Two lines for each commit, which fit on 80 columns: its numbers, then what it was, when, and by whom."""
    rows = [_HEADS, *map(figures.row_of, commits)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    console.print(_text(f"\n{lines[0]}", "bold"))
    for line, commit in zip(lines[1:], commits, strict=True):
        console.print(_text(line))
        what = _text(f"{commit.operation} {figures.moment(commit)} by {figures.who(commit)}", "dim")
        console.print(Padding(what, (0, 0, 0, widths[0] + 2)))
    console.print(_text("files: with a changed row / searched / all before; times in UTC", "dim"))


def _pairs(facts: Mapping[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(_text(name), _text(value))
    return table


def _of_partitions(details: CommitDetails) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="Files by partition", title_justify="left")
    table.add_column("partition", overflow="fold")
    for name in figures.HEADS_OF_PARTITIONS:
        table.add_column(name, justify="right")
    for each in details.partitions:
        table.add_row(_text(figures.partition_text(each.partition)), *figures.numbers_of(each))
    return table


def _text(text: str, style: str = "") -> Text:
    return Text(text.translate(_CONTROLS), style)
