"""What travels with a merge: a package Spark can import without Airflow, and files nobody else reads."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NoReturn

import pytest

from airflow_delta_merge.config import MergeConfig, MergeStatement, when_matched_delete
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import MergeConfigError, StagingError
from airflow_delta_merge.launch.staging import PACKAGE, remove_abandoned, stage, staged, write_py_files

CONFIG = MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_delete()])


def test_py_files_import_without_anything_else(tmp_path: Path) -> None:
    path = tmp_path / "parts.zip"
    write_py_files(path)
    modules = "airflow_delta_merge.config, airflow_delta_merge.exceptions, airflow_delta_merge.contract.commit_record"
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import {modules}; print(airflow_delta_merge.__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"{path}/airflow_delta_merge/__init__.py", done.stderr


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = rf"can't be written to {tmp_path} \(No space left on device\)\. Free space there, or set TMPDIR"
    with staged() as staging:
        monkeypatch.setattr(Path, "touch", full)
        with pytest.raises(StagingError, match=said):
            staging.write_request(JobRequest(merges=CONFIG))
    with pytest.raises(StagingError, match=said):
        stage()
    assert list(tmp_path.iterdir()) == []


def test_py_files_hold_the_engine_and_nothing_of_airflow(tmp_path: Path) -> None:
    write_py_files(tmp_path / "parts.zip")
    with zipfile.ZipFile(tmp_path / "parts.zip") as archive:
        names = set(archive.namelist())
        texts = [archive.read(name).decode() for name in names]
    assert {"airflow_delta_merge/__init__.py", "airflow_delta_merge/engine/__init__.py"} <= names
    assert not [name for name in names if "/hooks/" in name or "/operators/" in name or "/sensors/" in name]
    assert not [text for text in texts if "from airflow." in text or "import airflow\n" in text]


def test_py_files_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_py_files(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "request_",
    [
        JobRequest(merges=CONFIG),
        JobRequest(
            merges=[CONFIG, MergeStatement(sql="MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE")],
            identity=MergeIdentity(application_id="a", generation=1),
            max_commit_attempts=7,
            lineage=True,
            allowed_locations=("/lake",),
        ),
        JobRequest(merges=CONFIG, dry_run=True, explain=True),
    ],
    ids=["one merge", "several merges with all that they can have", "a dry run"],
)
def test_the_job_reads_the_request_that_was_staged(request_: JobRequest) -> None:
    with staged() as staging:
        staging.write_request(request_)
        assert staging.read_request() == request_
        assert staging.request.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"merges": [], "x": 1}'])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(MergeConfigError):
        JobRequest.from_json(text)


def test_a_folder_whose_owner_was_killed_is_removed_by_the_next_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, signal; from tests.unit.test_staging import staged\n"
        "with staged(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    (left,) = tmp_path.iterdir()
    in_the_making = stage().folder
    with staged() as first, staged() as second:
        assert not left.exists()
        assert set(tmp_path.iterdir()) == {first.folder, second.folder, in_the_making}
    long_ago = time.time() - 3600
    os.utime(in_the_making, (long_ago, long_ago))
    remove_abandoned()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_others_made_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    of_a_user = [tmp_path / "airflow_delta_merge_examples", tmp_path / "airflow_delta_merge_release_tv6gem6a"]
    long_ago = time.time() - 3600
    for folder in of_a_user:
        folder.mkdir()
        os.utime(folder, (long_ago, long_ago))
    remove_abandoned()
    assert sorted(tmp_path.iterdir()) == of_a_user


def test_files_are_private_and_go_away() -> None:
    with staged() as staging:
        staging.write_properties({"spark.a": "b"})
        staging.write_request(JobRequest(merges=CONFIG))
        folder = staging.folder
        assert folder.stat().st_mode & 0o777 == 0o700
        assert staging.request.stat().st_mode & 0o777 == staging.properties.stat().st_mode & 0o777 == 0o600
        assert staging.application.read_text(encoding="utf-8") == (PACKAGE / "job" / "application.py").read_text(
            encoding="utf-8"
        )
        assert not staging.result.exists()
    assert not folder.exists()


def test_files_go_away_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), staged() as staging:  # noqa: PT012
        folder = staging.folder
        raise KeyboardInterrupt
    assert not folder.exists()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "true"),
        (7, "7"),
        ("a b", "a\\ b"),
        ("-Da=b -Dc=d", "-Da\\=b\\ -Dc\\=d"),
        ("back\\slash", "back\\\\slash"),
        ("line\nbreak", "line\\u000abreak"),
        ("ä", "\\u00e4"),
        ("😀", "\\ud83d\\ude00"),
        ("$HOME `x` #!", "$HOME\\ `x`\\ \\#\\!"),
    ],
)
def test_properties_are_escaped(value: object, written: str) -> None:
    with staged() as staging:
        staging.write_properties({"spark.some": value})
        assert staging.properties.read_text(encoding="utf-8") == f"spark.some={written}\n"


def test_a_name_adds_no_line_to_the_properties() -> None:
    with staged() as staging:
        staging.write_properties({"spark.a\nspark.jars": "/x.jar\r\nspark.b=c", "#": "\u2028"})
        written = staging.properties.read_text(encoding="utf-8")
    assert written == "spark.a\\u000aspark.jars=/x.jar\\u000d\\u000aspark.b\\=c\n\\#=\\u2028\n"
