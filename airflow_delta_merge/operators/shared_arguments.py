"""Checks the arguments that the tasks of a mapped operator share, when the DAG is parsed.

Airflow makes the tasks only in a run, so what they are mapped over isn't checked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_delta_merge.operators.arguments import PARTS_OF_A_MERGE, plain_part
from airflow_delta_merge.operators.many_merges import check_merges, plain_merges
from airflow_delta_merge.operators.parse_checks import check_arguments, stand_ins_beside


def check_shared_arguments(given: Mapping[str, Any]) -> None:
    """Check what ``partial`` says of a merge, beside other arguments of which nothing is known yet.

    :raises MergeConfigError: when no other arguments could make it valid.
    """
    known = {name: part for name, part in given.items() if part is not None and not isinstance(part, Iterator)}
    shared = {name: plain_part(name, part) for name, part in known.items() if name in PARTS_OF_A_MERGE}
    if "merges" in known:
        check_merges(plain_merges(known["merges"]), {**PARTS_OF_A_MERGE, **shared})
    else:
        check_arguments({**PARTS_OF_A_MERGE, **stand_ins_beside(shared), **shared})
