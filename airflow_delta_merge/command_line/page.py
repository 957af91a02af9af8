"""A table's history, or a commit, as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from airflow_delta_merge.command_line import figures
from airflow_delta_merge.command_line.charts import PATTERNS, Series, stacked_bars
from airflow_delta_merge.history.advice import Advice
from airflow_delta_merge.history.records import Commit
from airflow_delta_merge.history.table_history import CommitDetails, HistoryPage

# Colours that are distinct for people with red-green colour blindness, with contrast on both backgrounds.
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --line: #8c959f; --head: #f3f4f6; --over: #ffffff;
  --s0: #0063b1; --s1: #c2570c; --s2: #8b2fa8; --s3: #5c6773; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --back: #14171a; --line: #7d8590; --head: #22272e;
  --over: #14171a; --s0: #5aa9f0; --s1: #f2a25c; --s2: #d59bea; --s3: #aab4bf; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { background: var(--head); } th:last-child, td:last-child, .facts td, .facts th { text-align: left; }
td, dd { overflow-wrap: anywhere; } .scroll { overflow-x: auto; } summary { cursor: pointer; }
svg { max-width: 100%; } svg text { fill: var(--text); font-size: 12px; } .end { text-anchor: end; }
.middle { text-anchor: middle; } svg line { stroke: var(--line); } pattern circle { fill: var(--over); }
pattern path { stroke: var(--over); stroke-width: 1.5; fill: none; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
.key { width: 16px; height: 16px; vertical-align: -3px; } .legend { list-style: none; display: flex; gap: 1.5rem;
  padding: 0; margin: .2rem 0 .6rem; flex-wrap: wrap; }
"""

_Value = Callable[[Commit], int | None]
_ROWS: tuple[tuple[str, _Value], ...] = (
    ("inserted", lambda commit: commit.rows.inserted),
    ("updated", lambda commit: commit.rows.updated),
    ("deleted", lambda commit: commit.rows.deleted),
    ("copied", lambda commit: commit.rows.copied),
)
_FILES: tuple[tuple[str, _Value], ...] = (
    ("with a changed row", lambda commit: commit.files.touched),
    ("only searched", lambda commit: _difference(commit.files.candidate, commit.files.touched)),
    ("left out", lambda commit: _difference(commit.files.before, commit.files.candidate)),
)
_BYTES: tuple[tuple[str, _Value], ...] = (("written", lambda commit: commit.bytes.added),)


def history_page(page: HistoryPage, advice: Sequence[Advice]) -> str:
    """A page of the commits: charts of the merges among them, each with its table; all commits; advice."""
    merges = [commit for commit in reversed(page.commits) if commit.operation == "MERGE"]
    parts = [f"<h1>{escape(page.table.path)}</h1>", f"<p>{escape(figures.about(page.table))}</p>", _advice(advice)]
    if merges:
        parts += [
            _chart("Rows changed by merge", merges, _ROWS[:3], figures.count),
            _chart("Rows by merge, with the copied ones", merges, _ROWS, figures.count),
            _chart("Files of the table by merge", merges, _FILES, figures.count),
            _chart("Time by merge and phase", merges, [_phase(name) for name in figures.PHASES], figures.duration),
            _chart("Bytes written by merge", merges, _BYTES, figures.size),
        ]
    parts += ["<h2>Commits</h2>", _commits(page.commits)]
    parts += [f"<p>{escape(note)}</p>" for note in figures.notes(page)]
    parts += [f"<p>Version {each.version}: {escape(each.trouble)}</p>" for each in page.commits if each.trouble]
    return _page(page.table.path, parts)


def commit_page(details: CommitDetails) -> str:
    """A page of one commit."""
    commit = details.commit
    title = f"{details.table.path}, version {commit.version}"
    parts = [f"<h1>{escape(title)}</h1>", _facts(figures.facts_of(commit).items())]
    if details.partitions:
        heads = ("added", "removed", "marked", "bytes added", "bytes removed", "partition")
        rows = (
            (
                *map(figures.count, (each.added, each.removed, each.marked)),
                *map(figures.size, (each.added_bytes, each.removed_bytes)),
                figures.partition_text(each.partition),
            )
            for each in details.partitions
        )
        parts += ["<h2>Files by partition</h2>", _table(heads, rows)]
    if metrics := figures.metrics_of(commit):
        parts += ["<h2>Metrics by the writer's names, without those that are 0</h2>", _facts(metrics.items())]
    return _page(title, parts)


def _page(title: str, parts: Iterable[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>{PATTERNS}<main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _advice(advice: Sequence[Advice]) -> str:
    if not advice:
        return ""
    entries = (
        f"<li><strong>{escape(each.text)}</strong><br>{escape(each.because)} See {escape(each.link)}</li>"
        for each in advice
    )
    return f"<h2>Advice from these numbers</h2>\n<ul>{''.join(entries)}</ul>"


def _chart(
    name: str,
    merges: Sequence[Commit],
    values: Sequence[tuple[str, _Value]],
    written: Callable[[int | None], str],
) -> str:
    """A chart, and the same numbers as a table; nothing where all are 0."""
    if not any(value(commit) for _, value in values for commit in merges):
        return ""
    labels = [f"v{commit.version}" for commit in merges]
    series = [Series(name=each, values=[value(commit) for commit in merges]) for each, value in values]
    rows = ((*(written(value(commit)) for _, value in values), f"version {commit.version}") for commit in merges)
    return (
        f"<h2>{escape(name)}</h2>\n{stacked_bars(name, labels, series, written)}\n"
        f"<details><summary>{escape(name)}, as a table</summary>"
        f"{_table((*(each for each, _ in values), 'merge'), rows)}</details>"
    )


def _commits(commits: Iterable[Commit]) -> str:
    heads = ("version", "inserted", "updated", "deleted", "copied", "touched / searched / all", "written", "took")
    rows = (
        (
            str(commit.version),
            *(figures.count(value(commit)) for _, value in _ROWS),
            figures.files_of(commit),
            figures.size(commit.bytes.added),
            figures.duration(commit.total_ms),
            f"{commit.operation} {figures.moment(commit)} {figures.who(commit)}",
        )
        for commit in commits
    )
    return _table((*heads, "what, when (UTC), by whom"), rows)


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="table">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>\n' for name, value in facts)
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _phase(name: str) -> tuple[str, _Value]:
    return name, lambda commit: commit.durations_ms.get(name)


def _difference(larger: int | None, smaller: int | None) -> int | None:
    return None if larger is None or smaller is None else max(0, larger - smaller)
