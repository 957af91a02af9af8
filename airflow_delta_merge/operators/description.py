"""What a merge did, as text for the task's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta_merge.result import MergeResult


def describe(result: MergeResult) -> str:
    """A result as a few lines for the task's log."""
    attempts = (
        f"; attempt {result.num_commit_attempts}, the others conflicted" if result.num_commit_attempts > 1 else ""
    )
    phases = ", ".join(f"{phase} {ms / 1000:.1f}" for phase, ms in result.durations_ms.items())
    bad = f"; {result.num_bad_rows} bad ones in the source left out" if result.num_bad_rows else ""
    return "\n".join(
        [
            f"Merged into {result.table}: {_outcome(result)}{attempts}",
            f"  rows     {result.num_inserted_rows} inserted, {result.num_updated_rows} updated, "
            f"{result.num_deleted_rows} deleted{bad}",
            f"  files    {result.num_touched_files} touched of {result.num_candidate_files} searched of "
            f"{result.num_files_before_skipping}; {result.num_added_files} added",
            f"  seconds  {phases or 'not measured'}",
            f"  {result.executor}: {result.executor_reason}",
        ]
    )


def _outcome(result: MergeResult) -> str:
    if result.already_committed:
        where = "by an earlier try" if result.version is None else f"by an earlier try, as version {result.version}"
        return f"already committed {where}; nothing was done now, this is what that try recorded"
    return "nothing to do, no commit" if result.version is None else f"committed version {result.version}"
