"""The description of a merge: :class:`MergeConfig` with target, source and clauses, or a :class:`MergeStatement`.

All are frozen and checked when they are built, so a DAG with an invalid merge fails while it is parsed. They can be
converted to JSON and back (for the way from the operator to the Spark job) and to a ``MERGE`` statement, which Delta's
own analyzer resolves. Conditions and values are SQL expressions. Names are data and always quoted.
"""

from __future__ import annotations

from airflow_delta_merge.config.checks import CONFIG_VERSION
from airflow_delta_merge.config.clauses import (
    ClauseAction,
    ClauseKind,
    MergeClause,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_by_source_delete,
    when_not_matched_by_source_update,
    when_not_matched_insert,
    when_not_matched_insert_all,
)
from airflow_delta_merge.config.create_table import CreateTable
from airflow_delta_merge.config.guards import GUARDED_COUNTS, MergeGuards
from airflow_delta_merge.config.jdbc_source import JdbcSource
from airflow_delta_merge.config.merge_config import MergeConfig
from airflow_delta_merge.config.merge_engine import MergeEngine
from airflow_delta_merge.config.merge_statement import MergeStatement
from airflow_delta_merge.config.merge_window import MergeWindow
from airflow_delta_merge.config.relations import MergeSource, MergeTarget
from airflow_delta_merge.config.source_dedupe import SourceDedupe
from airflow_delta_merge.config.source_expectations import RowCondition, SourceExpectations
from airflow_delta_merge.config.transport import from_json, statements_to_sql, to_json

__all__ = [
    "CONFIG_VERSION",
    "GUARDED_COUNTS",
    "ClauseAction",
    "ClauseKind",
    "CreateTable",
    "JdbcSource",
    "MergeClause",
    "MergeConfig",
    "MergeEngine",
    "MergeGuards",
    "MergeSource",
    "MergeStatement",
    "MergeTarget",
    "MergeWindow",
    "RowCondition",
    "SourceDedupe",
    "SourceExpectations",
    "from_json",
    "statements_to_sql",
    "to_json",
    "when_matched_delete",
    "when_matched_update",
    "when_matched_update_all",
    "when_not_matched_by_source_delete",
    "when_not_matched_by_source_update",
    "when_not_matched_insert",
    "when_not_matched_insert_all",
]
