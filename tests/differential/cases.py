"""The vocabulary of the differential cases: :class:`Table` and :class:`Case`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("update", "delete", "insert")
ANYTHING = "anything"  # what a made-up case does


@dataclass(frozen=True)
class Table:
    """How a Delta table comes to be. Equal tables are built once in a run, and copied for each case.

    :param columns: the columns of ``CREATE TABLE``.
    :param rows: SQL rows or a query for each commit, e.g. ``("(1, 'a'), (2, 'b')", "SELECT …")``.
    :param files: into how many files each commit is cut, by ranges of the first column.
    :param partitioned_by: columns of ``PARTITIONED BY``.
    :param cluster_by: columns of ``CLUSTER BY``.
    :param properties: table properties.
    :param then: further statements, with ``{t}`` for the table.
    :param confs: session settings while it is built.
    :param edits: texts of the log and what replaces them, at the end: for states that no statement leads to.
    :param archive: or a table of ``tests/foreign/tables``, which comes as it is and has none of the above.
    :param damage: what of :mod:`tests.foreign.damage` is done to its log, e.g. ``("bounds null in every 2nd file",)``.
    """

    columns: str = ""
    rows: tuple[str, ...] | str = ()
    files: int = 1
    partitioned_by: str = ""
    cluster_by: str = ""
    properties: tuple[tuple[str, str], ...] | Mapping[str, str] = ()
    then: tuple[str, ...] | str = ()
    confs: tuple[tuple[str, str], ...] | Mapping[str, str] = ()
    edits: tuple[tuple[str, str], ...] = ()
    archive: str = ""
    damage: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rows", "then"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        for name in ("properties", "confs"):
            object.__setattr__(self, name, tuple(sorted(dict(getattr(self, name)).items())))

    @property
    def statements(self) -> list[str]:
        """The SQL that builds it, with ``{t}`` for the table."""
        if self.archive:
            return []
        create = f"CREATE TABLE {{t}} ({self.columns}) USING delta"
        if self.partitioned_by:
            create += f" PARTITIONED BY ({self.partitioned_by})"
        if self.cluster_by:
            create += f" CLUSTER BY ({self.cluster_by})"
        if self.properties:
            create += " TBLPROPERTIES (" + ", ".join(f"'{k}' = '{v}'" for k, v in self.properties) + ")"
        return [create, *(self._insert(rows) for rows in self.rows), *self.then]

    def _insert(self, rows: str) -> str:
        words = rows.split(None, 1)
        if words[0].upper() == "INSERT":
            return rows
        is_query = words[0].upper() in ("SELECT", "WITH")
        query = rows if is_query else f"SELECT * FROM VALUES {rows}"
        ranges = f"REPARTITION({self.files})" if is_query else f"REPARTITION_BY_RANGE({self.files}, col1)"
        hint = "COALESCE(1)" if self.files == 1 else ranges
        return f"INSERT INTO {{t}} SELECT /*+ {hint} */ * FROM ({query})"


PEOPLE = Table("id INT, name STRING, age INT", rows="(1, 'ann', 30), (2, 'bob', 40), (3, 'cid', 50), (4, 'dan', NULL)")
PEOPLE_SOURCE = "VALUES (2, 'BOB', 41), (3, 'CID', 51), (7, 'gil', 17), (8, NULL, 18) AS s(id, name, age)"


@dataclass(frozen=True)
class Case:
    """One statement on one table, run by both engines.

    :param name: what it shows.
    :param clauses: the ``WHEN`` clauses; the statement around them is made of ``on`` and ``source``.
    :param does: what it changes, of "update, delete, insert", or "nothing"; "anything" if made up.
    :param fails: or the error condition that it raises instead.
    :param table: the target.
    :param source: a query (``SELECT``, ``WITH``, ``VALUES``), or a relation. ``{t}`` is the target.
    :param source_table: a Delta table as source, then ``{s}``.
    :param on: the merge condition; the target is ``t``, the source ``s``.
    :param merge: the whole statement, where the form above is too narrow, with ``{t}`` and ``{s}``.
    :param evolves: ``WITH SCHEMA EVOLUTION``.
    :param before: statements run before the merge, for each engine anew, with ``{t}`` and ``{s}``.
    :param meanwhile: statements that another session runs while the merge reads its source, with ``{t}``.
    :param confs: session settings during ``before`` and the merge.
    :param by_name: name the target by the catalog instead of by its path.
    :param executor: which of ours must run, e.g. "InsertOnlyMergeExecutor".
    :param without: columns left out of the comparison, because their values are made up (``rand()``, identity).
    :param every_version: whether ``make test-versions`` runs the case on each combination of Spark and Delta, too.
    :param since: the first minor version of Delta whose ``CREATE TABLE`` makes the table by its path.
    """

    name: str
    clauses: str = ""
    does: str = ""
    fails: str = ""
    table: Table = PEOPLE
    source: str = PEOPLE_SOURCE
    source_table: Table | None = None
    on: str = "t.id = s.id"
    merge: str = ""
    evolves: bool = False
    before: tuple[str, ...] | str = ()
    meanwhile: tuple[str, ...] | str = ()
    confs: Mapping[str, str] = field(default_factory=dict)
    by_name: bool = False
    executor: str = ""
    without: tuple[str, ...] = ()
    every_version: bool = False
    since: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        for name in ("before", "meanwhile"):
            if isinstance(statement := getattr(self, name), str):
                object.__setattr__(self, name, (statement,))
        if not (self.does or self.fails):
            raise ValueError(f"{self.name}: say what the case does, or how it fails")
        if self.does != ANYTHING and (unknown := set(self.kinds) - {*KINDS}):
            raise ValueError(f"{self.name}: unknown kinds of change: {unknown}")

    def __str__(self) -> str:
        return self.name

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of change it makes."""
        return () if self.does in ("", "nothing") else tuple(kind.strip() for kind in self.does.split(","))

    @property
    def statement(self) -> str:
        """The MERGE, with ``{t}`` for the target and ``{s}`` for the source."""
        if self.merge:
            return self.merge
        evolution = "WITH SCHEMA EVOLUTION " if self.evolves else ""
        return f"MERGE {evolution}INTO {{t}} AS t USING {{s}} AS s ON {self.on}\n{self.clauses}"

    def source_relation(self, source_table: str | None) -> str:
        """What ``{s}`` stands for."""
        if source_table is not None:
            return source_table
        words = self.source.split(None, 1)
        return f"({self.source})" if words[0].upper() in ("SELECT", "VALUES", "WITH", "FROM") else self.source
