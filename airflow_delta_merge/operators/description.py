"""What is merged and what a merge did, as text for the task's log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeClause, MergeConfig, MergeSource, MergeStatement

if TYPE_CHECKING:
    from airflow_delta_merge.contract.merge_plan import MergePlan
    from airflow_delta_merge.contract.result import MergeResult

_LONGEST_TEXT = 100
_BAR = "█"
_LONGEST_BAR = 20


def announce(configs: Sequence[MergeConfig | MergeStatement]) -> str:
    """What is about to be merged, into what and from what, in a few lines."""
    if len(configs) == 1:
        return "\n".join(_lines(configs[0], "Merge"))
    return "\n".join(line for number, config in enumerate(configs, 1) for line in _lines(config, f"Merge {number}"))


def readable_statement(config: MergeConfig | MergeStatement) -> str:
    """The statement with the query that ``source_dedupe`` makes folded into a comment."""
    if isinstance(config, MergeStatement) or config.source_dedupe is None:
        return config.to_sql()
    first, rest = replace(config, source_dedupe=None).to_sql().split("\n", 1)
    comment = _deduped(config).replace("\n", " ")
    return f"{first}\n-- source_dedupe: {comment}\n{rest}"


def describe(result: MergeResult, url: str | None = None) -> str:
    """A result as a small table.

    :param url: where to see more of it.
    """
    rows = {
        "inserted": result.num_inserted_rows,
        "updated": result.num_updated_rows,
        "deleted": result.num_deleted_rows,
        "copied": result.metrics.get("numTargetRowsCopied", 0),
    }
    files = {
        "touched": result.num_touched_files,
        "removed": result.num_removed_files,
        "added": result.num_added_files,
        "searched": result.num_candidate_files,
    }
    attempts = (
        f"; attempt {result.num_commit_attempts}, the others conflicted" if result.num_commit_attempts > 1 else ""
    )
    how = [f"  how     {result.executor}: {result.executor_reason}"]
    see = [f"  see     {url}"] if url else []
    lines = [f"Merged into {result.table}: {_outcome(result)}{attempts}", *_counts(rows, files)]
    lines[-1] += f" of {result.num_files_before_skipping:,}"
    lines += [*_bad_rows(result.num_bad_rows), *_failed(result), *_bars(result.durations_ms)]
    return "\n".join([*lines, *how, *see])


def describe_plan(plan: MergePlan) -> str:
    """The counts of a dry run as a small table."""
    rows = {
        "inserted": plan.num_inserted_rows,
        "updated": plan.num_updated_rows,
        "deleted": plan.num_deleted_rows,
        "copied": plan.num_copied_rows,
    }
    files = {"touched": plan.num_touched_files, "searched": plan.num_candidate_files}
    counts = _counts(rows, files)
    counts[1] += f" of {plan.num_files_before_skipping:,}"
    head = f"Dry run of a merge into {plan.table}; nothing was committed"
    how = f"  how     {plan.executor}: {plan.executor_reason}"
    return "\n".join([head, *counts, *_bad_rows(plan.num_bad_rows), *_failed(plan), how])


def _bad_rows(count: int) -> list[str]:
    return [f"  bad     {count:,} rows of the source left out"] if count else []


def _failed(found: MergeResult | MergePlan) -> list[str]:
    """How many rows broke each expectation."""
    counts = [f"{name} {count:,}" for name, count in found.failed_expectations.items() if count]
    aside = f"; {found.num_set_aside_rows:,} rows of the source set aside" if found.num_set_aside_rows else ""
    return [f"  broken  {', '.join(counts)}{aside}"] if counts else []


def _counts(rows: dict[str, int], files: dict[str, int]) -> list[str]:
    """Rows and files side by side, a line for each count."""
    width = max(len(f"{count:,}") for count in rows.values())
    left = [f"{name:<8}  {count:>{width},}" for name, count in rows.items()]
    of_files = max(len(f"{count:,}") for count in files.values())
    right = [f"{name:<8}  {count:>{of_files},}" for name, count in files.items()]
    right += [""] * (len(left) - len(right))
    heads = [("rows", "files"), *[("", "")] * (len(left) - 1)]
    return [f"  {a:<6}  {x}    {b:<5}  {y}".rstrip() for (a, b), x, y in zip(heads, left, right, strict=True)]


def _bars(durations_ms: dict[str, int]) -> list[str]:
    """Each phase with a bar as long as its part of the whole."""
    phases = {phase: ms for phase, ms in durations_ms.items() if phase != "total"}
    whole = durations_ms.get("total") or sum(phases.values())
    lines = [
        f"{phase:<8}  {ms / 1000:>5.1f} s  {_BAR * round(_LONGEST_BAR * ms / max(whole, 1))}"
        for phase, ms in phases.items()
    ]
    lines += [f"{'total':<8}  {whole / 1000:>5.1f} s"] if "total" in durations_ms else []
    return [f"  {'time' if at == 0 else '':<6}  {line}".rstrip() for at, line in enumerate(lines)]


def _outcome(result: MergeResult) -> str:
    if result.already_committed:
        where = "by an earlier try" if result.version is None else f"by an earlier try, as version {result.version}"
        return f"already committed {where}; nothing was done now, this is what that try recorded"
    return "nothing to do, no commit" if result.version is None else f"committed version {result.version}"


def _lines(config: MergeConfig | MergeStatement, what: str) -> list[str]:
    lines = [f"{what} into {config.target.to_sql()}"]
    if isinstance(config, MergeStatement):
        return [*lines, "  by    the statement in sql"]
    on = config.on if isinstance(config.on, str) else ", ".join(config.on)
    deduped = "" if config.source_dedupe is None else f", {_deduped(config)}"
    lines += [f"  from  {_source(config.source)}{deduped}", f"  on    {_short(on)}"]
    return [*lines, *(f"  {_when(clause)}" for clause in config.ordered_clauses)]


def _source(source: MergeSource) -> str:
    if source.query is not None:
        found = f"({_short(source.query)})"
    elif source.table is not None:
        found = source.table
    elif source.jdbc is not None:
        read = source.jdbc.table or f"({_short(source.jdbc.query or '')})"
        found = f"{read}, through the connection {source.jdbc.conn_id}"
    else:
        more = f" and {len(source.paths) - 1} more" if len(source.paths) > 1 else ""
        found = f"{source.paths[0]}{more} ({source.format})"
    return found if source.select is None else f"{found}, through select"


def _deduped(config: MergeConfig) -> str:
    assert config.source_dedupe is not None
    ties = "ties fail" if config.source_dedupe.on_ties == "fail" else "any row of a tie"
    return f"the latest row of each {', '.join(config.on)} by {', '.join(config.source_dedupe.latest_by)}; {ties}"


def _when(clause: MergeClause) -> str:
    condition = "" if clause.condition is None else f" and {_short(clause.condition)}"
    columns = ", ".join(column for column, _ in clause.values)
    but = f" without {', '.join(clause.except_columns)}" if clause.except_columns else ""
    kind, action = (str(name).replace("_", " ") for name in (clause.kind, clause.action))
    return f"when {kind}{condition}: {action}{but}{f' {_short(columns)}' if columns else ''}"


def _short(text: str) -> str:
    """A text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}…"
