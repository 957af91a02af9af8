"""Delta's own MERGE, step by step within our transaction."""

from __future__ import annotations

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, scala_option


def find_and_write_changes(
    gateway: Gateway, command: JavaObject, transaction: JavaObject, *, attempt: int
) -> tuple[JavaObject, JavaObject, JavaObject | None]:
    """Let Delta's ``MergeIntoCommand`` find the touched files and write all changes, as its own run would.

    :param command: the resolved command, whose SQL metrics it sets.
    :param transaction: the JVM's ``OptimisticTransaction``, prepared.
    :param attempt: number of times the source was materialized, this time included.
    :return: JVM sequences: the touched files, actions of written files, and actions that mark rows of touched files
        with deletion vectors (may be empty); None if the touched files are to be removed.
    """
    session, marked = gateway.session, None
    getattr(command, "attempt_$eq")(attempt)
    insert_only = bool(command.isInsertOnly())
    clauses = command.matchedClauses(), command.notMatchedClauses()
    try:
        command.prepareMergeSource(session, command.source(), command.condition(), *clauses, insert_only)
        if insert_only and gateway.flag("spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled"):
            getattr(command, "performedSecondSourceScan_$eq")(False)
            touched = gateway.seq([])
            written = command.writeOnlyInserts(session, transaction, True, "numSourceRows")
        else:
            found = command.findTouchedFiles(session, transaction)
            touched, deduplicate = found._1(), found._2()
            if touched.isEmpty():
                written = command.writeOnlyInserts(session, transaction, False, "numSourceRowsInSecondScan")
            else:
                marks = bool(command.shouldWritePersistentDeletionVectors(session, transaction))
                written = command.writeAllChanges(session, transaction, touched, deduplicate, not marks)
                marked = command.writeDVs(session, transaction, touched) if marks else None
        command.checkNonDeterministicSource(session)
        by_version.set_num_source_rows(gateway, command)
    finally:
        kept = scala_option(command.materializedSourceRDD())
        if kept is not None:
            kept.unpersist(False)
    return touched, written, marked
