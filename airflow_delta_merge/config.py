"""What a merge shall do: :class:`MergeConfig`, its target, source and clauses.

All are frozen and checked when they are built, so a DAG with a wrong merge fails while it is parsed. They turn
into JSON and back (for the road from the operator to the Spark job) and into a ``MERGE`` statement, which
Delta's own analyzer resolves. Conditions and values are SQL expressions, names are data: names are always quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_multipart

CONFIG_VERSION = 1

_E = TypeVar("_E", bound=StrEnum)


class ClauseKind(StrEnum):
    """When a clause applies, in the order in which the MERGE grammar wants the kinds."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"


class ClauseAction(StrEnum):
    """What a clause does to the rows it takes."""

    UPDATE = "update"
    UPDATE_ALL = "update_all"
    DELETE = "delete"
    INSERT = "insert"
    INSERT_ALL = "insert_all"


_ACTIONS_OF_KIND = {
    ClauseKind.MATCHED: (ClauseAction.UPDATE, ClauseAction.UPDATE_ALL, ClauseAction.DELETE),
    ClauseKind.NOT_MATCHED: (ClauseAction.INSERT, ClauseAction.INSERT_ALL),
    ClauseKind.NOT_MATCHED_BY_SOURCE: (ClauseAction.UPDATE, ClauseAction.DELETE),
}
_ACTIONS_WITH_VALUES = (ClauseAction.UPDATE, ClauseAction.INSERT)


@dataclass(frozen=True)
class MergeClause:
    """One ``WHEN … THEN …`` of a merge; build it by the ``when_…`` functions, which read like the statement.

    :param kind: when the clause applies.
    :param action: what it does.
    :param values: pairs of (column, SQL expression) of an ``update`` or ``insert``; empty for all other actions.
        A column may be a struct's field (``address.city``), for updates.
    :param condition: a further SQL condition, or None.
    """

    kind: ClauseKind
    action: ClauseAction
    values: tuple[tuple[str, str], ...] = ()
    condition: str | None = None

    def __post_init__(self) -> None:
        kind, action = _enum(ClauseKind, self.kind), _enum(ClauseAction, self.action)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "action", action)
        object.__setattr__(self, "values", tuple((column, value) for column, value in self.values))
        if action not in _ACTIONS_OF_KIND[kind]:
            allowed = ", ".join(_ACTIONS_OF_KIND[kind])
            raise MergeConfigError(f"A {kind} clause cannot {action}; it can: {allowed}.")
        if action in _ACTIONS_WITH_VALUES and not self.values:
            raise MergeConfigError(
                f"The {kind} {action} clause sets no column: give at least one column and its SQL expression."
            )
        if action not in _ACTIONS_WITH_VALUES and self.values:
            raise MergeConfigError(f"The {kind} {action} clause takes no columns, but has {len(self.values)}.")
        if self.condition is not None:
            _require_text(self.condition, f"the condition of the {kind} {action} clause")
        for column, value in self.values:
            parse_multipart(_require_text(column, f"a column of the {kind} {action} clause"))
            _require_text(value, f"the value of column {column!r} in the {kind} {action} clause")

    def to_sql(self) -> str:
        """The clause as Spark SQL; each expression ends its own line, so that a comment in it ends there."""
        when = {
            ClauseKind.MATCHED: "WHEN MATCHED",
            ClauseKind.NOT_MATCHED: "WHEN NOT MATCHED",
            ClauseKind.NOT_MATCHED_BY_SOURCE: "WHEN NOT MATCHED BY SOURCE",
        }[self.kind]
        condition = f" AND (\n  {self.condition}\n)" if self.condition is not None else ""
        return f"{when}{condition} THEN {self._action_sql()}"

    def _action_sql(self) -> str:
        columns = [quote_multipart(parse_multipart(column)) for column, _ in self.values]
        match self.action:
            case ClauseAction.DELETE:
                return "DELETE"
            case ClauseAction.UPDATE_ALL:
                return "UPDATE SET *"
            case ClauseAction.INSERT_ALL:
                return "INSERT *"
            case ClauseAction.UPDATE:
                pairs = zip(columns, self.values, strict=True)
                sets = "\n, ".join(f"{column} = {value}" for column, (_, value) in pairs)
                return f"UPDATE SET\n  {sets}\n"
            case ClauseAction.INSERT:
                values = "\n, ".join(value for _, value in self.values)
                return f"INSERT ({', '.join(columns)}) VALUES (\n  {values}\n)"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "action": str(self.action),
            "values": [list(pair) for pair in self.values],
            "condition": self.condition,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergeClause:
        _check_keys(data, "clause", required=("kind", "action"), optional=("values", "condition"))
        values = data.get("values") or ()
        if isinstance(values, Mapping):
            values = values.items()
        return cls(data["kind"], data["action"], tuple((c, v) for c, v in values), data.get("condition"))


