"""A table's commits read page by page: exact versions, cleaned logs, other writers, and what can't be read."""

from __future__ import annotations

import json
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta_merge.contract.commit_record import RECORD_KEY, CommitRecord
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import TableLogError
from airflow_delta_merge.history import figures, table_history
from airflow_delta_merge.history.commit_files import changes_by_partition, read_commit
from airflow_delta_merge.history.merge_charts import merge_charts
from airflow_delta_merge.history.records import OWN_WRITER, commit_of
from airflow_delta_merge.history.table_history import HistoryPage, read_details, read_history
from tests.airflow.tables import commit, create_table

RESULT = MergeResult(
    table="/t",
    version_read=0,
    version=None,
    executor="ClassicMergeExecutor",
    executor_reason="because",
    num_inserted_rows=3,
    num_updated_rows=2,
    num_candidate_files=5,
    num_added_bytes=700,
    metrics={"numTargetRowsCopied": 90, "executionTimeMs": 1200},
    durations_ms={"scan": 400, "rewrite": 300},
)
RECORD = CommitRecord(
    identity=MergeIdentity(
        application_id="airflow:/load/merge/r1/-1",
        generation=7,
        task_instance=TaskInstanceIdentity(dag_id="load", task_id="merge", run_id="r1", try_number=2),
    ),
    config_digest="d",
    result=RESULT,
)


