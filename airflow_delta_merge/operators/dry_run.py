"""Renders an operator without a run, for a dry run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
from jinja2 import StrictUndefined, UndefinedError

from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import outputs_in
from airflow_delta_merge.operators.rendering import Renderer

if TYPE_CHECKING:
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator


def rendered_without_run(
    operator: DeltaMergeOperator, *, logical_date: datetime | None, params: Mapping[str, Any]
) -> DeltaMergeOperator:
    """A copy of an operator rendered as in a run on this date, without a real run.

    :param logical_date: the run's date, for ``{{ ds }}`` and the like; also used as ``dag_run.run_after``.
    :param params: values that override the DAG's own params.
    :raises MergeConfigError: for an output of another task, or a template that needs other variables.
    """
    made = copy.copy(operator)
    made.__dict__.pop("hook", None)
    made.resolve_template_files()
    for field in made.template_fields:
        if tasks := outputs_in(getattr(made, field)):
            raise MergeConfigError(
                f"A dry run doesn't know {field}, because it comes from the task {', '.join(tasks)}. Set it to a value "
                "that the task would return."
            )
    context = _context(made, logical_date, params)
    env = made.get_template_env(made.get_dag()).overlay(undefined=StrictUndefined)
    try:
        made._render_arguments(Renderer(context, env))
    except UndefinedError as error:
        raise MergeConfigError(
            f"A dry run can't render {error.message}. Call dry_run(logical_date=…, "
            "params={…}), or set the argument to its value."
        ) from error
    return made


def _context(operator: DeltaMergeOperator, logical_date: datetime | None, params: Mapping[str, Any]) -> Any:
    """The template variables that exist without a run."""
    if AIRFLOW_V_3_0_PLUS:
        from airflow.sdk.execution_time.context import ConnectionAccessor, MacrosAccessor, VariableAccessor

        macros: Any = MacrosAccessor()
    else:
        from airflow import macros
        from airflow.utils.context import ConnectionAccessor, VariableAccessor

    dag = operator.get_dag()
    task = SimpleNamespace(dag_id=operator.dag_id, task_id=operator.task_id, map_index=-1, try_number=1, task=operator)
    context = {
        "dag": dag,
        "task": operator,
        "ti": task,
        "task_instance": task,
        "params": {**(dag.params if dag is not None else {}), **operator.params, **params},
        "macros": macros,
        "var": {"value": VariableAccessor(deserialize_json=False), "json": VariableAccessor(deserialize_json=True)},
        "conn": ConnectionAccessor(),
    }
    return context if logical_date is None else context | _of_date(operator.dag_id, logical_date)


def _of_date(dag_id: str, logical_date: datetime) -> dict[str, Any]:
    """The template variables of a run's date, as in Airflow's own context."""
    date = pendulum.instance(logical_date)
    day, moment = date.strftime("%Y-%m-%d"), date.isoformat()
    return {
        "logical_date": date,
        "dag_run": SimpleNamespace(dag_id=dag_id, logical_date=date, run_after=date, conf={}),
        "ds": day,
        "ds_nodash": day.replace("-", ""),
        "ts": moment,
        "ts_nodash": date.strftime("%Y%m%dT%H%M%S"),
        "ts_nodash_with_tz": moment.replace("-", "").replace(":", ""),
    }
