"""Taking rows out of files by copying each without them, natively: by Arrow, on the driver's own threads.

The same pass puts the rows that are taken into files of their own, where their new versions need old values, so that
Spark doesn't read the touched files again.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F

from airflow_delta_merge.engine.old_rows.parquet_copy import (
    CopiedFile,
    FileToCopy,
    copy_file,
    reason_not_to_copy,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from airflow_delta_merge.engine.delta_jvm import CopyTerms, FileSet, JavaObject
    from airflow_delta_merge.engine.merge_context import MergeContext, StartedMerge
    from airflow_delta_merge.engine.rewrite import TouchedFiles

_log = logging.getLogger(__name__)

#: The driver holds eight bytes for each row that is taken.
_MOST_TAKEN_ROWS = 50_000_000


@dataclass(frozen=True)
class Copies:
    """Copies of touched files without the rows that clauses take.

    :param actions: JVM sequence of the actions that add them.
    :param added: the copies.
    :param taken_rows: files, of this merge alone, with the rows that were taken; None if nobody needs them.
    """

    actions: JavaObject
    added: FileSet
    taken_rows: FileSet | None


def may_be_copied(merge: StartedMerge, candidates: FileSet) -> bool:
    """Whether touched files may turn out to be copied, so that the search must tell where in them rows are."""
    is_much = candidates.num_bytes >= merge.settings.copy_files_from_bytes
    return bool(merge.target_clauses) and is_much and merge.transaction.reason_against_copies is None


def is_worth_copying(merge: MergeContext, touched: TouchedFiles) -> bool:
    """Whether to copy the touched files natively."""
    return (
        merge.copies_files
        and sum(touched.rows_of_clause) <= _MOST_TAKEN_ROWS
        and touched.files.num_bytes >= merge.settings.copy_files_from_bytes
    )


@contextmanager
def copies_without(
    merge: MergeContext, files: FileSet, matches: DataFrame, *, keep_taken_rows: bool
) -> Iterator[Copies | None]:
    """Copy files without the rows that clauses take; None if they can't be copied as they are.

    :param files: the touched files.
    :param matches: columns ``path`` (the file's, as Spark encodes it), ``row_index`` (long) and ``clause``, its number;
        a row may appear more than once.
    :param keep_taken_rows: whether the rows that are taken are wanted; their files go with the end of this context.
    """
    terms = merge.transaction.copy_terms
    adds = {terms.path_of(add): add for add in merge.gateway.as_json(files.files)}
    reason = _reason_not_to_copy(terms, adds)
    if reason is not None:
        _log.info("Files are rewritten by Spark: %s", reason)
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="taken-rows-", dir=merge.transaction.temporary_folder))
    try:
        jobs = _jobs(terms, adds, _taken_positions(matches), folder if keep_taken_rows else None)
        yield _copied(merge, terms, jobs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Job:
    """What is done with one file.

    :param add: the action of the file.
    :param path: the copy's, as the log shall have it.
    """

    add: dict[str, Any]
    path: str
    file: FileToCopy


def _reason_not_to_copy(terms: CopyTerms, paths: Iterable[Path | None]) -> str | None:
    for path in paths:
        if path is None:
            return "a file has marked rows, or isn't in the table's folder"
        try:
            reason = reason_not_to_copy(str(path), terms.columns, terms.may_have)
        except Exception as error:  # what Arrow can't read Spark may
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
        of_copy = terms.path_of_copy(add["path"], number)
        taken_rows = None if folder is None else str(folder / f"{number}.parquet")
        file = FileToCopy(str(path), str(terms.path_of({"path": of_copy})), taken[path], taken_rows)
        jobs.append(_Job(add, of_copy, file))
    return jobs


def _copied(merge: MergeContext, terms: CopyTerms, jobs: Sequence[_Job]) -> Copies | None:
    transaction = merge.transaction
    try:
        copied = _copy_all([job.file for job in jobs], terms, merge.gateway.default_parallelism)
    except Exception as error:
        # Spark may read what Arrow can't, and tells errors of the disk in its own words.
        _log.info("Files are rewritten by Spark, as Arrow could not copy them: %s", error)
        for job in jobs:
            Path(job.file.copy).unlink(missing_ok=True)
        return None
    actions = transaction.add_copies(
        (job.add, job.path, copy, Path(job.file.copy).stat().st_mtime)
        for job, copy in zip(jobs, copied, strict=True)
        if copy.num_rows
    )
    taken_rows = [(job.add, job.file.taken_rows) for job in jobs if job.file.taken_rows]
    return Copies(
        actions, transaction.files.file_set(actions), transaction.files_elsewhere(taken_rows) if taken_rows else None
    )


def _taken_positions(matches: DataFrame) -> dict[Path, pa.Int64Array]:
    """The positions of the rows that clauses take, each once and in rising order, by file."""
    import pyarrow.compute as pc

    rows = matches.filter(F.col("clause") > 0).groupBy("path").agg(F.collect_list("row_index").alias("rows")).toArrow()
    found = {}
    for path, positions in zip(rows["path"], rows["rows"], strict=True):
        distinct = pc.unique(positions.values)
        found[Path(unquote(urlsplit(path.as_py()).path))] = distinct.take(pc.sort_indices(distinct))
    return found


def _copy_all(files: Sequence[FileToCopy], terms: CopyTerms, cores: int) -> list[CopiedFile]:
    """Copy the files, as many at a time as there are cores; one alone is decoded by all of them."""
    executor = ThreadPoolExecutor(min(cores, len(files)), thread_name_prefix="copy-files")
    try:
        copy = partial(copy_file, codec=terms.codec, plan=terms.statistics, use_threads=len(files) < cores)
        return list(executor.map(copy, files))
    finally:
        executor.shutdown(cancel_futures=True)
