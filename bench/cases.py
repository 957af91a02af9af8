"""All cases, and how they are chosen by name."""

from __future__ import annotations

from collections.abc import Sequence

from bench.case import Case
from bench.own_cases import own_cases
from bench.real_files import real_files_cases
from bench.tpch import tpch_cases
from bench.web_returns import web_returns_cases

CASES: tuple[Case, ...] = (*own_cases(), *real_files_cases(), *web_returns_cases(), *tpch_cases())
#: A minute's look: one case of each regime.
QUICK = ("one_day_of_a_year", "delete_spread_thin_dv", "late_data_over_all_files", "small_table")


def choose(names: Sequence[str]) -> list[Case]:
    """The cases of these names or groups, in their usual order; without names the default ones.

    :raises ValueError: when a name is neither a case nor a group.
    """
    if not names:
        return [case for case in CASES if case.in_default]
    known = {case.name for case in CASES} | {case.group for case in CASES}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"No case and no group is named {', '.join(unknown)}; --list shows them all.")
    return [case for case in CASES if case.name in names or case.group in names]
