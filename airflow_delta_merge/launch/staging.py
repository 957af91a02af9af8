"""The files of one merge: the job, the engine as py-files, the request and Spark's properties.

They are in one private folder per merge, so that no request or property appears on a command line or in an environment
variable, where every user of the machine could read it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_delta_merge.config.checks import option_text
from airflow_delta_merge.contract.outcome import JobOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import MergeResultError, StagingError
from airflow_delta_merge.launch.keeper import LOCK as KEEPER_LOCK
from airflow_delta_merge.launch.keeper import is_locked

#: How the folders' names begin and end. Abandoned ones are deleted, so nobody else's folder may have such a name.
FOLDER_PREFIX, FOLDER_SUFFIX = "airflow_delta_merge_", ".staging"
#: Locked while the process that created the folder and waits for Spark is alive.
_OWNER_LOCK = "owner.lock"
#: A younger folder without a lock may still be under construction; an older one was abandoned.
_SECONDS_TO_MAKE = 600.0

PACKAGE = Path(__file__).resolve().parent.parent
TRAVELLING_MODULES = (
    "__init__.py",
    "exceptions.py",
    "identifiers.py",
)
TRAVELLING_FOLDERS = ("config", "contract", "engine", "job")


@dataclass(frozen=True)
class Staging:
    """The files of one merge.

    :param folder: the private folder that holds them.
    """

    folder: Path

    @property
    def application(self) -> Path:
        return self.folder / "airflow_delta_merge_job.py"

    @property
    def py_files(self) -> Path:
        return self.folder / "airflow_delta_merge.zip"

    @property
    def request(self) -> Path:
        return self.folder / "request.json"

    @property
    def temporary(self) -> Path:
        """Folder for Java's and Spark's temporary files, which a killed JVM leaves behind."""
        return self.folder / "tmp"

    @property
    def properties(self) -> Path:
        return self.folder / "spark.properties"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    def write(self, name: str, text: str) -> None:
        """Write a file that only the owner can read.

        :raises StagingError: when that fails, e.g. because the disk is full.
        """
        path = self.folder / name
        with _room_needed():
            path.touch(0o600, exist_ok=False)
            path.write_text(text, encoding="utf-8")

    def read_outcome(self) -> JobOutcome | None:
        """The outcome in the job's result file; None if the file does not exist.

        :raises MergeResultError: when the file is incomplete.
        """
        try:
            data: Any = json.loads(self.result.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise MergeResultError(f"The job's result file is not JSON: {error}.") from error
        return JobOutcome.from_dict(data)

    def write_request(self, request: JobRequest) -> None:
        """Write the job's request."""
        self.write(self.request.name, request.to_json())

    def read_request(self) -> JobRequest:
        """Read the job's request.

        :raises MergeConfigError: when it is not a request of this release.
        """
        return JobRequest.from_json(self.request.read_text(encoding="utf-8"))

    def write_application(self, module: str) -> Path:
        """Write another application than the merge's, and return its path.

        :param module: the name of its module in ``job``.
        """
        path = self.folder / f"airflow_delta_merge_{module}.py"
        self.write(path.name, (PACKAGE / "job" / f"{module}.py").read_text(encoding="utf-8"))
        return path

    def write_properties(self, properties: Mapping[str, Any]) -> None:
        """Write Spark properties as a Java properties file."""
        lines = [f"{_escape(name)}={_escape(option_text(value))}\n" for name, value in properties.items()]
        self.write(self.properties.name, "".join(lines))


@contextmanager
def staged() -> Iterator[Staging]:
    """A private folder from :func:`stage`, removed at the end.

    If this process is killed, the next merge on this machine removes the folder.
    """
    staging = stage()
    try:
        with _owned(staging.folder):
            yield staging
    finally:
        shutil.rmtree(staging.folder, ignore_errors=True)


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    temporary = folder / f".{_OWNER_LOCK}"
    with temporary.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        temporary.rename(folder / _OWNER_LOCK)  # so that the file is locked as soon as it exists
        yield


def remove_abandoned() -> None:
    """Remove this user's folders of abandoned merges, since they hold Spark's properties."""
    for folder in own_folders():
        with suppress(OSError):  # removed meanwhile
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def own_folders() -> Iterator[Path]:
    """This user's merge folders on this machine."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*{FOLDER_SUFFIX}")):
        with suppress(OSError):  # removed meanwhile
            if folder.stat().st_uid == os.getuid():
                yield folder


def _is_abandoned(folder: Path) -> bool:
    if (folder / _OWNER_LOCK).exists():
        return not is_locked(folder / _OWNER_LOCK)
    return not is_locked(folder / KEEPER_LOCK) and time.time() - folder.stat().st_mtime > _SECONDS_TO_MAKE


@contextmanager
def _room_needed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StagingError(
            f"The merge's files can't be written to {tempfile.gettempdir()} ({error.strerror}). Free space there, or "
            "set TMPDIR to another folder."
        ) from error


@_room_needed()
def stage() -> Staging:
    """Create a private folder with the job and the engine. The caller must remove it.

    :raises StagingError: when it can't be written.
    """
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(FOLDER_SUFFIX, FOLDER_PREFIX))
    try:
        staging = Staging(folder)
        # The job is copied out of the package: a script's folder is the first entry of sys.path, so the package's own
        # modules would become importable as top-level ones.
        staging.write(staging.application.name, (PACKAGE / "job" / "application.py").read_text(encoding="utf-8"))
        write_py_files(staging.py_files)
        staging.temporary.mkdir(mode=0o700)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return staging


def travelling_modules() -> list[Path]:
    """The files of this package that run inside Spark."""
    modules = [PACKAGE / name for name in TRAVELLING_MODULES]
    for folder in TRAVELLING_FOLDERS:
        modules += sorted((PACKAGE / folder).rglob("*.py"))
    return modules


def write_py_files(path: Path) -> None:
    """Zip the parts of this package that run inside Spark. The result is reproducible, byte by byte."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in travelling_modules():
            entry = zipfile.ZipInfo(module.relative_to(PACKAGE.parent).as_posix())
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, module.read_bytes(), zipfile.ZIP_DEFLATED)


def _escape(text: str) -> str:
    """Escape every character that is special in a properties file, or isn't printable ASCII."""
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character in "\\=:#! ":
        return "\\" + character
    if " " < character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
