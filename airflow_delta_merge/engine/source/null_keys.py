"""Source rows with a NULL key: they match nothing, so each merge would insert them again."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from airflow_delta_merge.config import MergeConfig
from airflow_delta_merge.exceptions import MergeExecutionError, NullKeysError
from airflow_delta_merge.identifiers import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column

    from airflow_delta_merge.config.options import MergeOptions
    from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
    from airflow_delta_merge.engine.source.materialized import MaterializedSource

# Start of the error for such a row that is found while the source is read, also by Delta's own engine.
_MET = "A row of the source has a NULL"


@dataclass(frozen=True)
class NullKeys:
    """How a merge treats NULLs in its key columns.

    :param keys: the key columns that ``=`` compares; none if ``on`` is a condition or NULLs are equal.
    :param are_refused: whether rows with a NULL key fail the merge.
    """

    keys: tuple[str, ...] = ()
    are_refused: bool = False

    @classmethod
    def of(cls, config: MergeOptions) -> NullKeys:
        if not isinstance(config, MergeConfig):
            return cls()
        keys = () if isinstance(config.on, str) or config.null_safe else config.on
        return cls(keys, config.null_keys == "fail")

    def statistics(self, name: str, but: Column | None = None) -> list[Column]:
        """An aggregate to compute while the source is read: the number of rows with a NULL key.

        :param but: true for rows that don't count.
        """
        if not self.keys:
            return []
        counts = self._is_null() if but is None else self._is_null() & ~but
        return [F.count_if(counts).alias(name)]

    def check(self, source: MaterializedSource, name: str) -> int | None:
        """Number of source rows with a NULL key, from the aggregate of that name; None if there are no keys to check.

        :raises NullKeysError: when there are such rows and they are refused.
        """
        if not self.keys:
            return None
        found = int(source.statistics[name])
        if found and self.are_refused:
            rows = "row has" if found == 1 else "rows have"
            raise NullKeysError(f"{found} of the source's {source.num_rows} {rows} a NULL key. {self._advice()}")
        return found

    def refuse_while_read(self, statement: ResolvedMerge) -> int | None:
        """Make the merge fail at the first row with a NULL key, if they are refused. Returns 0 then, else None."""
        if not (self.keys and self.are_refused):
            return None
        statement.refuse_null_keys(self._is_null(), f"{_MET} key.")
        return 0

    def raise_if_met(self, error: MergeExecutionError) -> None:
        """Turn Spark's error for such a row into a clear one, however Spark has wrapped it.

        :raises NullKeysError: when the error is about a NULL key.
        """
        if self.are_refused and _MET in str(error):
            raise NullKeysError(f"{_MET} key. {self._advice()}") from error

    def _is_null(self) -> Column:
        columns = [F.col(quote_name(key)).isNull() for key in self.keys]
        return reduce(operator.or_, columns)

    def _advice(self) -> str:
        return (
            f"Such a row matches nothing on {', '.join(self.keys)}, so every merge would insert it again. Nothing was "
            'merged. Filter these rows out with a query, or allow them with null_keys="allow".'
        )