def when_matched_update(*, set: Mapping[str, str], condition: str | None = None) -> MergeClause:
    """Update matched rows: ``set`` maps target columns to SQL expressions over target and source."""
    return MergeClause(ClauseKind.MATCHED, ClauseAction.UPDATE, tuple(set.items()), condition)


def when_matched_update_all(*, condition: str | None = None) -> MergeClause:
    """Update every column of matched rows with the source's column of the same name."""
    return MergeClause(ClauseKind.MATCHED, ClauseAction.UPDATE_ALL, condition=condition)


def when_matched_delete(*, condition: str | None = None) -> MergeClause:
    """Delete matched rows."""
    return MergeClause(ClauseKind.MATCHED, ClauseAction.DELETE, condition=condition)


def when_not_matched_insert(*, values: Mapping[str, str], condition: str | None = None) -> MergeClause:
    """Insert source rows that match nothing: ``values`` maps target columns to SQL expressions over the source."""
    return MergeClause(ClauseKind.NOT_MATCHED, ClauseAction.INSERT, tuple(values.items()), condition)


def when_not_matched_insert_all(*, condition: str | None = None) -> MergeClause:
    """Insert source rows that match nothing, every column by name."""
    return MergeClause(ClauseKind.NOT_MATCHED, ClauseAction.INSERT_ALL, condition=condition)


def when_not_matched_by_source_update(*, set: Mapping[str, str], condition: str | None = None) -> MergeClause:
    """Update target rows that no source row matches: SQL expressions over the target."""
    return MergeClause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.UPDATE, tuple(set.items()), condition)


def when_not_matched_by_source_delete(*, condition: str | None = None) -> MergeClause:
    """Delete target rows that no source row matches."""
    return MergeClause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.DELETE, condition=condition)


@dataclass(frozen=True)
class MergeTarget:
    """The Delta table to merge into, by name or by path (exactly one of the two).

    :param table: a name of one to three parts, as Spark SQL writes it.
    :param path: a directory or URI that holds the table.
    """

    table: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if (self.table is None) == (self.path is None):
            raise MergeConfigError("A merge target is either a table name or a path; give exactly one.")
        if self.table is not None:
            parse_multipart(_require_text(self.table, "the target's table name"))
        else:
            _require_text(self.path, "the target's path")

    @classmethod
    def of(cls, value: MergeTarget | str | Mapping[str, Any]) -> MergeTarget:
        """Read a target from a string (a path if it has a ``/`` outside backticks, else a name) or dict."""
        if isinstance(value, MergeTarget):
            return value
        if isinstance(value, Mapping):
            _check_keys(value, "target", optional=("table", "path"))
            return cls(table=value.get("table"), path=value.get("path"))
        text = _require_text(value, "the target")
        return cls(path=text) if _is_path(text) else cls(table=text)

    def to_sql(self) -> str:
        if self.path is not None:
            return f"delta.{quote_identifier(self.path)}"
        assert self.table is not None
        return quote_multipart(parse_multipart(self.table))

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path} if self.path is not None else {"table": self.table}


_QUERY = re.compile(r"\s*(\(\s*)*(select|with|from|values|table)\b", re.IGNORECASE)
_FORMAT_OF_SUFFIX = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".orc": "orc",
    ".avro": "avro",
}
_FORMATS_WITHOUT_OPTIONS = ("parquet", "delta", "orc", "json")


