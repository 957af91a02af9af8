"""The first rows of a table: its source is written as it is read.

Where a table has no files, no source row has a match, whatever the condition says. To materialize the source would keep
all rows of what is often the largest load that a table ever gets, for statistics that choose among no files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta_merge.engine.insert_only_merge import append_rows, set_skipping_metrics
from airflow_delta_merge.engine.pruning import candidate_files

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import JavaObject
    from airflow_delta_merge.engine.merge_context import StartedMerge

REASON = "the table has no files: the source is appended as it is read"

#: Spark takes what it knows nothing of for 8 exabytes. This is more than enough not to bring tasks together.
_MOST_BYTES = 1 << 50


def is_first_load(merge: StartedMerge) -> bool:
    """Whether all source rows are to be inserted into a table without files, and this is all to know of them.

    How many they are is told by the statistics of the new files, which an unconditional insert makes of each row.
    """
    transaction = merge.transaction
    return (
        merge.settings.first_load
        and transaction.table_size[0] == 0
        and any(clause.condition is None for clause in merge.insert_clauses)
        and not _is_partition_a_key(merge)
        and not transaction.generates_identity  # its rows are shuffled to as many tasks as their size asks for
        and merge.gateway.flag("spark.databricks.delta.stats.collect")
    )


def _is_partition_a_key(merge: StartedMerge) -> bool:
    """Whether the source tells which partitions the merge reads, so that it must be looked at first.

    Backfills of several partitions beside each other are in no conflict then.
    """
    return any(key.target_name in merge.transaction.partition_columns for key in merge.statement.equalities)


def write_first_rows(merge: StartedMerge) -> JavaObject:
    """Read the source, once, and write its rows; sets the metrics.

    :return: JVM sequence of file actions.
    """
    statement = merge.statement
    # They count as read, so that of two first loads at a time one is in conflict with the other.
    no_files = candidate_files(statement, merge.transaction, statement.target_only_conjuncts)
    set_skipping_metrics(merge, no_files)
    source = statement.source_frame()
    with merge.metrics.phase("rewrite", "rewriteTimeMs"):
        added = append_rows(merge, source, input_bytes=min(merge.gateway.estimated_bytes(source), _MOST_BYTES))
    num_rows = merge.metrics.values["numTargetRowsInserted"]
    merge.metrics.set(numSourceRows=num_rows, operationNumSourceRows=num_rows)
    return added
