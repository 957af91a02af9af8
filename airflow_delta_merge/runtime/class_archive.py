"""An archive of Java classes as the JVM has them once they are loaded, from which Spark starts much sooner.

Half the time of a small merge goes into reading, checking and linking some 20,000 classes. Java keeps them in a file
if asked to (application class data sharing, JEP 310 and 350). The file lies beside Delta's jars, takes some 200 MB,
and is made by

    python -m airflow_delta_merge.runtime.class_archive

on the machine, or in the image, where Spark will run with a ``local`` master. It is for one installation of Spark. Java
checks by itself whether the file fits its own build and the class path, and starts as it would without when it doesn't;
so to have none is no error.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.exceptions import ClassArchiveError, DeltaMergeError
from airflow_delta_merge.runtime.jars import FOLDER_VARIABLE, delta_jars, jars_folder
from airflow_delta_merge.runtime.java import check_java
from airflow_delta_merge.runtime.spark_home import SparkHome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS_TO_MAKE = 900
#: How the lines begin by which the Spark that loads the classes tells where it is.
_PROGRESS = "Progress: "

#: Merges whose classes are worth to have: a new table, all kinds of clauses, with and without deletion vectors, from
#: files and by the ways that small and larger merges take.
_CREATE = (
    "CREATE TABLE {t} (id BIGINT, day DATE, name STRING) USING delta PARTITIONED BY (day) "
    "TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
)
_MERGES = (
    "MERGE INTO {t} AS t USING (SELECT * FROM {s} WHERE id < 10) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    """MERGE INTO {t} AS t USING {s} AS s ON t.id = s.id
    WHEN MATCHED AND s.id = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE""",
)
_SOURCE = "SELECT id, DATE'2026-01-01' + CAST(id % 2 AS INT) AS day, CAST(id AS STRING) AS name FROM range(5, 15)"
_SETTINGS = ("spark.deltaMerge.smallMergeBytes",)

log = logging.getLogger(__name__)


def archive_path(java_version: int) -> Path:
    """Where the archive for a major version of Java and this Spark belongs, whether or not it is there."""
    spark = hashlib.sha256(str(SparkHome.of().path or "").encode()).hexdigest()[:8]
    return jars_folder() / f"classes-java{java_version}-{spark}.jsa"


def archive_options(java_version: int) -> list[str]:
    """The options by which a JVM uses the archive; none if there is none."""
    path = archive_path(java_version)
    if not path.is_file():
        return []
    # Java would warn of an archive that doesn't fit at each start.
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make_archive() -> Path:
    """Run some merges in a Spark of their own and keep the classes that they loaded; takes a minute.

    :raises ClassArchiveError: when there is no archive afterwards.
    :raises JavaError: when there is no Java that fits.
    :raises DeltaJarsError: when Delta's jars can't be had.
    """
    _, java_version = check_java()
    jars, path = delta_jars(), archive_path(java_version)
    log.info("Spark merges into small tables, so that Java loads what merges need; it takes a minute or two.")
    try:
        folder = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ClassArchiveError(
            f"The archive cannot be stored in {path.parent} ({error.strerror}): make the folder writable, or name "
            f"another one, with Delta's jars, in the environment variable {FOLDER_VARIABLE}."
        ) from error
    try:
        made = Path(folder) / path.name
        told = _run_spark(Path(folder), jars, made)
        if not made.is_file():
            last = "\n".join(told.strip().splitlines()[-5:])
            raise ClassArchiveError(f"Java made no archive of classes. It said:\n{last}")
        os.replace(made, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return path


def _run_spark(folder: Path, jars: list[str], archive: Path) -> str:
    """Run :func:`merge_for_classes` by spark-submit as a hook with a local master does; its output."""
    application = folder / "application.py"
    application.write_text(
        "import sys\n"
        "from airflow_delta_merge.runtime.class_archive import merge_for_classes\n"
        "merge_for_classes(sys.argv[1])\n"
    )
    beside = Path(sys.executable).parent
    binary = shutil.which("spark-submit") or shutil.which("spark-submit", path=str(beside)) or "spark-submit"
    # The class path, in this order, must be the hook's.
    command = [binary, "--master", "local[1]", "--driver-class-path", ":".join(jars), str(application), str(folder)]
    environment = os.environ | {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f'"-XX:ArchiveClassesAtExit={archive}" "-Djava.io.tmpdir={folder}"',
    }
    try:
        exit_code, told = _run_telling_progress(command, environment)
    except OSError as error:
        raise ClassArchiveError(f"Spark could not be run to load its classes: {error}") from error
    if exit_code:
        last = "\n".join(told.strip().splitlines()[-5:])
        raise ClassArchiveError(f"Spark could not be run to load its classes. It said:\n{last}")
    return told


def _run_telling_progress(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command and log the progress that it tells; its exit code, and all that it printed."""
    start, told = time.monotonic(), []
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        deadline = threading.Timer(_SECONDS_TO_MAKE, process.kill)
        deadline.start()
        try:
            for line in process.stdout or ():
                told.append(line)
                if line.startswith(_PROGRESS):
                    log.info("%4.0f s  %s", time.monotonic() - start, line.removeprefix(_PROGRESS).rstrip())
        finally:
            deadline.cancel()
    return process.returncode, "".join(told)


def merge_for_classes(folder: str) -> None:
    """Merge into tables in ``folder``, so that all that a merge needs is loaded."""
    from airflow_delta_merge import engine
    from airflow_delta_merge.job.session import start_session

    spark: SparkSession = start_session()
    try:
        source = f"{folder}/source"
        _tell("Spark runs.")
        spark.sql(_SOURCE).write.parquet(source)
        merges = 3 * len(_MERGES)
        for number, vectors in enumerate(("false", "true", "false")):
            table = f"delta.`{folder}/table{number}`"
            spark.sql(_CREATE.format(t=table, vectors=vectors))
            for nth, merge in enumerate(_MERGES, number * len(_MERGES) + 1):
                _tell(f"Merge {nth} of {merges}.")
                engine.merge_sql(spark, merge.format(t=table, s=f"parquet.`{source}`"))
            for name in _SETTINGS:
                spark.conf.set(name, "0")
    finally:
        spark.stop()
    _tell("The merges are done; Java writes the archive, some 200 MB.")


def _tell(what: str) -> None:
    print(f"{_PROGRESS}{what}", flush=True)


def main() -> int:
    """Make the archive and print its path; on failure a sentence and exit code 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        print(make_archive())
    except DeltaMergeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
