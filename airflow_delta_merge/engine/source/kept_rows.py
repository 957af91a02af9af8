"""Rows of a source that are left out of a merge and kept in a Delta table, where a person can look at them.

They are committed on their own, before the merge. A merge adds its rows once, however often it is tried: the table
knows the merge's identity.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm.commit import is_conflict
from airflow_delta_merge.engine.delta_jvm.errors import SPARK_ERRORS
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.delta_jvm.tables import generation_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.contract.identity import MergeIdentity

# Only those that make the table, and tries of one execution, conflict with each other.
_MOST_TRIES = 5


@dataclass(frozen=True)
class KeptRows:
    """Keeps rows of one merge, which may take several attempts.

    :param target: the table that is merged into, as the statement names it.
    :param identity: who merges.
    """

    gateway: Gateway
    target: str
    identity: MergeIdentity | None
    # Without an identity, this distinguishes the attempts of this merge from other merges.
    _token: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False)

    def keep(self, rows: DataFrame, path: str, what: str) -> None:
        """Add rows to a table, unless this merge has added its own before.

        :param rows: with the columns ``file``, ``record`` and ``reason``.
        :param path: where the table is; it is made if it is missing.
        :param what: what the rows are, by which the merge may keep several kinds in one table.
        """
        application = None if self.identity is None else self.identity.application_id
        committer = f"{application or self._token}/{what}"
        generation = None if self.identity is None else self.identity.generation
        kept = rows.select(
            F.lit(self.target).alias("target"),
            F.lit(application).cast("string").alias("merge"),
            F.lit(generation).cast("bigint").alias("generation"),
            "file",
            "record",
            "reason",
            F.current_timestamp().alias("kept_at"),
        )
        writer = kept.write.format("delta").mode("append")
        version = "1" if generation is None else str(generation)
        writer = writer.options(txnAppId=committer, txnVersion=version)
        for attempt in range(1, _MOST_TRIES + 1):
            if self._has_kept(path, committer):
                return
            try:
                writer.save(path)
                return
            except SPARK_ERRORS as error:  # e.g. several merges of a task make the table at the same time
                if attempt == _MOST_TRIES or not is_conflict(error):
                    raise

    def _has_kept(self, path: str, committer: str) -> bool:
        """Whether another try of this execution has added its rows.

        Delta itself only knows whether the generation has grown, which it may between two tries.
        """
        if self.identity is None:
            return False
        generation = generation_in(self.gateway, path, committer)
        return generation is not None and self.identity.is_same_execution(generation)
