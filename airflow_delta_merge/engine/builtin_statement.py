"""``engine="builtin"`` for Delta versions with unknown internals: Delta runs the statement, the rest is public SQL.

The merge's identity goes into Delta's session settings ``spark.databricks.delta.write.txnAppId`` and ``txnVersion``,
so that a ``MERGE`` is committed once, and into the commit's ``userMetadata``. The result is read from the table's
history. The counts are known only after the commit, so guards cannot check them and the commit does not record them.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.engine.delta_jvm.commit import ERROR_AFTER_COMMIT, USER_METADATA, is_conflict
from airflow_delta_merge.engine.delta_jvm.errors import SPARK_ERRORS, merge_error
from airflow_delta_merge.engine.exactly_once import is_committed
from airflow_delta_merge.engine.merge_report import row_counts, written_counts
from airflow_delta_merge.exceptions import MergeConfigError, MergeConflictError, StaleMergeError

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from airflow_delta_merge.config import MergeGuards
    from airflow_delta_merge.contract.identity import MergeIdentity
    from airflow_delta_merge.engine.delta_jvm.versions import Versions

_log = logging.getLogger(__name__)

#: Our key in the commit's ``userMetadata``, beside the session's own value.
KEY = "airflow_delta_merge_builtin"
_TRANSACTION = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
_CHANGED = ("Updated", "Deleted", "Inserted")
# Commits are searched from the newest: the one we want is usually among the last few.
_FIRST_COMMITS, _MOST_COMMITS = 10, 1000


def require_no_guards(guards: MergeGuards, versions: Versions, *, holds_to_locations: bool) -> None:
    """Refuse options that need a check before the commit.

    :param holds_to_locations: whether the connection has ``allowed_locations``.
    :raises MergeConfigError: when such an option is set.
    """
    asked = {
        "fail_if": bool(guards.fail_if),
        "on_empty_source": guards.on_empty_source != "merge",
        "expect_source": guards.expect_source is not None,
        "allowed_locations": holds_to_locations,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise MergeConfigError(
                f"{option} needs a check before the commit, but on {versions} Delta runs the merge as one statement. "
                f"Remove {option}, or use versions that this package supports (docs/compatibility.md)."
            )


@dataclass(frozen=True)
class BuiltInStatement:
    """A merge by Delta's own ``MERGE`` statement.

    :param target: the target's name in SQL.
    :param identity: identifies this merge in the table.
    """

    spark: SparkSession
    target: str
    identity: MergeIdentity | None

    @cached_property
    def _token(self) -> str:
        """Identifies the commit of this attempt."""
        return uuid.uuid4().hex

    def run(self, statement: Callable[[], str], attempt: int) -> MergeResult:
        """Run the statement, unless this execution was already committed.

        :param statement: builds the statement for the table's current schema.
        :param attempt: which commit attempt this is, from 1.
        :raises MergeConflictError: when another writer's commit conflicts.
        :raises StaleMergeError: when a later generation of the identity's application was committed.
        :raises MergeExecutionError: when Delta refuses or fails.
        """
        if (recorded := self._recorded()) is not None:
            return recorded
        began = time.monotonic_ns()
        before = self.spark.sql(f"DESCRIBE DETAIL {self.target}").collect()[0]
        rows: list[Row] | None = None
        try:
            with self._settings():
                rows = self.spark.sql(statement()).collect()
        except SPARK_ERRORS as error:
            commit = self._own_commit_despite(error)
            if commit is None and is_conflict(error):
                cause = merge_error(error)
                raise MergeConflictError(str(cause), condition=cause.condition, sql_state=cause.sql_state) from error
            if commit is None:
                raise
        else:
            commit = self._own_commit()
        if commit is None and rows == []:  # Delta found that its transaction was already committed
            return self._committed_elsewhere()
        result = self._result(before, commit, rows)
        took = (time.monotonic_ns() - began) // 1_000_000
        return replace(result, durations_ms={"total": took}, num_commit_attempts=attempt)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        conf = self.spark.conf
        own = {"token": self._token, **({} if self.identity is None else self.identity.to_dict())}
        theirs = conf.get(USER_METADATA, None)
        metadata = {KEY: own, **({} if theirs is None else {"user_metadata": theirs})}
        wanted = {USER_METADATA: json.dumps(metadata, sort_keys=True)}
        if self.identity is not None:
            values = self.identity.application_id, str(self.identity.generation)
            wanted |= dict(zip(_TRANSACTION, values, strict=True))
        kept = {name: conf.get(name, None) for name in wanted}
        for name, value in wanted.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, before in kept.items():
                if before is None:
                    conf.unset(name)
                else:
                    conf.set(name, before)

    # The table's history

    def _own_commits(self, most: int) -> Iterator[tuple[Row, dict[str, Any]]]:
        """The newest commits that were made this way, newest first, with the identity that each recorded."""
        for commit in self.spark.sql(f"DESCRIBE HISTORY {self.target} LIMIT {most}").collect():
            if KEY in (commit.userMetadata or ""):
                try:
                    own = json.loads(commit.userMetadata)[KEY]
                except (ValueError, KeyError, TypeError):
                    continue
                yield commit, own

    def _own_commit(self) -> Row | None:
        found = (commit for commit, own in self._own_commits(_FIRST_COMMITS) if own.get("token") == self._token)
        return next(found, None)

    def _own_commit_despite(self, error: Exception) -> Row | None:
        """The commit of this attempt, if it is in the history although the statement failed."""
        try:
            commit = self._own_commit()
        except SPARK_ERRORS:  # the first error says most
            raise error from None
        if commit is not None:
            _log.warning(ERROR_AFTER_COMMIT, commit.version, exc_info=error)
        return commit

    def _recorded(self) -> MergeResult | None:
        if self.identity is None:
            return None
        for commit, own in self._own_commits(_MOST_COMMITS):
            if own.get("application_id") != self.identity.application_id:
                continue
            if is_committed(self.identity, int(own["generation"]), self.target):
                return replace(self._result(None, commit, None), already_committed=True)
            return None
        return None

    def _committed_elsewhere(self) -> MergeResult:
        if self.identity is not None:
            raise StaleMergeError(
                f"This execution of the merge, or a later one, was already committed to {self.target}, so this one "
                f"changes nothing. Its commit is not among the last {_MOST_COMMITS} merges made this way, so its "
                "result is unknown. Check the table's history, and mark the task as success if it is right."
            )
        reason = "the session's transaction (txnAppId, txnVersion) was already committed: nothing to do"
        return replace(self._result(None, None, None), executor_reason=reason)

    def _result(self, before: Row | None, commit: Row | None, rows: list[Row] | None) -> MergeResult:
        metrics = {name: int(value) for name, value in (commit.operationMetrics if commit else {}).items()}
        if not metrics and rows:
            metrics = {f"numTargetRows{kind}": int(rows[0][f"num_{kind.lower()}_rows"]) for kind in _CHANGED}
        marked = sum(metrics.get(f"numTargetDeletionVectors{kind}", 0) for kind in ("Added", "Updated"))
        return MergeResult(
            table=self.target,
            location="" if before is None else str(before.location),
            version_read=-1 if commit is None or commit.readVersion is None else int(commit.readVersion),
            version=None if commit is None else int(commit.version),
            executor=type(self).__name__,
            executor_reason='engine="builtin": Delta ran the statement; the numbers come from the table\'s history',
            **row_counts(metrics),
            **written_counts(metrics),
            num_files_before_skipping=0 if before is None else int(before.numFiles),
            num_bytes_before_skipping=0 if before is None else int(before.sizeInBytes),
            num_touched_files=metrics.get("numTargetFilesRemoved", 0) + marked,
            metrics=metrics,
        )
