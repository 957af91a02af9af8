"""Guards: limits for what a merge would change, checked once that is known and before the commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from airflow_delta_merge.config import GUARDED_COUNTS, MergeGuards
from airflow_delta_merge.engine.delta_jvm.errors import first_line
from airflow_delta_merge.engine.delta_jvm.parsing import require_expression
from airflow_delta_merge.engine.settings import PRUNE_BY_SOURCE
from airflow_delta_merge.exceptions import EmptySourceError, MergeConfigError, MergeGuardError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.started_merge import StartedMerge

_CHANGED = ("updated", "deleted", "inserted")


def require_guards(gateway: Gateway, guards: MergeGuards) -> None:
    """Check that each condition is a boolean expression over the counts.

    :raises MergeConfigError: when one is not, or a condition of ``expect_source`` is no expression.
    """
    for each in guards.expect_source.conditions if guards.expect_source else ():
        require_expression(gateway, each.condition, f"condition of {each.name} in expect_source")
    for condition in guards.fail_if:
        require_expression(gateway, condition, f"guard {condition!r} in fail_if")
        try:
            kind = _one_row(gateway, dict.fromkeys(GUARDED_COUNTS, 1)).select(F.expr(condition)).schema[0].dataType
        except PySparkException as error:
            raise MergeConfigError(
                f"The guard {condition!r} in fail_if is not a valid condition. Use the counts "
                f"{', '.join(GUARDED_COUNTS)}. Spark says: {first_line(error)}"
            ) from error
        if kind.simpleString() != "boolean":
            raise MergeConfigError(
                f"The guard {condition!r} in fail_if must be a boolean, but its type is {kind.simpleString()}. Compare "
                "one of the counts with a number."
            )


def check_source(guards: MergeGuards, num_rows: int) -> None:
    """Check the number of source rows, once the source was read.

    :raises EmptySourceError: when it has none and must have some.
    """
    if num_rows == 0 and guards.on_empty_source != "merge":
        raise EmptySourceError(
            f'The source has no rows, so nothing was merged (on_empty_source="{guards.on_empty_source}").'
        )


def check_guards(merge: StartedMerge, num_inserted: Callable[[], int], touched: FileSet | None = None) -> None:
    """Look at what the merge would do; inserted rows and the target's are counted only if a guard mentions them.

    :param merge: has updated and deleted rows in its metrics.
    :param num_inserted: counts the rows that would be inserted.
    :param touched: the touched files; None if there can be none.
    :raises MergeGuardError: with the numbers, when a guard's condition is true.
    """
    fail_if, values = merge.options.guards.fail_if, merge.metrics.values
    if not fail_if:
        return
    mentioned = {name for name in GUARDED_COUNTS if any(re.search(rf"(?i)\b{name}\b", guard) for guard in fail_if)}
    counts: dict[str, float | None] = {
        "num_source_rows": values["numSourceRows"],
        "num_target_rows": 0,
        "num_updated_rows": values["numTargetRowsUpdated"],
        "num_deleted_rows": values["numTargetRowsDeleted"],
        "num_inserted_rows": 0,
        "num_touched_files": 0 if touched is None else touched.count,
        "num_touched_bytes": 0 if touched is None else touched.num_bytes,
    }
    if any("inserted" in name or "affected" in name for name in mentioned):
        counts["num_inserted_rows"] = num_inserted()
    counts["num_affected_rows"] = sum(counts[f"num_{what}_rows"] or 0 for what in _CHANGED)
    fractions = any(name.endswith("_fraction") for name in mentioned)
    rows = merge.transaction.files.num_rows() if fractions or "num_target_rows" in mentioned else 0
    counts["num_target_rows"] = rows
    for what in (*_CHANGED, "affected"):
        counts[f"{what}_fraction"] = (counts[f"num_{what}_rows"] or 0) / rows if rows else None
    tripped = [guard for guard in fail_if if _is_true(merge.gateway, guard, counts)]
    if tripped:
        numbers = ", ".join(f"{name} is {_number_text(counts[name])}" for name in GUARDED_COUNTS if name in mentioned)
        raise MergeGuardError(
            f"The merge was stopped before the commit by its guard {' and '.join(tripped)}: {numbers}. If they are "
            f"right, raise the limit in fail_if and clear the task.{_left_out(values)}"
        )


def _left_out(values: Mapping[str, int]) -> str:
    """A hint at the files that were not searched, whose rows would be inserted anew if that was wrong."""
    searched, files = values["numTargetFilesAfterSkipping"], values["numTargetFilesBeforeSkipping"]
    if searched == files:
        return ""
    return (
        f" Statistics excluded {files - searched} of {files} files from the search. If the counts look wrong, set the "
        f"table property {PRUNE_BY_SOURCE}=false and compare."
    )


def _is_true(gateway: Gateway, condition: str, counts: dict[str, float | None]) -> bool:
    try:
        return bool(_one_row(gateway, counts).select(F.expr(condition)).collect()[0][0])
    except PySparkException as error:
        raise MergeGuardError(
            f"The guard {condition!r} in fail_if could not be evaluated, so nothing was merged: {first_line(error)}"
        ) from error


def _one_row(gateway: Gateway, counts: dict[str, float | None]) -> DataFrame:
    values = [
        F.lit(value).cast("double" if name.endswith("_fraction") else "bigint").alias(name)
        for name, value in counts.items()
    ]
    return gateway.spark.sql("SELECT 1").select(*values)


def _number_text(value: float | None) -> str:
    if value is None:
        return "unknown (the target is empty)"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
