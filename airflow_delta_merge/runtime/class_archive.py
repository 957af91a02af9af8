"""An archive of loaded Java classes, which makes Spark start much faster.

Half the time of a small merge goes into reading, checking and linking about 20,000 classes. Java can store them in a
file (application class data sharing, JEP 310 and 350). The file is beside Delta's jars, takes about 200 MB, and is made
by ``airflow-delta-merge class-archive`` on the machine or in the image where Spark will run with a ``local`` master. It
fits one installation of Spark and of Java. Java itself checks whether the file matches its build and the class path,
and otherwise starts without it. So the archive is optional.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_delta_merge.exceptions import ClassArchiveError, DeltaJarsError
from airflow_delta_merge.runtime.jars import FOLDER_VARIABLE, Jar, delta_jars, jars_folder, jars_for
from airflow_delta_merge.runtime.java import Java, check_java
from airflow_delta_merge.runtime.spark_home import SparkHome, find_spark_submit

_SECONDS_TO_MAKE = 900
#: An archive that no merge has used for so long belonged to a Spark or Java that was updated or removed.
_SECONDS_UNUSED = 30 * 24 * 3600.0
#: The application that loads the classes. It imports the engine, so it's named here, not imported.
_APPLICATION = "airflow_delta_merge.job.load_classes"
#: Prefix of progress lines from the Spark that loads the classes.
_PROGRESS = "Progress: "

log = logging.getLogger(__name__)


def archive_path(java: Java) -> Path:
    """The path of the archive that fits a Java and this Spark, whether or not it exists.

    Java refuses an archive once it was updated itself, or a file on the class path has another size or age. The path
    then changes too, so that the next merge has a new archive made.
    """
    spark = SparkHome.of()
    of_spark = [] if spark.path is None else sorted(spark.path.glob("jars/*.jar"))
    of_delta: tuple[Jar, ...] = ()
    with suppress(DeltaJarsError):  # no Spark for merges: a connection names another one
        of_delta = jars_for(spark)
    files = [Path(java.path).resolve(), *of_spark, *(jars_folder() / jar.file_name for jar in of_delta)]
    stamps = "\n".join(map(_stamp, files))
    return jars_folder() / f"classes-java{java.version}-{hashlib.sha256(stamps.encode()).hexdigest()[:12]}.jsa"


def _stamp(file: Path) -> str:
    """What tells a file from what an update makes of it, in the whole seconds that Java compares."""
    try:
        found = file.stat()
    except OSError:
        return str(file)
    return f"{file} {found.st_size} {int(found.st_mtime)}"


def archive_options(java: Java) -> list[str]:
    """The JVM options to use the archive; empty if there is none."""
    path = archive_path(java)
    if not path.is_file():
        return []
    with suppress(OSError):  # another user's
        os.utime(path)
    # Otherwise Java would warn at each start about an archive that doesn't fit.
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make_archive() -> Path:
    """Run some merges in a separate Spark and store the classes that they load; takes a minute.

    It also removes archives that weren't used for a month.

    :raises ClassArchiveError: when the archive can't be made.
    :raises JavaError: when there is no supported Java.
    :raises DeltaJarsError: when Delta's jars are missing and can't be downloaded.
    """
    java, jars = check_java(), delta_jars()
    path = archive_path(java)
    log.info("Running merges on small tables, so that Java loads their classes. It takes a minute or two.")
    try:
        folder = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ClassArchiveError(
            f"The archive cannot be stored in {path.parent} ({error.strerror}). Make the folder writable, or set the "
            f"environment variable {FOLDER_VARIABLE} to another folder with Delta's jars."
        ) from error
    try:
        made = Path(folder) / path.name
        output = _run_spark(Path(folder), jars, made)
        if not made.is_file():
            last = "\n".join(output.strip().splitlines()[-5:])
            raise ClassArchiveError(f"Java did not create the class archive. Its output ends with:\n{last}")
        os.replace(made, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _remove_unused(path.parent)
    return path


def _remove_unused(folder: Path) -> None:
    for archive in folder.glob("classes-java*.jsa"):
        with suppress(OSError):
            if time.time() - archive.stat().st_mtime > _SECONDS_UNUSED:
                archive.unlink()


def _run_spark(folder: Path, jars: list[str], archive: Path) -> str:
    """Run the application with spark-submit like a hook with a local master, and return its output."""
    application = folder / "application.py"
    application.write_text(f"import runpy\nrunpy.run_module({_APPLICATION!r}, run_name='__main__')\n")
    # The class path must be the same as the hook's, in the same order.
    command = [find_spark_submit() or "spark-submit", "--master", "local[1]", "--driver-class-path", ":".join(jars)]
    command += [str(application), str(folder), _PROGRESS]
    environment = os.environ | {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f'"-XX:ArchiveClassesAtExit={archive}" "-Djava.io.tmpdir={folder}"',
    }
    try:
        exit_code, output = _run_logging_progress(command, environment)
    except OSError as error:
        raise ClassArchiveError(f"Spark could not be run to load its classes: {error}") from error
    if exit_code:
        last = "\n".join(output.strip().splitlines()[-5:])
        raise ClassArchiveError(f"Spark could not be run to load its classes. Its output ends with:\n{last}")
    return output


def _run_logging_progress(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command, log its progress, and return its exit code and output."""
    start, output = time.monotonic(), []
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        deadline = threading.Timer(_SECONDS_TO_MAKE, process.kill)
        deadline.start()
        try:
            for line in process.stdout or ():
                output.append(line)
                if line.startswith(_PROGRESS):
                    log.info("%4.0f s  %s", time.monotonic() - start, line.removeprefix(_PROGRESS).rstrip())
        finally:
            deadline.cancel()
    return process.returncode, "".join(output)
