"""Files on storage that the driver and other processes can reach, through Hadoop with Spark's settings."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from airflow_delta_merge.engine.delta_jvm.errors import raises_merge_errors
from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject, class_name_of
from airflow_delta_merge.exceptions import MergeExecutionError

_ONLY_FOR_THE_OWNER, _FOLDER_ONLY_FOR_THE_OWNER = "600", "700"


@raises_merge_errors()
def write_shared_file(uri: str, text: str) -> None:
    """Write a file atomically; only its owner can read it, if the storage supports owners.

    :raises MergeExecutionError: when the storage refuses.
    """
    jvm, system, path = _reach(uri)
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission
    folder, temporary = path.getParent(), jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}")
    if not system.exists(folder):
        system.mkdirs(folder)
        system.setPermission(folder, permission(_FOLDER_ONLY_FOR_THE_OWNER))
    stream = system.create(temporary)
    try:
        system.setPermission(temporary, permission(_ONLY_FOR_THE_OWNER))
        stream.write(text.encode())
    finally:
        stream.close()
    if not system.rename(temporary, path):
        raise MergeExecutionError(f"The file {uri} could not be renamed into place.")


@raises_merge_errors()
def read_shared_file(uri: str, most_bytes: int) -> str | None:
    """The text of a file; None if the file does not exist.

    :param most_bytes: maximum size of the file.
    :raises MergeExecutionError: when the file can't be read, or is larger.
    """
    jvm, system, path = _reach(uri)
    try:
        size = system.getFileStatus(path).getLen()
        stream = system.open(path)
    except Py4JJavaError as error:
        if class_name_of(error.java_exception) == "FileNotFoundException":
            return None
        raise
    try:
        if size > most_bytes:
            raise MergeExecutionError(f"The file {uri} has {size} bytes, more than {most_bytes}.")
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


@raises_merge_errors()
def remove_shared_folder(uri: str) -> None:
    """Remove a folder and its contents, if it exists.

    :raises MergeExecutionError: when the storage refuses.
    """
    _, system, path = _reach(uri)
    system.delete(path, True)


def _reach(uri: str) -> tuple[JavaObject, JavaObject, JavaObject]:
    """The JVM, the file system and the path of a URI. Works without a session, even if none could be started."""
    SparkContext._ensure_initialized()
    jvm: JavaObject = SparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    settings = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf()
    return jvm, path.getFileSystem(settings), path