def log_of(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def merge_commit(table: Path, version: int, metadata: str | None = None) -> None:
    info = {
        "timestamp": 1_767_225_600_000 + version,
        "operation": "MERGE",
        "operationParameters": {"predicate": '["(id#12L = id#9L)"]'},
        "operationMetrics": {"numTargetRowsInserted": "3"},
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        "userMetadata": RECORD.to_user_metadata() if metadata is None else metadata,
    }
    log_of(table, version).write_text(json.dumps({"commitInfo": info}) + "\n")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table in version 4: a merge, then two commits that say nothing of themselves, then a write."""
    path = create_table(tmp_path / "a b;ü")
    merge_commit(path, 1)
    log_of(path, 2).write_text('{"txn": {"appId": "a", "version": 1}}\n')
    log_of(path, 3).write_text("")
    commit(path)
    return path


def test_each_commit_has_its_own_version_also_beside_silent_ones(table: Path) -> None:
    page = read_history(str(table))
    assert [(each.version, each.operation) for each in page.commits] == [
        (4, "WRITE"), (3, "unknown"), (2, "unknown"), (1, "MERGE"), (0, "unknown")
    ]  # fmt: skip
    assert (page.older, page.cleaned_before) == (None, None)
    # deltalake's own history takes the merge for version 3: that is why it isn't used.
    assert [each["version"] for each in DeltaTable(table).history() if each["operation"] == "MERGE"] == [3]


def test_a_merge_tells_its_whole_result_and_who_made_it(table: Path) -> None:
    merge = read_history(str(table)).commits[3]
    assert merge.result == replace(RESULT, version=1)
    assert merge.writer == OWN_WRITER
    assert merge.task_instance == RECORD.identity.task_instance
    assert merge.to_dict()["time"] == "2026-01-01T00:00:00.001+00:00"
    assert (merge.rows.inserted, merge.rows.updated, merge.rows.deleted, merge.rows.copied) == (3, 2, 0, 90)
    assert (merge.files.candidate, merge.bytes.added) == (5, 700)
    assert merge.durations_ms == {"scan": 400, "rewrite": 300, "total": 1200}
    assert merge.parameters == {"predicate": '["(id = id)"]'}
    json.dumps(merge.to_dict())


def test_pages_follow_each_other(table: Path) -> None:
    first = read_history(str(table), limit=2)
    second = read_history(str(table), limit=2, before=first.older)
    third = read_history(str(table), limit=2, before=second.older)
    assert [[each.version for each in page.commits] for page in (first, second, third)] == [[4, 3], [2, 1], [0]]
    assert third.older is None
    assert read_history(str(table), before=0).commits == ()
    assert read_history(str(table), before=99).commits[0].version == 4


def test_commits_that_were_cleaned_up_are_said_to_be_gone(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    for version in (0, 1, 2):
        log_of(table, version).unlink()
    page = read_history(str(table))
    assert ([each.version for each in page.commits], page.cleaned_before) == ([4, 3], 3)
    with pytest.raises(TableLogError, match="no commit of version 1: it was cleaned up"):
        read_details(str(table), 1)
    with pytest.raises(TableLogError, match="no commit of version 5: the newest is 4"):
        read_details(str(table), 5)


def test_commits_are_read_once_and_new_ones_are_found(table: Path) -> None:
    read_history(str(table))
    merge_commit(table, 1, metadata="written over, which no writer does")
    commit(table, "OPTIMIZE")
    page = read_history(str(table))
    assert page.commits[0].operation == "OPTIMIZE"
    assert (page.commits[4].version, page.commits[4].result) == (1, replace(RESULT, version=1))


def test_a_table_that_was_made_anew_is_another_one(table: Path) -> None:
    read_history(str(table))
    shutil.rmtree(table)
    create_table(table)
    for _ in range(6):
        commit(table, "NEW")
    assert [each.operation for each in read_history(str(table)).commits] == ["NEW"] * 6 + ["unknown"]


def test_a_table_that_vanished_is_a_sentence(table: Path) -> None:
    read_history(str(table))
    shutil.rmtree(table)
    with pytest.raises(TableLogError, match="There is no Delta table at"):
        read_history(str(table))


@pytest.mark.parametrize(
    ("version", "text"),
    [(4, "{"), (2, '{"commitInfo": '), (0, "\x00\x01")],
    ids=["torn at its end", "torn amid", "no text"],
)
def test_a_broken_log_is_a_sentence(table: Path, version: int, text: str) -> None:
    log_of(table, version).write_text(text)
    with pytest.raises(TableLogError, match="can't be read, tried 3 times") as error:
        read_history(str(table))
    assert "\n" not in str(error.value)


def test_a_store_that_does_not_answer_is_a_sentence_soon_and_keeps_its_keys() -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key-of-the-store",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-store",
        "AWS_REGION": "us-east-1",
    }
    began = time.monotonic()
    with pytest.raises(TableLogError, match=r"The storage of s3://lake/t can't be read: .*refused") as error:
        read_history("s3://lake/t", options)
    assert time.monotonic() - began < 10
    assert "of-the-store" not in str(error.value)


def test_an_address_in_a_stores_error_is_left_out() -> None:
    error = OSError(
        "Generic MicrosoftAzure error\n\x1b[31m\u21b3\x1b[0m Error performing GET https://lake.example/?sig=of-the-store\n"
        "\x1b[31m\u21b3\x1b[0m Connection refused (os error 111)\n"
        " https://lake.example/?sig=of-the-store\n"
    )
    assert table_history._said(error) == "Generic MicrosoftAzure error: Connection refused (os error 111)."


def test_a_record_of_another_release_is_reported_and_its_commit_listed(table: Path) -> None:
    text = RECORD.to_user_metadata().replace('"record_version": 1', '"record_version": 9')
    merge_commit(table, 5, metadata=text)
    newest = read_history(str(table)).commits[0]
    assert (newest.writer, newest.result, newest.rows.inserted) == (OWN_WRITER, None, 3)
    assert "version 9" in str(newest.trouble)


def test_other_writers_numbers_are_read_by_their_names(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]}), partition_by=["day"])
    DeltaTable(path).delete("id = 2")
    deleted, written = read_history(path).commits
    assert written.rows.inserted == 3
    assert (written.files.added, written.operation) == (2, "WRITE")
    assert (deleted.rows.deleted, deleted.rows.copied, deleted.files.removed) == (1, 1, 1)
    assert deleted.writer.startswith("delta-rs")
    details = read_details(path, 0)
    assert [(dict(each.partition), each.added) for each in details.partitions] == [({"day": "a"}, 1), ({"day": "b"}, 1)]
    assert details.table.partition_columns == ("day",)
    (change,) = read_details(path, 1).partitions
    assert (change.partition, change.added, change.removed) == ({"day": "a"}, 1, 1)
    sizes = {file.name: file.stat().st_size for file in Path(path).rglob("*.parquet")}
    assert change.added_bytes in sizes.values()
    assert change.removed_bytes in sizes.values()


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_KEYS = ("timestamp", "inCommitTimestamp", "operation", "operationParameters", "operationMetrics", "engineInfo")
_RECORDS = st.dictionaries(st.sampled_from(sorted(json.loads(RECORD.to_user_metadata())[RECORD_KEY])), _JSON).map(
    lambda wrong: json.dumps({RECORD_KEY: {**json.loads(RECORD.to_user_metadata())[RECORD_KEY], **wrong}})
)


@given(st.fixed_dictionaries({}, optional={**dict.fromkeys(_KEYS, _JSON), "userMetadata": _JSON | _RECORDS}))
def test_whatever_a_commit_says_of_itself_is_read(info: dict[str, Any]) -> None:
    json.dumps(commit_of(1, info).to_dict())


def test_a_commit_that_nests_without_end_is_read() -> None:
    deep = "[" * 5000
    assert "no JSON" in str(read_commit(3, f'{{"commitInfo":{deep}'.encode()).trouble)
    assert changes_by_partition(f'{{"add":{deep}'.encode()) == []
    assert commit_of(3, {"operation": "MERGE", "userMetadata": f'{{"{RECORD_KEY}":{deep}'}).result is None


@given(st.binary() | st.just(b'{"commitInfo":[') | _JSON.map(lambda said: json.dumps({"commitInfo": said}).encode()))
def test_whatever_a_commit_file_holds_is_read(data: bytes) -> None:
    assert read_commit(3, data).version == 3


@pytest.mark.parametrize(
    "number", [10**400, -(10**400), 2**63, -(10**18), "-10"], ids=["huge", "tiny", "no long", "negative", "as a text"]
)
def test_no_number_of_a_commit_is_too_large_or_small_to_be_shown(number: int | str) -> None:
    names = ("numTargetRowsInserted", "numTargetBytesAdded", "executionTimeMs", "scanTimeMs")
    info = {"timestamp": number, "operation": "MERGE", "operationMetrics": dict.fromkeys(names, number)}
    file = {"path": "a", "size": number, "partitionValues": {}}
    commit = read_commit(1, json.dumps({"commitInfo": info}).encode())
    assert "rows inserted" in figures.facts_of(commit)
    for chart in merge_charts([commit]):
        assert 'height="-' not in chart.svg
    assert figures.sparkline([commit.rows.inserted or 0, 1])
    (change,) = changes_by_partition(json.dumps({"add": file}).encode())
    assert len(figures.numbers_of(change)) == 5
    wrong = RECORD.to_user_metadata().replace('"num_added_bytes": 700', f'"num_added_bytes": {number}')
    assert figures.facts_of(commit_of(1, {"operation": "MERGE", "userMetadata": wrong}))


@pytest.mark.slow
def test_ten_thousand_commits_are_interactive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(tmp_path / "t")
    for version in range(1, 10_001):
        merge_commit(table, version)
    times: list[tuple[float, float, float]] = []
    for attempt in range(2):
        monkeypatch.setattr(table_history, "_LOGS", OrderedDict())
        page, cold = timed(lambda: read_history(str(table)))
        commit(table)
        newest, warm = timed(lambda: read_history(str(table)))
        oldest, last = timed(lambda: read_history(str(table), limit=50, before=51))
        assert page.commits[0].version == 10_000 + attempt
        assert newest.commits[0].version == 10_001 + attempt
        assert oldest.commits[-1].version == 1
        times.append((cold, warm, last))
    cold, warm, last = map(min, zip(*times, strict=True))
    print(f"cold {cold:.1f} s, warm {warm:.1f} s, last page {last:.1f} s")
    assert max(warm, last) < cold, "a log that was read is kept"


def timed(look: Callable[[], HistoryPage]) -> tuple[HistoryPage, float]:
    """With the processor time that it took, on all cores: what passes meanwhile is other tests' as well."""
    began = time.process_time()
    return look(), time.process_time() - began
