"""The asset event by which a task announces its target to DAGs that are scheduled on it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from airflow_delta_merge.assets.delta import MERGED_TABLES, delta_asset

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_delta_merge.config import MergeTarget
    from airflow_delta_merge.contract.result import MergeResult

log = logging.getLogger(__name__)


def add_asset_event(
    context: Context, target: MergeTarget, result: MergeResult, when: Literal["on_commit", "always", "never"]
) -> None:
    """Add the event of a merge, which Airflow creates once the task succeeds.

    :param when: the operator's ``asset_events``.
    """
    if when == "never" or (when == "on_commit" and result.version is None):
        return
    try:
        asset = delta_asset(target)
    except ValueError as error:
        log.info("No asset event: %s", error)
        return
    counts = {name: value for name, value in result.to_dict().items() if name.startswith("num_")}
    extra = {"table": result.table, "version": result.version, **counts}
    context["outlet_events"][MERGED_TABLES].add(asset, extra=extra)
