"""Whether a merge's source is what its caller expects: its columns before it is read, its rows right after."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from airflow_delta_merge.engine.delta_jvm import is_of_type
from airflow_delta_merge.engine.delta_jvm.errors import first_line
from airflow_delta_merge.engine.delta_jvm.versions import condition_of
from airflow_delta_merge.exceptions import SourceExpectationError
from airflow_delta_merge.identifiers import parse_multipart, quote_multipart

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_delta_merge.config import SourceExpectations
    from airflow_delta_merge.engine.delta_jvm import Gateway, ResolvedMerge
    from airflow_delta_merge.engine.source import MaterializedSource

_log = logging.getLogger(__name__)

#: How many rows, or values of keys, the log shows of those that aren't as expected.
SAMPLE_SIZE = 5
_LONGEST_VALUE = 100


class SourceCheck:
    """Looks at one merge's source.

    :param gateway: the session's JVM.
    :param statement: the resolved merge.
    :param expected: what its source must be like.
    :param prefix: how the names of the check's own columns begin, which no column of a user does.
    :raises SourceExpectationError: when a column is missing or of another type; nothing was read then.
    """

    def __init__(
        self, gateway: Gateway, statement: ResolvedMerge, expected: SourceExpectations, *, prefix: str
    ) -> None:
        self._gateway = gateway
        self._expected = expected
        self._prefix = prefix
        source = statement.whole_source_frame()
        self._check_columns(source)
        compared = source.select(*[equality.source for equality in statement.equalities]).columns
        keys = [parse_multipart(name) for name in expected.unique] + [(name,) for name in compared]
        columns = [name.lower() for name in source.columns]
        #: The parts of the names of the columns that tell which row it is.
        self._keys = [key for key in dict.fromkeys(keys) if len(key) > 1 or key[0].lower() in columns]
        #: The source's columns that the check looks at, beside those that the merge needs.
        self.columns: list[Column] = [_column(name) for name in dict.fromkeys((*expected.unique, *expected.not_null))]
        if expected.sample == "rows":
            self.columns = [F.col("*")]

    def _check_columns(self, source: DataFrame) -> None:
        types = dict.fromkeys((*self._expected.unique, *self._expected.not_null), "") | dict(self._expected.columns)
        if found := list(filter(None, (self._wrong(source, name, type_) for name, type_ in types.items()))):
            raise SourceExpectationError(_told(found))

    def _wrong(self, source: DataFrame, name: str, type_: str) -> str:
        """What is wrong with a column; nothing if it is there and, where a type is expected, of that type."""
        try:
            column = source.select(_column(name))
        except PySparkException as error:
            missing = str(condition_of(error)).startswith("UNRESOLVED_COLUMN")
            return f"there is no column {name}" if missing else first_line(error)
        if not type_ or is_of_type(self._gateway, column, type_):
            return ""
        return f"{name} is {column.schema[0].dataType.simpleString()}, not {type_}"

    def statistics(self) -> list[Column]:
        """Aggregates to compute while the source is read: how many NULLs each column has that shall have none."""
        return [
            F.count_if(_column(name).isNull()).alias(f"{self._prefix}{position}")
            for position, name in enumerate(self._expected.not_null)
        ]

    def check_rows(self, source: MaterializedSource) -> None:
        """Look at the rows, once they were read with :attr:`columns` and :meth:`statistics`.

        :raises SourceExpectationError: with the numbers, when some aren't as expected; a sample goes to the log.
        """
        rows = source.frame.drop(source.row_id)
        found = self._nulls(source, rows) + self._duplicates(rows)
        if found:
            sampled = "" if self._expected.sample == "none" else " Some of them stand in the log above this."
            raise SourceExpectationError(_told(found, of=source.num_rows) + sampled)

    def _nulls(self, source: MaterializedSource, rows: DataFrame) -> list[str]:
        counts = [int(source.statistics[f"{self._prefix}{n}"]) for n in range(len(self._expected.not_null))]
        found = {name: number for name, number in zip(self._expected.not_null, counts, strict=True) if number}
        for name in found:
            self._show(f"rows without {name}", rows.filter(_column(name).isNull()))
        return [f"{name} is NULL in {_number_of(number, 'row')}" for name, number in found.items()]

    def _duplicates(self, rows: DataFrame) -> list[str]:
        if not self._expected.unique:
            return []
        columns = [_column(name) for name in self._expected.unique]
        keys = [f"{self._prefix}key_{position}" for position in range(len(columns))]
        number = f"{self._prefix}number"
        named = [column.alias(key) for column, key in zip(columns, keys, strict=True)]
        values = rows.select(*named)
        for key in keys:
            values = values.filter(F.col(key).isNotNull())
        shared = values.groupBy(*keys).agg(F.count("*").alias(number)).filter(F.col(number) > 1)
        num_keys, num_rows = shared.agg(F.count("*"), F.sum(number)).collect()[0]
        if not num_keys:
            return []
        names = ", ".join(self._expected.unique)
        if self._expected.sample == "rows":
            some = F.broadcast(shared.limit(SAMPLE_SIZE))
            is_same = [column == F.col(key) for column, key in zip(columns, keys, strict=True)]
            self._show(f"rows that share {names} with others", rows.join(some, is_same, "left_semi"))
        elif self._expected.sample == "keys":
            self._log_rows(f"values of {names} in several rows", shared, [*self._expected.unique, "number of rows"])
        return [f"{num_rows} rows share {names} with others, in {_number_of(num_keys, 'key')}"]

    def _show(self, what: str, rows: DataFrame) -> None:
        if self._expected.sample == "rows":
            self._log_rows(what, rows, rows.columns)
        elif self._expected.sample == "keys" and self._keys:
            keys = [F.col(quote_multipart(parts)) for parts in self._keys]
            self._log_rows(what, rows.select(*keys), [".".join(parts) for parts in self._keys])

    def _log_rows(self, what: str, rows: DataFrame, names: Sequence[str]) -> None:
        _log.warning("Of the source's %s, up to %d:", what, SAMPLE_SIZE)
        texts = rows.toDF(*[f"{self._prefix}column_{position}" for position in range(len(names))])
        texts = texts.select(*[_text(texts[name]) for name in texts.columns])
        for row in texts.limit(SAMPLE_SIZE).collect():
            _log.warning("  %s", json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))


def _column(name: str) -> Column:
    return F.col(quote_multipart(parse_multipart(name)))


def _number_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _text(column: Column) -> Column:
    return F.left(column.try_cast("string"), F.lit(_LONGEST_VALUE))


def _told(found: Iterable[Any], *, of: int | None = None) -> str:
    rows = "" if of is None else f", of {of} rows"
    return f"The source isn't as expect_source says, so nothing was merged: {'; '.join(found)}{rows}."
