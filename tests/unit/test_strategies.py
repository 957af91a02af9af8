"""Which strategy a merge takes, by plain numbers and flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_delta_merge.engine.settings import Settings
from airflow_delta_merge.engine.strategies import STRATEGIES, Facts, fitting
from airflow_delta_merge.engine.strategies.stream_inserts import FIRST_LOAD, LARGE_SOURCE, SMALL_TABLE

MB = 1024 * 1024
#: A table of 100 files of 10 MB with a million rows each.
BEFORE = Facts(cores=2, table_files=100, table_bytes=1000 * MB)
#: An upsert of a thousand rows that may be in ten of the files.
UPSERT = replace(
    BEFORE,
    inserts=True,
    inserts_all=True,
    takes_all_by=frozenset({"update"}),
    source_is_read=True,
    source_rows=1000,
    source_bytes=MB,
    source_is_broadcast=True,
    candidate_files=10,
    candidate_bytes=100 * MB,
    candidate_rows=10_000_000,
)
#: The same into two files that are small together with it.
SMALL_UPSERT = replace(UPSERT, candidate_files=2, candidate_bytes=2 * MB, candidate_rows=10_000)
#: An upsert by a source of half as many rows as the files have, which is shuffled.
LARGE_UPSERT = replace(UPSERT, source_rows=5_000_000, source_bytes=500 * MB, source_is_broadcast=False)
INSERTS = replace(BEFORE, inserts=True, only_inserts=True, inserts_all=True)


def taken(facts: Facts) -> str:
    fits = fitting(facts)
    return type(fits[0][0]).__name__ if fits else "none before the source is read"


@pytest.mark.parametrize(
    ("facts", "strategy"),
    [
        pytest.param(BEFORE, "none before the source is read", id="updates, before the source is read"),
        pytest.param(UPSERT, "TwoPhase", id="few rows for many files"),
        pytest.param(SMALL_UPSERT, "OnePass", id="small, many rows for each file"),
        pytest.param(replace(SMALL_UPSERT, source_rows=49), "TwoPhase", id="small, 24 rows for each of two files"),
        pytest.param(replace(SMALL_UPSERT, source_rows=1, candidate_files=1), "OnePass", id="small, one file"),
        pytest.param(replace(SMALL_UPSERT, takes_all_by=frozenset()), "TwoPhase", id="small, with conditions"),
        pytest.param(LARGE_UPSERT, "OnePass", id="a large source that updates what it matches"),
        pytest.param(replace(LARGE_UPSERT, source_rows=2_400_000), "TwoPhase", id="less than a quarter of the rows"),
        pytest.param(
            replace(LARGE_UPSERT, takes_all_by=frozenset({"delete"})), "TwoPhase", id="a large source that deletes"
        ),
        pytest.param(replace(LARGE_UPSERT, settings=Settings(shortcuts=False)), "TwoPhase", id="shortcuts are off"),
        pytest.param(replace(LARGE_UPSERT, limits_changes=True), "TwoPhase", id="a guard limits the changes"),
        pytest.param(replace(LARGE_UPSERT, deletion_vectors=True), "TwoPhase", id="deletion vectors"),
        pytest.param(replace(LARGE_UPSERT, tracks_rows=True), "TwoPhase", id="row tracking"),
        pytest.param(replace(LARGE_UPSERT, generates_identity=True), "TwoPhase", id="identity columns"),
        pytest.param(replace(LARGE_UPSERT, has_equality=False), "TwoPhase", id="no equality"),
        pytest.param(replace(LARGE_UPSERT, update_only_changed=True), "TwoPhase", id="only rows that differ"),
        pytest.param(replace(LARGE_UPSERT, candidate_rows=0), "TwoPhase", id="nobody knows how many rows"),
        pytest.param(
            replace(UPSERT, inserts=False, candidate_bytes=30 * MB, candidate_rows=500_000),
            "OnePass",
            id="updates broadcast to half a million rows",
        ),
        pytest.param(
            replace(UPSERT, inserts=False, candidate_bytes=30 * MB, candidate_rows=500_000, copies_files=True),
            "TwoPhase",
            id="updates broadcast to files that can be copied",
        ),
        pytest.param(
            replace(UPSERT, candidate_bytes=30 * MB, candidate_rows=500_000),
            "TwoPhase",
            id="no broadcast tells what to insert",
        ),
        pytest.param(replace(INSERTS, source_is_read=True), "InsertOnly", id="only inserts"),
        pytest.param(replace(INSERTS, table_files=0, table_bytes=0), "StreamInserts", id="a table without files"),
        pytest.param(
            replace(INSERTS, table_files=0, table_bytes=0, inserts_all=False),
            "none before the source is read",
            id="a table without files, inserts with conditions",
        ),
        pytest.param(
            replace(INSERTS, table_files=0, table_bytes=0, has_guards=True),
            "none before the source is read",
            id="a table without files, guards",
        ),
    ],
)
def test_a_merge_takes(facts: Facts, strategy: str) -> None:
    assert taken(facts) == strategy


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param(replace(INSERTS, table_files=0), FIRST_LOAD, id="first load"),
        pytest.param(replace(INSERTS, table_bytes=8 * MB, table_rows=500_000), SMALL_TABLE, id="small table"),
        pytest.param(replace(INSERTS, table_bytes=8 * MB, table_rows=500_001), None, id="a row too many"),
        pytest.param(replace(INSERTS, table_bytes=8 * MB), None, id="nobody knows how many rows"),
        pytest.param(
            replace(INSERTS, table_bytes=32 * MB, table_rows=9, estimated_source_bytes=32 * MB),
            SMALL_TABLE,
            id="a source as large",
        ),
        pytest.param(
            replace(INSERTS, table_bytes=32 * MB, table_rows=9, estimated_source_bytes=31 * MB),
            None,
            id="a smaller source",
        ),
        pytest.param(
            replace(INSERTS, estimated_source_bytes=250 * MB, reads_whole_files=True, keys_in_any_file=True),
            LARGE_SOURCE,
            id="large source",
        ),
        pytest.param(
            replace(INSERTS, estimated_source_bytes=249 * MB, reads_whole_files=True, keys_in_any_file=True),
            None,
            id="less than a quarter of the table",
        ),
        pytest.param(
            replace(INSERTS, estimated_source_bytes=250 * MB, keys_in_any_file=True), None, id="a filtered source"
        ),
        pytest.param(
            replace(INSERTS, table_files=0, is_partition_a_key=True), None, id="a partition column in the condition"
        ),
        pytest.param(replace(INSERTS, table_files=0, generates_identity=True), None, id="an identity column"),
        pytest.param(replace(INSERTS, table_files=0, collects_statistics=False), None, id="no statistics"),
    ],
)
def test_a_source_is_not_kept_because(facts: Facts, reason: str | None) -> None:
    assert [each for _, each in fitting(facts)] == ([] if reason is None else [reason])


def test_every_merge_whose_source_is_read_ends_with_two_phases() -> None:
    for facts in (UPSERT, SMALL_UPSERT, LARGE_UPSERT, replace(INSERTS, source_is_read=True)):
        assert fitting(facts)[-1][0] is STRATEGIES[-1]


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"candidate_bytes": 7 * MB + 1}, False),
        ({"candidate_rows": 499_001}, False),
        ({"candidate_files": 0}, False),
        ({"candidate_files": 64}, True),
        ({"candidate_files": 65}, False),
        ({"candidate_files": 17, "cores": 8}, False),
        ({"has_equality": False}, False),
        ({"joins_by_python": True}, False),
        ({"settings": Settings(small_merge_bytes=0)}, False),
    ],
    ids=str,
)
def test_a_merge_is_small(changed: dict[str, Any], fits: bool) -> None:
    largest = replace(SMALL_UPSERT, candidate_bytes=7 * MB, candidate_rows=499_000)
    assert replace(largest, **changed).is_small is fits
