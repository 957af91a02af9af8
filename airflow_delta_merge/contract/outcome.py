"""The outcome of one Spark application: the JSON file that the job writes, the only way back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from airflow_delta_merge.contract.lineage import ColumnLineage
from airflow_delta_merge.contract.merge_plan import MergePlan
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeResultError

#: Maximum size of a result file in bytes. A hundred merges with their lineage have a few hundred kB.
MAX_BYTES = 64 << 20

_NEITHER = "The job's result file holds neither a result nor an error."

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class JobError:
    """Why a merge, or the whole job, failed.

    :param type: the name of the exception's class.
    :param message: what happened, in sentences.
    :param condition: Delta's or Spark's error condition, if there is one.
    :param sql_state: its SQLSTATE, if there is one.
    :param another_try_helps: whether the same merge may succeed next time, according to its class.
    """

    type: str
    message: str
    condition: str | None = None
    sql_state: str | None = None
    another_try_helps: bool = True

    @classmethod
    def of(cls, error: BaseException) -> JobError:
        """Describe an exception: this package's, pyspark's, py4j's or any other."""
        condition, sql_state = getattr(error, "condition", None), getattr(error, "sql_state", None)
        if callable(getattr(error, "getErrorClass", None)):  # pyspark's own exceptions
            # Spark 3.5 calls the condition an error class.
            condition = _quietly(error, "getCondition") or _quietly(error, "getErrorClass")
            sql_state = _quietly(error, "getSqlState")
        message = str(error)
        java = getattr(error, "java_exception", None)  # py4j's str(error) would be the whole Java stack trace
        if java is not None:
            message = _quietly(java, "toString") or message
        return cls(
            type=type(error).__name__,
            message=message or type(error).__name__,
            condition=condition,
            sql_state=sql_state,
            another_try_helps=getattr(error, "another_try_helps", not isinstance(error, NotImplementedError)),
        )

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobError:
        """Restore it from :meth:`to_dict`.

        :raises MergeResultError: when the data is something else.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise MergeResultError(_NEITHER) from error


@dataclass(frozen=True, kw_only=True)
class MergeOutcome:
    """The outcome of one merge: one of ``result``, ``plan``, ``error`` and ``skipped`` is set.

    :param target: the target's name in the merge's statement.
    :param result: the merge's result.
    :param lineage: the column lineage, if requested.
    :param plan: the result of a dry run.
    :param error: why it failed.
    :param skipped: why it was skipped, in a sentence.
    """

    target: str
    result: MergeResult | None = None
    lineage: ColumnLineage | None = None
    plan: MergePlan | None = None
    error: JobError | None = None
    skipped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types without unset fields; :meth:`from_dict` reads it back."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: part for name, part in parts.items() if part is not None}
        return {name: part if isinstance(part, str) else part.to_dict() for name, part in given.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergeOutcome:
        """Restore it from :meth:`to_dict`.

        :raises MergeResultError: when it has no outcome of a merge.
        """
        result, plan, error = data.get("result"), data.get("plan"), data.get("error")
        if all(part is None for part in (result, plan, error, data.get("skipped"))):
            raise MergeResultError(_NEITHER)
        return cls(
            target=str(data.get("target")),
            result=None if result is None else MergeResult.from_dict(result),
            lineage=_lineage(data.get("lineage")),
            plan=None if plan is None else MergePlan.from_dict(plan),
            error=None if error is None else JobError.from_dict(error),
            skipped=data.get("skipped"),
        )


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """The outcome of a job.

    :param merges: its merges, in the request's order.
    :param error: why no merge was started, or why the only one failed.
    """

    merges: tuple[MergeOutcome, ...] = ()
    error: JobError | None = None

    @property
    def errors(self) -> list[JobError]:
        """All errors."""
        found = [self.error, *(merge.error for merge in self.merges)]
        return [error for error in found if error is not None]

    def with_messages(self, change: Callable[[str], str]) -> JobOutcome:
        """A copy with changed error messages, e.g. with masked secrets."""

        def changed(error: JobError | None) -> JobError | None:
            return error and replace(error, message=change(error.message))

        merges = tuple(replace(merge, error=changed(merge.error)) for merge in self.merges)
        return replace(self, merges=merges, error=changed(self.error))

    def without_lineage(self) -> JobOutcome:
        """A copy without column lineage."""
        return replace(self, merges=tuple(replace(merge, lineage=None) for merge in self.merges))

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_dict` reads it back."""
        return {"merges": [merge.to_dict() for merge in self.merges], "error": self.error and self.error.to_dict()}

    @classmethod
    def from_dict(cls, data: Any) -> JobOutcome:
        """Restore it from :meth:`to_dict`.

        :raises MergeResultError: when the data is something else.
        """
        try:
            merges, error = data["merges"], data["error"]
            outcome = cls(
                merges=tuple(map(MergeOutcome.from_dict, _objects(merges))),
                error=None if error is None else JobError.from_dict(error),
            )
        except (KeyError, TypeError) as wrong:
            raise MergeResultError(_NEITHER) from wrong
        if not outcome.merges and outcome.error is None:
            raise MergeResultError(_NEITHER)
        return outcome


def _objects(merges: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(merges, list) or not all(isinstance(merge, Mapping) for merge in merges):
        raise TypeError("no list of objects")
    return merges


def _lineage(data: Any) -> ColumnLineage | None:
    try:
        return None if data is None else ColumnLineage.from_dict(data)
    except MergeResultError as error:  # the merge is done: failing now would run it twice
        log.warning("The lineage of the target's columns can't be read: %s", error)
        return None


def _quietly(obj: Any, method: str) -> str | None:
    """Call a method that may itself fail, e.g. because the JVM is gone."""
    try:
        value = getattr(obj, method)()
    except Exception:
        return None
    return None if value is None else str(value)
