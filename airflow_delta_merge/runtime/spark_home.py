"""Which Spark ``spark-submit`` starts on this machine, found without starting it and without importing pyspark."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_CORE = re.compile(r"spark-core_(\d+\.\d+)-(\d+\.\d+\.\d+\S*)\.jar")


@dataclass(frozen=True)
class SparkHome:
    """An installation of Spark.

    :param path: its folder; None if none was found.
    """

    path: Path | None

    @classmethod
    def of(cls, binary: str | None = None) -> SparkHome:
        """The installation that spark-submit starts: ``SPARK_HOME``, spark-submit's own, or this Python's pyspark.

        :param binary: the path of spark-submit, if known.
        """
        if named := os.environ.get("SPARK_HOME"):
            return cls(Path(named))
        if binary is not None:
            folder = Path(binary).resolve().parent.parent
            if (folder / "jars").is_dir():
                return cls(folder)
        pyspark = importlib.util.find_spec("pyspark")
        return cls(Path(pyspark.origin).parent if pyspark and pyspark.origin else None)

    @property
    def version(self) -> str | None:
        """Its version, e.g. ``4.1.4``; None if the jars don't show it."""
        return self._core and self._core[2]

    @property
    def scala(self) -> str | None:
        """The version of Scala that it was built for, e.g. ``2.13``."""
        return self._core and self._core[1]

    @property
    def hadoop(self) -> str | None:
        """The version of its Hadoop; None if it has none."""
        jars = [] if self.path is None else sorted(self.path.glob("jars/hadoop-client-api-*.jar"))
        return jars[0].name.removeprefix("hadoop-client-api-").removesuffix(".jar") if jars else None

    @cached_property
    def _core(self) -> re.Match[str] | None:
        if self.path is None:
            return None
        matches = (_CORE.fullmatch(jar.name) for jar in sorted(self.path.glob("jars/spark-core_*.jar")))
        return next(filter(None, matches), None)


def find_spark_submit(binary: str = "spark-submit") -> str | None:
    """The path of spark-submit: on the PATH, or else beside this Python, where pip installs it.

    :param binary: another name or path of it.
    """
    return shutil.which(binary) or shutil.which(binary, path=str(Path(sys.executable).parent))
