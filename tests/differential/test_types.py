"""Keys and values of every type, and the casts between source and target."""

from __future__ import annotations

import pytest

from tests.differential.cases import Case, Table
from tests.differential.harness import Harness

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
UPDATE_V = "WHEN MATCHED THEN UPDATE SET v = s.v"

# A type, two values that are in the target, and one that is not.
TYPES = [
    ("BOOLEAN", "true", "false", "NULL"),
    ("TINYINT", "-128Y", "127Y", "0Y"),
    ("SMALLINT", "-32768S", "32767S", "0S"),
    ("INT", "-2147483648", "2147483647", "0"),
    ("BIGINT", "-9223372036854775808L", "9223372036854775807L", "9007199254740993L"),
    ("FLOAT", "CAST('NaN' AS FLOAT)", "CAST('-0.0' AS FLOAT)", "1.1F"),
    ("DOUBLE", "CAST('NaN' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)", "0.1D"),
    ("DECIMAL(5, 2)", "123.45", "-0.01", "999.99"),
    ("DECIMAL(38, 10)", "1234567890123456789012345678.0123456789", "-1", "0"),
    ("STRING", "''", "'ü€😀'", "'\\u0000'"),
    ("VARCHAR(10)", "'abc'", "'abc '", "'0123456789'"),
    ("CHAR(5)", "'ab'", "''", "'abcde'"),
    ("BINARY", "X''", "X'00FF'", "X'61'"),
    ("DATE", "DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-10'"),
    ("TIMESTAMP", "TIMESTAMP'2024-03-31 02:30:00.123456'", "TIMESTAMP'1883-11-18 12:00:00'", "TIMESTAMP'2024-01-01'"),
    ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-03-31 02:30:00.123456'", "TIMESTAMP_NTZ'0001-01-01'", "NULL"),
    ("STRUCT<a: INT, b: STRING>", "struct(1, 'x')", "struct(2, NULL)", "struct(NULL, NULL)"),
    ("ARRAY<INT>", "array(1, NULL)", "CAST(array() AS ARRAY<INT>)", "NULL"),
    ("ARRAY<STRUCT<a: INT>>", "array(struct(1), NULL)", "array(struct(2))", "NULL"),
    ("MAP<STRING, INT>", "map('a', 1, 'b', NULL)", "CAST(map() AS MAP<STRING, INT>)", "NULL"),
    ("STRUCT<a: STRUCT<b: ARRAY<MAP<STRING, DATE>>>>", "struct(struct(array(map('k', DATE'2024-01-01'))))", "NULL",
     "struct(NULL)"),
    ("INTERVAL DAY TO SECOND", "INTERVAL '1 02:03:04' DAY TO SECOND", "NULL", "INTERVAL '0' DAY"),
    ("VARIANT", "parse_json('{\"a\": [1, null]}')", "parse_json('null')", "NULL"),
]  # fmt: skip
NOT_IN_DELTA = ("INTERVAL DAY TO SECOND",)
NOT_A_KEY = ("MAP<STRING, INT>", "STRUCT<a: STRUCT<b: ARRAY<MAP<STRING, DATE>>>>", "VARIANT")

VALUES = [
    Case(
        f"values of {kind}",
        UPSERT,
        does="update, insert",
        table=Table(f"id INT, v {kind}", f"(1, {a}), (2, {b}), (3, {b})"),
        source=f"SELECT id, CAST(v AS {kind}) AS v FROM VALUES (2, {a}), (3, {c}), (4, {b}), (5, NULL) AS s(id, v)",
    )
    for kind, a, b, c in TYPES
    if kind not in NOT_IN_DELTA and not kind.startswith(("CHAR", "VARCHAR"))
]
KEYS = [
    Case(
        f"keys of {kind}",
        UPSERT,
        does="update, insert",
        table=Table(f"k {kind}, n INT", (f"({a}, 1)", f"({b}, 2), (NULL, 3)")),
        source=f"SELECT CAST(k AS {kind}) AS k, n FROM VALUES ({a}, 10), ({c}, 20), (NULL, 30) AS s(k, n)",
        on="t.k = s.k",
    )
    for kind, a, b, c in TYPES
    if kind not in (*NOT_IN_DELTA, *NOT_A_KEY) and not kind.startswith(("CHAR", "VARCHAR"))
]

