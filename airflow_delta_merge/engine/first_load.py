"""The first rows of a table: its source is written as it is read.

Where a table has no files, no source row has a match, whatever the condition says. To materialize the source would keep
all rows of what is often the largest load that a table ever gets, for statistics that choose among no files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta_merge.engine.insert_only_merge import inserted_rows, set_adding_metrics, set_skipping_metrics
from airflow_delta_merge.engine.pruning import candidate_predicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm import JavaObject
    from airflow_delta_merge.engine.merge_context import StartedMerge

REASON = "the table has no files: the source is appended as it is read"

#: Spark takes what it knows nothing of for 8 exabytes. This is more than enough not to bring tasks together.
_MOST_BYTES = 1 << 50


def is_first_load(merge: StartedMerge) -> bool:
    """Whether all source rows are to be inserted into a table without files, and this is all to know of them.

    How many they are is told by the statistics of the new files, which an unconditional insert makes of each row.
    Where the key has a partition column the source tells which partitions it reads: backfills of several partitions
    beside each other are in no conflict then, for which the source must be looked at first.
    """
    statement, transaction = merge.statement, merge.transaction
    by_partition = {key.target_name for key in statement.equalities} & set(transaction.partition_columns)
    return (
        merge.settings.first_load
        and transaction.table_size[0] == 0
        and any(clause.condition is None for clause in merge.insert_clauses)
        and not by_partition
        and not transaction.generates_identity  # its rows are shuffled to as many tasks as their size asks for
        and merge.gateway.flag("spark.databricks.delta.stats.collect")
    )


def first_rows(merge: StartedMerge) -> DataFrame:
    """What the insert clauses make of the source's rows, in columns of the final schema; see :func:`is_first_load`."""
    return inserted_rows(merge, merge.statement.source_frame())


def write_first_rows(merge: StartedMerge) -> JavaObject:
    """Read the source, once, and write its rows; sets the metrics.

    :return: JVM sequence of file actions.
    """
    statement, transaction = merge.statement, merge.transaction
    # They count as read, so that of two first loads at a time one is in conflict with the other.
    predicates = candidate_predicates(statement, statement.target_only_conjuncts)
    no_files = transaction.filter_files(predicates) if predicates else transaction.all_files()
    set_skipping_metrics(merge, no_files)
    num_bytes = min(merge.gateway.estimated_bytes(statement.source_frame()), _MOST_BYTES)
    with merge.metrics.phase("rewrite", "rewriteTimeMs"):
        added = merge.write.write_files(first_rows(merge), input_bytes=num_bytes)
    files = transaction.file_set(added)
    assert files.num_rows is not None, "see is_first_load"
    set_adding_metrics(merge, files)
    merge.metrics.set(
        numSourceRows=files.num_rows, operationNumSourceRows=files.num_rows, numTargetRowsInserted=files.num_rows
    )
    return added
