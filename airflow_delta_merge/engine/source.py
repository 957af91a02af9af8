"""The merge source: read once, kept for the whole merge, with the statistics that prune the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import JoinHints

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import Gateway, JavaObject, ResolvedMerge

#: Where the first attempt keeps the source. Delta's default is DISK_ONLY; memory spares small merges the disk.
DEFAULT_STORAGE_LEVEL = "MEMORY_AND_DISK"

#: What has less than so many times as many rows is looked at as quickly as a part of it.
_MANY_TIMES = 50

#: The hint by which a source is broadcast.
BROADCAST = "broadcast"

_SETTING = "spark.databricks.delta.merge.materializeSource"


@dataclass(frozen=True)
class MaterializedSource:
    """The source's rows, computed exactly once.

    :param frame: the source's columns (with the attributes that resolved expressions refer to) and ``row_id``.
    :param row_id: name of the column that numbers the rows (long, unique, not dense); no user column has it.
    :param num_rows: how many rows.
    :param num_bytes: memory and disk they take.
    :param statistics: aggregates by name, computed in the same pass.
    :param storage_level: where they are kept, as Spark names it.
    :param is_small: whether it is broadcast rather than shuffled: as its query's join hint says, else by its size.
    :param join_strategy: how that hint wants it joined, as Spark names it.
    :param rdd: the JVM object that holds them.
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
        """The rows, hinted for a broadcast if they are few, unless their query had a hint of its own."""
        return F.broadcast(self.frame) if self.is_small else self.frame

    def some_rows(self, count: int) -> MaterializedSource | None:
        """About so many of the rows, from all over, with the statistics of all; None if all are not many times as many.

        Neighbours lead to the same files, so that the first rows would tell little of the others. To find these, all
        rows are looked at, and their number stays that of all.
        """
        if self.num_rows < count * _MANY_TIMES:
            return None
        is_chosen = F.col(self.row_id) % F.lit(self.num_rows // count) == 0
        return replace(self, frame=self.frame.filter(is_chosen))

    def release(self) -> None:
        """Give back the memory and disk that the rows take."""
        self.rdd.unpersist(False)


def max_attempts(gateway: Gateway) -> int:
    """How often a merge is tried when executors lose parts of its materialized source."""
    return int(gateway.conf(f"{_SETTING}.maxAttempts"))


def storage_level(gateway: Gateway, attempt: int) -> str:
    """Where to keep the source in an attempt, counted from 1, by Delta's settings: a safer place at each retry."""
    if attempt == 1:
        return (gateway.conf_if_set(f"{_SETTING}.rddStorageLevel") or DEFAULT_STORAGE_LEVEL).upper()
    retry = "rddStorageLevelFirstRetry" if attempt == 2 else "rddStorageLevelRetry"
    return gateway.conf(f"{_SETTING}.{retry}")


def materialize_source(
    gateway: Gateway,
    statement: ResolvedMerge,
    *,
    row_id: str,
    statistics: Iterable[Column],
    also: Sequence[Column] = (),
    marked: Callable[[DataFrame], DataFrame] | None = None,
    storage_level: str,
    broadcast_bytes: int,
) -> MaterializedSource:
    """Compute the source once and keep it until it is released.

    The lineage is cut, so a lost block fails the attempt instead of recomputing rows that may have changed since;
    Delta materializes sources it cannot trust to be the same twice for that reason. Here it is every source, since
    the pass also yields the row count and the statistics that prune the target.

    :param row_id: name of the numbering column to add.
    :param statistics: named aggregates over the source's columns.
    :param also: what is looked at beside what the merge uses.
    :param marked: adds columns to the rows, of which ``statistics`` may tell, too.
    :param storage_level: where to keep the rows, as Spark names it.
    :param broadcast_bytes: up to which size the source counts as small.
    """
    rows = statement.source_frame(also)
    rows = rows if marked is None else marked(rows)
    frame = rows.withColumn(row_id, F.monotonically_increasing_id())
    count = F.count(F.lit(1)).alias(row_id)
    kept, values = gateway.checkpoint(frame, storage_level, [count, *statistics])
    rdd = gateway.checkpoint_rdd(kept)
    num_bytes = gateway.stored_bytes(rdd)
    hints = JoinHints.of_source(gateway, statement)
    return MaterializedSource(
        frame=hints.added_to(gateway, kept),
        row_id=row_id,
        num_rows=int(values.pop(row_id)),
        num_bytes=num_bytes,
        statistics=values,
        storage_level=storage_level,
        is_small=num_bytes <= broadcast_bytes if hints.strategy is None else hints.strategy == BROADCAST,
        join_strategy=hints.strategy,
        rdd=rdd,
    )
