"""The records of a table's earlier commits."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JJavaError

from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.errors import java_classes
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, scala_list, scala_option

# Commits are searched from the newest: the one we want is usually among the last few.
_FIRST_COMMITS, _MORE_COMMITS = 10, 1000


def commit_info(gateway: Gateway, snapshot: JavaObject, version: int) -> JavaObject | None:
    """A commit's ``CommitInfo``; None if it has none.

    :param snapshot: of this version or a later one.
    """
    log = snapshot.deltaLog()
    file = gateway.delta("util.DeltaCommitFileProvider").apply(snapshot).deltaFile(version)
    return scala_option(
        gateway.delta("DeltaHistoryManager").getCommitInfoOpt(log.store(), file, log.newDeltaHadoopConf())
    )


def user_metadata_backwards(gateway: Gateway, transaction: JavaObject) -> Iterator[tuple[int, str]]:
    """The commits that have a ``userMetadata``, newest first, from the version that the transaction reads.

    Commits that Delta can't read are skipped: other writers made them.
    """
    end, count = int(transaction.readVersion()), _FIRST_COMMITS
    while end >= 0:
        start = max(0, end - count + 1)
        try:
            commits = scala_list(by_version.history(gateway, transaction, start, end))
        except Py4JJavaError:  # one commit that Delta can't read hides all others
            yield from _one_by_one(gateway, transaction, end)
            return
        if not commits:
            return  # cleaned up, like all earlier ones
        for commit in commits:
            if (user_metadata := scala_option(commit.userMetadata())) is not None:
                yield int(commit.version().get()), str(user_metadata)
        end, count = start - 1, _MORE_COMMITS


def _one_by_one(gateway: Gateway, transaction: JavaObject, end: int) -> Iterator[tuple[int, str]]:
    for version in range(end, -1, -1):
        try:
            info = commit_info(gateway, transaction.snapshot(), version)
        except Py4JJavaError as error:
            if "FileNotFoundException" in java_classes(error):
                return  # cleaned up, like all earlier ones
            continue
        if info is not None and (user_metadata := scala_option(info.userMetadata())) is not None:
            yield version, str(user_metadata)
