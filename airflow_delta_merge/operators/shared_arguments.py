"""Checks some of the operator's arguments when the DAG is parsed, as those that mapped tasks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_delta_merge.operators.arguments import PARTS_OF_A_MERGE, plain_part
from airflow_delta_merge.operators.many_merges import check_merges, plain_merges
from airflow_delta_merge.operators.parse_checks import check_arguments, check_options, stand_ins_beside
from airflow_delta_merge.operators.spark_options import check_spark_options


def check_given(given: Mapping[str, Any], *, is_all: bool = False) -> None:
    """Check some of the operator's arguments, as far as they are known.

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