INTS = Table("k INT, v INT", ("(1, 1), (2, 2)", "(300, 3), (NULL, 4)"))
STRINGS = Table("k STRING, v STRING", ("('1', 'a'), ('02', 'b')", "('x', 'c')"))
DATES = Table("k DATE, v INT", ("(DATE'2024-01-01', 1)", "(DATE'2024-06-01', 2)"))
STAMPS = Table("k TIMESTAMP, v INT", ("(TIMESTAMP'2024-01-01 00:00:00', 1)", "(TIMESTAMP'2024-06-01 12:00:00', 2)"))
DOUBLES = Table("k DOUBLE, v INT", ("(CAST('NaN' AS DOUBLE), 1), (1.5, 2)", "(CAST('-0.0' AS DOUBLE), 3), (7, 4)"))
FLOATS = Table("k FLOAT, v INT", ("(0.1, 1)", "(16777216, 2)"))
DECIMALS = Table("k DECIMAL(10, 2), v INT", ("(1.10, 1)", "(99999999.99, 2)"))
BIG = Table("k BIGINT, v INT", ("(9007199254740992, 1)", "(9007199254740993, 2)"))


OTHER_TYPES = [
    Case("INT key = BIGINT source", UPDATE_V, does="update", table=INTS, on="t.k = s.k",
         source="VALUES (2L, 20), (5000000000L, 30) AS s(k, v)", every_version=True),
    Case("INT key = STRING source", UPDATE_V, does="update", table=INTS, on="t.k = s.k",
         source="VALUES ('2', 20), ('0300', 30) AS s(k, v)"),
    Case("INT key = STRING source that is no number", UPDATE_V, fails="CAST_INVALID_INPUT", table=INTS, on="t.k = s.k",
         source="VALUES ('2', 20), ('x', 30) AS s(k, v)"),
    Case("INT key = STRING source that is no number, not ANSI", UPDATE_V, does="update", table=INTS, on="t.k = s.k",
         source="VALUES ('2', 20), ('x', 30) AS s(k, v)", confs={"spark.sql.ansi.enabled": "false"}),
    Case("INT key = DOUBLE source", UPDATE_V, does="update", table=INTS, on="t.k = s.k",
         source="VALUES (2.0D, 20), (2.5D, 30) AS s(k, v)"),
    Case("INT key = DECIMAL source", UPDATE_V, does="update", table=INTS, on="t.k = s.k",
         source="VALUES (2.00, 20), (300.5, 30) AS s(k, v)"),
    Case("STRING key = INT source", UPDATE_V, does="update", table=Table("k STRING, v STRING", ("('1', 'a')",
         "('02', 'b')")), on="t.k = s.k", source="VALUES (2, 'z') AS s(k, v)"),
    Case("STRING key = INT source, not ANSI", UPDATE_V, does="update", table=STRINGS, on="t.k = s.k",
         source="VALUES (2, 'z') AS s(k, v)", confs={"spark.sql.ansi.enabled": "false"}),
    Case("BIGINT key = DOUBLE source: two keys are one double", UPDATE_V, does="update", table=BIG, on="t.k = s.k",
         source="VALUES (9007199254740992D, 20) AS s(k, v)"),
    Case("FLOAT key = DOUBLE source", UPDATE_V, does="update", table=FLOATS, on="t.k = s.k",
         source="VALUES (0.1D, 20), (16777216D, 30) AS s(k, v)"),
    Case("FLOAT key = INT source", UPDATE_V, does="update", table=FLOATS, on="t.k = s.k",
         source="VALUES (16777216, 30), (5, 40) AS s(k, v)"),
    Case("DECIMAL key of another scale", UPDATE_V, does="update", table=DECIMALS, on="t.k = s.k",
         source="VALUES (1.1000, 30), (1.101, 40) AS s(k, v)"),
    Case("DATE key = TIMESTAMP source", UPDATE_V, does="update", table=DATES, on="t.k = s.k",
         source="VALUES (TIMESTAMP'2024-01-01 00:00:00', 5), (TIMESTAMP'2024-06-01 00:00:01', 6) AS s(k, v)"),
    Case("TIMESTAMP keys less than a second apart", UPDATE_V, does="update", on="t.k = s.k",
         table=Table("k TIMESTAMP, v INT", ("(TIMESTAMP'2024-01-01 00:00:00.000001', 1)",
                                            "(TIMESTAMP'2024-01-01 00:00:00.999999', 2)")),
         source="VALUES (TIMESTAMP'2024-01-01 00:00:00.000001', 5), (TIMESTAMP'2024-01-01 00:00:00.999999', 6), "
                "(TIMESTAMP'2024-01-01 00:00:00.5', 7) AS s(k, v)"),
    Case("DATE key = STRING source", UPDATE_V, does="update", table=DATES, on="t.k = s.k",
         source="VALUES ('2024-01-01', 5), ('2024-6-1', 6) AS s(k, v)"),
    Case("TIMESTAMP key = DATE source in another time zone", UPDATE_V, does="update", table=STAMPS, on="t.k = s.k",
         source="VALUES (DATE'2024-06-02', 5), (DATE'2024-01-01', 5) AS s(k, v)",
         confs={"spark.sql.session.timeZone": "Pacific/Kiritimati"},
         before="INSERT INTO {t} VALUES (TIMESTAMP'2024-06-02 00:00:00', 9)"),
    Case("TIMESTAMP key = TIMESTAMP_NTZ source in another time zone", UPDATE_V, does="update", table=STAMPS,
         on="t.k = s.k", source="VALUES (TIMESTAMP_NTZ'2024-01-01 01:00:00', 5) AS s(k, v)",
         confs={"spark.sql.session.timeZone": "Europe/Berlin"}),
    Case("TIMESTAMP key = TIMESTAMP_NTZ source where clocks change", UPDATE_V, does="update", on="t.k = s.k",
         table=Table("k TIMESTAMP, v INT", ("(TIMESTAMP'2024-03-10 06:59:59', 1), (TIMESTAMP'2024-03-10 07:00:00', 2)",
                     "(TIMESTAMP'2024-11-03 05:30:00', 3), (TIMESTAMP'2024-11-03 06:30:00', 4)")),
         source="VALUES (TIMESTAMP_NTZ'2024-03-10 02:00:00', 5), (TIMESTAMP_NTZ'2024-11-03 01:30:00', 6) AS s(k, v)",
         confs={"spark.sql.session.timeZone": "America/New_York"}),
    Case("TIMESTAMP key = STRING source", UPDATE_V, does="update", table=STAMPS, on="t.k = s.k",
         source="VALUES ('2024-01-01T00:00:00Z', 5), ('2024-06-01 12:00', 6) AS s(k, v)"),
    Case("DOUBLE keys: NaN = NaN, -0.0 = 0.0", UPDATE_V, does="update", table=DOUBLES, on="t.k = s.k",
         source="VALUES (CAST('NaN' AS DOUBLE), 10), (0.0D, 30) AS s(k, v)"),
    Case("DOUBLE keys: larger than NaN is nothing", UPDATE_V, does="update", table=DOUBLES, on="t.k > s.k",
         source="VALUES (1e300D, 10) AS s(k, v)"),
    Case("STRING keys with trailing spaces", UPDATE_V, does="update", on="t.k = s.k", table=Table("k STRING, v INT",
         ("('a', 1)", "('a ', 2)")), source="VALUES ('a ', 20), ('A', 30) AS s(k, v)"),
    Case("a key of NULL type", UPDATE_V, does="nothing", table=INTS, on="t.k = s.k",
         source="VALUES (NULL, 1) AS s(k, v)"),
    Case("a key of NULL type, null-safe", UPDATE_V, does="update", table=INTS, on="t.k <=> s.k",
         source="VALUES (NULL, 1) AS s(k, v)"),
]  # fmt: skip

