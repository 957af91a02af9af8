"""The jars of stores' drivers: for the Hadoop that PySpark has, and with every class that they name."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from airflow_delta_merge.exceptions import DeltaJarsError
from airflow_delta_merge.runtime import jars
from airflow_delta_merge.runtime.store_drivers import HADOOP_VERSION, S3A

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
# Features that stay off unless somebody sets them up, who then needs further jars.
OPTIONAL = (
    "com/amazonaws/",  # credential providers of the SDK's first version
    "software/amazon/awssdk/crt/",  # the native client
    "software/amazon/awssdk/s3accessgrants/",
    "software/amazon/awssdk/services/kms/",  # encryption on the client's side, with the next
    "software/amazon/encryption/",
    "software/amazon/awssdk/thirdparty/org/apache/http/",  # how the bundle calls org/apache/http/, which is tried next
)
JAVA = ("java/", "javax/", "org/w3c/", "org/xml/", "org/ietf/")
# The bytes after the tag of an entry in a class file's pool of constants, save for texts, which say it themselves.
POOL_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
TEXT, LONG, DOUBLE, CLASS = 1, 5, 6, 7


def test_hadoop_is_that_of_pyspark() -> None:
    assert (SPARK_JARS / f"hadoop-client-api-{HADOOP_VERSION}.jar").is_file()


def test_missing_jars_are_named_with_their_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path / "jars"))
    monkeypatch.setenv(jars.MAVEN_VARIABLE, tmp_path.as_uri())
    first = f"{tmp_path.as_uri()}/org/apache/hadoop/hadoop-aws/3.5.0/hadoop-aws-3.5.0.jar"
    for ask in (S3A.fetched, S3A.are_there):
        with pytest.raises(DeltaJarsError, match=rf"hadoop-aws-3\.5\.0\.jar could not .* {re.escape(first)} "):
            ask()


@pytest.mark.slow  # where they are missing, it fetches them
def test_every_class_that_they_name_is_there() -> None:
    ours = [Path(jar) for jar in S3A.fetched()]
    assert len(ours) == 36
    there = {name for jar in [*ours, *SPARK_JARS.glob("*.jar")] for name in class_names(jar)}
    named = {name for jar in ours for name in named_classes(jar)}
    assert "software/amazon/awssdk/services/s3/S3Client" in named & there
    assert sorted(name for name in named - there if not name.startswith((*OPTIONAL, *JAVA))) == []


def class_names(jar: Path) -> set[str]:
    with zipfile.ZipFile(jar) as archive:
        return {name.removesuffix(".class") for name in archive.namelist() if name.endswith(".class")}


def named_classes(jar: Path) -> Iterator[str]:
    """The classes that stand in the pools of constants of a jar's classes."""
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            # What a jar brings under a name of its own may have optional parts of its own, too.
            if name.endswith(".class") and "/shaded/" not in name:
                yield from classes_of_pool(archive.read(name))


def classes_of_pool(data: bytes) -> Iterator[str]:
    (length,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, str] = {}
    classes: list[int] = []
    at, index = 10, 1
    while index < length:
        tag, at = data[at], at + 1
        if tag == TEXT:
            (size,) = struct.unpack_from(">H", data, at)
            texts[index] = data[at + 2 : at + 2 + size].decode("utf-8", "replace")
            at += 2 + size
        else:
            if tag == CLASS:
                classes += struct.unpack_from(">H", data, at)
            at += POOL_SIZES[tag]
        index += 2 if tag in (LONG, DOUBLE) else 1  # these take two numbers
    for text in map(texts.__getitem__, classes):
        name = re.sub(r"^\[+L?|;$", "", text)
        if "/" in name:  # else a primitive's letter
            yield name
