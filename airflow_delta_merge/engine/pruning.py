"""Which target files can match: predicates for ``filterFiles`` from the condition, the clauses and the source.

Delta's own MERGE prunes by predicates that mention the target alone. Here the source is asked too: for an
equality between a target column and a source expression, rows outside the source's range of that expression
cannot match (the idea of delta-io/delta#517, #1563 and #2567). A predicate is only used where it provably drops
no match; for anything else the file stays a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import ResolvedMerge

#: Types whose order in Delta's file statistics is the order of Spark's comparisons. Floating point is left out
#: (NaN), as are strings under a collation other than the binary one.
_RANGE_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string"})

#: A target column of a narrower integer type than the source's is compared as the wider one, but its statistics
#: are those of its own type: the source's range is cut to it.
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@dataclass(frozen=True)
class SourceKey:
    """An equality ``target column = source expression`` (or ``<=>``) that every match fulfils.

    :param target: the target's column.
    :param source: the expression over the source, of the same type.
    :param type: that type, as Spark SQL writes it.
    :param null_safe: whether two NULLs are equal.
    :param name: prefix of the names of its statistics.
    """

    target: Column
    source: Column
    type: str
    null_safe: bool
    name: str

    def statistics(self) -> list[Column]:
        """Aggregates over the source that :meth:`predicate` needs; dates and timestamps as exact integers."""
        value = self.source
        if self.type == "date":
            value = F.unix_date(value)
        elif self.type == "timestamp":
            value = F.unix_micros(value)
        found = [F.min(value).alias(f"{self.name}_min"), F.max(value).alias(f"{self.name}_max")]
        if self.null_safe:
            found.append(F.count_if(self.source.isNull()).alias(f"{self.name}_nulls"))
        return found

    def predicate(self, statistics: dict[str, Any]) -> Column:
        """True for every target row that can equal a source row in this key."""
        in_range = self._in_range(statistics[f"{self.name}_min"], statistics[f"{self.name}_max"])
        if self.null_safe and statistics[f"{self.name}_nulls"] > 0:
            return in_range | self.target.isNull()
        return in_range

    def _in_range(self, smallest: Any, largest: Any) -> Column:
        if smallest is None:  # the source has no row, or NULLs only
            return F.lit(False)
        if self.type in _INTEGER_BITS:
            bound = 1 << (_INTEGER_BITS[self.type] - 1)
            smallest, largest = max(smallest, -bound), min(largest, bound - 1)
            if smallest > largest:
                return F.lit(False)
        return (self.target >= self._literal(smallest)) & (self.target <= self._literal(largest))

    def _literal(self, value: Any) -> Column:
        if self.type == "date":
            return F.date_from_unix_date(F.lit(value))
        if self.type == "timestamp":
            return F.timestamp_micros(F.lit(value))
        return F.lit(value).cast(self.type)


def source_keys(statement: ResolvedMerge, *, prefix: str) -> list[SourceKey]:
    """The equalities of the ON condition from which the source's rows tell a range of the target.

    :param prefix: what the statistics' names begin with.
    """
    keys = []
    for position, equality in enumerate(statement.equalities()):
        if equality.type in _RANGE_TYPES or equality.type.startswith("decimal("):
            name = f"{prefix}_{position}"
            keys.append(SourceKey(equality.target, equality.source, equality.type, equality.null_safe, name))
    return keys


def candidate_predicates(
    statement: ResolvedMerge, keys: Sequence[SourceKey], statistics: dict[str, Any]
) -> list[Column]:
    """Predicates over the target, all of which are true for every row that the merge must look at.

    :param statistics: the source's, for ``keys``.
    """
    matching = statement.target_only_conjuncts()
    matching += [key.predicate(statistics) for key in keys]
    clauses = statement.clauses
    if all(clause.kind == "matched" for clause in clauses):
        # A row matters only if it fulfils the target's part of some clause's condition.
        parts = [_conjunction(part) for part in statement.target_only_clause_conjuncts()]
        matching.append(reduce(Column.__or__, parts))
    by_source = [clause for clause in clauses if clause.kind == "not matched by source"]
    if not by_source:
        return matching
    if any(clause.condition is None for clause in by_source):
        return []
    # A row matters when it can match, or when a clause for rows without a match can take it.
    conditions = [clause.condition for clause in by_source if clause.condition is not None]
    return [reduce(Column.__or__, conditions, _conjunction(matching))]


def _conjunction(predicates: Sequence[Column]) -> Column:
    return reduce(Column.__and__, predicates, F.lit(True))
