"""Builds the jar of the log store for S3 from its sources: ``make log-store``.

By Janino, the compiler that PySpark brings, so that the pinned PySpark gives the same bytes everywhere, whatever JDK
there is, or none.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway

from airflow_delta_merge.runtime.jars import delta_jars
from airflow_delta_merge.runtime.log_store import log_store_jar
from airflow_delta_merge.runtime.store_drivers import S3A

SOURCES = sorted(Path(log_store_jar()).parent.glob("*.java"))
#: The earliest that an archive can tell.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def build(jar: Path) -> None:
    """Compile the sources into a jar."""
    of_spark = Path(pyspark.__file__).parent / "jars"
    (of_py4j,) = of_spark.glob("py4j-*.jar")
    class_path = os.pathsep.join([*delta_jars(), *S3A.fetched(), str(of_spark / "*")])
    gateway = JavaGateway.launch_gateway(jarpath=str(of_py4j), classpath=class_path, die_on_exit=True)
    try:
        classes = _compile(gateway, SOURCES)
    finally:
        gateway.shutdown()
    # Not compressed: that differs between versions of zlib.
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
        for name, code in sorted(classes.items()):
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), code)


def _compile(gateway: JavaGateway, sources: list[Path]) -> dict[str, bytes]:
    java = gateway.jvm
    of_files = gateway.new_array(java.java.io.File, len(sources))
    for number, source in enumerate(sources):
        of_files[number] = java.java.io.File(str(source))
    loader = java.java.lang.ClassLoader.getSystemClassLoader()
    compiler = java.org.codehaus.commons.compiler.CompilerFactoryFactory.getDefaultCompilerFactory(loader).newCompiler()
    classes = java.java.util.HashMap()
    compiler.setClassFileCreator(java.org.codehaus.commons.compiler.util.resource.MapResourceCreator(classes))
    compiler.compile(of_files)
    return {str(name): bytes(classes[name]) for name in classes}


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else log_store_jar()))
