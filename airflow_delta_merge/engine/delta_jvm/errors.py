"""JVM errors as this package's own, with Delta's or Spark's condition."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from airflow_delta_merge.engine.delta_jvm.versions import condition_of
from airflow_delta_merge.exceptions import MergeExecutionError

_P = ParamSpec("_P")
_T = TypeVar("_T")


def raises_merge_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let Spark's and Delta's errors leave ``function`` as :class:`MergeExecutionError` with their condition."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (Py4JJavaError, PySparkException) as error:
            raise merge_error(error) from error

    return wrapped


def first_line(error: PySparkException) -> str:
    """What an error of Spark's says, without the query and the stack beneath it."""
    return str(error).strip().splitlines()[0]


def merge_error(error: BaseException) -> MergeExecutionError:
    """An exception of py4j or PySpark as this package's own, to be raised by the caller."""
    origin = java_origin(error)
    if origin is None:
        assert isinstance(error, PySparkException)
        return MergeExecutionError(str(error), condition=condition_of(error), sql_state=error.getSqlState())
    return from_throwable(origin)


def java_origin(error: BaseException) -> Any | None:
    """The JVM exception behind one of py4j or PySpark, as far as it is known."""
    while isinstance(error.__context__, Py4JJavaError):
        # PySpark looks Delta's conditions up in Spark's list, fails, and raises that failure: the cause is before it.
        error = error.__context__
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def from_throwable(throwable: Any) -> MergeExecutionError:
    """A JVM exception as :class:`MergeExecutionError`, to be raised by the caller."""
    causes = [throwable]
    while (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    conditions = [(_call(cause, "getCondition") or _call(cause, "getErrorClass"), cause) for cause in causes]
    told = [(condition, cause) for condition, cause in conditions if condition is not None]
    # A task's failure to write says nothing by itself: the condition is that of its cause.
    telling = [each for each in told if each[0] != "TASK_WRITE_FAILED"] or told
    condition = telling[0][0] if telling else None
    sql_state = _call(telling[0][1], "getSqlState") if telling else None
    messages = [str(cause.getMessage() or cause.getClass().getName()) for cause in causes]
    message = messages[0] if messages[-1] in messages[0] else f"{messages[0]} Caused by: {messages[-1]}"
    return MergeExecutionError(message, condition=condition, sql_state=sql_state)


def _call(throwable: Any, method: str) -> str | None:
    try:
        value = getattr(throwable, method)()
    except Py4JError:  # this throwable has no such method
        return None
    return None if value is None else str(value)
