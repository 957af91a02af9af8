"""The merge source: read once and kept for the whole merge, with the statistics that prune the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm.join_hints import with_join_hints

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
    from airflow_delta_merge.engine.started_merge import StartedMerge

#: Storage level of the source in the first attempt. Delta uses DISK_ONLY; memory keeps small merges off the disk.
DEFAULT_STORAGE_LEVEL = "MEMORY_AND_DISK"

#: Below this ratio of rows to sample size, reading all rows is as fast as reading a sample.
_MANY_TIMES = 50

#: The join hint that broadcasts a source.
BROADCAST = "broadcast"

_SETTING = "spark.databricks.delta.merge.materializeSource"


@dataclass(frozen=True)
class MaterializedSource:
    """The source's rows, computed exactly once.

    :param frame: the source's columns (with the attributes that resolved expressions refer to) and ``row_id``.
    :param row_id: name of the column that numbers the rows (long, unique, not dense); no user column has this name.
    :param num_rows: number of rows.
    :param num_bytes: their size in memory and on disk.
    :param statistics: aggregates by name, computed in the same pass.
    :param storage_level: Spark's storage level.
    :param is_small: whether it is broadcast rather than shuffled. The query's join hint decides, else its size.
    :param join_strategy: the join strategy of that hint, as Spark names it.
    :param rdd: the JVM object that holds the rows.
    """

    frame: DataFrame
    row_id: str
    num_rows: int
    num_bytes: int
    statistics: dict[str, Any]
    storage_level: str
    is_small: bool
    join_strategy: str | None
    rdd: JavaObject

    def for_join(self) -> DataFrame:
        """The rows, with a broadcast hint if they are few and their query has no hint of its own."""
        return F.broadcast(self.frame) if self.is_small else self.frame

    def some_rows(self, count: int) -> MaterializedSource | None:
        """A sample of about ``count`` rows, spread over the source; None if the source is too small for one.

        The first rows would be a poor sample: neighbours lead to the same files. Sampling reads all rows.
        The statistics and ``num_rows`` stay those of the whole source.
        """
        if self.num_rows < count * _MANY_TIMES:
            return None
        is_chosen = F.col(self.row_id) % F.lit(self.num_rows // count) == 0
        return replace(self, frame=self.frame.filter(is_chosen))

    def release(self) -> None:
        """Free the memory and disk that the rows take."""
        self.rdd.unpersist(False)


def max_attempts(gateway: Gateway) -> int:
    """How many times a merge is attempted when executors lose parts of its materialized source."""
    return int(gateway.conf(f"{_SETTING}.maxAttempts"))


def storage_level(gateway: Gateway, attempt: int) -> str:
    """The source's storage level in an attempt (from 1), from Delta's settings: a safer level for each retry."""
    if attempt == 1:
        return (gateway.conf_if_set(f"{_SETTING}.rddStorageLevel") or DEFAULT_STORAGE_LEVEL).upper()
    retry = "rddStorageLevelFirstRetry" if attempt == 2 else "rddStorageLevelRetry"
    return gateway.conf(f"{_SETTING}.{retry}")


def materialize_source(
    merge: StartedMerge,
    *,
    statistics: Iterable[Column],
    also: Sequence[Column],
    marked: Callable[[DataFrame], DataFrame] | None,
    storage_level: str,
) -> MaterializedSource:
    """Compute the source once and keep it until it is released.

    The lineage is cut, so a lost block fails the attempt instead of recomputing rows that may have changed since.
    For the same reason Delta materializes sources that it cannot trust to be deterministic. This engine materializes
    every source, because the pass also yields the row count and the statistics that prune the target.

    :param statistics: named aggregates over the source's columns.
    :param also: columns to keep beside those that the merge uses.
    :param marked: adds columns to the rows, which ``statistics`` may use.
    :param storage_level: Spark's storage level for the rows.
    """
    gateway, statement, row_id = merge.gateway, merge.statement, merge.names.source_row_id
    rows = statement.source_frame(also)
    rows = rows if marked is None else marked(rows)
    frame = rows.withColumn(row_id, F.monotonically_increasing_id())
    count = F.count(F.lit(1)).alias(row_id)
    kept, values = gateway.checkpoint(frame, storage_level, [count, *statistics])
    rdd = gateway.checkpoint_rdd(kept)
    num_bytes = gateway.stored_bytes(rdd)
    hinted, strategy = with_join_hints(gateway, statement, kept)
    return MaterializedSource(
        frame=hinted,
        row_id=row_id,
        num_rows=int(values.pop(row_id)),
        num_bytes=num_bytes,
        statistics=values,
        storage_level=storage_level,
        is_small=num_bytes <= merge.settings.broadcast_bytes if strategy is None else strategy == BROADCAST,
        join_strategy=strategy,
        rdd=rdd,
    )
