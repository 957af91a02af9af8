"""Commits each execution of a merge exactly once, even if processes die or race. The table's log decides.

For each application, the table keeps the generation that it last committed (Delta's ``SetTransaction``), in the same
commit as the merge's files. Before a merge, with the table at r and the merge at g:

- r is g, or another try of the same execution: it was committed. The commit holds its result; do nothing.
- r > g: a later execution was committed; this one is outdated and changes nothing.
- r < g, or no r: merge. A commit by another writer in between conflicts with this one, and the check runs again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta_merge.contract.commit_record import CommitRecord
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeConflictError, StaleMergeError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
    from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction

log = logging.getLogger(__name__)

# Full-jitter backoff: a random part of the first wait, which doubles with each attempt up to the longest.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 30.0
_SESSION_TRANSACTION = "spark.databricks.delta.write.txnVersion"


def digest(text: str) -> str:
    """SHA-256 of a config or a statement, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_committed(identity: MergeIdentity, committed: int, table: str) -> bool:
    """Whether the generation that the table last committed for the identity's application is this execution.

    :raises StaleMergeError: when it is a later one.
    """
    if identity.is_same_execution(committed):
        return True
    if committed > identity.generation:
        raise StaleMergeError(
            f"A later execution of this merge (generation {committed}) has been committed to {table}, so this one "
            f"(generation {identity.generation}) is outdated and changes nothing. It is left over from a try that was "
            "abandoned, cleared or deleted; the later execution has the result."
        )
    return False


@dataclass(frozen=True)
class ExactlyOnce:
    """Guards the commits of one merge.

    :param identity: identifies the merge in the table.
    :param config_digest: :func:`digest` of the config or statement.
    """

    identity: MergeIdentity
    config_digest: str

    @property
    def application(self) -> tuple[str, int]:
        """Application id and version of Delta's ``SetTransaction``."""
        return self.identity.application_id, self.identity.generation

    def recorded_result(self, transaction: MergeTransaction, table: str) -> MergeResult | None:
        """The result that this execution's commit recorded; None if it was not committed yet.

        :raises StaleMergeError: when a later execution was committed.
        """
        committed = transaction.generation(self.identity.application_id)
        if committed is None or not is_committed(self.identity, committed, table):
            return None
        return self._find_record(transaction, table, committed)

    def _find_record(self, transaction: MergeTransaction, table: str, generation: int) -> MergeResult:
        for version, user_metadata in transaction.user_metadata_backwards():
            if json.dumps(self.identity.application_id) not in user_metadata:
                continue  # also skips releases whose records this one can't read
            record = CommitRecord.from_user_metadata(user_metadata)
            if record is None or record.identity.application_id != self.identity.application_id:
                continue
            if record.identity.generation != generation:
                break  # another writer of this application committed that generation
            if record.config_digest != self.config_digest:
                log.warning(
                    "The merge's config has changed since version %s was committed. To merge with the new config, "
                    "clear the task.",
                    version,
                )
            return replace(record.result_of(version), already_committed=True)
        return MergeResult(
            table=table,
            version_read=transaction.version_read,
            version=None,
            executor="",
            executor_reason=f"generation {generation} of this merge was already committed, but its record is not in "
            "the table's log (log cleanup removed it, or another program wrote it), so its numbers are unknown",
            already_committed=True,
        )

    def record(self, result: MergeResult, user_metadata: str | None) -> str:
        """The commit's ``userMetadata``, including the value that the session sets."""
        return CommitRecord(identity=self.identity, config_digest=self.config_digest, result=result).to_user_metadata(
            user_metadata
        )


def until_committed(gateway: Gateway, attempt: Callable[[int], MergeResult], max_attempts: int) -> MergeResult:
    """Call ``attempt`` with 1, 2, … until it commits without a conflict.

    :raises MergeConflictError: when all ``max_attempts`` attempts conflicted with other writers.
    """
    session_version = gateway.spark.conf.get(_SESSION_TRANSACTION, None)
    number = 1
    while True:
        try:
            return attempt(number)
        except MergeConflictError as error:
            if number >= max_attempts:
                raise MergeConflictError(
                    f"{error} This was attempt {number} of {max_attempts}. Run fewer writers on the same files at the "
                    "same time, or raise max_commit_attempts.",
                    condition=error.condition,
                    sql_state=error.sql_state,
                ) from error
            wait = random.uniform(0, min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** (number - 1)))  # noqa: S311
            log.warning(
                "%s Trying again in %.1f s, attempt %s of %s, with the latest table and source.",
                error,
                wait,
                number + 1,
                max_attempts,
            )
        time.sleep(wait)
        number += 1
        if session_version is not None:
            # Delta may have unset it in the failed attempt.
            gateway.spark.conf.set(_SESSION_TRANSACTION, session_version)
