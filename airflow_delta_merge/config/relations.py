"""The two sides of a merge: the Delta table it changes and the rows it takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_delta_merge.config.bad_rows import BadRows, bad_rows_of
from airflow_delta_merge.config.checks import (
    check_fields,
    check_keys,
    in_order,
    is_data_frame,
    option_pairs,
    pairs,
    refuse_output,
    require_text,
    without_end,
)
from airflow_delta_merge.config.jdbc_source import JDBC, JdbcSource
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_name


@dataclass(frozen=True)
class MergeTarget:
    """The Delta table to merge into, by name or by path (exactly one of the two).

    :param table: a name of one to three parts, as Spark SQL writes it.
    :param path: a directory or URI that holds the table.
    :raises MergeConfigError: when neither or both are set, or the name is invalid.
    """

    table: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if (self.table is None) == (self.path is None):
            raise MergeConfigError("A target needs either a table name or a path. Set exactly one of the two.")
        if self.table is not None:
            parse_multipart(require_text(self.table, "the target's table name"))
        else:
            require_text(self.path, "the target's path")

    @classmethod
    def of(cls, value: MergeTarget | str | Mapping[str, Any]) -> MergeTarget:
        """Read a target from a string (a path if it has a ``/`` outside backticks, else a name) or dict."""
        if isinstance(value, MergeTarget):
            return value
        if isinstance(value, Mapping):
            check_fields(cls, value, "target")
            return cls(**value)
        text = require_text(value, "the target")
        return cls(path=text) if _is_path(text) else cls(table=text)

    def to_sql(self) -> str:
        if self.path is not None:
            return f"delta.{quote_identifier(self.path)}"
        assert self.table is not None
        return quote_name(self.table)

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path} if self.path is not None else {"table": self.table}


_COMMENT = r"--[^\n]*\n|/\*(?:(?!\*/).)*\*/\s"
_QUERY = re.compile(rf"(\s|\(|{_COMMENT})*(select|with|from|values|table)\b", re.IGNORECASE | re.DOTALL)
_FORMAT_OF_SUFFIX = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".orc": "orc",
    ".avro": "avro",
}
#: Formats whose files SQL can name as they are: ``parquet.`/in/day` ``.
FORMATS_WITHOUT_OPTIONS = ("parquet", "delta", "orc", "json")
_NO_PATH = "A source of the format jdbc has no path. Set conn_id, and table or query."
_PARTS_OF_A_SOURCE = (
    "query",
    "table",
    "path",
    "paths",
    "format",
    "options",
    "select",
    "bad_rows",
    "max_bad_rows",
    "bad_rows_path",
)


@dataclass(frozen=True)
class MergeSource:
    """The rows to merge: a query, a table, files, or a table or query of a database (exactly one of these).

    :param query: a query: ``SELECT``, ``WITH``, ``VALUES``, ``FROM`` or ``TABLE``.
    :param table: a table or view by name.
    :param paths: files or directories, read together.
    :param format: the format of ``paths`` as Spark names it; by default guessed from the suffix of the first one, else
        ``delta``.
    :param options: reader options for ``paths``, as a dict or pairs of (name, value).
    :param select: a query over these rows, under the name ``source``; its rows are merged instead.
    :param bad_rows: with JSON and CSV files: how to treat rows that can't be read, or have too few or too many fields:
        ``fail`` the merge (default), ``skip`` them, or ``keep`` them in a separate table. If ``options`` have ``mode``
        or ``columnNameOfCorruptRecord``, Spark follows these instead.
    :param max_bad_rows: with ``skip`` and ``keep``: the most bad rows that a merge accepts: a count, or a fraction
        below 1 of all rows; by default any number.
    :param bad_rows_path: with ``keep``: path of the Delta table to which they are added; it is created if missing.
    :param jdbc: a table or a query of a database, as :class:`JdbcSource`.
    :raises MergeConfigError: when the parts don't fit together or are invalid.
    """

    query: str | None = None
    table: str | None = None
    paths: tuple[str, ...] = ()
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    select: str | None = None
    bad_rows: str | None = None
    max_bad_rows: int | float | None = None
    bad_rows_path: str | None = None
    jdbc: JdbcSource | None = None

    def __post_init__(self) -> None:
        if isinstance(self.paths, str) or not isinstance(self.paths, Iterable):
            raise MergeConfigError(f"The source's paths must be a list of paths, got {self.paths!r:.80}.")
        object.__setattr__(self, "paths", in_order(self.paths))
        object.__setattr__(self, "options", option_pairs(self.options, "The source's options"))
        given = [self.query is not None, self.table is not None, bool(self.paths), self.jdbc is not None]
        if sum(given) != 1:
            raise MergeConfigError(
                "A source needs exactly one of a query, a table, paths and a JDBC source. Set one of them."
            )
        self._check_parts()
        for name in ("query", "select"):
            if (sql := getattr(self, name)) is not None:
                object.__setattr__(self, name, without_end(sql))
        if self.paths and self.format is None:
            object.__setattr__(self, "format", _guess_format(self.paths[0]))
        if self.jdbc is not None:
            object.__setattr__(self, "format", JDBC)
        if (found := self.bad_rows_rule) is not None:
            object.__setattr__(self, "max_bad_rows", found.most)

    def _check_parts(self) -> None:
        if self.query is not None:
            require_text(self.query, "the source's query")
        if self.format is not None:
            require_text(self.format, "the source's format")
        if self.select is not None:
            require_text(self.select, "the source's select")
        if self.table is not None:
            parse_multipart(require_text(self.table, "the source's table name"))
        for path in self.paths:
            require_text(path, "a path of the source")
        if not self.paths and (self.options or (self.format is not None and self.jdbc is None)):
            raise MergeConfigError(
                "A source's format and options are only available with paths. Remove them, or set paths."
            )
        if self.paths and str(self.format).lower() == JDBC:
            raise MergeConfigError(_NO_PATH)

    @property
    def bad_rows_rule(self) -> BadRows | None:
        """How bad rows are treated; None for sources whose bad rows this package doesn't detect."""
        return bad_rows_of(self._given_of_bad_rows(), format=self.format, options=self.options)

    def _given_of_bad_rows(self) -> dict[str, Any]:
        names = ("bad_rows", "max_bad_rows", "bad_rows_path")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def reader_options(self) -> dict[str, str]:
        """The options to read ``paths`` with.

        By default quotes within CSV fields are doubled, as in RFC 4180, and tabs separate the fields of ``.tsv`` files.
        """
        options = dict(self.options)
        if str(self.format).lower() != "csv":
            return options
        given = {name.lower(): value for name, value in self.options}
        if "escape" not in given and (quote := given.get("quote", '"')):
            options["escape"] = quote
        if not given.keys() & {"sep", "delimiter"} and all(_file_name(path).endswith(".tsv") for path in self.paths):
            options["sep"] = "\t"
        return options

    @classmethod
    def of_path(
        cls, path: str | Sequence[str], *, format: str | None = None, options: Mapping[str, Any] | None = None
    ) -> MergeSource:
        """Files as source: one path or several, e.g. ``of_path("/in/day.csv", options={"header": True})``."""
        paths = (path,) if isinstance(path, str) else tuple(path)
        if not paths:
            raise MergeConfigError("The source's list of paths is empty. Add at least one path.")
        return cls(paths=paths, format=format, options=pairs(options or (), "options"))

    @classmethod
    def of(cls, value: MergeSource | str | Sequence[str] | Mapping[str, Any]) -> MergeSource:
        """Read a source from a string, a list or a dict, as people write it or an upstream task returns it.

        A string is a query if it begins like one, a path if it has a ``/`` outside backticks, else a table's name. A
        list has paths. A dict has ``query``, ``table``, ``path`` or ``paths``, and other parameters of
        :class:`MergeSource`; with ``"format": "jdbc"`` those of :class:`JdbcSource`.

        :raises MergeConfigError: when it is none of these.
        """
        if isinstance(value, MergeSource):
            return value
        if isinstance(value, Mapping):
            return cls._from_mapping(value)
        if isinstance(value, str):
            text = require_text(value, "the source")
            if _QUERY.match(text):
                return cls(query=text)
            return cls(paths=(text,)) if _is_path(text) else cls(table=text)
        if isinstance(value, Sequence):
            return cls.of_path(value)
        refuse_output(value, "The source")
        what = f"{value!r:.80}"
        if is_data_frame(value):
            what = f"a {type(value).__name__}. Write its rows to a file, and give the path"
        raise MergeConfigError(f"A source must be a string, a list of paths or a dict, got {what}.")

    @classmethod
    def _from_mapping(cls, value: Mapping[str, Any]) -> MergeSource:
        if str(value.get("format")).lower() == JDBC:
            if value.keys() & {"path", "paths"}:
                raise MergeConfigError(_NO_PATH)
            parts = {name: part for name, part in value.items() if name not in ("format", "select")}
            return cls(jdbc=JdbcSource.of(parts), select=value.get("select"))
        check_keys(value, "source", optional=_PARTS_OF_A_SOURCE)
        if "path" in value and "paths" in value:
            raise MergeConfigError("A source has both path and paths. Remove one of the two.")
        paths = value.get("paths") or ((value["path"],) if value.get("path") is not None else ())
        paths = (paths,) if isinstance(paths, str) else paths
        others = {name: part for name, part in value.items() if name not in ("path", "paths")}
        return cls(**{**others, "paths": paths, "options": value.get("options") or ()})

    def selecting(self, query: str) -> MergeSource:
        """The same source seen through a query, which calls its rows ``source``."""
        if self.select is not None:
            query = f"WITH `source` AS (\n{self.select}\n)\n(\n{query}\n)"
        return replace(self, select=query)

    @property
    def needs_view(self) -> bool:
        """Whether SQL cannot express the rows, so that a DataFrame must read them and a view name them."""
        if self.jdbc is not None:
            return True
        plain = self.format in FORMATS_WITHOUT_OPTIONS and not self.options and len(self.paths) == 1
        return bool(self.paths) and (not plain or self.bad_rows_rule is not None)

    def to_sql(self, relation: str | None = None) -> str:
        """The source as a relation of Spark SQL.

        For files that SQL cannot express (:attr:`needs_view`) a comment describes them.

        :param relation: SQL that replaces the query, table or files, e.g. the name of the view that reads them.
        """
        relation = self._relation() if relation is None else relation
        if self.select is None:
            return relation
        return f"(\nWITH `source` AS (SELECT * FROM {relation})\n(\n{self.select}\n)\n)"

    def _relation(self) -> str:
        if self.query is not None:
            return f"(\n{self.query}\n)"
        if self.table is not None:
            return quote_name(self.table)
        if self.jdbc is not None:
            read = (self.jdbc.table or self.jdbc.query or "").replace("*/", "* /")
            return f"{JDBC}.{quote_identifier(self.jdbc.conn_id)} /* {read} */"
        assert self.format is not None
        files = f"{quote_identifier(self.format)}.{quote_identifier(self.paths[0])}"
        if not self.needs_view or (len(self.paths) == 1 and self.format == "json" and not self.options):
            return files
        names = ", ".join(name for name, _ in self.options)
        more = f"{len(self.paths)} paths, options: {names or 'none'}".replace("*/", "* /")
        return f"{files} /* {more} */"

    def to_dict(self) -> dict[str, Any]:
        select = {} if self.select is None else {"select": self.select}
        if self.query is not None:
            return {"query": self.query, **select}
        if self.table is not None:
            return {"table": self.table, **select}
        if self.jdbc is not None:
            return {"format": JDBC, **self.jdbc.to_dict(), **select}
        more = {**select, **self._given_of_bad_rows()}
        return {"paths": list(self.paths), "format": self.format, "options": dict(self.options), **more}


def _is_path(text: str) -> bool:
    return "/" in re.sub(r"`[^`]*`", "", text)


def _file_name(path: str) -> str:
    """A path in lower case without what says how it is compressed."""
    return path.rstrip("/").lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")


def _guess_format(path: str) -> str:
    name = _file_name(path)
    return next((fmt for suffix, fmt in _FORMAT_OF_SUFFIX.items() if name.endswith(suffix)), "delta")
