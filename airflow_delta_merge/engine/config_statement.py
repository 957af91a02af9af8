"""A merge config as a statement that a session can resolve."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.engine.create_table import create_if_missing
from airflow_delta_merge.engine.delta_jvm import Gateway
from airflow_delta_merge.engine.delta_jvm.statement import require_expression, require_query
from airflow_delta_merge.engine.guards import require_guards
from airflow_delta_merge.identifiers import quote_identifier


@contextmanager
def statements_of(
    gateway: Gateway, config: MergeConfig | MergeStatement, *, create: bool
) -> Iterator[Callable[[], str]]:
    """A function that gives the MERGE statement for the table as it is then.

    The statement may refer to a temporary view that is there only inside.

    :param create: whether a missing target is made, if the config says how.
    :raises MergeConfigError: when an expression or the query of the config is not one.
    """
    require_guards(gateway, config.guards)
    if isinstance(config, MergeStatement):
        sql = config.sql
        yield lambda: sql
        return
    _check_expressions(gateway, config)
    with _source_relation(gateway, config) as relation:
        if create and config.create_table is not None:
            create_if_missing(gateway, config.target, config.create_table, config.source.to_sql(relation))
        yield lambda: _with_its_columns(gateway, config).to_sql(source_relation=relation)


def _with_its_columns(gateway: Gateway, config: MergeConfig) -> MergeConfig:
    if not config.has_star_exceptions:
        return config
    return config.with_target_columns(gateway.spark.table(config.target.to_sql()).columns)


def _check_expressions(gateway: Gateway, config: MergeConfig) -> None:
    """Each expression must be whole by itself, so that none can end its clause and begin another one."""
    require_expression(gateway, config.condition_sql, "condition in on")
    for clause in config.clauses:
        if clause.condition is not None:
            require_expression(gateway, clause.condition, f"condition of the {clause.kind} {clause.action} clause")
        for column, value in clause.values:
            require_expression(
                gateway, value, f"value of column {column!r} in the {clause.kind} {clause.action} clause"
            )
    if config.source.query is not None:
        require_query(gateway, config.source.query)
    if config.source.select is not None:
        require_query(gateway, config.source.select)


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
