"""Advice from made-up records: each rule at its bounds. That real merges give rise to it, test_merged_tables shows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.contract.commit_record import CommitRecord
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.history import advice
from airflow_delta_merge.history.advice import advise
from airflow_delta_merge.history.records import Commit, Files, Rows, Table

TABLE = Table(path="/lake/t", version=9)
MB = 1 << 20


def merge(version: int, digest: str = "d", **said: Any) -> Commit:
    """A merge of so many rows and files, as the reader makes it of a record."""
    copied = said.pop("copied", 0)
    metrics = {"numTargetRowsCopied": copied, "numSourceRows": 10, **said.pop("metrics", {})}
    result = MergeResult(
        table="/lake/t",
        version_read=version - 1,
        version=None,
        executor="ClassicMergeExecutor",
        executor_reason="",
        metrics=metrics,
        **{f"num_{name}": value for name, value in said.items()},
    )
    return Commit(
        version=version,
        operation="MERGE",
        parameters={"predicate": '["(id = id)"]'},
        record=CommitRecord(
            identity=MergeIdentity(application_id=f"nightly {version}", generation=1),
            config_digest=digest,
            result=result,
        ),
        metrics=metrics,
        rows=Rows(
            inserted=result.num_inserted_rows,
            updated=result.num_updated_rows,
            deleted=result.num_deleted_rows,
            copied=copied,
        ),
        files=Files(added=result.num_added_files, removed=result.num_removed_files),
        bytes=Files(added=result.num_added_bytes, removed=result.num_removed_bytes),
    )


def several(number: int, **said: Any) -> list[Commit]:
    return [merge(version, **said) for version in range(number, 0, -1)]


def names(table: Table, commits: list[Commit]) -> list[str]:
    return [each.name for each in advise(table, commits)]


COPYING: dict[str, Any] = {"copied": 100, "updated_rows": 8, "deleted_rows": 2, "removed_bytes": MB, "removed_files": 1}


@pytest.mark.parametrize(
    ("number", "said", "given"),
    [
        (3, {}, True),
        (2, {}, False),
        (3, {"copied": 99}, False),
        (3, {"removed_bytes": MB // 3 - 1}, False),
        (3, {"copied": 0, "updated_rows": 0, "deleted_rows": 0}, False),
    ],
    ids=["three merges", "two merges", "few rows copied", "few bytes", "inserts only"],
)
def test_deletion_vectors(number: int, said: dict[str, Any], given: bool) -> None:
    commits = several(number, **{**COPYING, **said})
    assert names(TABLE, commits) == ["deletion-vectors"] * given
    assert names(replace(TABLE, properties={"delta.enableDeletionVectors": "true"}), commits) == []


def test_the_evidence_is_the_sum_of_the_merges() -> None:
    (given,) = advise(TABLE, [*several(4, **COPYING), Commit(version=0, operation="WRITE")])
    assert given.versions == (4, 3, 2, 1)
    assert given.evidence["copied_rows"] == 400
    assert given.evidence["changed_rows"] == 40
    assert "4 merges changed 40 rows and copied 400" in given.because


SEARCHING: dict[str, Any] = {
    "files_before_skipping": 40, "candidate_files": 20, "touched_files": 2, "bytes_before_skipping": 40 * 99 * MB
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ({}, True),
        ({"candidate_files": 19, "touched_files": 1}, False),
        ({"touched_files": 3}, False),
        ({"files_before_skipping": 7, "candidate_files": 7, "touched_files": 0}, False),
    ],
    ids=["half of the files for few", "fewer than half", "many touched", "a table of few files"],
)
def test_cluster_by_key(said: dict[str, Any], given: bool) -> None:
    commits = several(3, **{**SEARCHING, **said})
    assert names(TABLE, commits) == ["cluster-by-key"] * given
    assert names(TABLE, commits[1:]) == []
    assert names(replace(TABLE, partition_columns=("day",)), commits) == []


def test_a_clustered_table_is_advised_to_be_optimized() -> None:
    (given,) = advise(replace(TABLE, features=frozenset({"clustering"})), several(3, **SEARCHING))
    assert given.text.startswith("Run OPTIMIZE")


@pytest.mark.parametrize(
    ("predicate", "searched", "given"),
    [
        ('["(id = id)"]', 6, True),
        ('["(id = id)"]', 5, False),
        ('["((Day = day) AND (id = id))"]', 6, False),
        ("", 6, False),
    ],
    ids=["not named", "few partitions searched", "named", "no condition is known"],
)
def test_partition_in_on(predicate: str, searched: int, given: bool) -> None:
    metrics = {"numTargetPartitionsAfterSkipping": searched, "numTargetPartitionsRemovedFrom": 2}
    commits = [replace(each, parameters={"predicate": predicate}) for each in several(3, **SEARCHING, metrics=metrics)]
    assert names(replace(TABLE, partition_columns=("DAY",)), commits) == ["partition-in-on"] * given


MANY: dict[str, Any] = {"files_before_skipping": 100, "bytes_before_skipping": 100 * 16 * MB - 1}


@pytest.mark.parametrize(
    ("said", "later", "given"),
    [
        ({}, [], True),
        ({"files_before_skipping": 99}, [], False),
        ({"bytes_before_skipping": 100 * 16 * MB}, [], False),
        ({"candidate_files": 99, "metrics": {"numTargetPartitionsAfterSkipping": 10}}, [], False),
        ({"candidate_files": 100, "metrics": {"numTargetPartitionsAfterSkipping": 10}}, [], True),
        ({}, [Commit(version=2, operation="WRITE", parameters={"mode": "Append"})], True),
        ({}, [Commit(version=2, operation="WRITE", parameters={"mode": "Overwrite"})], False),
        ({}, [Commit(version=2, operation="OPTIMIZE", files=Files(removed=90))], False),
        ({}, [Commit(version=2, operation="RESTORE")], False),
    ],
    ids=[
        "many small files", "fewer", "larger", "few in each partition", "many in each partition", "appended since",
        "overwritten since", "optimized since", "restored since",
    ],
)  # fmt: skip
def test_compaction(said: dict[str, Any], later: list[Commit], given: bool) -> None:
    commits = [*later, merge(1, **{**MANY, **said})]
    assert names(replace(TABLE, version=commits[0].version), commits) == ["compaction"] * given
    assert names(TABLE, commits) == [], "an older page says nothing of the table as it is"


def rewriting(version: int, digest: str = "d", statistics: str = "{min 1}", **said: Any) -> Commit:
    """A merge that replaces the file of the one before."""
    commit = merge(version, digest, **{"updated_rows": 10, "removed_bytes": 500, **said})
    return replace(
        commit,
        files=Files(added=1, removed=1),
        added_files={f"f{version}": f"500 {statistics}"},
        removed_files=(f"f{version - 1}",),
    )


def test_the_same_source_again() -> None:
    given = advise(TABLE, [rewriting(3), rewriting(2), rewriting(1)])
    assert [each.name for each in given] == ["source-repeats", "update-only-changed"]
    assert [each.versions for each in given] == [(3, 2), (3, 2)]
    assert given[1].evidence["removed_files"] == 2


def test_equal_rows_of_another_source_are_only_a_case_for_update_only_changed() -> None:
    assert names(TABLE, [rewriting(3, "c"), rewriting(2, "b"), rewriting(1, "a")]) == ["update-only-changed"]


def test_another_number_of_source_rows_is_another_source() -> None:
    commits = [rewriting(3, metrics={"numSourceRows": 11}), rewriting(2), rewriting(1)]
    assert names(TABLE, commits) == ["update-only-changed"]


@pytest.mark.parametrize(
    "commits",
    [
        [rewriting(2), rewriting(1)],
        [rewriting(3, statistics="{min 2}"), rewriting(2), rewriting(1)],
        [rewriting(3, inserted_rows=1), rewriting(2), rewriting(1)],
        [rewriting(3, deleted_rows=1), rewriting(2), rewriting(1)],
        [rewriting(9), rewriting(2), rewriting(1)],
    ],
    ids=["once", "other values", "an insert", "a delete", "a file of whose statistics nothing is known"],
)
def test_what_has_not_been_repeated(commits: list[Commit]) -> None:
    assert names(TABLE, commits) == []


def test_there_is_no_advice_without_records() -> None:
    others = [
        Commit(version=version, operation="MERGE", rows=Rows(updated=1, copied=10**6), bytes=Files(removed=10**9))
        for version in range(5)
    ]
    assert advise(TABLE, others) == []
    assert advise(TABLE, []) == []


def test_each_rule_stands_on_the_page_with_its_bounds() -> None:
    page = (Path(__file__).parents[2] / advice.PAGE).read_text(encoding="utf-8")
    anchors = {re.sub(r"[^a-z]+", "-", head.lower()) for head in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    source = Path(advice.__file__).read_text(encoding="utf-8")
    given = set(re.findall(r'name="([a-z-]+)"', source))
    assert len(given) == len(advice._RULES)
    assert given <= anchors
    bounds = {name: value for name, value in vars(advice).items() if name.isupper() and isinstance(value, int | float)}
    assert dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) ", page, re.MULTILINE)) == {
        name: f"{value}" for name, value in bounds.items()
    }
