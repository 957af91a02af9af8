"""The supported versions of Spark and Delta, and how a session's versions are checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyspark

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

#: Minor versions of Delta on which the engine was tried, by the minor version of Spark that they run on.
TRIED = {
    (3, 5): ((3, 3),),
    (4, 0): ((4, 0), (4, 4)),
    (4, 1): ((4, 1), (4, 2), (4, 3), (4, 4)),
    (4, 2): ((4, 4),),
}

#: The Spark version for which each Delta was built, before Delta supported several.
_SPARK_OF_DELTA = {(3, 2): (3, 5), (3, 3): (3, 5), (4, 0): (4, 0)}

#: Metrics of a merge that some versions lack.
NOT_EVERYWHERE = ("operationNumSourceRows",)


@dataclass(frozen=True)
class Versions:
    """The versions of a session.

    :param spark: Spark's full version.
    :param delta: Delta's full version.
    """

    spark: str
    delta: str

    def __str__(self) -> str:
        return f"Spark {self.spark} with Delta {self.delta}"

    @cached_property
    def spark_minor(self) -> tuple[int, int]:
        return minor(self.spark)

    @cached_property
    def delta_minor(self) -> tuple[int, int]:
        return minor(self.delta)

    @property
    def are_tried(self) -> bool:
        """Whether the engine was tried on them."""
        return self.delta_minor in TRIED.get(self.spark_minor, ())


def require_tried(found: Versions) -> None:
    """Refuse versions with unknown internals.

    :raises MergeConfigError: when the engine was not tested on them; the message says what to do.
    """
    if not found.are_tried:
        supported = "; ".join(
            f"Spark {_short(spark)} with Delta {', '.join(map(_short, deltas))}" for spark, deltas in TRIED.items()
        )
        raise MergeConfigError(
            f"This package's own engine does not support {found}. It supports {supported}. "
            'Use one of these, or set engine="builtin" to run Delta\'s own MERGE.'
        )


def require_fitting_jars(jvm: Any) -> None:
    """Refuse to start a session with mixed versions, which would fail on a missing class or method.

    :param jvm: the JVM, before a session is started.
    :raises MergeConfigError: when PySpark's Python part or Delta's jar is for another Spark.
    """
    spark = str(getattr(jvm, "org.apache.spark.package$").__getattr__("MODULE$").SPARK_VERSION())
    if minor(pyspark.__version__) != minor(spark):
        raise MergeConfigError(
            f"The Python part of PySpark is {pyspark.__version__} in {pyspark.__path__[0]}, but Spark is {spark}. "
            "If pip installed both, install pyspark and pyspark-client in the same version, since they share that "
            "folder. If SPARK_HOME is set, remove any other pyspark from the Python path."
        )
    delta = getattr(jvm, "io.delta.package$")
    if type(delta).__name__ == "JavaPackage":  # the session's packages may still add Delta's jars
        return
    jar = str(delta._java_lang_class.getProtectionDomain().getCodeSource().getLocation().getPath()).rsplit("/", 1)[-1]
    made_for = _made_for(jar)
    if made_for is not None and made_for != minor(spark):
        raise MergeConfigError(
            f"Delta's jar {jar} is built for Spark {_short(made_for)}, but this is Spark {spark}. "
            f"`airflow-delta-merge jars --spark {_short(minor(spark))}` downloads the right jars. DeltaMergeHook ships "
            "the jars for the worker's spark-submit, so install the cluster's version of Spark there."
        )


def _made_for(jar: str) -> tuple[int, int] | None:
    """The minor version of Spark for which a Delta jar is built, by the jar's name; None if unknown."""
    found = re.match(r"delta-spark(?:_(\d+\.\d+))?_2\.\d+-(.+)\.jar", jar)
    if found is None:
        return None
    return minor(found[1]) if found[1] else _SPARK_OF_DELTA.get(minor(found[2]))


def _short(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def minor(version: str) -> tuple[int, int]:
    """Major and minor number of a version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def condition_of(error: PySparkException) -> str | None:
    """The condition of an error, which Spark 3.5 calls its class."""
    get = getattr(error, "getCondition", None) or error.getErrorClass
    condition = get()
    return None if condition is None else str(condition)
