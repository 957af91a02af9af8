"""Which arguments of a mapped task are values that another task returned, and so must not be rendered.

Airflow tells by the values' ids, but not for ``expand_kwargs``, and not once a value was copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.config.checks import is_output
from airflow_delta_merge.operators.rendering import none_in_this_run

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator


def arguments_of_tasks(operator: BaseOperator, context: Any) -> Collection[str]:
    """The names of a mapped operator's templated arguments that another task may have returned.

    :raises MergeConfigError: when one of them is given by a task that returned None for it.
    """
    mapped, given = _mapped(operator)
    if isinstance(given, Mapping):
        names = passed = [name for name, value in given.items() if is_output(value)]
    elif _is_in_the_dag(given, context):
        return ()
    else:
        given_to_init = getattr(operator, "_BaseOperator__init_kwargs", {})
        in_the_dag = {*mapped.partial_kwargs, *_of_default_args(operator, given_to_init)}
        names = [name for name in operator.template_fields if name not in in_the_dag]
        # Not those that have their default.
        passed = [name for name in given_to_init if name in names]
    for name in passed:
        if getattr(operator, name, "") is None:
            raise none_in_this_run(name)
    return names


def default_args_of(dag: Any, group: Any) -> dict[str, Any]:
    """What the DAG and the task group give their tasks as defaults."""
    return {**(dag.default_args if dag else {}), **(group.default_args if group else {})}


def _of_default_args(operator: BaseOperator, given: Mapping[str, Any]) -> list[str]:
    """The names of the arguments that ``default_args`` gave, which another task's value would have replaced."""
    defaults = default_args_of(operator.get_dag(), getattr(operator, "task_group", None))
    return [name for name, value in given.items() if name in defaults and value is defaults[name]]


def values_of_tasks(operator: Any, context: Any) -> set[int]:
    """The ids of the values among a mapped function's ``op_kwargs`` that another task returned."""
    mapped, given = _mapped(operator)
    if isinstance(given, Mapping) or _is_in_the_dag(given, context):
        return set()  # Airflow knows those of expand()
    partial = mapped.partial_kwargs["op_kwargs"]
    return {part for name, value in operator.op_kwargs.items() if name not in partial for part in _ids(value)}


def _mapped(operator: BaseOperator) -> tuple[Any, Any]:
    """The task as the DAG has it, and what it is mapped over; nothing for a task that isn't mapped."""
    dag = operator.get_dag()
    task: Any = None if dag is None else dag.task_dict.get(operator.task_id)
    expand_input = getattr(task, "_get_specified_expand_input", None)
    return task, {} if expand_input is None else expand_input().value


def _is_in_the_dag(given: Any, context: Any) -> bool:
    """Whether the DAG file itself has the dict that ``expand_kwargs`` passes to this task."""
    return isinstance(given, Sequence) and isinstance(given[context["ti"].map_index], Mapping)


def _ids(value: Any) -> set[int]:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return {id(value), *(each for part in parts for each in _ids(part))}
