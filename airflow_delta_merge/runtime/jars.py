"""Delta's jars: fetched once, checked by checksum, never resolved again.

Spark has every other jar Delta needs, so these are enough on ``spark.jars``: four for Spark 4, two for Spark 3.5.
``spark.jars.packages`` would resolve and re-ship thirty-three at each start, which costs six to eight seconds.

They lie in ``~/.cache/airflow_delta_merge/jars/<version>/``, or in the folder that ``AIRFLOW_DELTA_MERGE_JARS`` names.
On a machine without network put the files there by hand. ``AIRFLOW_DELTA_MERGE_MAVEN`` names a mirror of Maven Central.

``airflow-delta-merge jars`` fetches what is missing and prints the paths, separated by commas. With ``--s3a``,
``--azure`` or ``--gcs`` it does the same for a store's driver
(:mod:`airflow_delta_merge.runtime.store_drivers`), whose jars lie in the same folder.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from airflow_delta_merge.exceptions import DeltaJarsError
from airflow_delta_merge.runtime.spark_home import SparkHome

DELTA_VERSION = "4.4.0"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
FOLDER_VARIABLE = "AIRFLOW_DELTA_MERGE_JARS"
MAVEN_VARIABLE = "AIRFLOW_DELTA_MERGE_MAVEN"

_ATTEMPTS = 3
_TIMEOUT_SECONDS = 60
_SECONDS_FOR_A_LOOK = 10
_CHUNK = 1 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Jar:
    """One jar of a Maven repository.

    :param group: the group, e.g. ``io.delta``.
    :param artifact: the artifact's name.
    :param version: its version.
    :param sha256: the SHA-256 of the jar, in hexadecimal digits.
    :param classifier: which of an artifact's jars: ``shaded``.
    """

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str | None = None

    @property
    def file_name(self) -> str:
        return f"{'-'.join(filter(None, [self.artifact, self.version, self.classifier]))}.jar"

    @property
    def url(self) -> str:
        """Its address at Maven Central or the mirror that is named in its place."""
        base = os.environ.get(MAVEN_VARIABLE, "").strip() or MAVEN_CENTRAL
        return "/".join([base.rstrip("/"), *self.group.split("."), self.artifact, self.version, self.file_name])


def _of_delta(version: str, **sha256_of_artifact: str) -> tuple[Jar, ...]:
    return tuple(Jar("io.delta", name, version, sha256) for name, sha256 in sha256_of_artifact.items())


_WITH_EACH_SPARK_4 = {
    "delta-storage": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "delta-kernel-api": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "delta-kernel-defaults": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
}
#: Delta's jars by the minor version of Spark, all for the Scala that PyPI's PySpark has.
JARS_OF_SPARK = {
    "3.5": _of_delta(
        "3.3.3",
        **{
            "delta-spark_2.12": "4912bf902a1c453aba3bd838ff212dedd357155212f9bb37a6b47d97f2827ebc",
            "delta-storage": "45ad193053fd30cebe6d9ab1889873cde39b223a0f210e00ebee8b6642476901",
        },
    ),
    "4.0": _of_delta(
        DELTA_VERSION,
        **{"delta-spark_4.0_2.13": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104"},
        **_WITH_EACH_SPARK_4,
    ),
    "4.1": _of_delta(
        DELTA_VERSION,
        **{"delta-spark_4.1_2.13": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"},
        **_WITH_EACH_SPARK_4,
    ),
    "4.2": _of_delta(
        DELTA_VERSION,
        **{"delta-spark_4.2_2.13": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"},
        **_WITH_EACH_SPARK_4,
    ),
}


def jars_for(spark: SparkHome | str) -> tuple[Jar, ...]:
    """Delta's jars for a version of Spark.

    :param spark: an installation, taken for the newest known version where it tells none; or a version.
    :raises DeltaJarsError: when none are known for it.
    """
    version = spark if isinstance(spark, str) else spark.version or max(JARS_OF_SPARK)
    jars = JARS_OF_SPARK.get(".".join(version.split(".")[:2]))
    scala = None if isinstance(spark, str) else spark.scala
    if jars is None or (scala is not None and f"_{scala}" not in jars[0].artifact):
        found = f"Spark {version}" if isinstance(spark, str) else f"Spark {version} for Scala {scala} in {spark.path}"
        raise DeltaJarsError(
            f"There are no jars of Delta for {found}: merges run on Spark {', '.join(JARS_OF_SPARK)}, each for the "
            "Scala that its PySpark on PyPI has. Install such a pyspark for this Python, or let SPARK_HOME or the "
            "connection's spark_binary point to such a Spark."
        )
    return jars


def jars_folder() -> Path:
    """The folder that holds the jars, whether or not they are there yet."""
    chosen = os.environ.get(FOLDER_VARIABLE, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path.home() / ".cache" / "airflow_delta_merge" / "jars" / DELTA_VERSION


def delta_jars(spark: SparkHome | str | None = None) -> list[str]:
    """The absolute paths of Delta's jars, fetched first if they are missing or damaged.

    :param spark: for which installation, or version; by default the one that spark-submit starts here.
    :raises DeltaJarsError: when a jar is neither there nor to be had, the message tells how to bring it there; or when
        none is known for that Spark.
    """
    return fetched(jars_for(spark or SparkHome.of()))


def have_delta_jars(spark: SparkHome | str | None = None) -> bool:
    """Whether Delta's jars are all on this machine; if not, the first that is missing can at least be fetched.

    :param spark: as for :func:`delta_jars`.
    :raises DeltaJarsError: when it can't.
    """
    return have(jars_for(spark or SparkHome.of()))


def fetched(jars: Iterable[Jar]) -> list[str]:
    """The absolute paths of jars, fetched first if they are missing or damaged.

    :raises DeltaJarsError: as :func:`delta_jars`.
    """
    folder = jars_folder()
    return [str(_ensure(folder, jar)) for jar in jars]


def have(jars: Iterable[Jar]) -> bool:
    """Whether jars are all on this machine; if not, the first that is missing can at least be fetched.

    :raises DeltaJarsError: when it can't.
    """
    folder = jars_folder()
    for jar in jars:
        path, found = _look(folder, jar)
        if found != jar.sha256:
            try:
                head = urllib.request.Request(jar.url, method="HEAD")  # noqa: S310 (as in _download)
                urllib.request.urlopen(head, timeout=_SECONDS_FOR_A_LOOK).close()  # noqa: S310
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise DeltaJarsError(_not_fetched(jar.url, path, error)) from error
            return False
    return True


def _not_fetched(url: str, path: Path, error: Exception) -> str:
    return (
        f"The jar {path.name} could not be fetched from {url} ({error}). Without network, copy the "
        f"file to {path.parent} by hand or name a folder that has it in the environment variable "
        f"{FOLDER_VARIABLE}; a mirror of Maven Central goes into {MAVEN_VARIABLE}."
    )


def _look(folder: Path, jar: Jar) -> tuple[Path, str | None]:
    """Where a jar belongs, and the SHA-256 of what is there."""
    path = folder / jar.file_name
    # Delta's are 13 MB together, as are the S3A driver's, hashed in a few hundredths of a second: cheaper than keeping
    # a stamp of trust.
    return path, _sha256(path) if path.is_file() else None


def _ensure(folder: Path, jar: Jar) -> Path:
    path, found = _look(folder, jar)
    if found != jar.sha256:
        if found is not None:
            log.warning("%s is not the jar it should be (its SHA-256 is %s); fetching it anew.", path, found)
        _fetch(path, jar)
    return path


def _fetch(path: Path, jar: Jar) -> None:
    log.info("Fetching %s", jar.url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A private name beside the final one: processes that fetch at the same time don't meet, and the rename is
        # atomic, so nobody ever sees half a jar.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise DeltaJarsError(
            f"The jar {path.name} cannot be stored in {path.parent} ({error.strerror}): make the folder writable, "
            f"or name another one in the environment variable {FOLDER_VARIABLE}."
        ) from error
    try:
        os.close(handle)
        _download(jar, Path(temporary), path)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide a shared folder's jars from other users
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _download(jar: Jar, temporary: Path, path: Path) -> None:
    url = jar.url
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            # The address is ours or the administrator's, and whatever comes is checked below.
            with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response, temporary.open("wb") as file:  # noqa: S310
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: not an address at all
            lasting = isinstance(error, ValueError) or (isinstance(error, urllib.error.HTTPError) and error.code < 500)
            if lasting or attempt == _ATTEMPTS:
                raise DeltaJarsError(_not_fetched(url, path, error)) from error
            time.sleep(2 ** (attempt - 1))
        else:
            break
    found = _sha256(temporary)
    if found != jar.sha256:
        raise DeltaJarsError(
            f"What came from {url} is not {path.name}: its SHA-256 is {found}, {jar.sha256} was expected. Look whether "
            f"a proxy answered in its place, or copy the right file to {path.parent} by hand."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
