"""A merge's source as a temporary view, where SQL cannot express how to read it: files with options, databases."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from airflow_delta_merge.engine.delta_jvm.errors import SPARK_ERRORS, merge_error
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.source.checked_files import BAD_ROW_FOUND, CheckedFiles
from airflow_delta_merge.engine.source.jdbc import jdbc_rows
from airflow_delta_merge.exceptions import BadRowsError, MergeExecutionError, MergeGuardError
from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.config import MergeConfig
    from airflow_delta_merge.engine.source.kept_rows import KeptRows

# What a merge ends with when its source raises an error of its own.
_RAISED = ("USER_RAISED_EXCEPTION", "TASK_WRITE_FAILED")


@contextmanager
def source_relation(
    gateway: Gateway, config: MergeConfig, kept_rows: KeptRows | None
) -> Iterator[tuple[str | None, int]]:
    """A temporary view over the source's rows, where SQL cannot express how to read them.

    :param kept_rows: keeps bad rows where the source says so; None if they are only counted.
    :return: the view's quoted name, None where the config's own SQL does; and how many bad rows were left out.
    :raises BadRowsError: when there are more bad rows than allowed; also at the end, for those that were met.
    :raises EmptySourceError: when the files hold nothing, not even columns, and the guards want no merge of none.
    """
    source = config.source
    if not source.needs_view:
        yield None, 0
        return
    if source.jdbc is not None:
        with jdbc_rows(gateway, source.jdbc) as rows, _view(gateway, rows) as view:
            yield view, 0
        return
    with _with_header_error(), _file_relation(gateway, config, kept_rows) as relation:
        yield relation


@contextmanager
def _with_header_error() -> Iterator[None]:
    """Say in a sentence that headers of CSV files differ, where Spark says so in the middle of its own."""
    try:
        yield
    except (MergeExecutionError, *SPARK_ERRORS) as error:
        known = merge_error(error)
        if "CSV header does not conform to the schema" not in str(known):
            raise
        found = re.search(r"CSV file: (\S+)", str(known))
        which = f", e.g. that of {found[1]}" if found else ""
        raise BadRowsError(
            f"The headers of the source's CSV files differ{which}, so nothing was merged. Bring their columns into one "
            "order, merge the files one by one, or set the option enforceSchema to true to read all files by the "
            "columns of the first."
        ) from error


@contextmanager
def _file_relation(
    gateway: Gateway, config: MergeConfig, kept_rows: KeptRows | None
) -> Iterator[tuple[str | None, int]]:
    """:func:`source_relation` of files."""
    source = config.source
    reader = gateway.spark.read.format(source.format or "").options(**source.reader_options)
    rule, num_bad, files = source.bad_rows_rule, 0, None
    if rule is None:
        rows = reader.load(list(source.paths))
    else:
        files = CheckedFiles(gateway, config, rule)
        rows = files.good_rows
        if rule.action != "fail":
            num_bad = files.leave_out(kept_rows)
    with _view(gateway, rows) as view:
        try:
            yield view, num_bad
        except (MergeExecutionError, PySparkException) as error:
            known = merge_error(error)
            was_raised = known.condition in _RAISED or BAD_ROW_FOUND in str(known)  # Spark 3.5 has no condition for it
            if files is not None and not isinstance(known, MergeGuardError) and was_raised:
                files.raise_for_bad_rows(error)
            raise


@contextmanager
def _view(gateway: Gateway, rows: DataFrame) -> Iterator[str]:
    """A temporary view of rows, by its quoted name."""
    view = f"merge_source_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    try:
        yield quote_identifier(view)
    finally:
        gateway.spark.catalog.dropTempView(view)
