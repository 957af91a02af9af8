"""The archive of Java classes, made for real and used by a merge."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from airflow_delta_merge.config import MergeConfig, when_not_matched_insert_all
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.runtime import class_archive, jars
from airflow_delta_merge.runtime.java import check_java
from tests.airflow import tables


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Delta's jars without an archive."""
    folder = tmp_path / "jars of Delta"
    folder.mkdir()
    for jar in map(Path, jars.delta_jars()):
        (folder / jar.name).symlink_to(jar)
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(folder))
    return folder


def merge(table: Path, **conf: str) -> MergeResult:
    config = MergeConfig(
        target=str(table),
        source="SELECT id, 'x' AS name FROM range(3)",
        on=["id"],
        clauses=[when_not_matched_insert_all()],
    )
    return DeltaMergeHook(conf=conf).merge(config)


@pytest.mark.slow
def test_a_local_merge_takes_its_classes_from_the_archive(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", class_archive.log.name)
    archive = class_archive.make_archive()
    lines = [message.split(" s  ")[-1] for message in caplog.messages]
    merges = [f"Merge {number} of 6." for number in range(1, 7)]
    assert lines[1:] == ["Spark is running.", *merges, "The merges are done. Java writes the archive, about 200 MB."]
    assert [path for path in folder.iterdir() if path.suffix != ".jar"] == [archive]
    loaded = tmp_path / "loaded"
    table = tables.create_table(tmp_path / "table")
    result = merge(table, **{"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={loaded}"})
    assert result.num_inserted_rows == 3
    (line,) = [line for line in loaded.read_text().splitlines() if " org.apache.spark.sql.delta.DeltaLog " in line]
    assert line.endswith("source: shared objects file (top)")


@pytest.mark.slow
def test_the_first_merge_has_it_made_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = class_archive.archive_path(check_java())
    table = tables.create_table(tmp_path / "table")
    merge(table)
    assert makers(folder) == [], "the tests' configuration forbids it"
    monkeypatch.setenv("AIRFLOW__DELTA_MERGE__CLASS_ARCHIVE", "True")
    merge(table)
    merge(table)
    assert len(makers(folder)) <= 1, "a second one is at it"
    deadline = time.monotonic() + 900
    while makers(folder):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(1)
    assert [path.read_text() for path in folder.glob(".*.lock")] == [], "it failed"
    # With nothing beside it, neither a lock nor a folder.
    assert [path for path in folder.iterdir() if path.suffix != ".jar"] == [archive]
    assert archive.stat().st_size > 50 << 20


def makers(folder: Path) -> list[int]:
    """The processes that make an archive in this folder, but for Spark."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        of_this = (process.info["environ"] or {}).get(jars.FOLDER_VARIABLE) == str(folder)
        makes = "airflow_delta_merge.runtime.background_archive" in (process.info["cmdline"] or [])
        if of_this and makes and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found
