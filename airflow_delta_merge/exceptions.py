"""The errors that users meet, one class for each kind of failure, with when it comes and what to do.

Inside Airflow a task fails with one of three classes that Airflow knows: :class:`DeltaMergeException`, after which its
retries apply, :class:`DeltaMergeFailException`, after which they don't, and :class:`EmptySourceException`. They can be
imported from here, too, but Airflow is only imported when they are: this module travels to Spark, which has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from airflow_delta_merge.launch.errors import (
        DeltaMergeException as DeltaMergeException,
    )
    from airflow_delta_merge.launch.errors import (
        DeltaMergeFailException as DeltaMergeFailException,
    )
    from airflow_delta_merge.launch.errors import (
        EmptySourceException as EmptySourceException,
    )

_OF_AIRFLOW = ("DeltaMergeException", "DeltaMergeFailException", "EmptySourceException")


def __getattr__(name: str) -> Any:
    if name in _OF_AIRFLOW:
        from airflow_delta_merge.launch import errors

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DeltaMergeError(Exception):
    """Base of all errors this package raises on purpose.

    :cvar another_try_helps: whether the same merge may succeed when it is tried again without a change.
    """

    another_try_helps: ClassVar[bool] = True


# A merge and its run.


class MergeConfigError(DeltaMergeError, ValueError):
    """A merge is described wrongly. Raised while the config is built, so usually when the DAG is parsed.

    Correct the argument that the message names.
    """

    another_try_helps = False


class MergeExecutionError(DeltaMergeError):
    """The merge engine refused or failed; nothing was committed.

    Look up the condition, if there is one, in ``docs/errors.md``; else the message says what to do.

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
    """A later execution of the same task has merged already, so this one is outdated; nothing was changed.

    Clear the task if the older data shall be merged all the same.
    """

    another_try_helps = False


class MergeConflictError(MergeExecutionError):
    """Other writers' commits conflicted with this merge in each allowed attempt; nothing was committed.

    Try again later, raise ``max_commit_attempts``, or put the partition column into ``on``.
    """


class MergeGuardError(MergeExecutionError):
    """The merge would have exceeded a bound of ``fail_if``; nothing was committed.

    Look at the source; if it is right, raise the bound for this run.
    """

    another_try_helps = False


class EmptySourceError(MergeGuardError):
    """The source has no rows, and ``on_empty_source`` doesn't allow that; nothing was committed."""


class SourceExpectationError(MergeGuardError):
    """The source's columns or rows break ``expect_source``; nothing was committed.

    The job's log shows some of the rows.
    """


class BadRowsError(MergeGuardError):
    """The source's files have rows that can't be read, more than its options allow; nothing was committed.

    Mend the files, or set ``bad_rows`` and ``max_bad_rows`` of the source.
    """


class NullKeysError(MergeGuardError):
    """Source rows have a NULL key, by which no later merge could find them; nothing was committed.

    Filter them out, or set ``null_keys="allow"``.
    """


class MergeResultError(DeltaMergeError, ValueError):
    """A result from a file, XCom or the table's log can't be read: it is torn, or of another release."""


# Before and around a merge, on the side of Airflow.


class SparkConnectionError(DeltaMergeError):
    """The Spark connection is missing, can't be used for a merge, or its master doesn't answer."""


class ConnectionPolicyError(DeltaMergeError):
    """A merge would do what its Spark connection doesn't allow, or what it allows can't be read."""


class StoreAccessError(DeltaMergeError):
    """A connection to an object store is missing, or its fields ask for something that isn't supported."""


class JdbcConnectionError(DeltaMergeError):
    """The connection of a JDBC source is missing, or lacks something that Spark needs."""


class JavaError(DeltaMergeError):
    """Java is missing, doesn't start, or has a version that Spark and Delta don't run on."""


class DeltaJarsError(DeltaMergeError):
    """Jars of Delta or of a store's driver are not on this machine and could not be fetched."""


class ClassArchiveError(DeltaMergeError):
    """The archive of Java classes could not be made; merges work without it."""


class KeeperError(DeltaMergeError):
    """The process that keeps a deferred task's Spark application could not be started."""


class ResourceManagerError(DeltaMergeError):
    """YARN's ResourceManager doesn't answer, or refuses."""


class TableLogError(DeltaMergeError):
    """A table's log can't be read now; another look may succeed."""


class UnreadableTableError(TableLogError):
    """A table's log can't be read, and another look won't help: ``deltalake`` is missing or lacks a feature."""

    another_try_helps = False


# On the command line.


class StoreConnectionError(DeltaMergeError):
    """The connection that was named doesn't exist, or is none to an object store."""


class StorageOptionsError(DeltaMergeError):
    """The file with storage options can't be read."""


class ConfigFileError(DeltaMergeError):
    """The file with the merge's config can't be read."""


class OutputError(DeltaMergeError):
    """The file for the page can't be written."""
