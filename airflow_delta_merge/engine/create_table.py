"""Creates a missing target: an empty Delta table, committed before the merge begins."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_delta_merge.engine.delta_jvm.commit import is_conflict
from airflow_delta_merge.engine.delta_jvm.errors import SPARK_ERRORS, merge_error
from airflow_delta_merge.engine.delta_jvm.gateway import analysed_plan
from airflow_delta_merge.engine.delta_jvm.parsing import columns_from
from airflow_delta_merge.engine.delta_jvm.tables import columns_of, is_delta_path
from airflow_delta_merge.exceptions import MergeExecutionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta_merge.config import CreateTable, MergeTarget
    from airflow_delta_merge.engine.allowed_locations import AllowedLocations
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway

# Delta's condition for a folder with files but without a table, as of one that is just being created.
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


def create_if_missing(
    gateway: Gateway, target: MergeTarget, table: CreateTable, source: str, allowed: AllowedLocations | None
) -> None:
    """Create the target if it does not exist. If several writers create it at the same time, each merges into it.

    :param source: the source as a relation in SQL.
    :raises MergeConfigError: when the column definitions are invalid.
    :raises MergeExecutionError: when another writer began to create it and never made the first commit.
    """
    if _exists(gateway, target):
        return
    if allowed is not None:
        allowed.check_new_table(target, analysed_plan(_rows(gateway, source)))
    statement = table.to_sql(target.to_sql(), _columns(gateway, table, source))
    for pause in (*_PAUSES_SECONDS, None):
        try:
            gateway.spark.sql(statement).collect()  # does nothing where the folder of the table's log is there
        except SPARK_ERRORS as error:
            is_being_made = is_conflict(error) or merge_error(error).condition == _NOT_EMPTY
            if (pause is None or not is_being_made) and not _exists(gateway, target):
                raise
        if _exists(gateway, target):
            return
        if pause is None:
            raise MergeExecutionError(
                f"The table {target.to_sql()} could not be created: its folder has a _delta_log without a commit. If "
                "nobody is creating the table right now, one who did was ended: remove this _delta_log."
            )
        time.sleep(pause)


def _exists(gateway: Gateway, target: MergeTarget) -> bool:
    if target.path is not None:
        return is_delta_path(gateway, target.path)
    return gateway.spark.catalog.tableExists(target.to_sql())


def _columns(gateway: Gateway, table: CreateTable, source: str) -> str:
    if table.columns is not None:
        return columns_from(gateway, table.columns)
    return columns_of(_rows(gateway, source))


def _rows(gateway: Gateway, source: str) -> DataFrame:
    return gateway.spark.sql(f"SELECT * FROM {source}")  # noqa: S608  a relation is SQL by nature