@dataclass(frozen=True)
class MergeSource:
    """The rows to merge: a query, a table or files (exactly one of the three).

    :param query: a ``SELECT`` (or ``WITH``, ``VALUES``, ``FROM``) statement.
    :param table: a table or view by name.
    :param paths: files or directories, read together.
    :param format: the format of ``paths`` as Spark names it; by default guessed from the suffix, else ``delta``.
    :param options: reader options for ``paths``, as pairs of (name, value).
    """

    query: str | None = None
    table: str | None = None
    paths: tuple[str, ...] = ()
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(self.paths))
        options = self.options.items() if isinstance(self.options, Mapping) else self.options
        object.__setattr__(self, "options", tuple(sorted((str(k), _option_text(v)) for k, v in options)))
        given = [self.query is not None, self.table is not None, bool(self.paths)]
        if sum(given) != 1:
            raise MergeConfigError("A merge source is either a query, a table or paths; give exactly one.")
        if self.query is not None:
            _require_text(self.query, "the source's query")
        if self.table is not None:
            parse_multipart(_require_text(self.table, "the source's table name"))
        for path in self.paths:
            _require_text(path, "a path of the source")
        if not self.paths and (self.format is not None or self.options):
            raise MergeConfigError("A source's format and options go with a path, not with a query or a table.")
        if self.paths and self.format is None:
            object.__setattr__(self, "format", _guess_format(self.paths[0]))

    @classmethod
    def of_path(
        cls, path: str | Sequence[str], *, format: str | None = None, options: Mapping[str, Any] | None = None
    ) -> MergeSource:
        """Files as source: one path or several, e.g. ``of_path("/in/day.csv", options={"header": True})``."""
        paths = (path,) if isinstance(path, str) else tuple(path)
        if not paths:
            raise MergeConfigError("The source's list of paths is empty: give at least one path.")
        return cls(paths=paths, format=format, options=tuple((options or {}).items()))

    @classmethod
    def of(cls, value: MergeSource | str | Sequence[str] | Mapping[str, Any]) -> MergeSource:
        """Read a source from what people write or an upstream task returned.

        A string is a query if it begins as one, a path if it has a ``/`` outside backticks, else a table name;
        a list is paths; a dict has ``query``, ``table`` or ``path`` / ``paths`` with ``format`` and ``options``.
        """
        if isinstance(value, MergeSource):
            return value
        if isinstance(value, Mapping):
            return cls._from_mapping(value)
        if isinstance(value, str):
            text = _require_text(value, "the source")
            if _QUERY.match(text):
                return cls(query=text)
            return cls(paths=(text,)) if _is_path(text) else cls(table=text)
        if isinstance(value, Sequence):
            return cls.of_path(value)
        raise MergeConfigError(f"A merge source is a string, a list of paths or a dict, not {type(value).__name__}.")

    @classmethod
    def _from_mapping(cls, value: Mapping[str, Any]) -> MergeSource:
        _check_keys(value, "source", optional=("query", "table", "path", "paths", "format", "options"))
        if "path" in value and "paths" in value:
            raise MergeConfigError("A merge source has either path or paths, not both.")
        paths = value.get("paths") or ((value["path"],) if value.get("path") is not None else ())
        return cls(
            query=value.get("query"),
            table=value.get("table"),
            paths=(paths,) if isinstance(paths, str) else tuple(paths),
            format=value.get("format"),
            options=tuple(dict(value.get("options") or {}).items()),
        )

    @property
    def needs_view(self) -> bool:
        """Whether the files must be read by a DataFrame reader and named by a view, as SQL cannot express them."""
        plain = self.format in _FORMATS_WITHOUT_OPTIONS and not self.options and len(self.paths) == 1
        return bool(self.paths) and not plain

    def to_sql(self) -> str:
        """The source as a relation of Spark SQL.

        For files that SQL cannot express (:attr:`needs_view`) the reader's call stands in a comment, for people.
        """
        if self.query is not None:
            return f"(\n{self.query}\n)"
        if self.table is not None:
            return quote_multipart(parse_multipart(self.table))
        assert self.format is not None
        files = f"{quote_identifier(self.format)}.{quote_identifier(self.paths[0])}"
        if not self.needs_view:
            return files
        names = ", ".join(name for name, _ in self.options)
        more = f"{len(self.paths)} paths, options: {names or 'none'}".replace("*/", "* /")
        return f"{files} /* {more} */"

    def to_dict(self) -> dict[str, Any]:
        if self.query is not None:
            return {"query": self.query}
        if self.table is not None:
            return {"table": self.table}
        return {"paths": list(self.paths), "format": self.format, "options": dict(self.options)}


