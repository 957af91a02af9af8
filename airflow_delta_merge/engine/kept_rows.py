"""Rows of a source that are left out of a merge and kept in a Delta table, where a person can look at them.

They are committed on their own, before the merge. Delta sees to it that a merge adds its rows once, however often it is
tried: the table knows the merge's identity.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.contract.identity import MergeIdentity


@dataclass(frozen=True)
class KeptRows:
    """Keeps rows of one merge, which may take several attempts.

    :param target: the table that is merged into, as the statement names it.
    :param identity: who merges.
    """

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
        writer.options(txnAppId=f"{application or self._token}/{what}", txnVersion=version).save(path)
