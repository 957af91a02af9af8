"""The archive of Java classes, made for real and used by a merge."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta_merge.config import MergeConfig, when_not_matched_insert_all
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.runtime import class_archive, jars
from tests.airflow import tables


@pytest.mark.slow
def test_a_local_merge_takes_its_classes_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "jars of Delta"
    folder.mkdir()
    for jar in map(Path, jars.delta_jars()):
        (folder / jar.name).symlink_to(jar)
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(folder))
    caplog.set_level("INFO", class_archive.log.name)
    archive = class_archive.make_archive()
    told = [message.split(" s  ")[-1] for message in caplog.messages]
    merges = [f"Merge {number} of 6." for number in range(1, 7)]
    assert told[1:] == ["Spark is running.", *merges, "The merges are done. Java writes the archive, about 200 MB."]
    assert [path for path in folder.iterdir() if path.suffix != ".jar"] == [archive]
    loaded = tmp_path / "loaded"
    table = tables.create_table(tmp_path / "table")
    merge = MergeConfig(
        target=str(table),
        source="SELECT id, 'x' AS name FROM range(3)",
        on=["id"],
        clauses=[when_not_matched_insert_all()],
    )
    result = DeltaMergeHook(conf={"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={loaded}"}).merge(merge)
    assert result.num_inserted_rows == 3
    (line,) = [line for line in loaded.read_text().splitlines() if " org.apache.spark.sql.delta.DeltaLog " in line]
    assert line.endswith("source: shared objects file (top)")