@dataclass(frozen=True, kw_only=True)
class MergeConfig:
    """One merge, whole: ``MERGE INTO target USING source ON on clauses…``.

    :param target: the table, as :class:`MergeTarget` or what :meth:`MergeTarget.of` reads.
    :param source: the rows, as :class:`MergeSource` or what :meth:`MergeSource.of` reads.
    :param on: a SQL condition (a string) or key columns that both sides have (a list of names).
    :param clauses: one or more clauses; kinds may come in any order, clauses of one kind apply in theirs.
    :param null_safe: with key columns: two NULLs are equal (``<=>``).
    :param target_alias: the name of the target in conditions and values.
    :param source_alias: the name of the source in conditions and values.
    :param with_schema_evolution: columns that only the source has are added to the target.
    :raises MergeConfigError: when any of it can't be meant so.
    """

    target: MergeTarget
    source: MergeSource
    on: str | tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    null_safe: bool = False
    target_alias: str = "target"
    source_alias: str = "source"
    with_schema_evolution: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", MergeTarget.of(self.target))
        object.__setattr__(self, "source", MergeSource.of(self.source))
        object.__setattr__(self, "on", _check_on(self.on, self.null_safe))
        object.__setattr__(self, "clauses", _check_clauses(self.clauses))
        for alias in (self.target_alias, self.source_alias):
            _require_text(alias, "an alias")
        if self.target_alias.lower() == self.source_alias.lower():
            raise MergeConfigError(f"Target and source have the same alias {self.target_alias!r}; give them two.")

    @property
    def condition_sql(self) -> str:
        """The ON condition as SQL, also when keys were given."""
        if isinstance(self.on, str):
            return self.on
        target, source = quote_identifier(self.target_alias), quote_identifier(self.source_alias)
        equals = "<=>" if self.null_safe else "="
        keys = [quote_multipart(parse_multipart(key)) for key in self.on]
        return " AND ".join(f"{target}.{key} {equals} {source}.{key}" for key in keys)

    def to_sql(self, *, source_relation: str | None = None) -> str:
        """The MERGE statement.

        :param source_relation: SQL to stand for the source, e.g. the view under which files were registered.
        """
        evolution = "WITH SCHEMA EVOLUTION " if self.with_schema_evolution else ""
        source = source_relation if source_relation is not None else self.source.to_sql()
        lines = [
            f"MERGE {evolution}INTO {self.target.to_sql()} AS {quote_identifier(self.target_alias)}",
            f"USING {source} AS {quote_identifier(self.source_alias)}",
            f"ON (\n  {self.condition_sql}\n)",
        ]
        lines += [clause.to_sql() for clause in self.ordered_clauses]
        return "\n".join(lines)

    @property
    def ordered_clauses(self) -> tuple[MergeClause, ...]:
        """The clauses in the order of the grammar; within a kind as they were given."""
        kinds = list(ClauseKind)
        return tuple(sorted(self.clauses, key=lambda clause: kinds.index(clause.kind)))

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_dict` reads it back."""
        return {
            "version": CONFIG_VERSION,
            "target": self.target.to_dict(),
            "source": self.source.to_dict(),
            "on": self.on if isinstance(self.on, str) else list(self.on),
            "clauses": [clause.to_dict() for clause in self.clauses],
            "null_safe": self.null_safe,
            "target_alias": self.target_alias,
            "source_alias": self.source_alias,
            "with_schema_evolution": self.with_schema_evolution,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergeConfig:
        """Read a config from a dict of JSON types.

        :raises MergeConfigError: for unknown keys, another version, or a config that can't be meant so.
        """
        optional = ("null_safe", "target_alias", "source_alias", "with_schema_evolution")
        required = ("target", "source", "on", "clauses")
        _check_keys(data, "config", required=required, optional=("version", *optional))
        if data.get("version", CONFIG_VERSION) != CONFIG_VERSION:
            raise MergeConfigError(
                f"This config has version {data['version']!r}, this package reads version {CONFIG_VERSION}: "
                "use the same release on both ends."
            )
        return cls(
            target=MergeTarget.of(data["target"]),
            source=MergeSource.of(data["source"]),
            on=data["on"],
            clauses=data["clauses"],
            **{key: data[key] for key in optional if key in data},
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> MergeConfig:
        """Read what :meth:`to_json` wrote.

        :raises MergeConfigError: when the text is no JSON object or no config.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise MergeConfigError(f"The merge config is not JSON: {error}.") from error
        if not isinstance(data, dict):
            raise MergeConfigError(f"The merge config is a JSON {type(data).__name__}, an object is needed.")
        return cls.from_dict(data)


def _check_on(on: str | Iterable[str], null_safe: bool) -> str | tuple[str, ...]:
    if isinstance(on, str):
        _require_text(on, "on")
        if null_safe:
            raise MergeConfigError("null_safe goes with key columns; in a condition write <=> instead of =.")
        if re.fullmatch(r"\s*[^\W\d]\w*\s*", on) and on.strip().lower() not in ("true", "false"):
            raise MergeConfigError(f"on={on!r} is a column, not a condition; for a key column write on=[{on!r}].")
        return on
    if isinstance(on, Mapping) or not isinstance(on, Iterable):
        raise MergeConfigError(f"on is a SQL condition or a list of key columns, not {type(on).__name__}.")
    keys = tuple(on)
    if not keys:
        raise MergeConfigError("on is empty: give a SQL condition or at least one key column.")
    for key in keys:
        _require_text(key, "a key column in on")
        if "`" not in key and re.search(r"[=<>]", key):
            raise MergeConfigError(
                f"on has the key column {key!r}, which looks like a condition. Give on either one condition as a "
                "string, or key columns as a list; a column with such a name goes in backticks."
            )
        parse_multipart(key)
    if len(set(keys)) != len(keys):
        raise MergeConfigError(f"on names a key column twice: {', '.join(keys)}.")
    return keys


