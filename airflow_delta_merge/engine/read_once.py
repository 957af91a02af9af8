"""Reads a merge's source once: keeps its rows, checks them, and chooses the target's files by its keys."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from airflow_delta_merge.engine.guards import check_source
from airflow_delta_merge.engine.merge_context import MergeContext
from airflow_delta_merge.engine.pruning.by_keys import choose_files, keys_to_prune_by
from airflow_delta_merge.engine.source.expectations import SourceCheck
from airflow_delta_merge.engine.source.materialized import materialize_source, storage_level
from airflow_delta_merge.engine.started_merge import StartedMerge
from airflow_delta_merge.exceptions import SourceExpectationError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.merge_report import MergeReport
    from airflow_delta_merge.engine.source.kept_rows import KeptRows
    from airflow_delta_merge.engine.source.null_keys import NullKeys

_log = logging.getLogger(__name__)

#: Why a source is materialized that Delta would read several times.
MATERIALIZATION_REASON = "its rows are numbered and its keys' ranges are found in one pass"


@contextmanager
def read_once(
    started: StartedMerge, report: MergeReport, null_keys: NullKeys, kept_rows: KeptRows | None, *, is_dry_run: bool
) -> Iterator[MergeContext]:
    """The merge with its materialized source, which is kept inside this context, and its candidate files.

    :param report: gets what was found about the source.
    :param kept_rows: keeps the rows that expectations set aside; None if they are only counted.
    :param is_dry_run: whether guards and expectations must not stop the merge.
    :raises MergeGuardError: when the source is empty, or not as expected.
    :raises NullKeysError: when it has NULL keys that are refused.
    """
    gateway, transaction, metrics = started.gateway, started.transaction, started.metrics
    report.storage_level = storage_level(gateway, started.source_attempt)
    needed, reason = started.statement.materialization
    report.materialization = str(reason) if needed else MATERIALIZATION_REASON
    with metrics.phase("scan", "scanTimeMs"), gateway.step("choose the target's files"):
        keys = keys_to_prune_by(started)
    check = _source_check(started, is_dry_run=is_dry_run)
    null_statistic = f"{started.names.expected}null_keys"
    timed = metrics.phase("source", "materializeSourceTimeMs")
    recorded = nullcontext() if is_dry_run else started.recorded("materializeSource")
    with timed, gateway.step("materialize source"), recorded:
        source = materialize_source(
            started,
            statistics=[
                *(statistic for key in keys for statistic in key.statistics()),
                *(check.statistics() if check else ()),
                *null_keys.statistics(null_statistic, but=check.set_aside if check else None),
            ],
            also=check.columns if check else (),
            marked=check.marked if check else None,
            storage_level=report.storage_level,
        )
    try:
        _log.info("Read the source: %s rows, %.1f MB", source.num_rows, source.num_bytes / 1e6)
        every, source = source, check.left_of(source) if check else source
        if not is_dry_run:  # guards stop a merge, not the count of what it would do
            check_source(started.options.guards, source.num_rows)
        report.num_null_keys = null_keys.check(source, null_statistic)
        if check:
            with metrics.phase("source"), gateway.step("check the source"):
                report.failed_expectations = check.check_rows(every, source, fails=not is_dry_run)
                report.num_set_aside_rows = check.num_set_aside(every)
                if kept_rows is not None:
                    with transaction.paused():
                        check.keep(every, kept_rows)
        metrics.set(numSourceRows=source.num_rows, operationNumSourceRows=source.num_rows)
        with metrics.phase("scan", "scanTimeMs"), gateway.step("choose the target's files"):
            candidates, row_predicates = choose_files(started, keys, source)
        _log.info("Searching %s of %s files for matches", candidates.count, transaction.files.table_size[0])
        yield MergeContext(**vars(started), source=source, candidates=candidates, row_predicates=row_predicates)
    finally:
        source.release()


def _source_check(started: StartedMerge, *, is_dry_run: bool) -> SourceCheck | None:
    """The check of what is expected of the source; None if nothing is, or a dry run has found that it can't pass."""
    expected = started.options.guards.expect_source
    if expected is None:
        return None
    try:
        return SourceCheck(started, expected)
    except SourceExpectationError as error:
        if not is_dry_run:
            raise
        _log.warning("The merge would fail: %s", error)
        return None
