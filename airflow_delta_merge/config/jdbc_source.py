"""The rows of a database as a merge's source: a table or a query, which Spark reads over JDBC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from airflow_delta_merge.config.checks import check_fields, option_pairs, require_text, without_end
from airflow_delta_merge.exceptions import MergeConfigError

#: The format of a source that is read over JDBC.
JDBC = "jdbc"
#: Rows that travel at a time. Drivers have defaults of their own: Oracle's is 10, and Postgres' is all rows.
DEFAULT_FETCH_SIZE = 1000

# Spark's options for what a source says by another name, or only its connection may say: with a url of its own a
# source could send the connection's password to another host.
_OTHERWISE = {
    **dict.fromkeys(("url", "user", "password", "driver"), "the connection sets it"),
    "dbtable": "use table or query",
    "query": "use the source's own query",
    "partitioncolumn": "use partition_column",
    "lowerbound": "use lower_bound",
    "upperbound": "use upper_bound",
    "numpartitions": "use num_partitions",
    "fetchsize": "use fetch_size",
}
# Spark gives all other options to the driver. There some name another host for the login (serverName of SQL Server,
# socksProxyHost of MySQL) or a class to load (socketFactory of Postgres).
_OF_SPARK = (
    *("customSchema", "prepareQuery", "sessionInitStatement", "queryTimeout", "isolationLevel", "preferTimestampNTZ"),
    *("pushDownPredicate", "pushDownAggregate", "pushDownLimit", "pushDownOffset", "pushDownTableSample"),
    *("pushDownJoin", "hint", "keytab", "principal", "refreshKrb5Config", "connectionProvider"),
)
_PARTS_OF_A_NAME = r'(?:"[^"]+"|`[^`]+`|\[[^\]]+\]|[\w$#@-]+)'
_NAME = re.compile(rf"{_PARTS_OF_A_NAME}(?:\.{_PARTS_OF_A_NAME})*")


@dataclass(frozen=True, kw_only=True)
class JdbcSource:
    """A table or a query of a database, read through an Airflow connection.

    :param conn_id: the Airflow connection. The worker reads it, and passes login and password to Spark in its private
        properties.
    :param table: a table or view as the database names it: ``shop.orders``.
    :param query: a query in the database's own SQL, in place of a table.
    :param partition_column: the column that splits the rows into parts: a number, a date or a timestamp.
    :param lower_bound: the start of the range to split: a number, or a date or timestamp as text. Rows beyond the
        bounds are read, too. By default Spark queries the column's minimum and maximum.
    :param upper_bound: the end of the range.
    :param num_partitions: the number of parts; each is a separate query.
    :param fetch_size: rows per round trip. (Default: 1000)
    :param options: other options of Spark's JDBC reader, as a dict or pairs of (name, value). The driver's own
        properties belong in the connection.
    :raises MergeConfigError: when it is invalid.
    """

    conn_id: str
    table: str | None = None
    query: str | None = None
    partition_column: str | None = None
    lower_bound: int | str | None = None
    upper_bound: int | str | None = None
    num_partitions: int | None = None
    fetch_size: int | None = None
    options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require_text(self.conn_id, "a JDBC source's conn_id")
        if (self.table is None) == (self.query is None):
            raise MergeConfigError("A JDBC source needs either a table or a query. Set exactly one of the two.")
        if self.query is not None:
            object.__setattr__(self, "query", without_end(require_text(self.query, "a JDBC source's query").strip()))
        elif not _NAME.fullmatch(require_text(self.table, "a JDBC source's table")):
            raise MergeConfigError(f"table must be a table's name, got {self.table!r}. Use query for a statement.")
        object.__setattr__(self, "options", option_pairs(self.options, "A JDBC source's options"))
        self._refuse_options()
        for name in ("num_partitions", "fetch_size"):
            object.__setattr__(self, name, _whole_number(name, getattr(self, name)))
        for name in ("lower_bound", "upper_bound"):
            object.__setattr__(self, name, _bound(name, getattr(self, name)))
        self._check_partitions()

    def _refuse_options(self) -> None:
        for name, _ in self.options:
            if otherwise := _OTHERWISE.get(name.lower()):
                raise MergeConfigError(f"{name} can't be an option of a JDBC source: {otherwise}.")
            if name.lower() not in map(str.lower, _OF_SPARK):
                raise MergeConfigError(
                    f"{name} can't be an option of a JDBC source: Spark's reader has {', '.join(_OF_SPARK)}. Set a "
                    "property of the driver in jdbc_options, in the extra of the connection."
                )

    def _check_partitions(self) -> None:
        bounds = {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}
        given = {name: value for name, value in bounds.items() if value is not None}
        if self.partition_column is None:
            given |= {} if self.num_partitions is None else {"num_partitions": self.num_partitions}
            if given:
                named = " and ".join(given)
                raise MergeConfigError(f"{named} can't be set without partition_column. Set it, or remove {named}.")
            return
        require_text(self.partition_column, "partition_column")
        if self.num_partitions is None:
            raise MergeConfigError(
                "partition_column needs num_partitions, the number of parts. Set num_partitions, or remove "
                "partition_column."
            )
        if len(given) == 1:
            raise MergeConfigError(
                f"{next(iter(given))} is set alone. Set both lower_bound and upper_bound, or neither: then Spark "
                "queries the column's minimum and maximum."
            )
        if given and _are_reversed(self.lower_bound, self.upper_bound):
            raise MergeConfigError(
                f"lower_bound {self.lower_bound!r} is above upper_bound {self.upper_bound!r}. Correct one of the two."
            )

    @classmethod
    def of(cls, value: JdbcSource | Mapping[str, Any]) -> JdbcSource:
        """Read one from a dict of the parameters."""
        if isinstance(value, JdbcSource):
            return value
        check_fields(cls, value, "source of the format jdbc")
        return cls(**{**value, "options": value.get("options") or ()})

    @property
    def relation(self) -> str:
        """What the database selects from."""
        # A comment may end the query; and Oracle knows no AS here.
        return str(self.table) if self.query is None else f"({self.query}\n) source_rows"

    def to_dict(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "options"}
        options = {"options": dict(self.options)} if self.options else {}
        return {name: value for name, value in given.items() if value is not None} | options


def _whole_number(name: str, value: Any) -> int | None:
    if value is None:
        return None
    text = str(value).strip()  # also a template's
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise MergeConfigError(f"{name} must be a whole number ≥ 1, got {value!r}.")
    return int(text)


def _bound(name: str, value: Any) -> int | str | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, date):  # or a datetime, which is one
        return value.isoformat(*([" "] if hasattr(value, "hour") else []))
    if isinstance(value, str) and value.strip():
        text = value.strip()
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else text
    raise MergeConfigError(f"{name} must be a whole number, a date or a timestamp, got {value!r}.")


def _are_reversed(lower: Any, upper: Any) -> bool:
    return isinstance(lower, int) == isinstance(upper, int) and lower > upper
