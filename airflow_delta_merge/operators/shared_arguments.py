"""Checks the arguments of a mapped operator when the DAG is parsed; Airflow makes its tasks only in a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from airflow_delta_merge.config.checks import is_output
from airflow_delta_merge.operators.arguments import PARTS_OF_A_MERGE, plain_part
from airflow_delta_merge.operators.many_merges import check_merges, plain_merges
from airflow_delta_merge.operators.mapped_arguments import default_args_of
from airflow_delta_merge.operators.named_errors import task_named
from airflow_delta_merge.operators.parse_checks import check_arguments, check_options, stand_ins_beside
from airflow_delta_merge.operators.spark_options import check_spark_options

if AIRFLOW_V_3_0_PLUS or TYPE_CHECKING:
    from airflow.sdk.definitions.mappedoperator import MappedOperator, OperatorPartial
else:
    from airflow.models.mappedoperator import MappedOperator, OperatorPartial

#: Airflow's own limit for the tasks of one mapped operator, unless it is configured. Parsing must stay short.
_MOST_CHECKED = 1024


class CheckedPartial(OperatorPartial):
    """The arguments that mapped tasks share, checked together with the values in the DAG that they are mapped over."""

    __slots__ = ()

    def expand(self, **mapped_kwargs: Any) -> MappedOperator:
        mapped = super().expand(**mapped_kwargs)
        for values in islice(product(*map(_values, mapped_kwargs.values())), _MOST_CHECKED):
            self._check(dict(zip(mapped_kwargs, values, strict=True)))
        return mapped

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        mapped = super().expand_kwargs(kwargs, strict=strict)
        for number, values in enumerate([] if is_output(kwargs) else kwargs):
            if not is_output(values):
                self._check(values, f" of map index {number}")
        return mapped

    def _check(self, values: Mapping[str, Any], which: str = "") -> None:
        dag = self.kwargs.get("dag")
        given = {**default_args_of(dag, self.kwargs.get("task_group")), **self.kwargs, **values}
        with task_named(self.kwargs["task_id"], which):
            check_given(given, is_all=dag is not None)


def check_given(given: Mapping[str, Any], *, is_all: bool = False) -> None:
    """Check some of an operator's arguments, as far as they are known.

    :param is_all: whether there are no others.
    :raises MergeConfigError: when no other arguments could make them valid.
    """
    check_spark_options(given)
    check_options(given)
    known = {name: part for name, part in given.items() if part is not None and not isinstance(part, Iterator)}
    shared = {name: plain_part(name, part) for name, part in known.items() if name in PARTS_OF_A_MERGE}
    if "merges" in known:
        check_merges(plain_merges(known["merges"]), {**PARTS_OF_A_MERGE, **shared})
    else:
        stand_ins = stand_ins_beside(shared).items()
        needed = {name: part for name, part in stand_ins if not is_all or given.get(name) is not None}
        check_arguments({**PARTS_OF_A_MERGE, **needed, **shared})


def _values(mapped: Any) -> Collection[Any]:
    """What tasks are mapped over: each value in the DAG, or what another task returns."""
    if is_output(mapped):
        return [mapped]
    return mapped.items() if isinstance(mapped, Mapping) else mapped
