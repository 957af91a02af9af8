"""Java classes for tests, compiled by the compiler that Spark brings for its own queries."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

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


def compile_java(source: Path, jar: Path, needs: Sequence[str]) -> None:
    """Compile a Java file into a jar, without Spark.

    :param needs: the jars that it needs beside Spark's own.
    """
    from py4j.java_gateway import JavaGateway

    of_spark = Path(pyspark.__file__).parent / "jars" / "*"
    # Only from this jar py4j would take its own classes, if it weren't told where it is.
    (of_py4j,) = of_spark.parent.glob("py4j-*.jar")
    class_path = os.pathsep.join([*needs, str(of_spark)])
    gateway = JavaGateway.launch_gateway(jarpath=str(of_py4j), classpath=class_path, die_on_exit=True)
    try:
        _compile(gateway.jvm, [source], jar)
    finally:
        gateway.shutdown()


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
