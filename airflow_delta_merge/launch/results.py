"""Turns a job's outcome and its application's end into results of merges, or errors for Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from airflow_delta_merge.contract.lineage import ColumnLineage
from airflow_delta_merge.contract.outcome import JobOutcome, MergeOutcome
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.launch.errors import error_of_exit, error_of_job, error_of_loss, error_of_several
from airflow_delta_merge.launch.spark_application import ApplicationEnd

log = logging.getLogger(__name__)


def outcome_of(end: ApplicationEnd, target: str, *, killed: bool, exactly_once: bool, conn_id: str) -> JobOutcome:
    """The outcome that the job wrote before its application ended.

    :param target: the target, or the number of targets, for messages.
    :param killed: whether Airflow ended the application.
    :param exactly_once: whether the merge had an identity.
    :param conn_id: the Spark connection.
    :raises DeltaMergeException: when the outcome is an error, or there is no outcome.
    """
    if end.error is not None:
        raise error_of_loss(end.error, target, another_try_helps=end.another_try_helps, exactly_once=exactly_once)
    if end.outcome is None:
        raise error_of_exit(
            end.exit_code or 0, end.reason, target, killed=killed, exactly_once=exactly_once, conn_id=conn_id
        )
    if end.outcome.error is not None:
        raise error_of_job(end.outcome.error, target)
    if end.exit_code and not end.outcome.errors:
        # The result is written after the commit, so the merge is done. Failing now would run it twice.
        log.warning("Spark ended with exit code %s after the merge was done.", end.exit_code)
    return end.outcome


def result_of(outcome: JobOutcome, on_lineage: Callable[[ColumnLineage], None] | None) -> MergeResult:
    """The result of a job's only merge.

    :param on_lineage: called with the lineage of the target's columns, if the job returned it.
    :raises DeltaMergeException: when it failed.
    """
    (result,) = results_of(outcome, on_lineage and (lambda _, lineage: on_lineage(lineage)))
    assert result is not None
    return result


def results_of(
    outcome: JobOutcome, on_lineage: Callable[[int, ColumnLineage], None] | None
) -> list[MergeResult | None]:
    """The results of several merges in order, with None for skipped ones.

    :param on_lineage: called with a merge's position and the lineage of its target's columns.
    :raises DeltaMergeException: when some of them failed.
    """
    if errors := [error_of_job(each.error, each.target) for each in outcome.merges if each.error is not None]:
        raise error_of_several(errors, len(outcome.merges))
    return [_result(each, on_lineage and partial(on_lineage, position)) for position, each in enumerate(outcome.merges)]


def _result(outcome: MergeOutcome, on_lineage: Callable[[ColumnLineage], None] | None) -> MergeResult | None:
    if on_lineage is not None and outcome.lineage is not None:
        on_lineage(outcome.lineage)
    return outcome.result
