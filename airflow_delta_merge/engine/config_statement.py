"""A merge config as a statement that a session can resolve."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.engine.allowed_locations import AllowedLocations
from airflow_delta_merge.engine.create_table import create_if_missing
from airflow_delta_merge.engine.delta_jvm import Gateway
from airflow_delta_merge.engine.delta_jvm.statement import require_expression, require_query
from airflow_delta_merge.engine.guards import require_guards
from airflow_delta_merge.identifiers import quote_identifier


@contextmanager
def statements_of(
    gateway: Gateway,
    config: MergeConfig | MergeStatement,
    *,
    create: bool,
    allowed: AllowedLocations | None = None,
) -> Iterator[Callable[[], str]]:
    """A function that gives the MERGE statement for the table as it is then.

    The statement may refer to a temporary view that is there only inside.

    :param create: whether a missing target is made, if the config says how.
    :param allowed: where all that the merge reads and writes has to lie.
    :raises MergeConfigError: when an expression or the query of the config is not one.
    """
    if allowed is not None:
        _check_allowed(gateway, config, allowed)
    require_guards(gateway, config.guards)
    if isinstance(config, MergeStatement):
        sql = config.sql
        yield lambda: sql
        return
    _check_expressions(gateway, config)
    with _source_relation(gateway, config) as relation:
        if create and config.create_table is not None:
            source = config.source.to_sql(relation)
            create_if_missing(gateway, config.target, config.create_table, source, allowed)
        yield lambda: _with_its_columns(gateway, config).to_sql(source_relation=relation)


def _with_its_columns(gateway: Gateway, config: MergeConfig) -> MergeConfig:
    if not config.has_star_exceptions:
        return config
    return config.with_target_columns(gateway.spark.table(config.target.to_sql()).columns)


def _check_expressions(gateway: Gateway, config: MergeConfig) -> None:
    """Each expression must be whole by itself, so that none can end its clause and begin another one."""
    for text, what in _expressions(config):
        require_expression(gateway, text, what)
    if config.source.query is not None:
        require_query(gateway, config.source.query)
    if config.source.select is not None:
        require_query(gateway, config.source.select)


def _check_allowed(gateway: Gateway, config: MergeConfig | MergeStatement, allowed: AllowedLocations) -> None:
    """Before anything is looked up: a guard's subquery, too, would have Spark open files."""
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


@contextmanager
def _source_relation(gateway: Gateway, config: MergeConfig) -> Iterator[str | None]:
    """The name of a temporary view over the source's files, where SQL cannot express how to read them."""
    source = config.source
    if not source.needs_view:
        yield None
        return
    view = f"merge_source_{uuid.uuid4().hex}"
    reader = gateway.spark.read.format(source.format or "").options(**dict(source.options))
    reader.load(list(source.paths)).createOrReplaceTempView(view)
    try:
        yield quote_identifier(view)
    finally:
        gateway.spark.catalog.dropTempView(view)
