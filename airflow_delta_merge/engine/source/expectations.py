"""Whether a merge's source is what its caller expects: its columns before it is read, its rows right after.

Conditions and NULLs are looked at in all rows. Rows that are set aside are left out of all that follows: the look for
unique rows, the counts and the merge. Each row is marked in the pass that reads it, so the rows that are counted, kept
and merged are the same.
"""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm.errors import first_line
from airflow_delta_merge.engine.delta_jvm.parsing import is_of_type
from airflow_delta_merge.engine.delta_jvm.tables import column_names, type_of
from airflow_delta_merge.engine.delta_jvm.versions import condition_of
from airflow_delta_merge.engine.grouped import grouped
from airflow_delta_merge.exceptions import SourceExpectationError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_multipart, quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_delta_merge.config import SourceExpectations
    from airflow_delta_merge.engine.source.kept_rows import KeptRows
    from airflow_delta_merge.engine.source.materialized import MaterializedSource
    from airflow_delta_merge.engine.started_merge import StartedMerge

_log = logging.getLogger(__name__)

#: How many rows, or values of keys, the log shows of those that aren't as expected.
SAMPLE_SIZE = 5
_LONGEST_VALUE = 100
_ACTIONS = {"warn": "merged all the same", "set_aside": "set aside"}


@dataclass(frozen=True)
class _Rule:
    """An expectation that is about single rows.

    :param name: what it is called.
    :param broken: whether a row breaks it.
    :param on_failure: what becomes of such rows.
    :param mark: the column with that, where rows are marked; and the name of its count.
    """

    name: str
    broken: Column
    on_failure: str
    mark: str


