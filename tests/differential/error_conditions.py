"""Which error condition an exception of either engine tells, and whether both tell the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.outcome import Outcome

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

# Error conditions that only wrap the one that tells what happened.
_WRAPPERS = ("TASK_WRITE_FAILED", "DELTA_TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF")


class RecordedError(Exception):
    """Stands for an error of the built-in that was recorded.

    :param condition: its error condition.
    """

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


def error_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    if not builtin.failed:
        yield f"ours fails, the built-in doesn't: {short(ours.error)}"
    elif not ours.failed:
        yield f"the built-in fails with {error_condition(builtin.error)}, ours doesn't: {short(builtin.error)}"
    else:
        conditions = error_condition(builtin.error), error_condition(ours.error)
        if conditions[0] != conditions[1]:
            messages = f"\n      {short(builtin.error)}\n      {short(ours.error)}"
            yield f"error condition: built-in {conditions[0]}, ours {conditions[1]}{messages}"
    for who, outcome in (("built-in", builtin), ("ours", ours)):
        if outcome.failed and outcome.committed:
            yield f"{who} failed and yet committed version {outcome.after.version}"


def error_condition(error: BaseException | None) -> str | None:
    """The error condition that tells what happened, e.g. ``DIVIDE_BY_ZERO``; the exception's class if there is none."""
    if isinstance(error, RecordedError):
        return error.condition
    error = _meant(error)
    if isinstance(error, MergeExecutionError):
        # Some of Delta's exceptions have no condition: there it must be the same exception at least.
        return error.condition or error_condition(error.__cause__)
    conditions = list(_conditions(error))
    meant = [condition for condition in conditions if condition not in _WRAPPERS]
    if meant:
        return meant[0]
    return conditions[0] if conditions else _root_class(error)


def _meant(error: Any) -> Any:
    """PySpark stumbles over conditions that only Delta's jars know while it builds the error that it should raise."""
    while error.__context__ is not None and "SparkThrowableHelper.getMessage" in str(error):
        error = error.__context__
    return error


def is_ambiguous(error: BaseException | None) -> bool:
    """Whether several source rows match one target row."""
    return error is not None and error_condition(error) == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


def trips_over_null_keys(error: BaseException | None) -> bool:
    """Whether it is a fault of Delta 4.4's own: where it writes deletion vectors, it takes unmatched rows for matched
    ones if ON is true of them and NULLs (their null-safe keys are NULL), and then finds no clause for them.

    The text is also in what Spark says of an expression of that plan that it refuses, with another condition."""
    return error is not None and "Unexpected row: did not match any merge clause" in str(_meant(error))


def short(error: Exception | None) -> str:
    return f"{type(error).__name__}: {str(_meant(error))[:300]}"


def _conditions(error: BaseException | None) -> Iterator[str]:
    from pyspark.errors import PySparkException

    from airflow_delta_merge.engine.delta_jvm.versions import condition_of

    if isinstance(error, PySparkException) and (condition := condition_of(error)):
        yield condition
    for java_error in _java_chain(error):
        condition = None
        for name in ("getCondition", "getErrorClass"):  # Spark 3.5 has only the second; not every Throwable has one
            with suppress(Exception):
                condition = condition or getattr(java_error, name)()
        if condition:
            yield condition


def _java_chain(error: BaseException | None) -> Iterator[JavaObject]:
    java_error = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(20):
        if java_error is None:
            return
        yield java_error
        java_error = java_error.getCause()


def _root_class(error: BaseException | None) -> str:
    chain = list(_java_chain(error))
    return str(chain[-1].getClass().getName()) if chain else type(error).__name__
