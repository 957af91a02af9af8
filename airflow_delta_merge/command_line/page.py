"""A table's history, or a commit, as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from airflow_delta_merge.history import figures
from airflow_delta_merge.history.advice import Advice
from airflow_delta_merge.history.charts import COLOURS, PATTERNS, STYLE
from airflow_delta_merge.history.merge_charts import Chart, merge_charts
from airflow_delta_merge.history.records import Commit
from airflow_delta_merge.history.table_history import CommitDetails, HistoryPage

_STYLE = f"""{COLOURS}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }}
th, td {{ padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }}
th {{ background: var(--head); }} th:last-child, td:last-child, .facts td, .facts th {{ text-align: left; }}
td, dd {{ overflow-wrap: anywhere; }} .scroll {{ overflow-x: auto; }} summary {{ cursor: pointer; }}
{STYLE}"""


def history_page(page: HistoryPage, advice: Sequence[Advice]) -> str:
    """A page of the commits: charts of the merges among them, each with its table; all commits; advice."""
    parts = [f"<h1>{escape(page.table.path)}</h1>", f"<p>{escape(figures.about(page.table))}</p>", _advice(advice)]
    parts += map(_chart, merge_charts(page.commits))
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
        heads = (*figures.HEADS_OF_PARTITIONS, "partition")
        rows = ((*figures.numbers_of(each), figures.partition_text(each.partition)) for each in details.partitions)
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


def _chart(chart: Chart) -> str:
    """A chart, and the same numbers as a table."""
    rows = ((*values, f"version {version}") for version, values in chart.rows())
    return (
        f"<h2>{escape(chart.name)}</h2>\n{chart.svg}\n"
        f"<details><summary>{escape(chart.name)}, as a table</summary>"
        f"{_table((*chart.heads, 'merge'), rows)}</details>"
    )


def _commits(commits: Iterable[Commit]) -> str:
    heads = ("version", "inserted", "updated", "deleted", "copied", "touched / searched / all", "written", "took")
    rows = (
        (*figures.row_of(commit), f"{commit.operation} {figures.moment(commit)} {figures.who(commit)}")
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
