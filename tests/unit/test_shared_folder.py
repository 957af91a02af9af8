"""Results in a folder that the worker and the cluster share."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta_merge.launch import shared_folder
from airflow_delta_merge.launch.shared_folder import fetch, local_path
from airflow_delta_merge.launch.staging import Staging


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///shared/a b/r.json", "/shared/a b/r.json"),
        ("file:/shared/r.json", "/shared/r.json"),
        ("file:///shared/100%25/ä#?.json", "/shared/100%25/ä#?.json"),
        ("file://host/shared/r.json", None),
        ("hdfs:///shared/r.json", None),
        ("s3a://bucket/r.json", None),
        ("/shared/r.json", None),
    ],
)
def test_only_a_file_of_this_machine_has_a_path(uri: str, path: str | None) -> None:
    assert local_path(uri) == (path and Path(path))


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    (tmp_path / "staging").mkdir()
    return Staging(tmp_path / "staging")


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A result as Hadoop writes it, beside that of an earlier try."""
    folder = tmp_path / "results" / "task"
    folder.mkdir(parents=True)
    for name in ("try1.json", ".try1.json.crc", "try2.json", ".try2.json.crc"):
        (folder / name).write_text(f'"ä {name}"', encoding="utf-8")
    return folder / "try2.json"


def test_a_result_is_taken_and_its_folder_removed(staging: Staging, result: Path) -> None:
    assert fetch(result, staging) is None
    assert staging.result.read_text(encoding="utf-8") == '"ä try2.json"'
    assert staging.result.stat().st_mode & 0o777 == 0o600
    assert list(result.parent.parent.iterdir()) == []


def test_a_driver_that_left_no_result_leaves_none(staging: Staging, result: Path) -> None:
    result.unlink()
    assert fetch(result, staging) is None
    assert fetch(result, staging) is None, "nor a folder"
    assert list(staging.folder.iterdir()) == []


def test_a_result_that_cannot_be_read_says_why(staging: Staging, result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "MAX_BYTES", 3)
    assert str(fetch(result, staging)).startswith("It has more than")
    monkeypatch.undo()
    result.write_bytes(b"\xff")
    assert "can't decode byte 0xff" in str(fetch(result, staging))
    result.unlink()
    result.mkdir()
    assert "Is a directory" in str(fetch(result, staging))
    assert result.exists()
    assert not staging.result.exists()
