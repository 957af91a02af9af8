"""The operator: one task, one merge into a Delta table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.common.compat.sdk import conf as airflow_conf
from jinja2 import UndefinedError

from airflow_delta_merge.assets.delta import MERGED_TABLES
from airflow_delta_merge.config import (
    CreateTable,
    MergeClause,
    MergeConfig,
    MergeSource,
    MergeStatement,
    MergeTarget,
    MergeWindow,
    SourceDedupe,
    SourceExpectations,
    statements_to_sql,
)
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.contract.identity import MAX_COMMIT_ATTEMPTS
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.links.delta_merge import CommitLink, SparkApplicationLink
from airflow_delta_merge.operators.arguments import (
    PARTS_OF_A_MERGE,
    build_merge,
    plain_clauses,
    plain_dedupe,
    plain_source,
    plain_target,
    to_plain,
    window_template,
)
from airflow_delta_merge.operators.asset_events import add_asset_event
from airflow_delta_merge.operators.checked_partial import checked_partial
from airflow_delta_merge.operators.description import announce, describe, describe_plan, readable_statement
from airflow_delta_merge.operators.dry_run import rendered_without_run
from airflow_delta_merge.operators.many_merges import build_merges, check_merges, plain_merges
from airflow_delta_merge.operators.mapped_arguments import arguments_of_tasks
from airflow_delta_merge.operators.named_errors import names_its_task
from airflow_delta_merge.operators.parse_checks import check_arguments, check_options
from airflow_delta_merge.operators.rendering import Renderer, read_template_files, render_arguments
from airflow_delta_merge.operators.shared_arguments import check_given
from airflow_delta_merge.operators.spark_options import SparkOptions
from airflow_delta_merge.operators.stopped_merges import guards_kept, skipped_if_empty
from airflow_delta_merge.operators.task_links import (
    keep_history_page,
    kept_at_the_end,
    link_application,
    link_commit,
    merges_url,
)
from airflow_delta_merge.operators.templates import with_missing_dates
from airflow_delta_merge.task_exceptions import DeltaMergeFailException

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.providers.common.compat.sdk import Asset, BaseOperatorLink, Context, ObjectStoragePath
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from airflow_delta_merge.contract.lineage import ColumnLineage
    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.patterns import Pattern


#: What of a result has an XCom of its own by default: the row that ``MERGE INTO`` returns, and the touched files.
COUNTS_WITH_KEYS = (
    "num_affected_rows",
    "num_updated_rows",
    "num_deleted_rows",
    "num_inserted_rows",
    "num_touched_files",
)


class DeltaMergeOperator(SparkOptions):
    """Merges rows into a Delta table, by this package's engine on Spark.

    The task returns the whole result, a :class:`~airflow_delta_merge.contract.result.MergeResult` as a dict. The counts
    of rows and touched files also have their own XComs: ``merge.output["num_inserted_rows"]``, or in a template
    ``{{ ti.xcom_pull(task_ids="merge", key="num_inserted_rows") }}``. With ``multiple_outputs=True`` each entry of the
    result has its own XCom.

    The arguments are checked when the DAG is parsed, as far as they are known then, and again when templates and
    outputs of upstream tasks have their values. The rendered templates show the resulting statement, as ``statement``.
    A merge that fails in a way that a retry can't help (a missing column, two source rows for one target row …) is not
    retried.

    :param target: the Delta table: a name (``schema.table``), a path (anything with a ``/``), a
        :class:`~airflow_delta_merge.config.MergeTarget`, a dict like it, an ``ObjectStoragePath`` or the table's asset.
        (templated)
    :param source: the rows to merge: a query, a table name, a path (anything with a ``/``), a list of paths, a
        :class:`~airflow_delta_merge.config.MergeSource` or a dict like it
        (``{"path": "/in/day.csv", "options": {"header": True}}``), which may say how to treat bad rows, or name a
        database (``{"format": "jdbc", "conn_id": "shop", "table": "public.orders"}``, see
        :class:`~airflow_delta_merge.config.JdbcSource`); also an ``ObjectStoragePath`` or an asset, the name of a
        ``.sql`` file with a query, or the output of an upstream task that returns one of these. (templated)
    :param on: when a source row matches a target row: a SQL condition over both sides, or a list of key columns that
        both sides have. (templated)
    :param clauses: what to do with matched and unmatched rows, e.g.
        ``[when_matched_update_all(), when_not_matched_insert_all()]`` from :mod:`airflow_delta_merge.config`, or dicts
        like them. (templated)
    :param pattern: the kind of merge, in place of ``on`` and ``clauses``: one of :mod:`airflow_delta_merge.patterns`,
        e.g. ``Upsert(keys=["id"])``, or a dict like it (``{"pattern": "upsert", "keys": ["id"]}``). (templated)
    :param sql: a whole ``MERGE INTO`` statement, or the name of a ``.sql`` file with one, in place of the arguments
        that make one. (templated)
    :param null_safe: with key columns: whether two NULLs are equal.
    :param null_keys: with key columns: ``allow`` source rows with a NULL key, or ``fail`` without a commit. Such rows
        match nothing, unless ``null_safe``. Patterns have their own ``null_keys``, by default ``fail``.
    :param target_alias: the target's name in conditions and values. (templated)
    :param source_alias: the source's name in conditions and values. (templated)
    :param with_schema_evolution: whether columns that only the source has are added to the target.
    :param source_dedupe: with key columns: merge only the latest of several source rows with one key. The column or
        columns that order them, or a dict with ``latest_by`` and ``on_ties`` (``fail`` or ``pick``). (templated)
    :param update_only_changed: whether to skip rows that an update would leave as they are; they aren't counted either.
    :param engine: ``delta_merge``, or ``builtin`` to have Delta's own ``MERGE`` find and write the changes, with the
        same identity, guards and result, but without ``update_only_changed`` and ``expect_source``.
    :param create_table: whether to create a missing target, as an empty Delta table with the source's columns; or a
        dict of options: ``columns`` (``"id BIGINT NOT NULL, name STRING"``), ``partitioned_by``, ``cluster_by``,
        ``properties``. (templated)
    :param window: the part of the table to merge, by the values of a column: source rows outside are left out, target
        rows outside stay as they are. A column's name alone means the run's data interval, in the DAG's timezone;
        :class:`~airflow_delta_merge.config.MergeWindow` or a dict like it says more. In the dict ``start``, ``end`` and
        ``timezone`` are optional. (templated)
    :param fail_if: limits for what the merge may change, checked before the commit. Exceeding one fails the task with
        the numbers, without retries. A dict of maximum values
        (``{"deleted_fraction": 0.2, "num_inserted_rows": 1_000_000}``) or a list of SQL conditions over
        :data:`~airflow_delta_merge.config.GUARDED_COUNTS`
        (``["num_deleted_rows > 100 AND deleted_fraction > 0.2"]``). (templated)
    :param on_empty_source: what a source without rows means: ``merge`` it like any other, ``skip`` (the task is
        skipped) or ``fail``. (templated)
    :param expect_source: conditions that the source's rows must meet, checked before the commit. Otherwise the task
        fails with the numbers, without retries, and its log shows some of the rows. A dict of ``unique`` (columns that
        must be unique together), ``not_null`` (columns that are never NULL), ``columns`` (types by name:
        ``{"id": "bigint"}``) and ``sample`` (what the log shows of such rows: ``keys``, ``rows`` or ``none``), or
        :class:`~airflow_delta_merge.config.SourceExpectations`. Conditions by names of your own, and ``on_failure``,
        let rows pass with a warning or set them aside in the Delta table ``failed_rows_path``. (templated)
    :param merges: several merges in place of one, in one Spark application: dicts of the arguments above, or
        :class:`~airflow_delta_merge.config.MergeConfig`. They run in parallel, into the same target in order. The task
        returns a list of results, with None for a merge that ``on_empty_source="skip"`` skipped. If some fail, the
        others still finish, and the next try finds them committed. (templated)
    :param exactly_once: whether each intended execution is applied to the table once. A retry that finds its commit
        returns the recorded result, one that a later execution has overtaken fails; clearing the task merges again.
        With False each try merges. See ``docs/exactly_once.md``.
    :param max_commit_attempts: how often a try computes the merge if other writers' commits conflict with it.
        (Default: 5)
    :param asset_events: when the task announces its target as an asset
        (:func:`~airflow_delta_merge.assets.delta.delta_asset`), with the version and the counts in the event's
        ``extra``: ``on_commit``, ``always``, also when there was nothing to commit, or ``never``. DAGs scheduled on the
        asset then run. A target by a relative path has no asset.
    :param deferrable: whether to free the worker's slot while Spark runs. A triggerer on the same machine follows
        Spark; with deploy mode ``cluster`` (YARN, Kubernetes) any triggerer can. (Default: ``[operators]
        default_deferrable``.) See ``docs/how_to/deferrable.md``.
    :raises MergeConfigError: when the DAG is parsed, for arguments that are invalid in every run.
    """

    template_fields: Sequence[str] = (
        "statement",
        "target",
        "source",
        "on",
        "clauses",
        "pattern",
        "sql",
        "merges",
        "target_alias",
        "source_alias",
        "source_dedupe",
        "create_table",
        "window",
        "fail_if",
        "on_empty_source",
        "expect_source",
        *SparkOptions.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "statement": "sql",
        "sql": "sql",
        "source": "sql",
        "on": "sql",
        "clauses": "json",
        "pattern": "json",
        "merges": "json",
        **SparkOptions.template_fields_renderers,
    }
    operator_extra_links: Collection[BaseOperatorLink] = (SparkApplicationLink(), CommitLink())
    ui_color = "#a3e3ef"

    @names_its_task
    def __init__(
        self,
        *,
        target: MergeTarget | str | Mapping[str, Any] | ObjectStoragePath | Asset | None = None,
        source: MergeSource | str | Sequence[Any] | Mapping[str, Any] | ObjectStoragePath | Asset | None = None,
        on: str | Sequence[str] | None = None,
        clauses: Iterable[MergeClause | Mapping[str, Any]] | None = None,
        pattern: Pattern | Mapping[str, Any] | None = None,
        sql: str | None = None,
        null_safe: bool = False,
        null_keys: str = "allow",
        target_alias: str = "target",
        source_alias: str = "source",
        with_schema_evolution: bool = False,
        source_dedupe: SourceDedupe | str | Sequence[str] | Mapping[str, Any] | None = None,
        update_only_changed: bool = False,
        engine: Literal["delta_merge", "builtin"] = "delta_merge",
        create_table: CreateTable | Mapping[str, Any] | bool = False,
        window: MergeWindow | str | Mapping[str, Any] | None = None,
        fail_if: Mapping[str, float | str] | Sequence[str] = (),
        on_empty_source: str = "merge",
        expect_source: SourceExpectations | Mapping[str, Any] | None = None,
        merges: Iterable[MergeConfig | MergeStatement | Mapping[str, Any]] | None = None,
        exactly_once: bool = True,
        max_commit_attempts: int = MAX_COMMIT_ATTEMPTS,
        asset_events: Literal["on_commit", "always", "never"] = "on_commit",
        deferrable: bool = airflow_conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if asset_events != "never":
            self.outlets = [*self.outlets, MERGED_TABLES]
        self.target = plain_target(target)
        self.source = plain_source(source)
        self.on = to_plain(on)
        self.clauses = plain_clauses(clauses)
        self.pattern = to_plain(pattern)
        self.sql = to_plain(sql)
        self.null_safe = null_safe
        self.null_keys = null_keys
        self.target_alias = target_alias
        self.source_alias = source_alias
        self.with_schema_evolution = with_schema_evolution
        self.source_dedupe = plain_dedupe(source_dedupe)
        self.update_only_changed = update_only_changed
        self.engine = engine
        self.create_table = to_plain(create_table)
        self.window = window_template(window)
        self.fail_if = to_plain(fail_if)
        self.on_empty_source = on_empty_source
        self.expect_source = to_plain(expect_source)
        self.merges = plain_merges(merges)
        self.exactly_once = exactly_once
        self.max_commit_attempts = max_commit_attempts
        self.asset_events = asset_events
        self.deferrable = deferrable
        # By the links' XCom keys, learnt while the task runs.
        self.link_addresses: dict[str, str] = {}
        # By the merges' positions.
        self._merged: dict[int, MergeResult] = {}
        self._columns: dict[int, ColumnLineage] = {}
        # What the arguments come to in a run; no argument, but Airflow shows it with the rendered ones.
        self.statement: str | None = None
        self._is_rendered = False
        self._is_killed = False
        check_options(vars(self))
        self._check_at_parse()
        if self.merges is not None and self.multiple_outputs:
            raise MergeConfigError("multiple_outputs is not available with merges, which return a list. Remove it.")

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Check the arguments that mapped tasks share; Airflow makes the tasks themselves only in a run."""
        return checked_partial(cls, super().partial, kwargs)

    _check_given = staticmethod(check_given)

    def _check_at_parse(self) -> None:
        if self.merges is None:
            check_arguments(self._parts_of_merge())
        else:
            check_merges(self.merges, self._parts_of_merge())

    def _parts_of_merge(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PARTS_OF_A_MERGE}

    def _merge_config(self) -> MergeConfig | MergeStatement:
        """The config, once templates and outputs of upstream tasks have their values.

        :raises MergeConfigError: when they make no valid merge.
        """
        return build_merge(self._parts_of_merge())

    def _merge_configs(self) -> list[MergeConfig | MergeStatement]:
        """What is merged in this run, one or several."""
        try:
            return [self._merge_config()] if self.merges is None else build_merges(self.merges)
        except MergeConfigError as error:
            raise DeltaMergeFailException(f"The values of this run make no valid merge: {error}") from error

    def execute(self, context: Context) -> Any:
        """Merge. With ``deferrable`` only start the merge; :meth:`execute_complete` goes on when Spark has ended.

        :return: the result as a dict; with ``merges`` a list of such dicts, with None for a skipped merge.
        :raises DeltaMergeException: when the merge fails;
            :class:`~airflow_delta_merge.task_exceptions.DeltaMergeFailException` if a retry can't help.
        :raises AirflowSkipException: when the source is empty and ``on_empty_source`` is ``skip``.
        """
        from airflow_delta_merge.lineage.openlineage import is_lineage_sent
        from airflow_delta_merge.operators.deferral import start_and_defer
        from airflow_delta_merge.operators.task_history import seconds_of_last_run
        from airflow_delta_merge.operators.task_identity import is_of_no_scheduler, merge_identity

        configs = self._merge_configs()
        self._announce_merges(configs)
        settings = self.hook.settings
        if self._is_killed:  # before there was a hook
            self.hook.on_kill()
        is_scheduled = not is_of_no_scheduler(context)
        if is_scheduled:  # dag.test() would show an error if there is no last run
            self.hook.preparation.expected_seconds = seconds_of_last_run(context.get("ti"))
        identity = merge_identity(context, settings.namespace) if self.exactly_once else None
        lineage = is_lineage_sent()
        with kept_at_the_end(self, context), guards_kept(self, context):
            # dag.test() resumes a task with the event alone, so it would fail after its merge, and merge again.
            if self.deferrable and is_scheduled:
                start_and_defer(self, context, configs, identity, lineage=lineage)
            keep_columns = self._columns.__setitem__ if lineage else None
            arguments: dict[str, Any] = {
                "identity": identity,
                "max_commit_attempts": self.max_commit_attempts,
                "on_application": partial(link_application, self, context),
            }
            results: Sequence[MergeResult | None]
            with skipped_if_empty(configs[0].guards.on_empty_source):
                if self.merges is not None:
                    results = self.hook.merge_all(configs, on_lineage=keep_columns, **arguments)
                else:
                    keep_only = keep_columns and partial(keep_columns, 0)
                    results = [self.hook.merge(configs[0], on_lineage=keep_only, **arguments)]
            return self._complete(context, [config.target for config in configs], results)

    def arguments_to_resume(self) -> dict[str, Any]:
        """Further arguments of :meth:`execute_complete`; Airflow stores them in plain text."""
        return {}

    def _announce_merges(self, configs: Sequence[MergeConfig | MergeStatement]) -> None:
        """Begin the log with what is merged; Airflow's UI folds the statement."""
        self.log.info("%s", announce(configs))
        self.log.info("::group::Statement")
        self.log.info("%s", ";\n\n".join(map(readable_statement, configs)))
        self.log.info("::endgroup::")

    def execute_complete(
        self,
        context: Context,
        event: Mapping[str, Any],
        *,
        started: Mapping[str, Any],
        targets: Sequence[Mapping[str, Any]],
        on_empty_source: str,
        exactly_once: bool,
    ) -> Any:
        """Take the result of the merge that :meth:`execute` has started.

        :param event: how the Spark application ended, from the trigger.
        :param started: the application, as a dict.
        :param targets: the target of that merge, or of each of ``merges``, as dicts.
        :param on_empty_source: the ``on_empty_source`` of a single merge.
        :param exactly_once: whether the merge had an identity.
        :return: as :meth:`execute`.
        :raises DeltaMergeException: as :meth:`execute`.
        :raises AirflowTaskTimeout: when the merge exceeded the task's ``execution_timeout``.
        """
        from airflow_delta_merge.launch.applications import application_of
        from airflow_delta_merge.launch.errors import raised_for_airflow, target_or_number, timed_out
        from airflow_delta_merge.launch.spark_application import ApplicationEnd

        with kept_at_the_end(self, context), guards_kept(self, context):
            with raised_for_airflow():
                end = ApplicationEnd.from_dict(event)
            end = self.hook.finish(application_of(started), end)
            merged = [MergeTarget.of(target) for target in targets]
            names = target_or_number(merged)
            if end.application is not None:
                keep_history_page(self, end.application)
            if end.timed_out:
                raise timed_out(names, exactly_once=exactly_once)
            keep_columns = self._columns.__setitem__
            with skipped_if_empty(on_empty_source):
                results = self.hook.results_of(end, names, exactly_once=exactly_once, on_lineage=keep_columns)
            return self._complete(context, merged, results)

    def _complete(self, context: Context, targets: Sequence[MergeTarget], results: Sequence[MergeResult | None]) -> Any:
        """Report what was merged: in the log, by the link to the commit, by asset events and to XCom."""
        if all(result is None for result in results):
            raise AirflowSkipException("No source of any merge has rows.")
        if self.merges is None and results[0] is not None:  # a task has one link
            link_commit(self, results[0])
        for position, (target, result) in enumerate(zip(targets, results, strict=True)):
            if result is not None:
                self.log.info("%s", describe(result, merges_url(context)))
                self._merged[position] = result
                add_asset_event(context, target, result, self.asset_events)
        returned = [None if result is None else result.to_dict() for result in results]
        return returned if self.merges is not None else returned[0]

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Give the counts that other tasks ask for most keys of their own in XCom.

        Airflow calls it after :meth:`execute` or :meth:`execute_complete`, Airflow 3 without the result.
        """
        super().post_execute(context, result)
        merged = self._merged.get(0)  # none if a subclass has decided not to merge
        if merged is not None and self.merges is None and self.do_xcom_push and not self.multiple_outputs:
            for key in COUNTS_WITH_KEYS:
                context["ti"].xcom_push(key=key, value=getattr(merged, key))

    def dry_run(self, *, logical_date: datetime | None = None, params: Mapping[str, Any] | None = None) -> None:
        """Log the statement and the exact counts of what it would change. Nothing is committed.

        :param logical_date: the date of the run for which templates are rendered, unless Airflow has rendered them.
        :param params: values for ``{{ params.… }}``; they take precedence over the DAG's.
        :raises MergeConfigError: before Spark starts, for a template that needs a real run or another task's output.
        :raises DeltaMergeException: when the merge would fail.
        """
        merge = self
        if not self._is_rendered:
            merge = rendered_without_run(self, logical_date=logical_date, params=params or {})
        for config in merge._merge_configs():
            merge._announce_merges([config])
            self.log.info("%s", describe_plan(merge.hook.plan(config)))

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any] | None:
        """Inputs and output, for Airflow's OpenLineage provider."""
        from airflow_delta_merge.lineage.openlineage import lineage_of_merges

        try:
            return lineage_of_merges(self._merge_configs(), self._merged, self._columns)
        except DeltaMergeFailException:  # the task says so itself
            return None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Inputs and output, with what was written; without it after a failure."""
        return self.get_openlineage_facets_on_start()

    def resolve_template_files(self) -> None:
        """Read the files that ``sql`` and ``source`` name; no other text that ends in ``.sql`` is a file's name."""
        read_template_files(self)
        self.prepare_template()

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render, and have Airflow mask the secrets among the values before it shows or stores them.

        Not ``render_template_fields``, which Airflow doesn't call for mapped tasks.
        """
        context = with_missing_dates(context)
        others = [name for name in template_fields if name not in DeltaMergeOperator.template_fields]
        try:
            super()._do_render_template_fields(parent, others, context, jinja_env, seen_oids)
            if parent is self:
                self._render_arguments(Renderer(context, jinja_env, seen_oids), self._arguments_of_tasks(context))
        except (UndefinedError, MergeConfigError) as error:
            raise DeltaMergeFailException(str(error)) from error

    def _arguments_of_tasks(self, context: Context) -> Collection[str]:
        return arguments_of_tasks(self, context)

    def _render_arguments(self, renderer: Renderer, of_tasks: Collection[str] = ()) -> None:
        """Give each argument its value in this run.

        :param of_tasks: the arguments that other tasks returned.
        :raises MergeConfigError: when a value is not allowed in any merge.
        """
        self.statement = None  # it contains values of this run, so it must not be rendered
        names = [name for name in self.template_fields if name in DeltaMergeOperator.template_fields]
        try:
            render_arguments(self, names, renderer, of_tasks)
        except MergeConfigError:
            self._mask_secrets()  # the error may quote a value
            raise
        self._is_rendered = True
        self._show_merge()

    def _show_merge(self) -> None:
        """Mask the secrets among the arguments, and show what they come to."""
        self._mask_secrets()
        if self.sql is None:
            with suppress(DeltaMergeFailException):  # execute says why they make no valid merge
                self.statement = statements_to_sql(self._merge_configs())

    def _mask_secrets(self) -> None:
        # Not all that is expected: a column's type is no secret, also if the column is called token.
        path = self.expect_source.get("failed_rows_path") if isinstance(self.expect_source, Mapping) else None
        mask_secrets(self.conf, self.jars, self.packages, self.target, self.source, path, self.merges, self.sql)

    def on_kill(self) -> None:
        """End the Spark application, or keep it from starting."""
        self._is_killed = True
        if "hook" in self.__dict__:
            self.hook.on_kill()
