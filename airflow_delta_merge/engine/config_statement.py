"""Turns a merge config into a statement that a session can resolve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.engine.allowed_locations import AllowedLocations
from airflow_delta_merge.engine.create_table import create_if_missing
from airflow_delta_merge.engine.delta_jvm import by_version
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.delta_jvm.parsing import require_expression, require_query
from airflow_delta_merge.engine.delta_jvm.tables import column_names
from airflow_delta_merge.engine.guards import require_guards
from airflow_delta_merge.engine.source.view import source_relation

if TYPE_CHECKING:
    from airflow_delta_merge.engine.source.kept_rows import KeptRows


@contextmanager
def statement_of(
    gateway: Gateway,
    config: MergeConfig | MergeStatement,
    *,
    kept_rows: KeptRows | None = None,
    allowed: AllowedLocations | None = None,
) -> Iterator[tuple[Callable[[], str], int]]:
    """The MERGE statement. It may use a temporary view that exists only inside this context.

    :param kept_rows: keeps bad rows, if the config says where; None for a dry run, which doesn't create a missing
        target either.
    :param allowed: the locations that the merge may read and write.
    :return: a function that builds the statement for the table's current schema; and the number of bad rows in the
        source's files that the statement doesn't see.
    :raises MergeConfigError: when an expression or query of the config is invalid.
    """
    expressions: list[str] = []
    if isinstance(config, MergeConfig):
        _check_expressions(gateway, config)
        expressions = [text for text, _ in _expressions(config)]
    if allowed is not None:  # before any lookup: even a guard's subquery would make Spark open files
        allowed.check_config(config, expressions)
    require_guards(gateway, config.guards)
    if isinstance(config, MergeStatement):
        sql = config.sql
        yield lambda: sql, 0
        return
    with source_relation(gateway, config, kept_rows) as (relation, num_bad_rows):
        if kept_rows is not None and config.create_table is not None:
            create_if_missing(gateway, config.target, config.create_table, config.source.to_sql(relation), allowed)

        def to_sql() -> str:
            columns = _source_columns(gateway, config, relation)
            return _with_its_columns(gateway, config).to_sql(source_relation=relation, source_columns=columns)

        yield to_sql, num_bad_rows


def _source_columns(gateway: Gateway, config: MergeConfig, relation: str | None) -> list[str] | None:
    """The source's columns, where its dedupe must name them."""
    if config.source_dedupe is None or by_version.knows_star_except(gateway):
        return None
    rows = gateway.spark.sql(f"SELECT * FROM {config.source.to_sql(relation)}")  # noqa: S608  a relation is SQL
    return column_names(gateway, rows)


def _with_its_columns(gateway: Gateway, config: MergeConfig) -> MergeConfig:
    if not config.has_star_exceptions:
        return config
    return config.with_target_columns(column_names(gateway, gateway.spark.table(config.target.to_sql())))


def _check_expressions(gateway: Gateway, config: MergeConfig) -> None:
    """Check that each expression is complete by itself, so that none can end its clause and begin another one."""
    for text, what in _expressions(config):
        require_expression(gateway, text, what)
    if config.source.query is not None:
        require_query(gateway, config.source.query)
    if config.source.select is not None:
        require_query(gateway, config.source.select)


def _expressions(config: MergeConfig) -> Iterator[tuple[str, str]]:
    """Each expression of the config, and what it is."""
    yield config.condition_sql, "condition in on"
    for clause in config.clauses:
        if clause.condition is not None:
            yield clause.condition, f"condition of the {clause.kind} {clause.action} clause"
        for column, value in clause.values:
            yield value, f"value of column {column!r} in the {clause.kind} {clause.action} clause"
