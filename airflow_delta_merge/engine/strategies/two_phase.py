"""Merges that update or delete, in two phases: find the touched files, then write all changes.

If source and candidate files are small, the join of phase 1 is kept with all columns, and phase 2 writes from it
(:mod:`~airflow_delta_merge.engine.rows.kept_join`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_delta_merge.engine.guards import check_guards
from airflow_delta_merge.engine.rows.inserts import counted_inserts
from airflow_delta_merge.engine.rows.touched_files import find_touched_files
from airflow_delta_merge.engine.strategies.all_changes import AllChanges
from airflow_delta_merge.engine.strategies.outcome import Outcome, Preview
from airflow_delta_merge.engine.target_metrics import count_rows

if TYPE_CHECKING:
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.strategies.facts import Facts

_log = logging.getLogger(__name__)


class TwoPhase:
    """Finds the rows that clauses take, then writes. Used for every merge that no other strategy fits."""

    executor = "ClassicMergeExecutor"

    def fits(self, facts: Facts) -> str | None:
        return "rows of the target may be updated or deleted" if facts.source_is_read else None

    def preview(self, merge: MergeContext, facts: Facts, reason: str, *, explain: bool) -> Preview:
        touched = find_touched_files(merge, is_small=facts.is_small)
        changes = AllChanges(merge, touched)
        try:
            explained = {"matches": touched.matches}
            count_rows(merge, touched.files, touched.rows_of_clause)
            if touched.files.count and changes.writes_new_versions():
                explained["rewritten rows"] = changes.new_versions()[0]
            if merge.insert_clauses:
                explained["inserted rows"] = counted_inserts(merge, changes.unmatched_rows())
            plans = {name: merge.gateway.explained(rows) for name, rows in explained.items()} if explain else {}
            return Preview(changes.reason(), touched.files.count, touched.files.num_bytes, plans)
        finally:
            touched.release()

    def run(self, merge: MergeContext, facts: Facts, reason: str) -> Outcome:
        with merge.recorded("findTouchedFiles"):
            touched = find_touched_files(merge, is_small=facts.is_small)
        changes = AllChanges(merge, touched)
        try:
            count_rows(merge, touched.files, touched.rows_of_clause)
            _log.info("%s pairs match; %s", touched.num_pairs, changes.reason())
            check_guards(merge, changes.count_inserts, touched.files)
            actions, written = changes.write()
            return Outcome(actions, written.reason(), touched.files.count)
        finally:
            touched.release()
