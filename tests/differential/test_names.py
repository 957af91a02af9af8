"""Names that other engines trip over: in the target, in the source, as aliases and as struct fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_delta_merge.identifiers import quote_identifier
from tests.differential.cases import Case, Table
from tests.differential.harness import WRITE_NO_DELETION_VECTORS, Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MAPPING = {"delta.columnMapping.mode": "name"}  # allows any character in a column's name

# Names that Parquet allows, so that they need no column mapping; each family is the columns of one table.
FAMILIES = {
    "punctuation": ["a.b", "a-b", "a:b", "a/b", "a'b", 'a"b', "#1", "$x", "@", "*", "%s", "\\"],
    "letters and digits": ["ü", "数", "😀", "1a", "İ", "ǅ"],
    "words of SQL": ["select", "ON", "matched", "values", "null", "default", "current_date", "target", "source"],
    "aliases": ["t", "s", "t.id", "s.id"],
    "metadata": ["_metadata", "metadata", "file_path", "row_index", "_metadata.row_index",
    "__delta_internal_row_index"],
    "likely internals of ours": [
        "__row_index", "__file", "__file_id", "__clause", "__action", "__source_row", "__target_row", "fileIndex",
        "rowIndex", "row_id", "clause", "action", "count", "modifiedRowsCount", "matched_rows", "file_id",
    ],
}  # fmt: skip
MAPPED_NAMES = ["a b", "a,b", "a;b", "a{b}", "a(b)", "a\tb", "a=b", " leading", "trailing "]
# The built-in MERGE itself breaks on some of these; ours must not. See test_names_the_built_in_breaks_on.
INTERNALS_OF_DELTA = [
    "_row_id_", "_file_name_", "_source_row_present_", "_target_row_present_", "_row_dropped_", "_incr_row_count_",
    "_precomputed_condition_", "_source_row_index", "_target_row_index", "__is_cdc",
    "_change_type_", "filePath", "rowIndexCol", "deletionVectorId",
]  # fmt: skip


def _columns_with_names(what: str, names: list[str], properties: dict[str, str]) -> Case:
    quoted = [quote_identifier(name) for name in names]
    last = quoted[-1]
    columns = ", ".join(f"{q} STRING" for q in quoted)
    texts = ", ".join(f"'{i}'" for i in range(len(names)))
    news = ", ".join(f"'new {i}'" for i in range(len(names)))
    sets = ", ".join(f"{q} = concat(t.{q}, s.{q})" for q in quoted)
    return Case(
        f"columns named by {what}",
        f"WHEN MATCHED AND t.{last} <> s.{last} AND s.id = 2 THEN UPDATE SET {sets} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        does="update, insert",
        table=Table(f"id INT, {columns}", (f"(1, {texts}), (2, {texts})", f"(3, {texts})"), properties=properties),
        source=f"VALUES (2, {news}), (3, {texts}), (9, {news}) AS s(id, {', '.join(quoted)})",
    )


def _key_with_name(name: str) -> Case:
    q = quote_identifier(name)
    return Case(
        f"a key named {name!r}",
        f"WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v) WHEN NOT MATCHED THEN INSERT (v, {q}) VALUES (s.v, s.{q})",
        does="update, insert",
        table=Table(f"{q} INT, v STRING", ("(1, 'a'), (2, 'b')", "(3, 'c')")),
        source=f"VALUES (2, 'B'), (3, 'c'), (9, 'i') AS s({q}, v)",
        on=f"t.{q} = s.{q}",
    )


def _only_in_source(name: str) -> Case:
    q = quote_identifier(name)
    return Case(
        f"a source column named {name!r}",
        f"WHEN MATCHED THEN UPDATE SET name = s.{q} WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.{q})",
        does="update, insert",
        source=f"VALUES (2, 'B'), (9, 'i') AS s(id, {q})",
    )


COLUMNS = [
    # Delta's own analysis stumbles over a backtick when it expands the star.
    replace(_columns_with_names("a backtick", ["a`b"], {}), does="", fails="INVALID_ATTRIBUTE_NAME_SYNTAX"),
    *(_columns_with_names(what, names, {}) for what, names in FAMILIES.items()),
    _columns_with_names("characters that need column mapping", MAPPED_NAMES, MAPPING),
]
KEYS = [_key_with_name(name) for name in ("a.b", "a`b", "_metadata", "t", "row_index")]
SOURCE_COLUMNS = [_only_in_source(name) for name in ("_metadata", "_change_type", "t")]

ALIASES = [
    Case("no aliases", does="update", by_name=True,
         merge="MERGE INTO {t} USING (SELECT 2 AS key, 'B' AS v) ON id = key WHEN MATCHED THEN UPDATE SET name = v"),
    Case("aliases with odd characters", does="update, insert",
         merge="MERGE INTO {t} AS `a.b` USING {s} AS `c``d e` ON `a.b`.id = `c``d e`.id "
               "WHEN MATCHED AND `a.b`.age > 0 THEN UPDATE SET age = `c``d e`.age WHEN NOT MATCHED THEN INSERT *"),
    Case("the source has the alias of the target's column", does="update",
         merge="MERGE INTO {t} AS t USING (SELECT 2 AS id, 9 AS age) AS name ON t.id = name.id "
               "WHEN MATCHED THEN UPDATE SET age = name.age"),
    Case("a struct field of the same name as an alias", does="update", table=Table("id INT, s STRUCT<id: INT>",
         "(1, struct(1)), (2, struct(2))"), source="VALUES (1, 5) AS s(id, n)",
         merge="MERGE INTO {t} AS t USING {s} AS src ON t.id = src.id WHEN MATCHED THEN UPDATE SET s.id = src.n"),
    Case("names in capitals, insert", "WHEN NOT MATCHED THEN INSERT (ID, Name) VALUES (S.Id, s.NAME)", does="insert"),
    Case("columns of source and target differ in case", UPSERT, does="update, insert",
         source="VALUES (2, 'B', 1), (9, 'I', 2) AS s(ID, Name, AGE)"),
    Case("case-sensitive: same case", UPSERT, does="update, insert", confs={"spark.sql.caseSensitive": "true"}),
    Case("case-sensitive: other case", "WHEN MATCHED THEN UPDATE SET NAME = s.name",
         fails="DELTA_MERGE_UNRESOLVED_EXPRESSION", confs={"spark.sql.caseSensitive": "true"}),
    Case("case-sensitive: star with other case", UPSERT, fails="DELTA_MERGE_UNRESOLVED_EXPRESSION",
         source="VALUES (2, 'B', 1) AS s(id, Name, age)", confs={"spark.sql.caseSensitive": "true"}),
    Case("the same column twice in an insert, the first wins",
         "WHEN NOT MATCHED THEN INSERT (id, ID) VALUES (s.id, 99)",
         does="insert"),
    Case("the same column twice in an update", "WHEN MATCHED THEN UPDATE SET age = 1, AGE = 2",
         fails="DELTA_CONFLICT_SET_COLUMN"),
]  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS, ids=str)
def test_column_names(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", KEYS, ids=str)
def test_key_names(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", SOURCE_COLUMNS, ids=str)
def test_source_column_names(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", ALIASES, ids=str)
def test_aliases_and_case(case: Case, engines: Harness) -> None:
    engines.check(case)


def test_names_the_built_in_breaks_on(engines: Harness) -> None:
    """Ours alone must do what the built-in does for the same table with harmless names."""
    harmless = [f"harmless_{i}" for i in range(len(INTERNALS_OF_DELTA))]
    engines.check_like(
        _columns_with_names("internals of Delta", INTERNALS_OF_DELTA, {}),
        like=_columns_with_names("harmless words", harmless, {}),
    )


def test_a_column_that_hides_positions_from_deletion_vectors(engines: Harness) -> None:
    """The built-in fails. Ours can't tell which row of a file to mark either, so it writes the files anew."""
    marks = {"delta.enableDeletionVectors": "true"}
    engines.check_like(
        _columns_with_names("what hides positions", ["_Metadata"], marks),
        like=replace(_columns_with_names("a harmless word", ["harmless"], marks), confs=WRITE_NO_DELETION_VECTORS),
    )
