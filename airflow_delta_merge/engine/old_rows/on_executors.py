"""Copies files in a Spark job, each on the executor that gets it.

The executors need pyarrow and nothing of this package: the code that copies travels with the job. Rows and statistics
come back as plain values, since an executor can't name a class that it doesn't have.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle

from airflow_delta_merge.engine.data_files import arrow_statistics, parquet_copy
from airflow_delta_merge.engine.data_files.arrow_statistics import Leaf, LeafStatistics
from airflow_delta_merge.engine.data_files.parquet_copy import (
    LEAST_ARROW,
    CannotCopyError,
    CopiedFile,
    FileToCopy,
    arrow_version,
    copy_file,
)
from airflow_delta_merge.engine.delta_jvm.spark_ui import in_background

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway

#: A file's path, its copy's, and the positions of its taken rows as bytes.
_Task = tuple[str, str, bytes]

#: Python's memory on an executor is limited by the container and shared by its tasks.
_MOST_BYTES_AT_ONCE = 32 * 1024 * 1024


class CopiesOnExecutors:
    """A Spark job that copies files, started in the background.

    :param files: what to copy; taken rows are not kept.
    :param codec: see :func:`~airflow_delta_merge.engine.data_files.parquet_copy.copy_file`, also for ``leaves``.
    """

    def __init__(self, gateway: Gateway, files: Sequence[FileToCopy], *, codec: str, leaves: Sequence[Leaf]) -> None:
        self._context = gateway.spark.sparkContext
        self._tag = f"copy-files-{uuid.uuid4()}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="copy-files")
        copy = partial(_copy_in_task, codec=codec, leaves=leaves)
        run = in_background(gateway, partial(self._run, files, copy))
        self._copied: Future[list[CopiedFile]] = self._thread.submit(run)

    def _run(self, files: Sequence[FileToCopy], copy: Callable[[_Task], tuple[Any, ...] | str]) -> list[CopiedFile]:
        self._context.addJobTag(self._tag)
        tasks: list[_Task] = [(file.path, file.copy, _bytes_of(file.taken)) for file in files]
        for module in (arrow_statistics, parquet_copy, sys.modules[__name__]):
            # Send the code, not its name.
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        outcomes = self._context.parallelize(tasks, len(tasks)).map(copy).collect()
        copied = [_copied_file(*outcome) for outcome in outcomes if not isinstance(outcome, str)]
        if errors := [outcome for outcome in outcomes if isinstance(outcome, str)]:
            for copy_of_file in copied:
                Path(copy_of_file.path).unlink(missing_ok=True)
            raise CannotCopyError(errors[0])
        return copied

    def wait(self) -> list[CopiedFile]:
        """The copies, in the order of the files.

        :raises CannotCopyError: when an executor could not copy a file.
        """
        return self._copied.result()

    def stop(self) -> None:
        """Cancel the job if it still runs. Files of tasks that are ended by that are orphans."""
        if not self._copied.done():
            self._context.cancelJobsWithTag(self._tag)
        self._thread.shutdown()


def _copied_file(
    path: str, num_rows: int, num_bytes: int, modified_ms: int, statistics: dict[tuple[str, ...], tuple[Any, ...]]
) -> CopiedFile:
    """A copy from the plain values that a task returned."""
    of_leaves = {leaf: LeafStatistics(*values) for leaf, values in statistics.items()}
    return CopiedFile(path, num_rows, num_bytes, modified_ms, of_leaves)


def _copy_in_task(task: _Task, *, codec: str, leaves: Sequence[Leaf]) -> tuple[Any, ...] | str:
    """Copy one file. Runs on an executor.

    :return: the fields of a :class:`CopiedFile` as plain values, or the reason why there is no copy.
    """
    path, copy, positions = task
    context = TaskContext.get()
    assert context is not None
    # Speculation and lost executors run a task twice, and both attempts may write at the same time.
    copy = re.sub(r"\.c000\b", f".c{context.taskAttemptId() + 1:03d}", copy)
    try:
        import pyarrow as pa

        if arrow_version() < LEAST_ARROW:
            return f"pyarrow {pa.__version__} is older than {LEAST_ARROW}"
        taken = pa.Array.from_buffers(pa.int64(), len(positions) // 8, [None, pa.py_buffer(positions)])
        copied = copy_file(FileToCopy(path, copy, taken), codec=codec, leaves=leaves, most_bytes=_MOST_BYTES_AT_ONCE)
    except Exception as error:  # Spark may read what Arrow can't; a retry would fail in the same way
        Path(copy).unlink(missing_ok=True)
        return f"{type(error).__name__}: {error}"
    return astuple(copied)


def _bytes_of(positions: pa.Int64Array) -> bytes:
    """The positions' bytes: unlike an array, an executor without pyarrow can take them and say so."""
    import pyarrow as pa

    whole = pa.concat_arrays([positions])  # without an offset
    return bytes(memoryview(whole.buffers()[1])[: 8 * len(whole)])
