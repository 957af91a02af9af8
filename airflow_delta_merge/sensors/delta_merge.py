"""The sensor that waits for a merge, by its task or by its table's log, and checks its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    PokeReturnValue,
    TaskInstanceState,
    conf,
    determine_kwargs,
)

from airflow_delta_merge.contract.identity import application_id
from airflow_delta_merge.contract.result import MergeResult, is_whole_number
from airflow_delta_merge.exceptions import MergeResultError
from airflow_delta_merge.history.awaited import RecordedMerge
from airflow_delta_merge.operators.named_errors import names_its_task
from airflow_delta_merge.sensors.other_tasks import task_states, xcom_of
from airflow_delta_merge.sensors.table_log import (
    TableLogSensor,
    check_number,
    check_text,
    whole_number,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger

COUNTS = tuple(field.name for field in fields(MergeResult) if field.name.startswith("num_"))

# What is only for a table's log.
_NEEDING_PATH = ("storage_options", "aws_conn_id", "azure_conn_id", "gcp_conn_id", "namespace", "deferrable")
# With one of these a task of the sensor's own id is another one.
_OF_ANOTHER_RUN = ("external_dag_id", "execution_delta", "execution_date_fn", "external_run_id", "path")

# Airflow's map_index of a task that isn't mapped.
_OF_UNMAPPED = -1

# How the names of the counts of expectations begin.
_EXPECTATION = "failed_expectations."

# In these states the merge will not succeed, unless a user clears it (and with it the tasks that depend on it).
_LOST_STATES = (
    TaskInstanceState.FAILED,
    TaskInstanceState.UPSTREAM_FAILED,
    TaskInstanceState.SKIPPED,
    TaskInstanceState.REMOVED,
)


class DeltaMergeSensor(TableLogSensor):
    """Waits until a merge has succeeded, and succeeds if its result meets all conditions.

    It reads the merge's task and XCom in this Airflow or, with ``path``, the merge's record in its table's log, from
    any Airflow. For a task with ``merges`` it checks all results, which is not possible with ``path``.

    The result of a finished merge doesn't change. So if a condition isn't met, the sensor fails immediately, without
    retries, instead of poking until its timeout; with ``soft_fail=True`` it is skipped. The same applies if the merge
    failed or was skipped. This makes it a gate after a merge.

    The sensor's XCom is the checked result (a list of results, if there are several).

    :param external_task_id: the task that merges. (templated)
    :param external_dag_id: its DAG; by default the sensor's own. (templated)
    :param map_index: the instance of a mapped task to wait for. By default all of them, and each must meet the
        conditions. (templated)
    :param at_least: minimum values, whole numbers, of the ``num_…`` counts of a
        :class:`~airflow_delta_merge.contract.result.MergeResult`, e.g. ``{"num_inserted_rows": 1}``. The count
        of an expectation is ``failed_expectations.<its name>``. No bound on a count that is None is met.
    :param at_most: maximum values, likewise, e.g. ``{"num_deleted_rows": 0}``.
    :param condition: a callable that takes the :class:`~airflow_delta_merge.contract.result.MergeResult` and returns
        whether the sensor succeeds.
    :param execution_delta: how much earlier the awaited run's logical date is; by default not at all, so within one DAG
        it is the sensor's own run.
    :param execution_date_fn: a callable that takes the logical date, and context variables by name, and returns one or
        several logical dates to wait for.
    :param external_run_id: the awaited run's id, for runs without a logical date. With ``path`` it is by default the
        sensor's own run id, which is the same interval's if both DAGs have the same schedule. (templated)
    :param path: the folder or URI of the merge's table, to find the merge in the table's log. The merge must be
        ``exactly_once`` and have had something to commit. For a mapped task, ``map_index`` selects one instance.
        Needs the extra ``deltalake``. (templated)
    :param storage_options: with ``path``: access to the storage, by the names of ``deltalake`` (``AWS_ACCESS_KEY_ID``
        …); values that look like secrets are masked. (templated)
    :param aws_conn_id: with ``path``, for a table in S3: a connection of type ``aws``, read as for merges;
        ``storage_options`` take precedence.
    :param azure_conn_id: the same for a table in Azure's storage: a connection of type ``wasb`` or ``adls``.
    :param gcp_conn_id: the same for a table in Google Cloud Storage: one of type ``google_cloud_platform``.
    :param namespace: with ``path``: the namespace of the Airflow that merges; by default this one's, ``[delta_merge]
        namespace`` of its configuration. (templated)
    :param deferrable: with ``path``: whether to wait in the triggerer, without a worker slot; by default
        ``[operators] default_deferrable``. Without ``path``, use ``mode="reschedule"`` to free the slot.
    :raises ValueError: when the DAG is parsed, for arguments that are invalid or don't fit together.
    """

    template_fields: Sequence[str] = (
        "external_task_id",
        "external_dag_id",
        "map_index",
        "external_run_id",
        "path",
        "storage_options",
        "namespace",
    )
    texts = ("external_task_id", "external_dag_id", "external_run_id", "path", "namespace")
    ui_color = "#c9f0c9"

    @names_its_task
    def __init__(
        self,
        *,
        external_task_id: str,
        external_dag_id: str | None = None,
        map_index: int | str | None = None,
        at_least: Mapping[str, int] | None = None,
        at_most: Mapping[str, int] | None = None,
        condition: Callable[[MergeResult], bool] | None = None,
        execution_delta: timedelta | None = None,
        execution_date_fn: Callable[..., datetime | Sequence[datetime]] | None = None,
        external_run_id: str | None = None,
        path: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        aws_conn_id: str | None = None,
        azure_conn_id: str | None = None,
        gcp_conn_id: str | None = None,
        namespace: str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.external_task_id = external_task_id
        self.external_dag_id = external_dag_id
        self.map_index = map_index
        self.at_least = at_least or {}
        self.at_most = at_most or {}
        self.condition = condition
        self.execution_delta = execution_delta
        self.execution_date_fn = execution_date_fn
        self.external_run_id = external_run_id
        self.path = path
        self.storage_options: Any = storage_options
        self.aws_conn_id = aws_conn_id
        self.azure_conn_id = azure_conn_id
        self.gcp_conn_id = gcp_conn_id
        self.namespace = namespace
        if deferrable is None:
            deferrable = path is not None and conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        self._check_given(vars(self), is_all=True)
        self._make_plain()

    @classmethod
    def _check_given(cls, given: Mapping[str, Any], *, is_all: bool = False) -> None:
        super()._check_given(given, is_all=is_all)
        for name in ("external_task_id", "external_dag_id", "external_run_id", "namespace"):
            if given.get(name) not in (None, ""):
                check_text(name, given[name])
        check_number("map_index", given.get("map_index"), least=_OF_UNMAPPED)
        for name in ("at_least", "at_most"):
            _check_bounds(name, given.get(name))
        _check_kinds(given)
        _check_together(given)
        if is_all:
            _check_whole(given)

    def _look(self, context: Context) -> PokeReturnValue:
        """Check the merge's state, or its table's log, and after success its result."""
        if self.path is not None:
            return self._poke_log(context)
        dag_id = self.external_dag_id or context["ti"].dag_id
        awaited = self._awaited_runs(context, dag_id)
        states = task_states(
            context["ti"], dag_id=dag_id, task_id=self.external_task_id, map_index=self._map_index(), **awaited
        )
        instances = [
            (run_id, name, state) for run_id, of_run in states.items() for name, state in _expanded(of_run).items()
        ]
        self._check_not_lost(dag_id, instances)
        runs_missing = len(states) < max(len(runs) for runs in awaited.values())
        if runs_missing or any(state != TaskInstanceState.SUCCESS for _, _, state in instances):
            self.log.info("Waiting for %s.%s: %s", dag_id, self.external_task_id, dict(states) or "no such run yet")
            return PokeReturnValue(is_done=False)
        dicts = []
        for run_id, name, _ in instances:
            for result in self._read_results(context, dag_id, run_id, name):
                self._check_conditions(f"{dag_id}.{name} (run {run_id})", result)
                dicts.append(result.to_dict())
        return PokeReturnValue(is_done=True, xcom_value=dicts[0] if len(dicts) == 1 else dicts)

    def _trigger(self, context: Context) -> BaseTrigger:
        from airflow_delta_merge.triggers.delta_table import RecordedMergeTrigger

        condition = self._recorded_merge(context).to_dict()
        return RecordedMergeTrigger(condition=condition, poke_interval=self.poke_interval, silent_fail=self.silent_fail)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Check what the trigger found."""
        return self._checked(context, self._found_by(event))

    def _poke_log(self, context: Context) -> PokeReturnValue:
        merge = self._recorded_merge(context)
        found = merge.found()
        if found is None:
            self.log.info("Waiting for the merge %s in the log of %s", merge.application_id, merge.path)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._checked(context, found))

    def _recorded_merge(self, context: Context) -> RecordedMerge:
        assert self.path is not None
        map_index = self._map_index()
        namespace = conf.get("delta_merge", "namespace", fallback="") if self.namespace is None else self.namespace
        return RecordedMerge(
            path=self.path,
            storage_options=self.storage_options,
            aws_conn_id=self.aws_conn_id,
            azure_conn_id=self.azure_conn_id,
            gcp_conn_id=self.gcp_conn_id,
            application_id=application_id(
                namespace=namespace,
                dag_id=self.external_dag_id or context["ti"].dag_id,
                task_id=self.external_task_id,
                run_id=self.external_run_id or context["ti"].run_id,
                map_index=-1 if map_index is None else map_index,
            ),
        )

    def _checked(self, context: Context, found: Mapping[str, Any]) -> dict[str, Any] | None:
        """The recorded result, once it meets the conditions."""
        who = f"{self._recorded_merge(context).application_id} into {self.path}"
        if found["result"] is not None:
            result = MergeResult.from_dict(found["result"])
            self._check_conditions(who, result)
            return result.to_dict()
        lost = f"The merge {who} is committed, but its record is no longer in the table's log"
        if self.at_least or self.at_most or self.condition is not None:
            self._give_up(
                f"{lost}, so its counts can't be checked. Remove the sensor's conditions to wait only for the commit."
            )
        self.log.warning("%s, so there is no XCom.", lost)
        return None

    def _awaited_runs(self, context: Context, dag_id: str) -> dict[str, list[Any]]:
        """The awaited runs, as an argument of :func:`~airflow_delta_merge.sensors.other_tasks.task_states`."""
        if self.external_run_id is not None:
            return {"run_ids": [self.external_run_id]}
        if dag_id == context["ti"].dag_id and self.execution_delta is None and self.execution_date_fn is None:
            if not context["dag"].has_task(self.external_task_id):
                self._give_up(f"The DAG {dag_id} has no task {self.external_task_id!r}. Correct external_task_id.")
            return {"run_ids": [context["ti"].run_id]}
        logical_date = context.get("logical_date")
        if logical_date is None:
            self._give_up(
                f"This run has no logical date, so it does not determine the run of {dag_id} to wait for. Set "
                "external_run_id."
            )
        if self.execution_delta is not None:
            return {"logical_dates": [logical_date - self.execution_delta]}
        if self.execution_date_fn is not None:
            # The context also has a logical_date, and determine_kwargs refuses a name that is given twice.
            first = next(iter(signature(self.execution_date_fn).parameters), None)
            others = {name: value for name, value in context.items() if name != first}
            by_name = determine_kwargs(self.execution_date_fn, (logical_date,), others)
            return {"logical_dates": self._checked_dates(self.execution_date_fn(logical_date, **by_name))}
        return {"logical_dates": [logical_date]}

    def _checked_dates(self, returned: Any) -> list[datetime]:
        """The dates that ``execution_date_fn`` returned, each once."""
        dates = list(returned) if isinstance(returned, Iterable) else [returned]
        if not dates or not all(isinstance(date, datetime) for date in dates):
            self._give_up(
                f"execution_date_fn returned {returned!r}, but must return a logical date, or a list of one or more."
            )
        return list(dict.fromkeys(dates))

    def _map_index(self) -> int | None:
        return whole_number("map_index", self.map_index, least=_OF_UNMAPPED)

    def _check_not_lost(self, dag_id: str, instances: Sequence[tuple[str, str, str | None]]) -> None:
        for run_id, name, state in instances:
            if state in _LOST_STATES:
                self._give_up(
                    f"The merge {dag_id}.{name} (run {run_id}) is {state}, so it has no result. Fix the cause, which "
                    "its log shows, then clear the merge and this sensor."
                )

    def _read_results(self, context: Context, dag_id: str, run_id: str, name: str) -> list[MergeResult]:
        """The result of a merge; for a task with ``merges``, the results of all that were not skipped."""
        suffix = name.removeprefix(self.external_task_id)
        map_index = int(suffix.removeprefix("_")) if suffix else None
        value = xcom_of(context["ti"], dag_id=dag_id, task_id=self.external_task_id, run_id=run_id, map_index=map_index)
        try:
            values = [each for each in value if each is not None] if isinstance(value, list) else [value]
            if not values or not all(isinstance(each, Mapping) for each in values):
                raise MergeResultError("It returned no merge result.")
            return [MergeResult.from_dict(each) for each in values]
        except MergeResultError as error:
            self._give_up(
                f"{dag_id}.{name} (run {run_id}) has succeeded, but its XCom is not a merge's result: {error} Set "
                "external_task_id to a DeltaMergeOperator with do_xcom_push=True."
            )

    def _check_conditions(self, who: str, result: MergeResult) -> None:
        for bounds, word, is_met in (
            (self.at_least, "at least", int.__ge__),
            (self.at_most, "at most", int.__le__),
        ):
            for name, bound in bounds.items():
                value = _count(result, name)
                if value is None or not is_met(value, bound):  # not counted is not met
                    self._give_up(f"The merge {who} has {name} = {value}, but must have {word} {bound}.")
        if self.condition is not None and not self.condition(result):
            called = getattr(self.condition, "__name__", repr(self.condition))
            self._give_up(f"The merge {who} does not meet the condition {called}: {result.to_json()}")

    def _give_up(self, reason: str) -> NoReturn:
        if self.soft_fail:
            raise AirflowSkipException(reason)
        raise AirflowFailException(reason)


