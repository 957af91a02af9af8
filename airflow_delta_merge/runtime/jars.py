"""Delta's jars: downloaded once, verified by checksum, never resolved again.

Spark has every other jar that Delta needs, so these are enough on ``spark.jars``: four for Spark 4, two for Spark 3.5.
``spark.jars.packages`` would resolve and ship thirty-three jars at each start, which costs six to eight seconds.

They are in ``~/.cache/airflow_delta_merge/jars/<version>/``, or in the folder set by ``AIRFLOW_DELTA_MERGE_JARS``.
On a machine without network, copy the files there. ``AIRFLOW_DELTA_MERGE_MAVEN`` sets a mirror of Maven Central; one
that needs a login has it in its URL: ``https://user:password@maven.internal/central``.

``airflow-delta-merge jars`` downloads missing jars and prints the paths, separated by commas. With ``--s3a``,
``--azure`` or ``--gcs`` it does the same for a store's driver
(:mod:`airflow_delta_merge.runtime.store_drivers`), whose jars are in the same folder.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import logging
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from airflow_delta_merge.exceptions import DeltaJarsError
from airflow_delta_merge.runtime.spark_home import SparkHome

DELTA_VERSION = "4.4.0"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
FOLDER_VARIABLE = "AIRFLOW_DELTA_MERGE_JARS"
MAVEN_VARIABLE = "AIRFLOW_DELTA_MERGE_MAVEN"

_ATTEMPTS = 3
_TIMEOUT_SECONDS = 60
_HEAD_TIMEOUT_SECONDS = 10
#: A download that is still running writes more often than this.
_LONGEST_SILENCE_SECONDS = 5 * _TIMEOUT_SECONDS
_CHUNK = 1 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Jar:
    """One jar of a Maven repository.

    :param group: the group, e.g. ``io.delta``.
    :param artifact: the artifact's name.
    :param version: its version.
    :param sha256: the SHA-256 of the jar, in hexadecimal digits.
    :param classifier: Maven's classifier, e.g. ``shaded``.
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
        """Its URL at Maven Central or the configured mirror, without the mirror's login."""
        base, _ = _repository()
        return "/".join([base.rstrip("/"), *self.group.split("."), self.artifact, self.version, self.file_name])

    def request(self, method: str = "GET") -> urllib.request.Request:
        """A request for it. The login isn't sent to where the mirror may redirect it."""
        # The URL is ours or the administrator's, and a download is verified.
        request = urllib.request.Request(self.url, method=method)  # noqa: S310
        _, login = _repository()
        if login:
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        return request


def _repository() -> tuple[str, str]:
    """The URL of Maven Central or the configured mirror, and the mirror's login as ``user:password``; may be empty."""
    scheme, found, rest = (os.environ.get(MAVEN_VARIABLE, "").strip() or MAVEN_CENTRAL).partition("://")
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    return f"{scheme}{found}{host}{slash}{path}", unquote(login)


def _of_delta(version: str, **sha256_of_artifact: str) -> tuple[Jar, ...]:
    return tuple(Jar("io.delta", name, version, sha256) for name, sha256 in sha256_of_artifact.items())


