"""The engine's public functions: merge by a config or a statement, or only plan it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeConfig, MergeEngine, MergeStatement, to_json
from airflow_delta_merge.config.options import MergeOptions
from airflow_delta_merge.contract.identity import MAX_COMMIT_ATTEMPTS, MergeIdentity, check_commit_attempts
from airflow_delta_merge.contract.merge_plan import MergePlan
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.engine.allowed_locations import AllowedLocations
from airflow_delta_merge.engine.builtin_statement import BuiltInStatement, require_no_guards
from airflow_delta_merge.engine.config_statement import statement_of
from airflow_delta_merge.engine.delta_jvm.errors import without_bare_errors
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.delta_jvm.versions import require_tried
from airflow_delta_merge.engine.exactly_once import ExactlyOnce, digest, until_committed
from airflow_delta_merge.engine.merge_into import MergeIntoCommand
from airflow_delta_merge.engine.source.kept_rows import KeptRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.lineage import ColumnLineage


def merge(
    spark: SparkSession,
    config: MergeConfig | MergeStatement,
    *,
    identity: MergeIdentity | None = None,
    max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
    allowed_locations: Sequence[str] | None = None,
    on_lineage: Callable[[ColumnLineage], None] | None = None,
) -> MergeResult:
    """Merge as a config or a statement says and commit.

    :param spark: a classic session with Delta's extension and catalog.
    :param config: the merge, as a config or a statement.
    :param identity: identifies this merge in the table. If it was committed before, its recorded result is returned
        with ``already_committed``, and nothing is done. None merges each time.
    :param max_commit_attempts: how often the merge is computed if other writers' commits conflict with it, each time
        from the table and the source as they are then.
    :param allowed_locations: absolute paths or URIs; all files that the merge reads or writes must be at or under one
        of them. None allows all.
    :param on_lineage: called with the lineage of the target's columns after the merge, unless an earlier try had
        committed or it can't be determined.
    :raises MergeConfigError: when an expression or a query of the config is invalid, or a location is not allowed.
    :raises MergeGuardError: when the merge would exceed one of the config's guards.
    :raises StaleMergeError: when a later generation of the identity's application was committed.
    :raises MergeExecutionError: with Delta's or Spark's error condition, when the merge is refused or fails;
        the table is as it was.
    """
    with without_bare_errors() as progress:
        check_commit_attempts(max_commit_attempts)
        progress.table = config.target.to_sql()
        gateway = Gateway(spark, progress)
        if config.engine is MergeEngine.BUILTIN and not gateway.versions.are_tried:
            return _merge_by_statement(gateway, config, identity, max_commit_attempts, allowed_locations is not None)
        require_tried(gateway.versions)
        once = None if identity is None else ExactlyOnce(identity, digest(to_json(config)))
        allowed = None if allowed_locations is None else AllowedLocations(gateway, allowed_locations)
        kept_rows = KeptRows(gateway, config.target.to_sql(), identity)
        with statement_of(gateway, config, kept_rows=kept_rows, allowed=allowed) as (statement, num_bad_rows):

            def attempt(number: int) -> MergeResult:
                return MergeIntoCommand(
                    gateway,
                    statement(),
                    config,
                    once=once,
                    attempt=number,
                    num_bad_rows=num_bad_rows,
                    kept_rows=kept_rows,
                    allowed=allowed,
                    on_lineage=on_lineage,
                ).run_merge()

            return until_committed(gateway, attempt, max_commit_attempts)


def _merge_by_statement(
    gateway: Gateway,
    config: MergeConfig | MergeStatement,
    identity: MergeIdentity | None,
    max_commit_attempts: int,
    holds_to_locations: bool,
) -> MergeResult:
    """Let Delta run the merge as one statement, on versions of which nothing else is known here."""
    require_no_guards(config.guards, gateway.versions, holds_to_locations=holds_to_locations)
    target = config.target.to_sql()
    merge = BuiltInStatement(gateway.spark, target, identity)
    with statement_of(gateway, config, kept_rows=KeptRows(gateway, target, identity)) as (statement, num_bad_rows):
        result = until_committed(gateway, lambda attempt: merge.run(statement, attempt), max_commit_attempts)
        return replace(result, num_bad_rows=num_bad_rows)


def merge_sql(
    spark: SparkSession,
    statement: str,
    *,
    identity: MergeIdentity | None = None,
    max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
) -> MergeResult:
    """Run a ``MERGE INTO`` statement by this engine and commit.

    :param spark: as for :func:`merge`.
    :param statement: the statement, in the dialect of Spark and Delta.
    :param identity: as for :func:`merge`.
    :param max_commit_attempts: as for :func:`merge`.
    :raises MergeConfigError: when the statement is no MERGE into a Delta table.
    :raises StaleMergeError: when a later generation of the identity's application was committed.
    :raises MergeExecutionError: with Delta's or Spark's error condition, when the merge is refused or fails;
        the table is as it was.
    """
    with without_bare_errors() as progress:
        check_commit_attempts(max_commit_attempts)
        gateway = Gateway(spark, progress)
        require_tried(gateway.versions)
        once = None if identity is None else ExactlyOnce(identity, digest(statement))
        return until_committed(
            gateway,
            lambda attempt: MergeIntoCommand(
                gateway, statement, MergeOptions(), once=once, attempt=attempt
            ).run_merge(),
            max_commit_attempts,
        )


def plan(
    spark: SparkSession,
    config: MergeConfig | MergeStatement,
    *,
    explain: bool = False,
    allowed_locations: Sequence[str] | None = None,
) -> MergePlan:
    """Count what a merge would do, row by row and file by file, without writing a file or committing.

    It reads what the merge would read to find its matches, so it takes about as long as the merge's first phase. A
    missing target is not created, so there is no plan for it.

    :param spark: as for :func:`merge`.
    :param config: as for :func:`merge`; its guards are ignored.
    :param explain: whether ``spark_plans`` of the plan has Spark's physical plans.
    :param allowed_locations: as for :func:`merge`.
    :raises MergeConfigError: as :func:`merge`.
    :raises MergeExecutionError: as :func:`merge`, for all errors that show before rows are written.
    """
    with without_bare_errors() as progress:
        progress.table = config.target.to_sql()
        gateway = Gateway(spark, progress)
        require_tried(gateway.versions)
        allowed = None if allowed_locations is None else AllowedLocations(gateway, allowed_locations)
        with statement_of(gateway, config, allowed=allowed) as (statement, num_bad_rows):
            command = MergeIntoCommand(gateway, statement(), config, num_bad_rows=num_bad_rows, allowed=allowed)
            return command.plan_merge(explain=explain)