def _expanded(states: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The states without instances that a mapped task is no longer expanded to, if there are others."""
    return {name: state for name, state in states.items() if state != TaskInstanceState.REMOVED} or states


def _count(result: MergeResult, name: str) -> int | None:
    """A count of a result; None if the merge didn't count it."""
    if name.startswith(_EXPECTATION):
        return result.failed_expectations.get(name.removeprefix(_EXPECTATION))
    count: int | None = getattr(result, name)
    return count


def _check_kinds(given: Mapping[str, Any]) -> None:
    condition, delta, date_fn = (given.get(name) for name in ("condition", "execution_delta", "execution_date_fn"))
    if condition is not None and not callable(condition):
        raise ValueError(f"condition must be a callable that takes the MergeResult, got {condition!r}.")
    if delta is not None and not isinstance(delta, timedelta):
        raise ValueError(f"execution_delta must be a timedelta, got {delta!r:.80}.")
    if date_fn is not None and not callable(date_fn):
        raise ValueError(f"execution_date_fn must be a callable that takes a date, got {date_fn!r:.80}.")


def _check_together(given: Mapping[str, Any]) -> None:
    """Check what excludes each other."""
    by_task = [name for name in ("execution_delta", "execution_date_fn") if given.get(name) is not None]
    if by_task and given.get("path") is not None:
        raise ValueError(
            f"{by_task[0]} is not available with path, because a table's log has only the ids of runs. Set "
            "external_run_id instead."
        )
    if len(by_task) + (given.get("external_run_id") is not None) > 1:
        raise ValueError("execution_delta, execution_date_fn and external_run_id exclude each other. Set only one.")


def _check_whole(given: Mapping[str, Any]) -> None:
    """Check what the arguments lack."""
    check_text("external_task_id", given.get("external_task_id"))
    if given.get("path") is None:
        for name in _NEEDING_PATH:
            if given.get(name) is not None and given[name] is not False:
                raise ValueError(f"{name} needs path. Set path, or remove {name}.")
    if given["external_task_id"] == given["task_id"] and all(given.get(name) is None for name in _OF_ANOTHER_RUN):
        raise ValueError(
            f"The sensor {given['task_id']!r} waits for itself. Set external_task_id to the task that merges."
        )


def _check_bounds(argument: str, bounds: Any) -> None:
    if bounds is not None and not isinstance(bounds, Mapping):
        raise ValueError(f'{argument} must be a dict like {{"num_inserted_rows": 1}}, got {bounds!r}.')
    for name, bound in (bounds or {}).items():
        if name not in COUNTS and not str(name).startswith(_EXPECTATION):
            raise ValueError(f"{argument} has the unknown count {name!r}. Known are: {', '.join(COUNTS)}.")
        if not is_whole_number(bound):
            raise ValueError(f"{argument}[{name!r}] must be a whole number, got {bound!r}.")
