"""A merge's record in its commit: read back whole, bounded, beside the user's own metadata; what is odd is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_delta_merge.contract.commit_record import RECORD_LENGTH, CommitRecord
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeResultError
from tests.readable_ids import readable

RECORD = CommitRecord(
    identity=MergeIdentity(
        application_id="airflow:/d/t/r/-1",
        generation=7,
        task_instance=TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r", try_number=2),
    ),
    config_digest="ab" * 32,
    result=MergeResult(
        table="file:/tmp/t",
        version_read=3,
        version=None,
        executor="ClassicMergeExecutor",
        executor_reason="there is a matched clause",
        num_updated_rows=5,
        metrics={"numTargetRowsUpdated": 5},
    ),
)


@pytest.mark.parametrize(
    "user_metadata",
    [None, "", "mine", '{"airflow_delta_merge": 1}', "ä" * 100_000],
    ids=["nothing", "an empty text", "a text", "JSON", "a long text"],
)
def test_read_back_whole(user_metadata: str | None) -> None:
    text = RECORD.to_user_metadata(user_metadata)
    assert CommitRecord.from_user_metadata(text) == RECORD
    assert json.loads(text).get("user_metadata") == user_metadata


def test_version_is_that_of_the_commit() -> None:
    assert RECORD.result_of(12) == replace(RECORD.result, version=12)


def test_is_bounded() -> None:
    many = {f"metric {number}": number for number in range(10_000)}
    text = replace(RECORD, result=replace(RECORD.result, metrics=many)).to_user_metadata()
    assert len(text) < RECORD_LENGTH
    read = CommitRecord.from_user_metadata(text)
    assert read is not None
    assert (read.result.num_updated_rows, read.result.metrics) == (5, {})


@pytest.mark.parametrize(
    "text",
    [
        *(
            None,
            "",
            "by hand",
            "airflow_delta_merge",
            "{}",
            "[]",
            '{"airflow_delta_merge": 5}',
            '"airflow_delta_merge"',
        ),
        '{"airflow_delta_merge": ' + "[" * 5000,
    ],
    ids=readable,
)
def test_others_metadata_is_no_record(text: str | None) -> None:
    assert CommitRecord.from_user_metadata(text) is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"record_version": 2}, "has version 2, but this package reads version 1"),
        ({"config_digest": None}, "lacks its config digest"),
        ({"result": []}, "lacks its config digest or its result"),
        ({"result": {"result_version": 1}}, "not complete"),
        ({"generation": "7"}, "can't be read"),
        ({"task_instance": {"dag_id": "d"}}, "can't be read"),
    ],
    ids=readable,
)
def test_odd_record_is_refused(changes: dict, sentence: str) -> None:
    data = json.loads(RECORD.to_user_metadata())
    data["airflow_delta_merge"] |= changes
    with pytest.raises(MergeResultError, match=sentence):
        CommitRecord.from_user_metadata(json.dumps(data))
