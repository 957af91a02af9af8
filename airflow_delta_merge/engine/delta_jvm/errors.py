"""Converts JVM errors to this package's own, with Delta's or Spark's condition."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from airflow_delta_merge.engine.delta_jvm.versions import condition_of
from airflow_delta_merge.engine.progress import Progress
from airflow_delta_merge.exceptions import DeltaMergeError, MergeExecutionError

_log = logging.getLogger(__name__)

#: The exceptions by which the JVM's errors reach Python.
SPARK_ERRORS = (Py4JJavaError, PySparkException)
#: Conditions that only say where an error happened; its cause says which.
_WRAPPERS = ("TASK_WRITE_FAILED", "DELTA_TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF")


@contextmanager
def raises_merge_errors() -> Iterator[None]:
    """Turn Spark's and Delta's errors inside into :class:`MergeExecutionError` with their condition."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise merge_error(error) from error


@contextmanager
def without_bare_errors() -> Iterator[Progress]:
    """Turn Spark's and Delta's errors into this package's, and wrap unexpected ones in one that tells the progress.

    :raises MergeExecutionError: for any error that isn't this package's own, which becomes its cause.
    """
    progress = Progress()
    try:
        yield progress
    except DeltaMergeError:
        raise
    except SPARK_ERRORS as error:
        raise merge_error(error) from error
    except Exception as error:
        _log.exception("The merge into %s failed with an unexpected error.", progress.table)
        raise MergeExecutionError(
            f"The merge into {progress.table} failed with an unexpected error at the step {progress.step!r}, "
            f"{type(error).__name__}: {error} {progress.outcome} Please report it with the stack trace in the log. "
            'Until then, try the session setting spark.deltaMerge.pruneBySource.enabled=false, or engine="builtin".'
        ) from error


def first_line(error: PySparkException) -> str:
    """The first line of a Spark error, without the query and the stack trace."""
    return str(error).strip().splitlines()[0]


def merge_error(error: BaseException) -> MergeExecutionError:
    """Convert an exception of py4j or PySpark to this package's own, for the caller to raise; its own stay."""
    if isinstance(error, MergeExecutionError):
        return error
    origin = java_origin(error)
    if origin is None:
        assert isinstance(error, PySparkException)
        return MergeExecutionError(str(error), condition=condition_of(error), sql_state=error.getSqlState())
    return from_throwable(origin)


def java_origin(error: BaseException) -> Any | None:
    """The JVM exception behind an exception of py4j or PySpark, or behind one of :func:`from_throwable`, if known."""
    while isinstance(error.__context__, Py4JJavaError):
        # PySpark looks up Delta's condition in Spark's list, fails, and raises that failure. The cause is its context.
        error = error.__context__
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def java_classes(error: BaseException) -> list[str]:
    """The names of the class and superclasses of an error's Java exception."""
    names, origin = [], java_origin(error)
    java_class = None if origin is None else origin.getClass()
    while java_class is not None:
        names.append(str(java_class.getSimpleName()))
        java_class = java_class.getSuperclass()
    return names


def from_throwable(throwable: Any) -> MergeExecutionError:
    """Convert a JVM exception to :class:`MergeExecutionError`, for the caller to raise."""
    causes = causes_of(throwable)
    conditions = [(call(cause, "getCondition") or call(cause, "getErrorClass"), cause) for cause in causes]
    known = [(condition, cause) for condition, cause in conditions if condition is not None]
    decisive = [each for each in known if each[0] not in _WRAPPERS] or known
    condition = decisive[0][0] if decisive else None
    sql_state = call(decisive[0][1], "getSqlState") if decisive else None
    messages = [str(cause.getMessage() or cause.getClass().getName()) for cause in causes]
    message = messages[0] if messages[-1] in messages[0] else f"{messages[0]} Caused by: {messages[-1]}"
    error = MergeExecutionError(message, condition=condition, sql_state=sql_state)
    error._origin = throwable  # type: ignore[attr-defined]  # as PySpark's own errors have it
    return error


def throwable_behind(error: BaseException) -> Any | None:
    """The JVM exception that caused an error; None if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        if (origin := java_origin(cause)) is not None:
            return origin
        cause = cause.__cause__
    return None


def causes_of(throwable: Any | None) -> list[Any]:
    """A JVM exception and its causes, outermost first."""
    causes = []
    while throwable is not None:
        causes.append(throwable)
        throwable = throwable.getCause()
    return causes


def call(throwable: Any, method: str) -> Any:
    """What a method of a JVM exception returns; None if it has no such method."""
    try:
        return getattr(throwable, method)()
    except Py4JError:
        return None