class SourceCheck:
    """Looks at one merge's source.

    :param expected: what its source must be like.
    :raises SourceExpectationError: when a column is missing or of another type; nothing was read then.
    """

    def __init__(self, merge: StartedMerge, expected: SourceExpectations) -> None:
        self._gateway = merge.gateway
        self._expected = expected
        self._prefix = merge.names.expected
        source = merge.statement.whole_source_frame()
        self._check_columns(source)
        compared = source.select(*[equality.source for equality in merge.statement.conjuncts.equalities])
        keys = [parse_multipart(name) for name in expected.unique] + [
            (name,) for name in column_names(self._gateway, compared)
        ]
        columns = [name.lower() for name in column_names(self._gateway, source)]
        #: The parts of the names of the columns that identify a row.
        self._keys = [key for key in dict.fromkeys(keys) if len(key) > 1 or key[0].lower() in columns]
        self._row_rules = list(self._rules_of_rows())
        self._unique_rule = self._rule_of_shared_keys()
        self._rules = [*self._row_rules, *filter(None, [self._unique_rule])]
        self._is_marking = bool(expected.conditions) or any(each.on_failure != "fail" for each in self._rules)
        #: The source's columns that the check looks at, beside those that the merge needs.
        self.columns: list[Column] = [_column(name) for name in dict.fromkeys((*expected.unique, *expected.not_null))]
        self.columns += [F.expr(each.condition) for each in expected.conditions]
        if expected.sample == "rows" or expected.sets_aside:
            self.columns = [F.col("*")]

    def _rules_of_rows(self) -> Iterator[_Rule]:
        expected = self._expected
        if expected.not_null:
            is_null = reduce(operator.or_, (_column(name).isNull() for name in expected.not_null))
            yield _Rule("not_null", is_null, expected.not_null_on_failure, f"{self._prefix}breaks_not_null")
        for position, each in enumerate(expected.conditions):
            broken = ~F.coalesce(F.expr(each.condition), F.lit(True))
            yield _Rule(each.name, broken, each.on_failure, f"{self._prefix}breaks_{position}")

    def _rule_of_shared_keys(self) -> _Rule | None:
        """Sets rows aside that share their key with others, of those that the marks of other rules don't set aside."""
        if not self._expected.unique or self._expected.unique_on_failure != "set_aside":
            return None
        keys = [_column(name) for name in self._expected.unique]
        counts = reduce(operator.and_, (key.isNotNull() for key in keys))
        if (aside := _set_aside_by(self._row_rules)) is not None:
            counts &= ~aside
        shared = F.count(F.when(counts, F.lit(1))).over(Window.partitionBy(*keys)) > 1
        return _Rule("unique", counts & shared, "set_aside", f"{self._prefix}breaks_unique")

    # Before the source is read

    def _check_columns(self, source: DataFrame) -> None:
        types = dict.fromkeys((*self._expected.unique, *self._expected.not_null), "") | dict(self._expected.columns)
        found = list(filter(None, (self._wrong(source, name, type_) for name, type_ in types.items())))
        for each in self._expected.conditions:
            try:
                source.filter(F.expr(each.condition))  # which takes neither aggregates nor what is no boolean
            except PySparkException as error:
                found.append(f"the condition of {each.name} is invalid: {first_line(error)}")
        if found:
            raise SourceExpectationError(_failure_text(found))

    def _wrong(self, source: DataFrame, name: str, type_: str) -> str:
        """What is wrong with a column; nothing if it is there and, where a type is expected, of that type."""
        try:
            column = source.select(_column(name))
        except PySparkException as error:
            missing = str(condition_of(error)).startswith("UNRESOLVED_COLUMN")
            return f"there is no column {name}" if missing else first_line(error)
        if not type_ or is_of_type(self._gateway, column, type_):
            return ""
        return f"{name} is {type_of(column)}, not {type_}"

    # While it is read

    def marked(self, source: DataFrame) -> DataFrame:
        """The source's rows with columns that say which expectations each breaks, where that decides on single rows."""
        if not self._is_marking:
            return source
        rows = source.select("*", *[rule.broken.alias(rule.mark) for rule in self._row_rules])
        unique = self._unique_rule
        return rows if unique is None else rows.select("*", unique.broken.alias(unique.mark))

    @property
    def set_aside(self) -> Column | None:
        """Whether a row of :meth:`marked` is left out of the merge; None if none is."""
        return _set_aside_by(self._rules)

    def statistics(self) -> list[Column]:
        """Aggregates to compute while the source is read, of :meth:`marked` rows: how many break what."""
        counts = {f"{self._prefix}{n}": _column(name).isNull() for n, name in enumerate(self._expected.not_null)}
        counts |= {rule.mark: F.col(rule.mark) if self._is_marking else rule.broken for rule in self._rules}
        if (aside := self.set_aside) is not None:
            counts[f"{self._prefix}aside"] = aside
        return [F.count_if(broken).alias(name) for name, broken in counts.items()]

    # Once it was read

    def num_set_aside(self, source: MaterializedSource) -> int:
        """How many rows are left out of the merge."""
        return int(source.statistics.get(f"{self._prefix}aside", 0))

    def left_of(self, source: MaterializedSource) -> MaterializedSource:
        """The rows that are merged, without marks.

        :param source: all rows, read with :attr:`columns`, :meth:`marked` and :meth:`statistics`.
        """
        if not self._is_marking:
            return source
        aside = self.set_aside
        rows = source.frame if aside is None else source.frame.filter(~aside)
        return replace(source, frame=rows.drop(*self._marks), num_rows=source.num_rows - self.num_set_aside(source))

    @property
    def _marks(self) -> list[str]:
        return [rule.mark for rule in self._rules]

    def check_rows(self, source: MaterializedSource, left: MaterializedSource, *, fails: bool = True) -> dict[str, int]:
        """Look at the rows, and count for each expectation those that break it.

        :param source: all rows, as for :meth:`left_of`.
        :param left: what that gave.
        :param fails: whether expectations that say so make the merge fail.
        :raises SourceExpectationError: with the numbers, when some aren't as expected; a sample goes to the log.
        """
        counts = {rule.name: int(source.statistics[rule.mark]) for rule in self._rules}
        found = [text for rule in self._rules for text in self._failures_of(rule, source, fails)]
        if self._expected.unique and self._unique_rule is None:
            counts["unique"], of_unique = self._duplicates(source, left)
            found += of_unique
        if found and fails:
            sampled = "" if self._expected.sample == "none" else " The log above shows some of them."
            raise SourceExpectationError(_failure_text(found, of=source.num_rows) + sampled)
        return counts

    def _failures_of(self, rule: _Rule, source: MaterializedSource, fails: bool) -> list[str]:
        """What makes the merge fail. Rows that are merged or set aside are only logged."""
        number = int(source.statistics[rule.mark])
        is_failure = rule.on_failure == "fail"
        if not number or (is_failure and not fails):
            return []
        rows = source.frame.drop(source.row_id)
        if is_failure and rule.name == "not_null":
            return self._nulls(source, rows.drop(*self._marks))
        if not is_failure:
            _warn(rule.name, number, source.num_rows, rule.on_failure)
        if rule.on_failure != "set_aside":
            self._show(f"rows that break {rule.name}", rows.filter(F.col(rule.mark)).drop(*self._marks))
        return [f"{rule.name} is broken by {_number_of(number, 'row')}"] if is_failure else []

    def _nulls(self, source: MaterializedSource, rows: DataFrame) -> list[str]:
        counts = [int(source.statistics[f"{self._prefix}{n}"]) for n in range(len(self._expected.not_null))]
        found = {name: number for name, number in zip(self._expected.not_null, counts, strict=True) if number}
        for name in found:
            self._show(f"rows without {name}", rows.filter(_column(name).isNull()))
        return [f"{name} is NULL in {_number_of(number, 'row')}" for name, number in found.items()]

    def _duplicates(self, source: MaterializedSource, left: MaterializedSource) -> tuple[int, list[str]]:
        """How many rows aren't unique among those that are left, and what makes the merge fail."""
        on_failure = self._expected.unique_on_failure
        rows = left.frame.drop(source.row_id)
        columns = [_column(name) for name in self._expected.unique]
        keys = [f"{self._prefix}key_{position}" for position in range(len(columns))]
        number_name = f"{self._prefix}number"
        values = rows
        for column in columns:
            values = values.filter(column.isNotNull())
        groups = grouped(values, dict(zip(keys, columns, strict=True)), {number_name: F.count("*")})
        shared = groups.filter(F.col(number_name) > 1)
        num_keys, num_rows = shared.agg(F.count("*"), F.sum(number_name)).collect()[0]
        if not num_keys:
            return 0, []
        if on_failure == "warn":
            _warn("unique", num_rows, source.num_rows, on_failure)
        names = ", ".join(self._expected.unique)
        if self._expected.sample == "rows":
            some = F.broadcast(shared.limit(SAMPLE_SIZE))
            is_same = [column == F.col(key) for column, key in zip(columns, keys, strict=True)]
            self._show(f"rows that share {names} with others", rows.join(some, is_same, "left_semi"))
        elif self._expected.sample == "keys":
            self._log_rows(f"values of {names} in several rows", shared, [*self._expected.unique, "number of rows"])
        failure = f"{num_rows} rows share {names} with others, in {_number_of(num_keys, 'key')}"
        return int(num_rows), [failure] if on_failure == "fail" else []

    def keep(self, source: MaterializedSource, kept: KeptRows) -> None:
        """Keep the rows that are set aside, each with the names of what it breaks."""
        if (path := self._expected.failed_rows_path) is None or not self.num_set_aside(source):
            return
        reasons = [F.when(F.col(rule.mark), F.lit(rule.name)) for rule in self._rules]
        aside = self.set_aside
        assert aside is not None
        own = [source.row_id, *self._marks]
        columns = [F.col(quote_identifier(name)) for name in column_names(self._gateway, source.frame.drop(*own))]
        record = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
        rows = source.frame.filter(aside).select(
            F.lit(None).cast("string").alias("file"),
            record.alias("record"),
            F.concat_ws(", ", *reasons).alias("reason"),
        )
        kept.keep(rows, path, "failed_rows")
        _log.warning("%d rows of the source are kept in %s.", self.num_set_aside(source), path)

    def _show(self, what: str, rows: DataFrame) -> None:
        if self._expected.sample == "rows":
            self._log_rows(what, rows, column_names(self._gateway, rows))
        elif self._expected.sample == "keys" and self._keys:
            keys = [F.col(quote_multipart(parts)) for parts in self._keys]
            self._log_rows(what, rows.select(*keys), [".".join(parts) for parts in self._keys])

    def _log_rows(self, what: str, rows: DataFrame, names: Sequence[str]) -> None:
        _log.warning("Of the source's %s, up to %d:", what, SAMPLE_SIZE)
        own = [f"{self._prefix}column_{position}" for position in range(len(names))]
        texts = rows.toDF(*own).select(*[_text(name) for name in own])
        for row in texts.limit(SAMPLE_SIZE).collect():
            _log.warning("  %s", json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))


def _set_aside_by(rules: Iterable[_Rule]) -> Column | None:
    """Whether one of the rules sets a marked row aside; None if none does."""
    marks = [F.col(rule.mark) for rule in rules if rule.on_failure == "set_aside"]
    return reduce(operator.or_, marks) if marks else None


def _warn(name: str, number: int, of: int, on_failure: str) -> None:
    what = _ACTIONS[on_failure]
    _log.warning("%d of the source's %d rows break %s and are %s.", number, of, name, what)


def _column(name: str) -> Column:
    return F.col(quote_name(name))


def _number_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _text(name: str) -> Column:
    return F.left(F.expr(f"try_cast({quote_identifier(name)} AS STRING)"), F.lit(_LONGEST_VALUE))


def _failure_text(found: Iterable[Any], *, of: int | None = None) -> str:
    rows = "" if of is None else f", of {of} rows"
    return f"The source isn't as expect_source says, so nothing was merged: {'; '.join(found)}{rows}."
