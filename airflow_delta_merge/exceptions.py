"""The errors that users see: one class for each kind of failure, with its cause and what to do.

In Airflow, a task fails with one of three Airflow exceptions: :class:`DeltaMergeException`, which is retried,
:class:`DeltaMergeFailException`, which is not, and :class:`EmptySourceException`. They can be imported from here, too.
Airflow is imported only then, because this module is shipped to Spark, which has no Airflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from airflow_delta_merge.task_exceptions import DeltaMergeException as DeltaMergeException
    from airflow_delta_merge.task_exceptions import DeltaMergeFailException as DeltaMergeFailException
    from airflow_delta_merge.task_exceptions import EmptySourceException as EmptySourceException

_OF_TASKS = ("DeltaMergeException", "DeltaMergeFailException", "EmptySourceException")


def __getattr__(name: str) -> Any:
    if name in _OF_TASKS:
        from airflow_delta_merge import task_exceptions

        return getattr(task_exceptions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DeltaMergeError(Exception):
    """Base class of this package's errors.

    :cvar another_try_helps: whether a retry without changes may succeed.
    """

    another_try_helps: ClassVar[bool] = True


# A merge and its run.


class MergeConfigError(DeltaMergeError, ValueError):
    """The description of a merge is invalid. Raised when the config is built, so usually when the DAG is parsed.

    Correct the argument that the message names.
    """

    another_try_helps = False


class MergeExecutionError(DeltaMergeError):
    """The merge engine refused or failed; nothing was committed.

    If there is a condition, the page *Errors by message* explains it; otherwise the message says what to do.

    :param message: what happened, in a sentence.
    :param condition: Delta's or Spark's error condition, e.g.
        ``DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE``; None if there is none.
    :param sql_state: the five characters of the SQLSTATE, if any.
    """

    def __init__(self, message: str, *, condition: str | None = None, sql_state: str | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.sql_state = sql_state


class StaleMergeError(MergeExecutionError):
    """A later execution of the same task has already merged, so this one is outdated; nothing was changed.

    To merge the older data anyway, clear the task.
    """

    another_try_helps = False


class MergeConflictError(MergeExecutionError):
    """Other writers' commits conflicted with this merge in each allowed attempt; nothing was committed.

    Retry later, raise ``max_commit_attempts``, or add the partition column to ``on``.
    """


class MergeGuardError(MergeExecutionError):
    """The merge would have exceeded a limit of ``fail_if``; nothing was committed.

    Check the source; if it is right, raise the limit for this run.
    """

    another_try_helps = False


class EmptySourceError(MergeGuardError):
    """The source has no rows, and ``on_empty_source`` doesn't allow that; nothing was committed."""


class SourceExpectationError(MergeGuardError):
    """The source's columns or rows break ``expect_source``; nothing was committed.

    The job's log shows some of the rows, unless ``sample`` is ``none``.
    """


class BadRowsError(MergeGuardError):
    """The source's files have more unreadable rows than its options allow; nothing was committed.

    Fix the files, or set ``bad_rows`` and ``max_bad_rows`` of the source.
    """


class NullKeysError(MergeGuardError):
    """Source rows have a NULL key, so no later merge could find them; nothing was committed.

    Filter them out, or set ``null_keys="allow"``.
    """


class MergeResultError(DeltaMergeError, ValueError):
    """A result from a file, XCom or the table's log can't be read: it is incomplete, or from another release."""


# Before and around a merge, on Airflow's side.


class SparkConnectionError(DeltaMergeError):
    """The Spark connection is missing, can't be used for a merge, or its master doesn't answer."""


class ConnectionPolicyError(DeltaMergeError):
    """The Spark connection doesn't allow what the merge would do, or its policy can't be read."""


class StoreAccessError(DeltaMergeError):
    """A connection to an object store is missing, or its fields need something unsupported."""


class JdbcConnectionError(DeltaMergeError):
    """The connection of a JDBC source is missing, or lacks something that Spark needs."""


class JavaError(DeltaMergeError):
    """Java is missing, doesn't start, or has an unsupported version."""


class DeltaJarsError(DeltaMergeError):
    """Jars of Delta or of a store's driver are not on this machine and could not be downloaded."""


class StagingError(DeltaMergeError):
    """The files of a merge can't be written to the folder for temporary files, e.g. because its disk is full."""


class ClassArchiveError(DeltaMergeError):
    """The archive of Java classes could not be made; merges work without it."""


class KeeperError(DeltaMergeError):
    """The process that runs a deferred task's Spark application could not be started."""


class KeptSparkError(DeltaMergeError):
    """A Spark application that ``keep_warm`` keeps can't be used as it is set up, or can't be found safely."""


class ClusterManagerError(DeltaMergeError):
    """YARN's ResourceManager or the API server of Kubernetes doesn't answer, or refuses."""


class TableLogError(DeltaMergeError):
    """A table's log can't be read now; a retry may succeed."""


class UnreadableTableError(TableLogError):
    """A table's log can't be read, and a retry won't help: ``deltalake`` is missing or lacks a feature."""

    another_try_helps = False


# On the command line.


class StoreConnectionError(DeltaMergeError):
    """The connection doesn't exist, or is not for an object store."""


class StorageOptionsError(DeltaMergeError):
    """The file with storage options can't be read."""


class ConfigFileError(DeltaMergeError):
    """The file with the merge's config can't be read."""


class OutputError(DeltaMergeError):
    """The file for the page can't be written."""
