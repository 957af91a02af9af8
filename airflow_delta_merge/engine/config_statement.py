"""Turns a merge config into a statement that a session can resolve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.engine.allowed_locations import AllowedLocations
from airflow_delta_merge.engine.create_table import create_if_missing
from airflow_delta_merge.engine.delta_jvm import Gateway
from airflow_delta_merge.engine.delta_jvm.statement import require_expression, require_query
from airflow_delta_merge.engine.guards import require_guards
from airflow_delta_merge.engine.source_files import source_relation

if TYPE_CHECKING:
    from airflow_delta_merge.contract.identity import MergeIdentity


@dataclass(frozen=True)
class Statements:
    """A merge as a statement.

    :param sql: builds the MERGE statement for the table's current schema.
    :param num_bad_rows: number of bad rows in the source's files that the statement doesn't see.
    """

    sql: Callable[[], str]
    num_bad_rows: int = 0


@contextmanager
def statements_of(
    gateway: Gateway,
    config: MergeConfig | MergeStatement,
    *,
    create: bool,
    allowed: AllowedLocations | None = None,
    identity: MergeIdentity | None = None,
) -> Iterator[Statements]:
    """The MERGE statement. It may use a temporary view that exists only inside this context.

    :param create: whether to create a missing target and keep bad rows, if the config says how and where.
    :param allowed: the locations that the merge may read and write.
    :param identity: identifies the merge.
    :raises MergeConfigError: when an expression or query of the config is invalid.
    """
    if allowed is not None:
        _check_allowed(gateway, config, allowed)
    require_guards(gateway, config.guards)
    if isinstance(config, MergeStatement):
        sql = config.sql
        yield Statements(lambda: sql)
        return
    _check_expressions(gateway, config)
    with source_relation(gateway, config, identity, keeps_rows=create) as relation:
        if create and config.create_table is not None:
            source = config.source.to_sql(relation.sql)
            create_if_missing(gateway, config.target, config.create_table, source, allowed)
        yield Statements(
            lambda: _with_its_columns(gateway, config).to_sql(source_relation=relation.sql), relation.num_bad_rows
        )


def _with_its_columns(gateway: Gateway, config: MergeConfig) -> MergeConfig:
    if not config.has_star_exceptions:
        return config
    return config.with_target_columns(gateway.spark.table(config.target.to_sql()).columns)


def _check_expressions(gateway: Gateway, config: MergeConfig) -> None:
    """Check that each expression is complete by itself, so that none can end its clause and begin another one."""
    for text, what in _expressions(config):
        require_expression(gateway, text, what)
    if config.source.query is not None:
        require_query(gateway, config.source.query)
    if config.source.select is not None:
        require_query(gateway, config.source.select)


def _check_allowed(gateway: Gateway, config: MergeConfig | MergeStatement, allowed: AllowedLocations) -> None:
    """Check the locations before any lookup: even a guard's subquery would make Spark open files."""
    if isinstance(config, MergeStatement):
        return allowed.check_config(config, ())
    _check_expressions(gateway, config)
    return allowed.check_config(config, [text for text, _ in _expressions(config)])


def _expressions(config: MergeConfig) -> Iterator[tuple[str, str]]:
    """Each expression of the config, and what it is."""
    yield config.condition_sql, "condition in on"
    for clause in config.clauses:
        if clause.condition is not None:
            yield clause.condition, f"condition of the {clause.kind} {clause.action} clause"
        for column, value in clause.values:
            yield value, f"value of column {column!r} in the {clause.kind} {clause.action} clause"
