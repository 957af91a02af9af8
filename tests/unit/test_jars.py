"""Fetching Delta's jars: from a mirror, once, checked, by several processes, and what is said when it can't be."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from airflow_delta_merge.exceptions import DeltaJarsError
from airflow_delta_merge.runtime import jars
from airflow_delta_merge.runtime.spark_home import SparkHome

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Maven repository in a folder."""
    root = tmp_path_factory.mktemp("maven")
    for path in map(Path, jars.delta_jars()):
        artifact = path.name.removesuffix(f"-{jars.DELTA_VERSION}.jar")
        folder = root / "io" / "delta" / artifact / jars.DELTA_VERSION
        folder.mkdir(parents=True)
        shutil.copy(path, folder)
    return root


@pytest.fixture
def folder(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty jars folder, filled from the mirror."""
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path / "jars"))
    monkeypatch.setenv(jars.MAVEN_VARIABLE, mirror.as_uri())
    return tmp_path / "jars"


def test_fetches_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = jars.delta_jars()
    assert [Path(path).parent for path in found] == [folder] * 4
    assert all(Path(path).stat().st_mode & 0o777 == 0o644 for path in found)
    monkeypatch.setenv(jars.MAVEN_VARIABLE, NOBODY)
    assert jars.delta_jars() == found


def test_default_folder_is_named_for_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jars.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert jars.jars_folder() == Path("/home/somebody/.cache/airflow_delta_merge/jars") / jars.DELTA_VERSION


def test_mends_a_damaged_jar(folder: Path) -> None:
    good = jars.delta_jars()
    size = Path(good[1]).stat().st_size
    Path(good[1]).write_bytes(b"half a j")
    assert jars.delta_jars() == good
    assert Path(good[1]).stat().st_size == size


def test_parts_that_killed_processes_left_are_deleted(folder: Path) -> None:
    folder.mkdir()
    name = jars.jars_for(SparkHome.of())[0].file_name
    old, new, other = (folder / part for part in (f".{name}.old", f".{name}.new", "notes"))
    for file in (old, new, other):
        file.write_bytes(b"PK")
    for file in (old, other):
        os.utime(file, (0, 0))
    jars.delta_jars()
    assert [file.exists() for file in (old, new, other)] == [False, True, True]


def test_processes_at_the_same_time(folder: Path) -> None:
    command = [sys.executable, "-m", "airflow_delta_merge.command_line", "jars"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert printed == {",".join(jars.delta_jars())}
    assert len(list(folder.iterdir())) == 4, "temporary files are left"


def test_what_a_wrong_mirror_sends_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = jars.jars_for(SparkHome.of())[0]
    wrong = tmp_path / "wrong" / "io" / "delta" / jar.artifact / jar.version
    wrong.mkdir(parents=True)
    (wrong / jar.file_name).write_text("<html>Please log in</html>")
    monkeypatch.setenv(jars.MAVEN_VARIABLE, (tmp_path / "wrong").as_uri())
    with pytest.raises(DeltaJarsError, match=r"is not delta-spark_.*\.jar: its SHA-256 is .* proxy"):
        jars.delta_jars()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("maven", [NOBODY, "not an address", "file:///there/is/none"])
def test_offline_tells_the_ways_out(folder: Path, maven: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.MAVEN_VARIABLE, maven)
    monkeypatch.setattr(jars.time, "sleep", lambda seconds: None)
    with pytest.raises(DeltaJarsError) as caught:
        jars.delta_jars()
    for word in ("Without network", str(folder), jars.FOLDER_VARIABLE, jars.MAVEN_VARIABLE):
        assert word in str(caught.value)


class _Private(SimpleHTTPRequestHandler):
    """A mirror for one user."""

    def do_GET(self) -> None:
        login = f"Basic {base64.b64encode(b'bob:s3/cret').decode()}"
        if self.headers["Authorization"] == login:
            super().do_GET()
        else:
            self.send_error(401)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def private_mirror(mirror: Path) -> Iterator[str]:
    """The address of a mirror that needs a login."""
    with HTTPServer(("127.0.0.1", 0), partial(_Private, directory=str(mirror))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_mirror_may_need_a_login(folder: Path, private_mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.MAVEN_VARIABLE, f"http://bob:s3%2Fcret@{private_mirror}/")
    assert jars.have_delta_jars() is False
    assert len(jars.delta_jars()) == 4


def test_the_login_of_a_mirror_is_not_shown(
    folder: Path, private_mirror: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(jars.MAVEN_VARIABLE, f"http://bob:wrong-secret@{private_mirror}/")
    for attempt in (jars.delta_jars, jars.have_delta_jars):
        with caplog.at_level("INFO"), pytest.raises(DeltaJarsError, match=f"from http://{private_mirror}/io") as caught:
            attempt()
        assert "401" in str(caught.value)
        assert "secret" not in f"{caught.value}{caplog.text}"


def test_folder_that_cannot_be(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path / "file" / "jars"))
    with pytest.raises(DeltaJarsError, match=f"cannot be stored in .*{jars.FOLDER_VARIABLE}"):
        jars.delta_jars()


def test_command_line_fails_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "airflow_delta_merge.command_line", "jars"],
        env={**os.environ, jars.FOLDER_VARIABLE: str(tmp_path / "file" / "jars")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert jars.FOLDER_VARIABLE in done.stderr
