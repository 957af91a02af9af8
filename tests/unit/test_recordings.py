"""What is recorded of the built-in MERGE: found only for the very case, tables and code from which it came."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.differential.cases import Case, Table
from tests.differential.delta_log import DeltaTableLog
from tests.differential.fingerprint import code_of
from tests.differential.outcome import Outcome
from tests.differential.recording import Recording, as_outcome, key_of, record
from tests.differential.recordings import KEPT, NoRecordingError, Recordings, keep
from tests.differential.tables import pack, unpack

CASE = Case("an update", "WHEN MATCHED THEN UPDATE SET *", does="update")
UPDATED = Recording(num_rows=(1, 1, 0, 0), commits=(({"commitInfo": {"operation": "MERGE"}},),), rows=(("(1, 'a')",),))


@pytest.fixture
def recordings(tmp_path: Path) -> Recordings:
    return Recordings(kept=tmp_path / "kept", new=tmp_path / "new")


def _keep(recordings: Recordings, *noted: tuple[Case, str, Recording | None], whole_modules: bool = True) -> None:
    for case, key, recording in noted:
        recordings.add("test_updates", case, key, recording)
    keep(recordings, whole_modules=whole_modules)


def test_a_recording_is_found_as_it_was_kept(recordings: Recordings) -> None:
    _keep(recordings, (CASE, "key", UPDATED))
    assert recordings.find("test_updates", CASE, "key") == UPDATED


def test_a_missing_recording_names_the_command_that_makes_it(recordings: Recordings) -> None:
    with pytest.raises(NoRecordingError, match=r"an update: .* is missing\. Run `make oracle`"):
        recordings.find("test_updates", CASE, "key")


def test_a_recording_of_another_key_is_stale(recordings: Recordings) -> None:
    _keep(recordings, (CASE, "old key", UPDATED))
    with pytest.raises(NoRecordingError, match=r"is stale\. Run `make oracle`"):
        recordings.find("test_updates", CASE, "key")


def test_a_stale_recording_is_replaced_and_a_valid_one_stays(recordings: Recordings) -> None:
    other = replace(CASE, name="another")
    _keep(recordings, (CASE, "old key", UPDATED), (other, "key", UPDATED))
    _keep(recordings, (CASE, "key", UPDATED), (other, "key", None))
    assert [*json.loads((recordings.kept / "test_updates.json").read_text())] == ["an update #key", "another #key"]


def test_a_run_of_some_cases_leaves_the_recordings_of_the_others(recordings: Recordings) -> None:
    _keep(recordings, (CASE, "key", UPDATED), (replace(CASE, name="another"), "key", UPDATED))
    _keep(recordings, (CASE, "new key", UPDATED), whole_modules=False)
    assert [*json.loads((recordings.kept / "test_updates.json").read_text())] == ["an update #new key", "another #key"]


def test_a_run_of_whole_modules_drops_recordings_of_cases_that_are_gone(recordings: Recordings) -> None:
    _keep(recordings, (CASE, "key", UPDATED), (replace(CASE, name="another"), "key", UPDATED))
    _keep(recordings, (CASE, "key", None))
    assert [*json.loads((recordings.kept / "test_updates.json").read_text())] == ["an update #key"]


def test_each_action_and_row_has_a_line_of_its_own(recordings: Recordings) -> None:
    two_rows = replace(UPDATED, rows=(("(1, 'a')", "(2, 'b')"),))
    _keep(recordings, (CASE, "key", two_rows))
    lines = (recordings.kept / "test_updates.json").read_text().splitlines()
    assert """   "(1, 'a')",""" in lines
    assert [line for line in lines if "commitInfo" in line] == ['   {"commitInfo": {"operation": "MERGE"}}]],']


@pytest.mark.parametrize(
    "other",
    [
        replace(CASE, clauses="WHEN MATCHED THEN DELETE"),
        replace(CASE, on="t.id <=> s.id"),
        replace(CASE, source="VALUES (1, 'a', 2) AS s(id, name, age)"),
        replace(CASE, table=Table("id INT")),
        replace(CASE, source_table=Table("id INT")),
        replace(CASE, before="DELETE FROM {t}"),
        replace(CASE, confs={"spark.sql.ansi.enabled": "false"}),
        replace(CASE, without=("age",)),
        replace(CASE, by_name=True),
        replace(CASE, evolves=True),
    ],
    ids=["clauses", "on", "source", "table", "source table", "before", "settings", "columns", "catalog", "evolution"],
)
def test_a_change_of_the_case_makes_its_recording_stale(other: Case) -> None:
    assert key_of(other, {}) != key_of(CASE, {})


def test_settings_of_the_session_make_a_recording_stale_and_those_of_our_engine_do_not() -> None:
    assert key_of(CASE, {"spark.sql.ansi.enabled": "false"}) != key_of(CASE, {})
    assert key_of(replace(CASE, confs={"spark.deltaMerge.shortcuts.enabled": "false"}), {}) == key_of(CASE, {})
    assert key_of(replace(CASE, name="renamed", does="delete"), {}) == key_of(CASE, {})


def test_code_counts_and_comments_do_not(tmp_path: Path) -> None:
    one, commented, other = (tmp_path / name for name in ("one.py", "commented.py", "other.py"))
    one.write_text('"""Text."""\ndef f():\n    return 1\n')
    commented.write_text('"""Other\ntext."""\n\n# why\ndef f():\n    """What."""\n    return 1\n')
    other.write_text("def f():\n    return 2\n")
    assert code_of(str(one)) == code_of(str(commented)) != code_of(str(other))


def test_an_archive_gives_the_table_back_and_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / "0.json").write_text("{}")
    (table / "part.parquet").write_bytes(b"\x00\x01")
    pack(table, tmp_path / "one.tar.xz")
    unpack(tmp_path / "one.tar.xz", tmp_path / "copy")
    pack(tmp_path / "copy", tmp_path / "two.tar.xz")
    assert (tmp_path / "copy" / "part.parquet").read_bytes() == b"\x00\x01"
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()


def test_a_table_that_names_its_own_folder_is_not_archived(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "0.json").write_text(f'{{"path": "{tmp_path / "table"}/part.parquet"}}')
    with pytest.raises(ValueError, match="names the folder"):
        pack(tmp_path / "table", tmp_path / "one.tar.xz")


# --- names that do not depend on chance -----------------------------------------------------------------------------


def _commit(operation: str, *actions: dict[str, object]) -> list[dict[str, object]]:
    info = {"operation": operation, "engineInfo": "Apache-Spark/4.2.0", "timestamp": 5, "txnId": "chance"}
    return [{"commitInfo": info}, *actions]


def _add(path: str, **more: object) -> dict[str, object]:
    return {"add": {"path": path, "partitionValues": {}, "size": 7, "modificationTime": 5, "stats": "{}", **more}}


def _found(path: str) -> DeltaTableLog:
    columns = {"fields": [{"name": "id", "type": "integer", "metadata": {}}]}
    metadata = {"metaData": {"configuration": {}, "schemaString": json.dumps(columns)}}
    return DeltaTableLog([]).followed_by([[metadata, *_commit("WRITE", _add(path))]])


def test_files_that_the_merge_found_are_recognised_in_another_copy() -> None:
    before = _found("part-chance.parquet")
    vector = {"pathOrInlineDv": "chance", "offset": 1, "cardinality": 1}
    marked = _commit("MERGE", _add("part-chance.parquet", deletionVector=vector))
    gone = {"remove": {"path": "part-chance.parquet", "deletionTimestamp": 9}}
    outcome = Outcome(Path("builtin"), "t", before, before.followed_by([[*marked, gone]]), num_rows=(1, 0, 1, 0))
    recording = Recording.from_json(json.loads(json.dumps(_recorded(outcome).as_json())))
    text = json.dumps(recording.as_json())
    assert "chance" not in text
    ours = Outcome(Path("ours"), "t", _found("part-other.parquet"), _found("part-other.parquet"))
    after = as_outcome(recording, ours).after
    assert [*after.files] == [("part-other.parquet", "new vector 0@1")]
    assert after.files["part-other.parquet", "new vector 0@1"]["modificationTime"] == 5


def _recorded(outcome: Outcome) -> Recording:
    from unittest import mock

    with (
        mock.patch("tests.differential.recording.can_read_plainly", return_value=False),
        mock.patch("tests.differential.recording.rows_by_spark", return_value=Counter()),
    ):
        return record(CASE, outcome, mock.Mock())


def test_an_error_of_the_built_in_is_recorded_by_its_condition() -> None:
    outcome = Outcome(Path("builtin"), "t", _found("a"), _found("a"), error=ValueError("no"))
    recording = _recorded(outcome)
    assert recording == Recording(error="ValueError")
    assert as_outcome(recording, outcome).failed


def test_each_recording_that_changed_rows_has_a_commit() -> None:
    """One without would pass for a merge that did nothing, if Delta cleared the log away meanwhile."""
    modules = {path.stem: json.loads(path.read_text("utf-8")) for path in KEPT.glob("*.json")}
    entries = [(module, name, entry) for module, entries in modules.items() for name, entry in entries.items()]
    without = [
        (module, name)
        for module, name, entry in entries
        if entry.get("num_rows", [0])[0] > 0 and not entry.get("commits")
    ]
    assert len(entries) > 1_000
    assert without == []
