"""The record of a merge in its own commit: :class:`CommitRecord`, JSON in the commit's ``userMetadata``.

Any program can read the result of a merge from the Delta log, with or without Spark:
``CommitRecord.from_user_metadata(commit["userMetadata"])``. It imports neither Airflow nor pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import DeltaMergeError, MergeResultError

RECORD_VERSION = 1
#: Our key in ``userMetadata``, beside the session's own value.
RECORD_KEY = "airflow_delta_merge"
USER_KEY = "user_metadata"
#: Longest record, in characters; longer ones are written without metrics and durations.
RECORD_LENGTH = 32 * 1024
_LONGEST_USER_METADATA = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """One merge as recorded in its commit.

    :param identity: identifies the merge.
    :param config_digest: SHA-256 of the merge's config (or statement), in hex.
    :param result: the merge's result. A commit can't know its own version or duration: ``version`` is None until
        :meth:`result_of` sets it, and the durations ``commit`` and ``total`` are missing.
    """

    identity: MergeIdentity
    config_digest: str
    result: MergeResult

    def to_user_metadata(self, user_metadata: str | None = None) -> str:
        """The commit's ``userMetadata``.

        :param user_metadata: the value without this package; kept under a separate key.
        """
        record = self._to_dict(self.result)
        if len(json.dumps(record)) > RECORD_LENGTH:
            record = self._to_dict(replace(self.result, metrics={}, durations_ms={}))
        own = {} if user_metadata is None else {USER_KEY: user_metadata}
        return json.dumps({RECORD_KEY: record, **own}, sort_keys=True)

    def _to_dict(self, result: MergeResult) -> dict[str, Any]:
        return {
            "record_version": RECORD_VERSION,
            **self.identity.to_dict(),
            "config_digest": self.config_digest,
            "result": result.to_dict(),
        }

    @classmethod
    def from_user_metadata(cls, text: str | None) -> CommitRecord | None:
        """Read a commit's ``userMetadata``; None if it has no record of this package.

        :raises MergeResultError: when this version can't read the record.
        """
        if not text or RECORD_KEY not in text:
            return None
        try:
            data = json.loads(text) if len(text) <= _LONGEST_USER_METADATA else None
        except (ValueError, RecursionError):
            return None
        record = data.get(RECORD_KEY) if isinstance(data, dict) else None
        return cls._from_dict(record) if isinstance(record, dict) else None

    @classmethod
    def _from_dict(cls, record: Mapping[str, Any]) -> CommitRecord:
        if record.get("record_version") != RECORD_VERSION:
            raise MergeResultError(
                f"The record of a merge in the Delta log has version {record.get('record_version')!r:.80}, but this "
                f"package reads version {RECORD_VERSION}. Use the same release for all tries of a merge."
            )
        names = ("application_id", "generation", "task_instance")
        digest, result = record.get("config_digest"), record.get("result")
        if not isinstance(digest, str) or not isinstance(result, dict):
            raise MergeResultError("The record of a merge in the Delta log lacks its config digest or its result.")
        try:
            identity = MergeIdentity.from_dict({name: record[name] for name in names if name in record})
        except DeltaMergeError as error:
            raise MergeResultError(f"The record of a merge in the Delta log can't be read: {error}") from error
        return cls(identity=identity, config_digest=digest, result=MergeResult.from_dict(result))

    def result_of(self, version: int) -> MergeResult:
        """The result, once the version of the commit that holds this record is known."""
        return replace(self.result, version=version)
