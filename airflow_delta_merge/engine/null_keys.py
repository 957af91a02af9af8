"""Source rows without a key: they match nothing, so that each merge would insert them anew."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from airflow_delta_merge.exceptions import NullKeysError
from airflow_delta_merge.identifiers import parse_multipart, quote_multipart

if TYPE_CHECKING:
    from pyspark.sql import Column

    from airflow_delta_merge.config import MergeConfig
    from airflow_delta_merge.engine.delta_jvm import ResolvedMerge
    from airflow_delta_merge.engine.source import MaterializedSource
    from airflow_delta_merge.exceptions import MergeExecutionError

# How the error of a row begins that is met while the source is read, also by Delta's own engine.
_MET = "A row of the source has a NULL"


@dataclass(frozen=True)
class NullKeys:
    """What is said of NULLs in a merge's key columns.

    :param keys: the key columns by which ``=`` compares; none where ``on`` is a condition or NULLs are equal.
    :param are_refused: whether rows with a NULL in one of them make the merge fail.
    """

    keys: tuple[str, ...] = ()
    are_refused: bool = False

    @classmethod
    def of(cls, config: MergeConfig) -> NullKeys:
        keys = () if isinstance(config.on, str) or config.null_safe else config.on
        return cls(keys, config.null_keys == "fail")

    def statistics(self, name: str, but: Column | None = None) -> list[Column]:
        """An aggregate to compute while the source is read: how many rows have a NULL key.

        :param but: whether a row doesn't count.
        """
        if not self.keys:
            return []
        counts = self._is_null() if but is None else self._is_null() & ~but
        return [F.count_if(counts).alias(name)]

    def check(self, source: MaterializedSource, name: str) -> int | None:
        """How many rows of a source have one, by the aggregate of that name; None where there are no keys to look at.

        :raises NullKeysError: when there are some and they are refused.
        """
        if not self.keys:
            return None
        found = int(source.statistics[name])
        if found and self.are_refused:
            rows = "row has" if found == 1 else "rows have"
            raise NullKeysError(f"{found} of the source's {source.num_rows} {rows} a NULL key. {self._advice()}")
        return found

    def refuse_while_read(self, statement: ResolvedMerge) -> int | None:
        """Have the merge fail at the first such row that is read, if they are refused; how many are left then."""
        if not (self.keys and self.are_refused):
            return None
        statement.refuse_null_keys(self._is_null(), f"{_MET} key.")
        return 0

    def raise_if_met(self, error: MergeExecutionError) -> None:
        """Say plainly that a merge met such a row, whatever Spark made of the error on its way here.

        :raises NullKeysError: when that is what the error says.
        """
        if self.are_refused and _MET in str(error):
            raise NullKeysError(f"{_MET} key. {self._advice()}") from error

    def _is_null(self) -> Column:
        columns = [F.col(quote_multipart(parse_multipart(key))).isNull() for key in self.keys]
        return reduce(operator.or_, columns)

    def _advice(self) -> str:
        return (
            f"By {', '.join(self.keys)} such a row matches nothing and would be inserted anew by each merge, so "
            'nothing was merged. Leave such rows out by a query, or allow them by null_keys="allow".'
        )


#: No key columns.
NO_KEYS = NullKeys()