STORE = {"spark.sql.storeAssignmentPolicy": "STRICT"}
LEGACY = {"spark.sql.storeAssignmentPolicy": "LEGACY", "spark.sql.ansi.enabled": "false"}
ASSIGNMENTS = [
    Case("INT from BIGINT", UPDATE_V, does="update", table=INTS, on="t.k = s.k", source="VALUES (1, 5L) AS s(k, v)",
         every_version=True),
    Case("INT from BIGINT that overflows", UPDATE_V, fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", table=INTS,
         on="t.k = s.k", source="VALUES (1, 5000000000L) AS s(k, v)"),
    Case("INT from BIGINT that overflows, inserted", "WHEN NOT MATCHED THEN INSERT *", table=INTS, on="t.k = s.k",
         fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE", source="VALUES (9, 5000000000L) AS s(k, v)"),
    Case("INT from BIGINT that overflows, legacy", UPDATE_V, does="update", table=INTS, on="t.k = s.k", confs=LEGACY,
         source="VALUES (1, 5000000000L) AS s(k, v)"),
    Case("INT from STRING", UPDATE_V, does="update", table=INTS, on="t.k = s.k", source="VALUES (1, '5') AS s(k, v)"),
    Case("INT from STRING that is no number", UPDATE_V, fails="CAST_INVALID_INPUT", table=INTS, on="t.k = s.k",
         source="VALUES (1, 'x') AS s(k, v)"),
    Case("INT from STRING that is no number, legacy", UPDATE_V, does="update", table=INTS, on="t.k = s.k",
         confs=LEGACY, source="VALUES (1, 'x') AS s(k, v)"),
    Case("INT from DOUBLE with STRICT", UPDATE_V,
         fails="CANNOT_UP_CAST_DATATYPE", table=INTS, on="t.k = s.k", confs=STORE,
         source="VALUES (1, 5.5D) AS s(k, v)"),
    Case("STRING from INT", UPSERT, does="update, insert", table=STRINGS, on="t.k = s.k",
         source="VALUES ('x', 5), ('y', 6) AS s(k, v)"),
    Case("STRING from a struct", UPDATE_V, does="update", table=STRINGS, on="t.k = s.k",
         source="VALUES ('x', struct(1, 2)) AS s(k, v)"),
    Case("INT from a struct", UPDATE_V, fails="DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION", table=INTS, on="t.k = s.k",
         source="VALUES (1, struct(1, 2)) AS s(k, v)"),
    Case("DATE from STRING", UPSERT, does="update, insert", table=Table("id INT, d DATE", "(1, DATE'2024-01-01')"),
         source="VALUES (1, '2024-02-03'), (2, '2024-2-4') AS s(id, d)"),
    Case("DATE from TIMESTAMP in another time zone", UPSERT, does="update, insert",
         table=Table("id INT, d DATE", "(1, DATE'2024-01-01')"), confs={"spark.sql.session.timeZone": "Asia/Tokyo"},
         source="VALUES (1, TIMESTAMP'2024-02-03 23:30:00'), (2, TIMESTAMP'2024-02-03 00:30:00') AS s(id, d)"),
    Case("DECIMAL from more digits", UPDATE_V, does="update", on="t.k = s.k",
         table=Table("k INT, v DECIMAL(5, 2)", "(1, 1.5)"), source="VALUES (1, 3.14159) AS s(k, v)"),
    Case("DECIMAL from too large a number", UPDATE_V, on="t.k = s.k", fails="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
         table=Table("k INT, v DECIMAL(5, 2)", "(1, 1.5)"), source="VALUES (1, 31415.9) AS s(k, v)"),
]  # fmt: skip

PLACES = Table(
    "id INT, a STRUCT<city: STRING, at: STRUCT<x: INT, y: INT>>, l ARRAY<STRUCT<n: INT, m: STRING>>",
    "(1, struct('rome', struct(1, 2)), array(struct(1, 'a'))), (2, NULL, NULL), (3, struct('oslo', NULL), array(NULL))",
)
STRUCTS = [
    Case("set a struct's field", "WHEN MATCHED THEN UPDATE SET a.city = s.c", does="update", table=PLACES,
         source="VALUES (1, 'x'), (2, 'y'), (3, 'z') AS s(id, c)"),
    Case("set a nested field", "WHEN MATCHED THEN UPDATE SET a.at.x = s.c, t.a.city = 'q'", does="update", table=PLACES,
         source="VALUES (1, 10), (2, 20), (3, 30) AS s(id, c)"),
    Case("set a field and its struct", "WHEN MATCHED THEN UPDATE SET a.city = 'x', a = NULL", table=PLACES,
         fails="DELTA_CONFLICT_SET_COLUMN", source="VALUES (1) AS s(id)"),
    Case("set a field within an array", "WHEN MATCHED THEN UPDATE SET l.n = 1", table=PLACES,
         fails="DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE", source="VALUES (1) AS s(id)"),
    Case("a condition on a nested field", "WHEN MATCHED AND t.a.at.y = 2 THEN DELETE", does="delete", table=PLACES,
         source="VALUES (1), (2), (3) AS s(id)"),
    Case("a nested field as key", "WHEN MATCHED THEN UPDATE SET id = -t.id", does="update", table=PLACES,
         source="VALUES ('rome'), ('oslo'), (NULL) AS s(c)", on="t.a.city = s.c"),
    Case("structs with fields in another order", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<x: INT, y: STRING>", "(1, struct(1, 'a'))"),
         source="SELECT id, named_struct('y', 'b', 'x', id) AS a FROM VALUES (1), (2) AS s(id)"),
    Case("arrays of structs with fields in another order", UPSERT, does="update, insert",
         table=Table("id INT, a ARRAY<STRUCT<x: INT, y: STRING>>", "(1, array(struct(1, 'a')))"),
         source="SELECT id, array(named_struct('y', 'b', 'x', id)) AS a FROM VALUES (1), (2) AS s(id)"),
    Case("structs with a field less", UPSERT, fails="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
         table=Table("id INT, a STRUCT<x: INT, y: STRING>", "(1, struct(1, 'a'))"),
         source="SELECT id, named_struct('x', id) AS a FROM VALUES (1), (2) AS s(id)"),
    Case("structs with a field more", UPSERT, fails="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
         table=Table("id INT, a STRUCT<x: INT>", "(1, struct(1))"),
         source="SELECT id, named_struct('x', id, 'y', 1) AS a FROM VALUES (1), (2) AS s(id)"),
    Case("structs with a field of another type", UPSERT, does="update, insert",
         table=Table("id INT, a STRUCT<x: INT, y: STRING>", "(1, struct(1, 'a'))"),
         source="SELECT id, named_struct('x', '5', 'y', id) AS a FROM VALUES (1), (2) AS s(id)"),
    Case("a map from another value type", UPSERT, does="update, insert",
         table=Table("id INT, a MAP<STRING, BIGINT>", "(1, map('a', 1L))"),
         source="SELECT id, map('b', id) AS a FROM VALUES (1), (2) AS s(id)"),
]  # fmt: skip


@pytest.mark.parametrize("case", VALUES, ids=str)
def test_values(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", KEYS, ids=str)
def test_keys(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", OTHER_TYPES, ids=str)
def test_keys_of_other_types(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", ASSIGNMENTS, ids=str)
def test_assignments(case: Case, engines: Harness) -> None:
    engines.check(case)


@pytest.mark.parametrize("case", STRUCTS, ids=str)
def test_structs(case: Case, engines: Harness) -> None:
    engines.check(case)