def _check_clauses(clauses: Iterable[MergeClause | Mapping[str, Any]]) -> tuple[MergeClause, ...]:
    if isinstance(clauses, (MergeClause, Mapping, str)):
        clauses = (clauses,)
    checked = tuple(_clause(clause) for clause in clauses)
    if not checked:
        raise MergeConfigError(
            "A merge needs at least one clause, e.g. when_matched_update_all() and when_not_matched_insert_all()."
        )
    for kind in ClauseKind:
        of_kind = [clause for clause in checked if clause.kind is kind]
        for clause in of_kind[:-1]:
            if clause.condition is None:
                raise MergeConfigError(
                    f"The {kind} {clause.action} clause has no condition but another {kind} clause follows, which "
                    "could never apply: give it a condition or put it last."
                )
    return checked


def _clause(value: MergeClause | Mapping[str, Any]) -> MergeClause:
    if isinstance(value, MergeClause):
        return value
    if isinstance(value, Mapping):
        return MergeClause.from_dict(value)
    raise MergeConfigError(
        f"{value!r} is not a clause: build clauses by when_matched_update_all() and its like, or give dicts."
    )


def _enum(enum: type[_E], value: str) -> _E:
    try:
        return enum(value)
    except ValueError:
        allowed = ", ".join(enum)
        name = "kind" if enum is ClauseKind else "action"
        raise MergeConfigError(f"Unknown clause {name} {value!r}; known are: {allowed}.") from None


def _is_path(text: str) -> bool:
    return "/" in re.sub(r"`[^`]*`", "", text)


def _guess_format(path: str) -> str:
    name = path.rstrip("/").lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    return next((fmt for suffix, fmt in _FORMAT_OF_SUFFIX.items() if name.endswith(suffix)), "delta")


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise MergeConfigError(f"Expected a string for {what}, got {type(value).__name__}.")
    if not value.strip():
        raise MergeConfigError(f"Expected some text for {what}, got an empty string.")
    return value


def _check_keys(
    data: Mapping[str, Any], what: str, *, required: Sequence[str] = (), optional: Sequence[str] = ()
) -> None:
    missing = [key for key in required if key not in data]
    unknown = sorted(set(data) - set(required) - set(optional))
    if missing:
        raise MergeConfigError(f"The merge {what} lacks: {', '.join(missing)}.")
    if unknown:
        known = ", ".join((*required, *optional))
        raise MergeConfigError(f"The merge {what} has unknown keys: {', '.join(unknown)}. Known are: {known}.")
