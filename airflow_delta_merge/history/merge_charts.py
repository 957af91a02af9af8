"""Which numbers of a table's merges are drawn: pure functions from commits to charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from airflow_delta_merge.history import figures
from airflow_delta_merge.history.charts import Series, stacked_bars
from airflow_delta_merge.history.records import Commit

Value = Callable[[Commit], int | None]
_ROWS: tuple[tuple[str, Value], ...] = (
    ("inserted", lambda commit: commit.rows.inserted),
    ("updated", lambda commit: commit.rows.updated),
    ("deleted", lambda commit: commit.rows.deleted),
    ("copied", lambda commit: commit.rows.copied),
)
_FILES: tuple[tuple[str, Value], ...] = (
    ("with a changed row", lambda commit: commit.files.touched),
    ("only searched", lambda commit: _difference(commit.files.candidate, commit.files.touched)),
    ("left out", lambda commit: _difference(commit.files.before, commit.files.candidate)),
)
_ADDED: tuple[tuple[str, Value], ...] = (("added", lambda commit: commit.files.added),)
_BYTES: tuple[tuple[str, Value], ...] = (("written", lambda commit: commit.bytes.added),)


def _written_per_changed(commit: Commit) -> int | None:
    """Tenths of a byte: the log has no sizes of rows, so rows stand for bytes."""
    rows, changed = commit.rows, figures.changed_rows(commit)
    if not changed:
        return None
    return round(10 * ((rows.inserted or 0) + (rows.updated or 0) + (rows.copied or 0)) / changed)


_PER_CHANGED: tuple[tuple[str, Value], ...] = (("written", _written_per_changed),)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A bar for each merge, oldest first.

    :param name: what it shows.
    :param versions: the versions that the merges committed.
    :param series: the parts of the bars.
    :param written: formats a value.
    """

    name: str
    versions: Sequence[int]
    series: Sequence[Series]
    written: Callable[[int | None], str]

    @property
    def svg(self) -> str:
        return stacked_bars(self.name, [f"v{version}" for version in self.versions], self.series, self.written)

    @property
    def heads(self) -> list[str]:
        return [each.name for each in self.series]

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The same numbers as text: version and formatted values, oldest first."""
        for at, version in enumerate(self.versions):
            yield version, [self.written(each.values[at]) for each in self.series]


def merge_charts(commits: Sequence[Commit]) -> list[Chart]:
    """The charts of the merges among these commits, without charts in which all is 0 or the same as in another.

    :param commits: the newest first.
    """
    merges = [commit for commit in reversed(commits) if commit.operation == "MERGE"]
    copied = any(commit.rows.copied for commit in merges)
    drawn: tuple[tuple[str, Sequence[tuple[str, Value]], Callable[[int | None], str]], ...] = (
        ("Rows changed by merge", _ROWS[:3], figures.count),
        ("Rows by merge, with the copied ones", _ROWS if copied else (), figures.count),
        ("Files of the table by merge", _FILES, figures.count),
        ("Files added by merge", _ADDED, figures.count),
        ("Time by merge and phase", [_phase(name) for name in figures.PHASES], figures.duration),
        ("Bytes written by merge", _BYTES, figures.size),
        ("Bytes written per byte changed by merge, if rows are of equal size", _PER_CHANGED, figures.tenths),
    )
    charts = []
    for name, values, written in drawn:
        series = [Series(name=each, values=[_drawn(value(commit)) for commit in merges]) for each, value in values]
        if any(any(each.values) for each in series):
            charts.append(Chart(name=name, versions=[each.version for each in merges], series=series, written=written))
    return charts


def _phase(name: str) -> tuple[str, Value]:
    return name, lambda commit: commit.durations_ms.get(name)


def _drawn(value: int | None) -> int | None:
    """Logs of other writers may have negative numbers, which no bar shows."""
    return None if value is None else max(0, value)


def _difference(larger: int | None, smaller: int | None) -> int | None:
    return None if larger is None or smaller is None else max(0, larger - smaller)
