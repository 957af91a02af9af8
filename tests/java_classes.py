"""Java classes for tests, compiled by the compiler that Spark brings for its own queries."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def java_classes(spark: SparkSession, *sources: Path, jar: Path) -> Iterator[None]:
    """Have the classes of Java files at hand in the session's driver and, by a jar to be made, in its tasks."""
    thread = spark._jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    thread.setContextClassLoader(_compile(spark._jvm, sources, jar))
    spark.sparkContext._jsc.addJar(str(jar))
    yield
    thread.setContextClassLoader(loader)


def _compile(jvm: Any, sources: Sequence[Path], jar: Path) -> Any:
    """The class loader that has the classes, which are in the jar, too."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    with zipfile.ZipFile(jar, "w") as archive:
        for source in sources:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(source.read_text())
            loader = compiler.getClassLoader()
            for name, code in compiler.getBytecodes().items():
                archive.writestr(f"{name}.class", code)
    return loader
