"""Removes rows from files by copying each file without them, with Arrow: by threads of the driver, or by the executors.

Files that are not on this machine are fetched by the driver's threads, and their copies put in their place.

If new versions of rows need old values, the driver's pass also writes the taken rows to temporary files. Spark then
reads these instead of the touched files.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F

from airflow_delta_merge.engine.data_files.parquet_copy import (
    CannotCopyError,
    CopiedFile,
    FileToCopy,
    copy_file,
    reason_not_to_copy,
)
from airflow_delta_merge.engine.delta_jvm.copies import CopyTerms, add_elsewhere
from airflow_delta_merge.engine.grouped import grouped
from airflow_delta_merge.engine.old_rows.on_executors import CopiesOnExecutors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject
    from airflow_delta_merge.engine.delta_jvm.store_files import StoreFiles
    from airflow_delta_merge.engine.delta_jvm.target_scan import FileSet
    from airflow_delta_merge.engine.merge_context import MergeContext

_log = logging.getLogger(__name__)

#: A file's add action, and how it is copied.
_Job = tuple[dict[str, Any], FileToCopy]

#: Limit for the driver's memory: it holds eight bytes per taken row.
_MOST_TAKEN_ROWS = 50_000_000
_MOST_BYTES_AT_ONCE = 256 * 1024 * 1024


class Copies:
    """Copies of touched files without the rows that clauses take, made in the background.

    :param terms: how copies are made.
    :param jobs: the files to copy, each with its add action.
    :param folder: a folder for temporary files.
    """

    def __init__(self, merge: MergeContext, terms: CopyTerms, jobs: Sequence[_Job], folder: Path) -> None:
        self._merge = merge
        self._terms = terms
        self._jobs = jobs
        self._copied: Sequence[CopiedFile] = ()
        files = [file for _, file in jobs]
        self._copies: _CopiesInThreads | CopiesOnExecutors
        if terms.by_executors:
            leaves = terms.statistics.leaves
            self._copies = CopiesOnExecutors(merge.gateway, files, codec=terms.codec, leaves=leaves)
        else:
            self._copies = _CopiesInThreads(merge.gateway.default_parallelism, files, terms, folder)

    def taken_rows(self) -> FileSet | None:
        """Temporary files with the taken rows, once all files are copied; None if copying failed."""
        if self._wait() is None:
            return None
        files = self._merge.transaction.files
        return files.file_set(
            files.of_adds([add_elsewhere(add, Path(str(file.taken_rows))) for add, file in self._jobs])
        )

    def actions(self) -> JavaObject | None:
        """The actions that add the copies, once all are made: a JVM sequence; None if copying failed."""
        copied = self._wait()
        if copied is None:
            return None
        return self._merge.transaction.add_copies(
            self._terms.add_of_copy(add, copy)
            for (add, _), copy in zip(self._jobs, copied, strict=True)
            if copy.num_rows
        )

    def _wait(self) -> list[CopiedFile] | None:
        try:
            self._copied = self._copies.wait()
            return self._copied
        except Exception as error:
            # Spark may read what Arrow can't, and reports a full disk in terms that users know.
            _log.info("Files are rewritten by Spark, as Arrow could not copy them: %s", error)
            self.discard()
            return None

    def discard(self) -> None:
        """Stop copying and delete all copies."""
        self.close()
        for path in {*(file.copy for _, file in self._jobs), *(copy.path for copy in self._copied)}:
            if self._terms.store:
                self._terms.store.delete(path)
            else:
                Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        """Stop copying."""
        self._copies.stop()


class _CopiesInThreads:
    """Copies files in the driver's own process.

    :param cores: how many files to copy at a time.
    :param files: what to copy.
    :param terms: how.
    :param folder: a folder for temporary files.
    """

    def __init__(self, cores: int, files: Sequence[FileToCopy], terms: CopyTerms, folder: Path) -> None:
        copy: Callable[[FileToCopy], CopiedFile] = partial(
            copy_file,
            codec=terms.codec,
            leaves=terms.statistics.leaves,
            most_bytes=_MOST_BYTES_AT_ONCE,
            use_threads=len(files) < cores,  # a single file is decoded by all cores
        )
        if terms.store:
            copy = partial(_copy_in_store, store=terms.store, terms=terms, folder=folder, copy=copy)
        self._executor = ThreadPoolExecutor(min(cores, len(files)), thread_name_prefix="copy-files")
        self._copies = [self._executor.submit(copy, file) for file in files]

    def wait(self) -> list[CopiedFile]:
        """The copies, in the order of the files."""
        return [copy.result() for copy in self._copies]

    def stop(self) -> None:
        """Stop the threads after each has finished its current file."""
        self._executor.shutdown(cancel_futures=True)


def _copy_in_store(
    file: FileToCopy, *, store: StoreFiles, terms: CopyTerms, folder: Path, copy: Callable[[FileToCopy], CopiedFile]
) -> CopiedFile:
    """Fetch a file, copy it on this machine and put the copy beside it.

    :raises CannotCopyError: as :func:`copy_file`, and for what :func:`reason_not_to_copy` finds in the file's footer.
    """
    with tempfile.TemporaryDirectory(dir=folder) as here:
        local = replace(file, path=str(Path(here, Path(file.path).name)), copy=str(Path(here, Path(file.copy).name)))
        store.fetch(file.path, local.path)
        if reason := reason_not_to_copy(local.path, terms.columns, terms.may_have):
            raise CannotCopyError(f"{Path(file.path).name}: {reason}")
        copied = replace(copy(local), path=file.copy)
        if not copied.num_rows:
            return copied
        num_bytes, modified_ms = store.put(local.copy, file.copy)
        return replace(copied, num_bytes=num_bytes, modified_ms=modified_ms)


def is_worth_copying(merge: MergeContext, files: FileSet, num_taken: int) -> bool:
    """Whether to copy the touched files natively.

    :param num_taken: number of their rows that clauses take.
    """
    is_much = files.num_bytes >= merge.settings.copy_files_from_bytes
    return merge.copies_files and is_much and num_taken <= _MOST_TAKEN_ROWS


@contextmanager
def copies_without(
    merge: MergeContext, matches: DataFrame, files: FileSet, *, keep_taken_rows: bool
) -> Iterator[Copies | None]:
    """Start copying files without the rows that clauses take; None if they can't be copied unchanged.

    If the merge fails within this context, no copy is left.

    :param matches: as :class:`~airflow_delta_merge.engine.rows.touched_files.TouchedFiles` has them.
    :param files: the touched files.
    :param keep_taken_rows: whether to keep the taken rows in temporary files, deleted when this context ends.
    """
    terms = merge.transaction.copy_terms
    adds = {terms.path_of(add): add for add in merge.gateway.as_json(files.files)}
    reason = _reason_not_to_copy(terms, adds)
    taken = {} if reason else _taken_positions(matches)
    if not reason and taken.keys() != adds.keys():
        reason = "Spark's paths of the files differ from those in the table's log"
    if reason is not None:
        _log.info("Files are rewritten by Spark: %s", reason)
        yield None
        return
    parent = merge.gateway.temporary_folder
    with tempfile.TemporaryDirectory(prefix="copies-", dir=parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        copies = Copies(merge, terms, _jobs(terms, adds, taken, folder if keep_taken_rows else None), folder)
        try:
            yield copies
        except BaseException:
            copies.discard()
            raise
        finally:
            copies.close()


def _reason_not_to_copy(terms: CopyTerms, adds: Mapping[Path | None, dict[str, Any]]) -> str | None:
    for path, add in adds.items():
        if path is None:
            return "a file has marked rows, or isn't in the table's folder"
        if "" in add["partitionValues"].values():
            return f"{path.name}: its partition has an empty value, of which Delta makes NULL when it writes the rows"
        if terms.store:  # footers are read when the files have been fetched; the first that is no good ends the copying
            continue
        try:
            reason = reason_not_to_copy(str(path), terms.columns, terms.may_have)
        except Exception as error:  # Spark may read what Arrow can't
            reason = f"Arrow cannot read it ({error})"
        if reason is not None:
            return f"{path.name}: {reason}"
    return None


def _jobs(
    terms: CopyTerms,
    adds: Mapping[Path | None, dict[str, Any]],
    taken: Mapping[Path, pa.Int64Array],
    folder: Path | None,
) -> list[_Job]:
    jobs = []
    for number, (path, add) in enumerate(adds.items()):
        assert path is not None, "files elsewhere are not copied"
        copy = path.with_name(terms.name_of_copy(number))
        taken_rows = None if folder is None else str(folder / f"{number}.parquet")
        jobs.append((add, FileToCopy(str(path), str(copy), taken[path], taken_rows)))
    return jobs


def _taken_positions(matches: DataFrame) -> dict[Path, pa.Int64Array]:
    """The positions of the rows that clauses take, distinct and ascending, by file."""
    import pyarrow.compute as pc

    taken = matches.filter(F.col("clause") > 0)
    rows = _as_arrow(grouped(taken, {"of_path": F.col("path")}, {"rows": F.collect_list("row_index")}))
    found = {}
    for path, positions in zip(rows["of_path"], rows["rows"], strict=True):
        distinct = pc.unique(positions.values)
        found[Path(unquote(urlsplit(path.as_py()).path))] = distinct.take(pc.sort_indices(distinct))
    return found


def _as_arrow(rows: DataFrame) -> pa.Table:
    """Rows, of which there is at least one, in the driver."""
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    import pyarrow as pa

    batches = rows._collect_as_arrow()  # type: ignore[operator]  # Spark 3.5 has no public method
    return pa.Table.from_batches(batches)
