"""How a transaction's commit ends: with its user metadata, and in the log or not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from airflow_delta_merge.engine.delta_jvm.commit_history import commit_info
from airflow_delta_merge.engine.delta_jvm.errors import java_classes, merge_error
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, scala_list, scala_option
from airflow_delta_merge.engine.delta_jvm.log_store import is_object_store
from airflow_delta_merge.exceptions import MergeConflictError, MergeExecutionError

_log = logging.getLogger(__name__)

#: Logged with a version.
ERROR_AFTER_COMMIT = "The merge is committed as version %s, but an error followed."
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_LAST_COMMIT_VERSION = "spark.databricks.delta.lastCommitVersionInSession"
_CONFLICT = "DeltaConcurrentModificationException"


def is_conflict(error: BaseException) -> bool:
    """Whether an error is Delta's conflict with another writer's commit, so this commit was abandoned."""
    # If Delta's Python package was imported, it turns them into its own exceptions.
    if any(base.__name__ == _CONFLICT for base in type(error).__mro__):
        return True
    return _CONFLICT in java_classes(error)


@contextmanager
def committing_with(gateway: Gateway, user_metadata: str | None) -> Iterator[None]:
    """Give commits made inside, on this thread, this ``userMetadata``; None keeps the session's.

    Delta reads it from the active session's conf, so this activates a clone of the session with the setting.
    """
    if user_metadata is None:
        yield
        return
    sessions = gateway.module(gateway.classic("SparkSession"))
    before = scala_option(sessions.getActiveSession())
    clone = gateway.session_with({USER_METADATA: user_metadata})
    sessions.setActiveSession(clone)
    try:
        yield
        version = scala_option(clone.conf().getOption(_LAST_COMMIT_VERSION))
        if version is not None:
            gateway.session.conf().set(_LAST_COMMIT_VERSION, version)
    finally:
        if before is None:
            sessions.clearActiveSession()
        else:
            sessions.setActiveSession(before)


def landed(
    gateway: Gateway, transaction: JavaObject, commit: Callable[[], JavaObject], written: Iterable[JavaObject]
) -> int | None:
    """Commit, and find out whether the commit is in the log where an error leaves that open.

    :param commit: returns the JVM's option of the committed version.
    :param written: JVM sequences of actions of the files that the transaction wrote.
    :return: the committed version; None if there was nothing to commit.
    :raises MergeConflictError: when it is not in the log because of another writer's commit; the files are deleted.
    """
    try:
        version = scala_option(commit())
    except Exception as error:
        if is_conflict(error):
            landed_after_all = _landed_version(gateway, transaction)
            if landed_after_all is None:
                raise _given_up(gateway, transaction, written, merge_error(error)) from error
        else:
            landed_after_all = _version_after_all(gateway, transaction, error)
            if landed_after_all is None:
                raise
        return landed_after_all
    if version is None:
        return None
    reported, log = int(version), transaction.deltaLog()
    if is_object_store(log) and _is_lost(gateway, transaction, reported):
        gateway.delta("DeltaLog").invalidateCache(gateway.session, log.dataPath())  # it has the lost commit cached
        lost = MergeExecutionError(
            f"The store reported that version {reported} of {log.dataPath()} was written, but it has another writer's "
            "version."
        )
        raise _given_up(gateway, transaction, written, lost)
    return reported


def _is_lost(gateway: Gateway, transaction: JavaObject, reported: int) -> bool:
    """Whether the log has another writer's commit as the version that the store reported as written."""
    try:
        return _landed_version(gateway, transaction) != reported
    except Exception:  # the storage does not answer: a merge that it reported as committed must not fail
        _log.warning("Version %s is written, but the log could not be read again.", reported, exc_info=True)
        return False


def _version_after_all(gateway: Gateway, transaction: JavaObject, error: Exception) -> int | None:
    """The version of a commit that ended with an error, if the log has it.

    The storage's answer got lost, or what Delta does after a commit failed, such as writing a manifest.
    """
    try:
        version = _landed_version(gateway, transaction)
    except Exception:  # the storage is still unavailable: its first error says most
        return None
    if version is not None:
        _log.warning(ERROR_AFTER_COMMIT, version, exc_info=error)
    return version


def _given_up(
    gateway: Gateway, transaction: JavaObject, written: Iterable[JavaObject], conflict: MergeExecutionError
) -> MergeConflictError:
    """Delete the written files and return the conflict's error."""
    deleted = sum(delete_files(gateway, transaction, actions) for actions in written)
    return MergeConflictError(
        f"{conflict} {deleted} files that this attempt wrote were never part of the table and were deleted.",
        condition=conflict.condition,
        sql_state=conflict.sql_state,
    )


def _landed_version(gateway: Gateway, transaction: JavaObject) -> int | None:
    """The version that a transaction did commit, although its commit raised a conflict or a storage error.

    This happens when the storage's answer to a successful write is lost, or when the write is retried and the
    transaction conflicts with its own commit. Each commit records its transaction's id.
    """
    snapshot = transaction.deltaLog().update(False, gateway.none, transaction.catalogTable())
    for version in range(int(transaction.readVersion()) + 1, int(snapshot.version()) + 1):
        info = commit_info(gateway, snapshot, version)
        if info is not None and info.txnId().contains(transaction.txnId()):
            return version
    return None


def delete_files(gateway: Gateway, transaction: JavaObject, actions: JavaObject) -> int:
    """Delete the files of actions that were never committed. Returns the number of deleted files.

    Some may write but not delete. What they leave is for ``VACUUM``, and no reason for a merge to fail.
    """
    log = transaction.deltaLog()
    conf, base = log.newDeltaHadoopConf(), log.dataPath()
    file_system = base.getFileSystem(conf)
    operations = gateway.delta("util.DeltaFileOperations")
    deleted = 0
    try:
        for action in scala_list(actions):
            deleted += bool(file_system.delete(operations.absolutePath(base.toString(), action.path()), False))
    except Py4JJavaError as error:
        _log.warning("Files that are not part of the table could not be deleted: %s", error.java_exception)
    return deleted
