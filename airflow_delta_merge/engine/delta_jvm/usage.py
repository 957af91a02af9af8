"""Records Delta's usage events for each step, as Delta's own MERGE does, for platforms that replace its logging.

Open-source Delta does not write these events. They reach its ``Log4jUsageLogger`` while something tracks it, and
platforms that replace that class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from airflow_delta_merge.engine.delta_jvm.errors import causes_of, throwable_behind
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.engine.progress import only_logged

MergeStep = Literal[
    "materializeSource",
    "findTouchedFiles",
    "writeAllChanges",
    "writeAllUpdatesAndDeletes",
    "writeModifiedRowsOnly",
    "writeDeletionVectors",
    "writeInsertsOnlyWhenNoMatches",
    "writeInsertsOnlyWhenNoMatchedClauses",
]

_MERGE = "delta.dml.merge"
#: Logged, as it must not hide why a merge fails, either.
_NOT_RECORDED = "One of Delta's usage events could not be recorded. The merge continues."

#: Java's message for a full disk.
_FULL_DISK = "java.io.IOException: No space left on device"


@contextmanager
def recorded_operation(gateway: Gateway, statement: ResolvedMerge, step: MergeStep | None = None) -> Iterator[None]:
    """Record Delta's operation for the work inside, when it ends or fails.

    :param step: a step of the merge; None for the merge as a whole.
    """
    try:
        yield
    finally:
        record_operation(gateway, statement, step)


def record_operation(gateway: Gateway, statement: ResolvedMerge, step: MergeStep | None = None) -> None:
    """Record Delta's operation for finished work. The event has no duration; open-source Delta's have none either."""
    command = statement.command
    with only_logged(_NOT_RECORDED):
        command.recordDeltaOperation(
            command.targetFileIndex().deltaLog(),
            _MERGE if step is None else f"{_MERGE}.{step}",
            getattr(command, "recordDeltaOperation$default$3")(),
            _nothing(gateway),
        )


def record_source_error(
    gateway: Gateway, statement: ResolvedMerge, error: BaseException, *, is_lost: bool, attempt: int, storage_level: str
) -> None:
    """Record a failure to keep the source: parts of it were lost in each attempt, or a disk was full.

    :param error: why the attempt failed; any other error is not recorded.
    :param is_lost: whether the error says that parts of the source were lost.
    :param attempt: the attempt's number, from 1.
    :param storage_level: the source's storage level, as Spark names it.
    """
    command, merge = statement.command, "org.apache.spark.sql.delta.commands.merge"
    with only_logged(_NOT_RECORDED):
        if not is_lost and not _is_disk_full(gateway, error):
            return
        kinds = gateway.module(f"{merge}.MergeIntoMaterializeSourceErrorType")
        kind = kinds.RDD_BLOCK_LOST() if is_lost else kinds.OUT_OF_DISK()
        level = gateway.java_class("org.apache.spark.storage.StorageLevel").fromString(storage_level)
        command.recordDeltaEvent(
            command.targetFileIndex().deltaLog(),
            gateway.module(f"{merge}.MergeIntoMaterializeSourceError").OP_TYPE(),
            getattr(command, "recordDeltaEvent$default$3")(),
            gateway.java_class(f"{merge}.MergeIntoMaterializeSourceError")(kind.toString(), attempt, level.toString()),
            gateway.none,
        )


def _is_disk_full(gateway: Gateway, error: BaseException) -> bool:
    """Whether Spark reports a full disk, by the same test as Delta's."""
    of_spark = gateway.java_class("org.apache.spark.SparkException")._java_lang_class
    causes = causes_of(throwable_behind(error))
    return any(_FULL_DISK in str(cause.getMessage()) and of_spark.isInstance(cause) for cause in causes)


def _nothing(gateway: Gateway) -> JavaObject:
    """A Scala function that does nothing: Delta's API records an operation around a function."""
    object_class = gateway.java_class("java.lang.Object")._java_lang_class
    function_class = gateway.java_class("scala.Function0")._java_lang_class
    null = gateway.java_class("java.lang.invoke.MethodHandles").constant(object_class, None)
    return gateway.java_class("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(function_class, null)
