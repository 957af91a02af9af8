"""Checks the arguments of mapped operators when the DAG is parsed; Airflow makes their tasks only in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from airflow_delta_merge.config.checks import is_output
from airflow_delta_merge.operators.mapped_arguments import default_args_of
from airflow_delta_merge.operators.named_errors import task_named

if AIRFLOW_V_3_0_PLUS or TYPE_CHECKING:
    from airflow.sdk.definitions.mappedoperator import MappedOperator, OperatorPartial
else:
    from airflow.models.mappedoperator import MappedOperator, OperatorPartial

#: Airflow's own limit for the tasks of one mapped operator, unless it is configured. Parsing must stay short.
_MOST_CHECKED = 1024


def checked_partial(
    operator: Any, partial: Callable[..., OperatorPartial], kwargs: Mapping[str, Any]
) -> OperatorPartial:
    """Airflow's ``partial``, which checks the arguments, unless the class is somebody's own with other ones.

    :param operator: the class, whose ``_check_given`` checks some of its arguments, as far as they are known, or with
        ``is_all=True`` all of them.
    :param partial: Airflow's own.
    """
    is_ours = _takes_our_arguments(operator)
    if is_ours:
        with task_named(kwargs.get("task_id")):
            operator._check_given(kwargs)
    shared = partial(**kwargs)
    if is_ours:
        shared.__class__ = CheckedPartial
    return shared


def _takes_our_arguments(operator: Any) -> bool:
    """Whether a class has the arguments that it checks: one with an ``__init__`` of its own may set some itself."""
    first = next(each for each in operator.__mro__ if vars(each).keys() & {"__init__", "_check_given"})
    return "_check_given" in vars(first)


class CheckedPartial(OperatorPartial):
    """The arguments that mapped tasks share, checked together with the values in the DAG that they are mapped over."""

    __slots__ = ()

    def expand(self, **mapped_kwargs: Any) -> MappedOperator:
        mapped = super().expand(**mapped_kwargs)
        templated = self.operator_class.template_fields
        # The tasks get what another task returns, also for an argument that isn't templated.
        known = {
            name: _values(over) for name, over in mapped_kwargs.items() if name in templated or not is_output(over)
        }
        for values in islice(product(*known.values()), _MOST_CHECKED):
            self._check(dict(zip(known, values, strict=True)), is_all=len(known) == len(mapped_kwargs))
        return mapped

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        mapped = super().expand_kwargs(kwargs, strict=strict)
        for number, values in enumerate([] if is_output(kwargs) else kwargs):
            if not is_output(values):
                self._check(values, f" of map index {number}")
        return mapped

    def _check(self, values: Mapping[str, Any], which: str = "", *, is_all: bool = True) -> None:
        dag = self.kwargs.get("dag")
        given = {**default_args_of(dag, self.kwargs.get("task_group")), **self.kwargs, **values}
        operator: Any = self.operator_class
        with task_named(self.kwargs["task_id"], which):
            operator._check_given(given, is_all=is_all and dag is not None)


def _values(mapped: Any) -> Collection[Any]:
    """What tasks are mapped over: each value in the DAG, or what another task returns."""
    if is_output(mapped):
        return [mapped]
    return mapped.items() if isinstance(mapped, Mapping) else mapped
