"""The errors users meet, one class for each kind of failure; every message says what to do next."""

from __future__ import annotations


class DeltaMergeError(Exception):
    """Base of all errors this package raises on purpose."""


class MergeConfigError(DeltaMergeError, ValueError):
    """A merge was described wrongly. Raised while the config is built, hence while a DAG is parsed."""


class MergeExecutionError(DeltaMergeError):
    """The merge engine refused or failed; nothing was committed.

    :param message: what happened, in a sentence.
    :param condition: Delta's or Spark's error condition, e.g.
        ``DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE``; None when the failure has none.
    :param sql_state: the five characters of the SQLSTATE, when there are any.
    """

    def __init__(self, message: str, *, condition: str | None = None, sql_state: str | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.sql_state = sql_state


class StaleMergeError(MergeExecutionError):
    """A later execution of the same task has merged already, so this one is outdated; nothing was changed."""


class MergeConflictError(MergeExecutionError):
    """Other writers' commits conflicted with this merge's, in each attempt it was allowed; nothing was committed."""


class MergeGuardError(MergeExecutionError):
    """The merge would have overstepped a bound that its caller set; nothing was committed."""


class EmptySourceError(MergeGuardError):
    """The source has no rows, where its caller wants no merge of none; nothing was committed."""


class SourceExpectationError(MergeGuardError):
    """The source's columns or rows aren't what the merge's caller expects of them; nothing was committed."""


class BadRowsError(MergeGuardError):
    """The source's files have rows that can't be read, more than its caller allows; nothing was committed."""


class NullKeysError(MergeGuardError):
    """Source rows have a NULL key, by which they could never be found again; nothing was committed."""


class MergeResultError(DeltaMergeError, ValueError):
    """A result read back from a file, XCom or the Delta log is not one this version understands."""
