"""JVM errors as this package's own, with Delta's or Spark's condition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from airflow_delta_merge.engine.delta_jvm.versions import condition_of
from airflow_delta_merge.exceptions import DeltaMergeError, MergeExecutionError

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: The JVM's exceptions behind errors of this package.
_throwables: WeakKeyDictionary[MergeExecutionError, Any] = WeakKeyDictionary()


def raises_merge_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let Spark's and Delta's errors leave ``function`` as :class:`MergeExecutionError` with their condition."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (Py4JJavaError, PySparkException) as error:
            raise merge_error(error) from error

    return wrapped


#: The last step.
COMMIT = "commit"


@dataclass
class Progress:
    """How far a merge has come, for its errors.

    :param table: the target's name or path.
    :param step: what is being done, as a verb with its object.
    """

    table: str = "the target"
    step: str = "reach Spark"

    @property
    def outcome(self) -> str:
        """What is known of the commit, in a sentence."""
        if self.step == COMMIT:
            return "Check the table's history to see whether it committed."
        return "Nothing was committed."


@contextmanager
def without_bare_errors(progress: Progress) -> Iterator[None]:
    """Let no error leave that tells nothing of the merge; those of Spark, Delta and this package pass as they are.

    :raises MergeExecutionError: in place of any other error, which is its cause.
    """
    try:
        yield
    except (DeltaMergeError, Py4JJavaError, PySparkException):
        raise
    except Exception as error:
        _log.exception("The merge into %s ended with an error that nobody expected.", progress.table)
        raise MergeExecutionError(
            f"The merge into {progress.table} met an unexpected error at the step {progress.step!r}, "
            f"{type(error).__name__}: {error} {progress.outcome} Please report it with the stack trace in the log. "
            'Until then, try the session setting spark.deltaMerge.pruneBySource.enabled=false, or engine="builtin".'
        ) from error


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
    error = MergeExecutionError(message, condition=condition, sql_state=sql_state)
    _throwables[error] = throwable
    return error


def throwable_behind(error: BaseException) -> Any | None:
    """The JVM exception that an error comes from; None if it comes from no such exception."""
    cause: BaseException | None = error
    while cause is not None:
        # Python's own exceptions can't be keys of weak references.
        origin = _throwables.get(cause) if isinstance(cause, MergeExecutionError) else None
        if origin is None:
            origin = java_origin(cause)
        if origin is not None:
            return origin
        cause = cause.__cause__
    return None


def _call(throwable: Any, method: str) -> str | None:
    try:
        value = getattr(throwable, method)()
    except Py4JError:  # this throwable has no such method
        return None
    return None if value is None else str(value)