_WITH_EACH_SPARK_4 = {
    "delta-storage": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "delta-kernel-api": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "delta-kernel-defaults": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
}
#: Delta's jars by the minor version of Spark, for the Scala version of PyPI's PySpark.
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

    :param spark: an installation (the newest known version if its version is unknown), or a version.
    :raises DeltaJarsError: when no jars are known for it.
    """
    version = spark if isinstance(spark, str) else spark.version or max(JARS_OF_SPARK)
    jars = JARS_OF_SPARK.get(".".join(version.split(".")[:2]))
    scala = None if isinstance(spark, str) else spark.scala
    if jars is None or (scala is not None and f"_{scala}" not in jars[0].artifact):
        found = f"Spark {version}" if isinstance(spark, str) else f"Spark {version} for Scala {scala} in {spark.path}"
        raise DeltaJarsError(
            f"There are no Delta jars for {found}. Merges run on Spark {', '.join(JARS_OF_SPARK)}, each with the Scala "
            "version of its PySpark on PyPI. Install such a pyspark for this Python, or point SPARK_HOME or the "
            "connection's spark_binary to such a Spark."
        )
    return jars


def jars_folder() -> Path:
    """The folder for the jars, whether or not they exist yet.

    :raises DeltaJarsError: when none is set, and this process's user has no home.
    """
    chosen = os.environ.get(FOLDER_VARIABLE, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        home = Path.home()
    except RuntimeError as error:
        raise DeltaJarsError(
            "There is no folder for Delta's jars: HOME is not set, and this process's user has no entry in "
            f"/etc/passwd. Set the environment variable {FOLDER_VARIABLE} to a folder."
        ) from error
    return home / ".cache" / "airflow_delta_merge" / "jars" / DELTA_VERSION


def delta_jars(spark: SparkHome | str | None = None) -> list[str]:
    """The absolute paths of Delta's jars; downloads missing or damaged ones first.

    :param spark: the installation or version of Spark; by default the one that spark-submit starts here.
    :raises DeltaJarsError: when a jar is missing and can't be downloaded (the message says what to do), or no jars are
        known for that Spark.
    """
    return fetched(jars_for(spark or SparkHome.of()))


def have_delta_jars(spark: SparkHome | str | None = None) -> bool:
    """Whether all of Delta's jars are on this machine. If not, checks that the first missing jar can be downloaded.

    :param spark: as for :func:`delta_jars`.
    :raises DeltaJarsError: when it can't be downloaded.
    """
    return have(jars_for(spark or SparkHome.of()))


def fetched(jars: Iterable[Jar]) -> list[str]:
    """The absolute paths of jars; downloads missing or damaged ones first.

    :raises DeltaJarsError: as for :func:`delta_jars`.
    """
    folder = jars_folder()
    return [str(_ensure(folder, jar)) for jar in jars]


def have(jars: Iterable[Jar]) -> bool:
    """Whether all jars are on this machine. If not, checks that the first missing one can be downloaded.

    :raises DeltaJarsError: when it can't be downloaded.
    """
    folder = jars_folder()
    for jar in jars:
        path, found = _look(folder, jar)
        if found != jar.sha256:
            try:
                urllib.request.urlopen(jar.request("HEAD"), timeout=_HEAD_TIMEOUT_SECONDS).close()  # noqa: S310
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise DeltaJarsError(_not_fetched(jar.url, path, error)) from error
            return False
    return True


def _not_fetched(url: str, path: Path, error: Exception) -> str:
    return (
        f"The jar {path.name} could not be downloaded from {url} ({error}). Without network, copy the file to "
        f"{path.parent}, or set the environment variable {FOLDER_VARIABLE} to a folder that has it. To use a mirror of "
        f"Maven Central, set {MAVEN_VARIABLE}."
    )


def _look(folder: Path, jar: Jar) -> tuple[Path, str | None]:
    """A jar's path, and the SHA-256 of the file there."""
    path = folder / jar.file_name
    # Delta's jars have 13 MB in total, and so have the S3A driver's. Hashing takes a few hundredths of a second, so a
    # cache of verified files is not worth it.
    return path, _sha256(path) if path.is_file() else None


def _ensure(folder: Path, jar: Jar) -> Path:
    path, found = _look(folder, jar)
    if found != jar.sha256:
        if found is not None:
            log.warning("%s is not the expected jar (its SHA-256 is %s). Downloading it again.", path, found)
        _fetch(path, jar)
    return path


def _fetch(path: Path, jar: Jar) -> None:
    log.info("Downloading %s", jar.url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _delete_left_over(path)
        # A temporary name beside the final one: concurrent downloads don't clash, and the rename is atomic, so no
        # process ever sees a partial jar.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise DeltaJarsError(
            f"The jar {path.name} cannot be stored in {path.parent} ({error.strerror}). Make the folder writable, or "
            f"set the environment variable {FOLDER_VARIABLE} to another folder."
        ) from error
    try:
        os.close(handle)
        _download(jar, Path(temporary), path)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide a shared folder's jars from other users
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _delete_left_over(path: Path) -> None:
    """Delete the parts of a jar that killed processes left."""
    for part in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _LONGEST_SILENCE_SECONDS:
                part.unlink()


def _download(jar: Jar, temporary: Path, path: Path) -> None:
    url = jar.url
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            answer = urllib.request.urlopen(jar.request(), timeout=_TIMEOUT_SECONDS)  # noqa: S310
            with answer, temporary.open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: not a URL
            lasting = isinstance(error, ValueError) or (isinstance(error, urllib.error.HTTPError) and error.code < 500)
            if lasting or attempt == _ATTEMPTS:
                raise DeltaJarsError(_not_fetched(url, path, error)) from error
            time.sleep(2 ** (attempt - 1))
        else:
            break
    found = _sha256(temporary)
    if found != jar.sha256:
        raise DeltaJarsError(
            f"The download from {url} is not {path.name}: its SHA-256 is {found}, expected {jar.sha256}. Check whether "
            f"a proxy answered instead, or copy the right file to {path.parent}."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
