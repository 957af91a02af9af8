"""Whether a table's store lets only one writer make each commit."""

from __future__ import annotations

from airflow_delta_merge.engine.delta_jvm.errors import from_throwable, java_origin
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject, class_name_of
from airflow_delta_merge.exceptions import MergeExecutionError

#: Delta's own log store for S3, which checks whether a commit exists and then writes it.
_SINGLE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
_CONDITIONAL = "airflow_delta_merge.log_store.S3ConditionalLogStore"
#: A session setting: the user guarantees that no two drivers commit to a table at the same time.
_SINGLE_WRITER = "spark.deltaMerge.s3SingleWriter.enabled"
#: Stores without an operating system's file system between the writers.
_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "oss", "cos", "oci"})


def is_object_store(delta_log: JavaObject) -> bool:
    """Whether a table is in an object store, by the scheme of its path."""
    scheme = delta_log.dataPath().toUri().getScheme()
    return scheme is not None and str(scheme).lower() in _OBJECT_STORES


def require_one_writer_each(gateway: Gateway, delta_log: JavaObject) -> None:
    """Check that no two drivers can write the same version of a table in S3.

    :raises MergeExecutionError: when they can; the message says what to do.
    """
    if not is_object_store(delta_log) or (gateway.conf_if_set(_SINGLE_WRITER) or "").lower() == "true":
        return
    store = _implementation(delta_log)
    name = str(store.getClass().getName())
    if name == _CONDITIONAL:
        try:
            store.requireConditionalWrites(delta_log.logPath(), delta_log.newDeltaHadoopConf())
        except Exception as error:
            origin = java_origin(error)
            if origin is None or class_name_of(origin) != "UnsupportedOperationException":
                raise
            raise from_throwable(origin) from error
    elif name == _SINGLE_DRIVER:
        raise MergeExecutionError(
            f"The session uses Delta's own log store for S3. Two drivers that commit to {delta_log.dataPath()} at the "
            "same time would lose a commit. Start the session with the jar from "
            "airflow_delta_merge.runtime.log_store.log_store_jar() and "
            f"spark.delta.logStore.s3a.impl={_CONDITIONAL}. Or make sure that only one writer commits to the table at "
            f"a time, and set {_SINGLE_WRITER}=true."
        )


def _implementation(delta_log: JavaObject) -> JavaObject:
    """The log store behind Delta's own adaptors."""
    store = delta_log.store()
    if class_name_of(store) == "DelegatingLogStore":
        store = store.getDelegate(delta_log.logPath())
    return store.logStoreImpl() if class_name_of(store) == "LogStoreAdaptor" else store
