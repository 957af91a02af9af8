"""Merges with Delta's own engine, if the user asks for it, with the same identity, guards, commit and result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta_merge.engine.guards import check_guards, check_source
from airflow_delta_merge.engine.strategies.outcome import Outcome

if TYPE_CHECKING:
    from airflow_delta_merge.engine.started_merge import StartedMerge

EXECUTOR = "BuiltInMergeExecutor"
REASON = 'engine="builtin": Delta\'s own MERGE found the changes and wrote them'


def merge_by_builtin(merge: StartedMerge) -> Outcome:
    """Let Delta's ``MergeIntoCommand`` find and write the changes. Guards check its counts before the commit.

    :raises MergeGuardError: when a guard is exceeded; what was written is deleted.
    """
    transaction, metrics = merge.transaction, merge.metrics
    with metrics.phase("rewrite"):
        touched, written, actions = transaction.merge_by_builtin(merge.source_attempt)
    metrics.read_back()
    values = metrics.values
    try:
        check_source(merge.options.guards, values["numSourceRows"])
        check_guards(merge, lambda: values["numTargetRowsInserted"], touched)
    except BaseException:
        transaction.discard(written)
        raise
    return Outcome(actions, REASON, touched.count)
