"""A transaction's commit: its user metadata, whether it landed, and the records of earlier commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from airflow_delta_merge.engine.delta_jvm import versions
from airflow_delta_merge.engine.delta_jvm.errors import java_origin
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, scala_list

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_LAST_COMMIT_VERSION = "spark.databricks.delta.lastCommitVersionInSession"
_CONFLICT = "DeltaConcurrentModificationException"
# Commits are searched from the newest: the one we want is usually among the last few.
_FIRST_COMMITS, _MORE_COMMITS = 10, 1000


def is_conflict(error: BaseException) -> bool:
    """Whether an error is Delta's conflict with another writer's commit, so this commit was abandoned."""
    # If Delta's Python package was imported, it turns them into its own exceptions.
    if any(base.__name__ == _CONFLICT for base in type(error).__mro__):
        return True
    return _CONFLICT in _java_classes(error)


def is_storage_error(error: BaseException) -> bool:
    """Whether an error is an I/O error, after which it is unknown whether a write succeeded."""
    return "IOException" in _java_classes(error)


def _java_classes(error: BaseException) -> list[str]:
    """The names of the class and superclasses of an error's Java exception."""
    names, origin = [], java_origin(error)
    java_class = None if origin is None else origin.getClass()
    while java_class is not None:
        names.append(str(java_class.getSimpleName()))
        java_class = java_class.getSuperclass()
    return names


@contextmanager
def committing_with(gateway: Gateway, user_metadata: str | None) -> Iterator[None]:
    """Give commits made inside, on this thread, this ``userMetadata``; None keeps the session's.

    Delta reads it from the active session's conf, so this activates a clone of the session with the setting.
    """
    if user_metadata is None:
        yield
        return
    sessions = gateway.module(versions.session_class(gateway))
    before = sessions.getActiveSession()
    clone = gateway.session_with({USER_METADATA: user_metadata})
    sessions.setActiveSession(clone)
    try:
        yield
        version = clone.conf().getOption(_LAST_COMMIT_VERSION)
        if version.isDefined():
            gateway.session.conf().set(_LAST_COMMIT_VERSION, version.get())
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def landed_version(gateway: Gateway, transaction: JavaObject) -> int | None:
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


def commit_info(gateway: Gateway, snapshot: JavaObject, version: int) -> JavaObject | None:
    """A commit's ``CommitInfo``; None if it has none.

    :param snapshot: of this version or a later one.
    """
    log = snapshot.deltaLog()
    file = gateway.delta("util.DeltaCommitFileProvider").apply(snapshot).deltaFile(version)
    info = gateway.delta("DeltaHistoryManager").getCommitInfoOpt(log.store(), file, log.newDeltaHadoopConf())
    return info.get() if info.isDefined() else None


def delete_files(gateway: Gateway, transaction: JavaObject, actions: JavaObject) -> int:
    """Delete the files of actions that were never committed. Returns the number of deleted files."""
    log = transaction.deltaLog()
    conf, base = log.newDeltaHadoopConf(), log.dataPath()
    file_system = base.getFileSystem(conf)
    operations = gateway.delta("util.DeltaFileOperations")
    paths = (operations.absolutePath(base.toString(), action.path()) for action in scala_list(actions))
    return sum(bool(file_system.delete(path, False)) for path in paths)


def user_metadata_backwards(transaction: JavaObject, gateway: Gateway) -> Iterator[tuple[int, str]]:
    """The commits that have a ``userMetadata``, newest first, from the version that the transaction reads.

    Commits that Delta can't read are skipped: other writers made them.
    """
    end, count = int(transaction.readVersion()), _FIRST_COMMITS
    while end >= 0:
        start = max(0, end - count + 1)
        try:
            commits = scala_list(versions.history(gateway, transaction, start, end))
        except Py4JJavaError:  # one commit that Delta can't read hides all others
            yield from _one_by_one(transaction, gateway, end)
            return
        if not commits:
            return  # cleaned up, like all earlier ones
        for commit in commits:
            if commit.userMetadata().isDefined():
                yield int(commit.version().get()), str(commit.userMetadata().get())
        end, count = start - 1, _MORE_COMMITS


def _one_by_one(transaction: JavaObject, gateway: Gateway, end: int) -> Iterator[tuple[int, str]]:
    for version in range(end, -1, -1):
        try:
            info = commit_info(gateway, transaction.snapshot(), version)
        except Py4JJavaError as error:
            if "FileNotFoundException" in _java_classes(error):
                return  # cleaned up, like all earlier ones
            continue
        if info is not None and info.userMetadata().isDefined():
            yield version, str(info.userMetadata().get())
