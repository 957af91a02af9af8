"""What a source may say of bad rows, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, MergeSource
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.patterns import InsertNew, Upsert, pattern_from_dict
from tests.readable_ids import readable

CSV, JSON = {"path": "/in/a.csv"}, {"path": "/in/a.json"}


def test_json_and_csv_files_fail_for_bad_rows_by_default() -> None:
    for source in (CSV, JSON):
        rule = MergeSource.of(source).bad_rows_rule
        assert rule is not None
        assert rule.action == "fail"


@pytest.mark.parametrize(
    "source",
    [
        {"path": "/in/a.parquet"},
        {"query": "SELECT 1 AS id"},
        {"table": "a"},
        {**CSV, "options": {"mode": "DROPMALFORMED"}},
        {**JSON, "options": {"columnNameOfCorruptRecord": "broken"}},
        {**JSON, "options": {"COLUMNNAMEOFCORRUPTRECORD": "broken"}},
    ],
    ids=readable,
)
def test_other_sources_and_a_users_own_mode_stand_as_they_are(source: dict[str, Any]) -> None:
    assert MergeSource.of(source).bad_rows_rule is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({**CSV, "bad_rows": "drop"}, "bad_rows must be one of fail, skip, keep"),
        ({**CSV, "bad_rows": "keep"}, "bad_rows_path need each other"),
        ({**CSV, "bad_rows": "skip", "bad_rows_path": "/bad"}, "need each other"),
        ({**CSV, "bad_rows_path": "/bad"}, "need each other"),
        ({**CSV, "max_bad_rows": 1}, '"fail" allows no bad rows'),
        ({**CSV, "bad_rows": "skip", "max_bad_rows": -1}, "between 0 and 1, got -1"),
        ({**CSV, "bad_rows": "skip", "max_bad_rows": 1.5}, "between 0 and 1, got 1.5"),
        ({**CSV, "bad_rows": "skip", "max_bad_rows": True}, "between 0 and 1, got True"),
        ({**CSV, "bad_rows": "skip", "max_bad_rows": 10**400}, "between 0 and 1, got 1000"),
        ({**CSV, "bad_rows": "skip", "max_bad_rows": "few"}, "between 0 and 1, got 'few'"),
        (
            {"path": "/in/a.parquet", "bad_rows": "skip"},
            "bad_rows is only available for JSON and CSV files, not for files of the",
        ),
        (
            {"query": "SELECT 1", "max_bad_rows": 1},
            "max_bad_rows is only available for JSON and CSV files, not for a query",
        ),
        ({**CSV, "options": {"mode": "FAILFAST"}, "bad_rows": "skip"}, "can't be combined with"),
    ],
    ids=readable,
)
def test_what_can_not_be_meant_is_refused(source: dict[str, Any], reason: str) -> None:
    with pytest.raises(MergeConfigError, match=reason):
        MergeSource.of(source)


@pytest.mark.parametrize(
    ("most", "bad", "rows", "is_allowed"),
    [
        (None, 9, 9, True),
        (2, 2, 9, True),
        (2, 3, 9, False),
        (0.1, 1, 10, True),
        (0.1, 2, 10, False),
        ("0.1", 1, 10, True),
    ],
)
def test_the_bound_is_a_count_or_a_fraction(most: Any, bad: int, rows: int, *, is_allowed: bool) -> None:
    rule = MergeSource.of({**CSV, "bad_rows": "skip", "max_bad_rows": most}).bad_rows_rule
    assert rule is not None
    assert rule.allows(bad, rows) is is_allowed


def test_what_a_source_says_of_bad_rows_survives_its_dict() -> None:
    source = MergeSource.of({**CSV, "bad_rows": "keep", "max_bad_rows": 0.5, "bad_rows_path": "/bad"})
    assert MergeSource.of(source.to_dict()) == source


@pytest.mark.parametrize(
    ("options", "escape"),
    [({}, '"'), ({"quote": "'"}, "'"), ({"quote": ""}, None), ({"Escape": "\\"}, None)],
    ids=readable,
)
def test_quotes_in_csv_are_escaped_by_doubling_them(options: dict[str, str], escape: str | None) -> None:
    assert MergeSource.of({**CSV, "options": options}).reader_options.get("escape") == escape


@pytest.mark.parametrize(
    ("source", "separator"),
    [
        ({"path": "/in/a.tsv"}, "\t"),
        ({"paths": ["/in/a.TSV.gz", "/in/b.tsv"]}, "\t"),
        ({"paths": ["/in/a.tsv", "/in/b.csv"]}, None),
        ({"path": "/in/a.tsv", "options": {"Sep": "|"}}, None),
        ({"path": "/in/a.tsv", "options": {"delimiter": "|"}}, None),
        (CSV, None),
    ],
    ids=readable,
)
def test_tsv_files_are_separated_by_tabs(source: dict[str, Any], separator: str | None) -> None:
    assert MergeSource.of(source).reader_options.get("sep") == separator


def test_patterns_refuse_null_keys_unless_they_allow_them() -> None:
    sides: dict[str, Any] = {"target": "a", "source": "b"}
    assert InsertNew(keys=["id"]).to_config(**sides).null_keys == "fail"
    assert Upsert(keys=["id"], null_keys="allow").to_config(**sides).null_keys == "allow"
    assert (
        pattern_from_dict({"pattern": "upsert", "keys": ["id"], "null_keys": "allow"}).to_config(**sides).null_keys
        == "allow"
    )
    with pytest.raises(MergeConfigError, match="null_keys must be allow or fail, got 'no'"):
        Upsert(keys=["id"], null_keys="no")


def test_null_keys_of_a_condition_can_not_be_refused() -> None:
    clauses = [{"kind": "matched", "action": "delete"}]
    with pytest.raises(MergeConfigError, match="needs key columns"):
        MergeConfig(target="a", source="b", on="a.id = b.id", clauses=clauses, null_keys="fail")
