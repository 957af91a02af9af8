"""Java classes for tests, compiled by the compiler that Spark brings for its own queries."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def java_classes(spark: SparkSession, *sources: Path, jar: Path) -> Iterator[None]:
    """Have the classes of Java files at hand in the session's driver and, by a jar to be made, in its tasks."""
    thread = spark._jvm.java.lang.Thread.currentThread()
    loader = parent = thread.getContextClassLoader()
    with zipfile.ZipFile(jar, "w") as archive:
        for source in sources:
            compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(parent)
            compiler.cook(source.read_text())
            parent = compiler.getClassLoader()
            for name, code in compiler.getBytecodes().items():
                archive.writestr(f"{name}.class", code)
    thread.setContextClassLoader(parent)
    spark.sparkContext._jsc.addJar(str(jar))
    yield
    thread.setContextClassLoader(loader)
