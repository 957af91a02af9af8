"""Merges by Delta's own engine, for whoever wants it: the same identity, guards, commit and result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta_merge.engine.guards import FoundChanges, check_guards, check_source

if TYPE_CHECKING:
    from airflow_delta_merge.config import MergeGuards
    from airflow_delta_merge.engine.delta_jvm import FileSet, Gateway, JavaObject, MergeTransaction
    from airflow_delta_merge.engine.metrics import MergeMetrics


class BuiltInMergeExecutor:
    """Has Delta's ``MergeIntoCommand`` find and write the changes; what it counts, guards look at before the commit.

    :param gateway: the session's JVM.
    :param transaction: a prepared transaction.
    :param metrics: of the command.
    """

    reason = 'engine="builtin": Delta\'s own MERGE found the changes and wrote them'

    def __init__(self, gateway: Gateway, transaction: MergeTransaction, metrics: MergeMetrics) -> None:
        self._gateway = gateway
        self._transaction = transaction
        self._metrics = metrics

    def execute(self, guards: MergeGuards, *, attempt: int) -> tuple[JavaObject, FileSet]:
        """Write all changes.

        :param attempt: how often the source had to be materialized, this time included.
        :return: the JVM sequence of file actions to commit, and the touched files.
        :raises MergeGuardError: when a guard is overstepped; what was written is deleted.
        """
        with self._metrics.phase("rewrite"):
            touched, written, actions = self._transaction.merge_by_builtin(attempt)
        self._metrics.read_back()
        values = self._metrics.values
        try:
            check_source(guards, values["numSourceRows"])
            changes = FoundChanges(lambda: values["numTargetRowsInserted"], touched.count, touched.num_bytes)
            check_guards(self._gateway, self._transaction, values, guards, changes)
        except BaseException:
            self._transaction.discard(written)
            raise
        return actions, touched
