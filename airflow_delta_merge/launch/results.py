"""What became of a job, by its result file and its end: results of merges, or errors for Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from airflow_delta_merge.contract.lineage import ColumnLineage
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeResultError
from airflow_delta_merge.launch.errors import (
    error_of_exit,
    error_of_job,
    error_of_loss,
    error_of_several,
    raised_for_airflow,
)
from airflow_delta_merge.launch.spark_application import ApplicationEnd
from airflow_delta_merge.launch.staging import each_of

log = logging.getLogger(__name__)


def outcome_of(end: ApplicationEnd, target: str, *, killed: bool, exactly_once: bool, conn_id: str) -> dict[str, Any]:
    """What the job told before its application ended: by ``result``, ``plan``, or several merges' by ``merges``.

    :param target: the target, or how many there are, for sentences.
    :param killed: whether Airflow has ended it.
    :param exactly_once: whether the merge had an identity.
    :param conn_id: the connection that said where Spark runs.
    :raises DeltaMergeException: when it told an error, or nothing.
    """
    if end.error is not None:
        raise error_of_loss(end.error, target, another_try_helps=end.another_try_helps, exactly_once=exactly_once)
    if end.outcome is None:
        told = {"killed": killed, "exactly_once": exactly_once}
        raise error_of_exit(end.exit_code or 0, end.reason, target, **told, conn_id=conn_id)
    if "error" in end.outcome:
        raise error_of_job(end.outcome["error"], target)
    if end.exit_code and not any("error" in merge for merge in each_of(end.outcome)):
        # The result is written after the commit, so the merge is done; to fail now would make it run twice.
        log.warning("Spark ended with exit code %s, but after the merge was done.", end.exit_code)
    return end.outcome


def result_of(outcome: Mapping[str, Any], on_lineage: Callable[[ColumnLineage], None] | None) -> MergeResult:
    """The result of one merge.

    :param on_lineage: called with where the target's columns come from, if the job told it.
    :raises DeltaMergeException: when it can't be read.
    """
    with raised_for_airflow():
        result = MergeResult.from_dict(outcome["result"])
    if on_lineage is not None and "lineage" in outcome:
        try:
            on_lineage(ColumnLineage.from_dict(outcome["lineage"]))
        except MergeResultError as error:  # the merge is done; to fail now would make it run twice
            log.warning("Where the target's columns come from is not told: %s", error)
    return result


def results_of(
    outcome: Mapping[str, Any], on_lineage: Callable[[int, ColumnLineage], None] | None
) -> list[MergeResult | None]:
    """The results of several merges in their order, with None for those that were skipped.

    :param on_lineage: called with a merge's position and where its target's columns come from.
    :raises DeltaMergeException: when some of them failed.
    """
    merges = outcome["merges"]
    if errors := [error_of_job(each["error"], each["target"]) for each in merges if "error" in each]:
        raise error_of_several(errors, len(merges))
    return [
        None if "skipped" in each else result_of(each, on_lineage and partial(on_lineage, position))
        for position, each in enumerate(merges)
    ]
