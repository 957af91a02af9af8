"""How the tests are spread over the workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import left_out
from tests.groups import FOLDERS, LONGEST, group_of, is_spare, place_of
from tests.turns import TURNS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("group", dict.fromkeys([*FOLDERS, *LONGEST]))
def test_each_named_group_exists(group: str) -> None:
    assert (ROOT / group).exists()
    nodeid = f"{group}/test_x.py::test_y" if group in FOLDERS else f"{group}::test_y"
    assert place_of(nodeid) == LONGEST.index(group)


def test_modules_that_share_an_airflow_are_one_group_and_others_are_one_each() -> None:
    together = {group_of(f"{FOLDERS[0]}/{name}.py::test_x[a::b]") for name in ("test_a", "test_b")}
    apart = {group_of(f"tests/unit/{name}.py::test_x[a::b]") for name in ("test_a", "test_b")}
    assert (len(together), len(apart)) == (1, 2)


def test_long_groups_come_first_and_the_others_keep_their_order() -> None:
    others = ["tests/differential/test_x.py::t", "tests/unit/test_x.py::t", "tests/unit/test_a.py::t"]
    names = [*others, f"{LONGEST[1]}::t", f"{LONGEST[0]}/t.py::t"]
    assert sorted(names, key=place_of) == [f"{LONGEST[0]}/t.py::t", f"{LONGEST[1]}::t", *others]


def test_differential_tests_that_share_nothing_are_spread_one_by_one_and_last() -> None:
    alone = [f"tests/differential/test_clauses.py::test_one_clause[{name}]" for name in ("update", "delete")]
    assert [group_of(nodeid) for nodeid in alone] == alone
    assert sorted([*alone, "tests/unit/test_x.py::t"], key=place_of) == ["tests/unit/test_x.py::t", *alone]


def test_parts_of_the_fuzz_are_spread_and_come_early() -> None:
    parts = [f"tests/fuzz/test_fuzz.py::test_both_engines_agree_on_made_up_statements[{part}]" for part in range(2)]
    assert [group_of(part) for part in parts] == parts
    assert {place_of(part) for part in parts} == {LONGEST.index("tests/fuzz/test_fuzz.py")}


def test_differential_tests_of_a_module_with_a_dear_fixture_stay_together() -> None:
    module = "tests/differential/test_catalogs.py"
    assert group_of(f"{module}::test_catalogs[a catalog of its own]") == module


@pytest.mark.parametrize(
    ("group", "of_others", "spare"),
    [
        ("single", [["single"], ["airflow", "single"]], True),
        ("single", [["single"], ["airflow"]], False),
        ("single", [["single"]], False),
        ("airflow", [["single"], ["single"]], False),
    ],
    ids=["each core is busy", "an Airflow waits", "a core is idle", "an Airflow that waits is next"],
)
def test_more_workers_than_cores_end_where_no_test_waits(group: str, of_others: list[list[str]], spare: bool) -> None:
    names = {"single": "tests/differential/test_clauses.py::test_one_clause[update]", "airflow": LONGEST[0]}
    assert is_spare(names[group], [[names[each] for each in groups] for groups in of_others], cores=2) == spare


class _Item:
    def __init__(self, *markers: str) -> None:
        self._markers = markers

    def get_closest_marker(self, name: str) -> bool:
        return name in self._markers


def test_each_test_that_takes_turns_runs_once_in_some_commits() -> None:
    always, slow, in_turns = _Item(), _Item("slow"), [_Item("in_turns") for _ in range(2 * TURNS + 1)]
    items: list[Any] = [always, slow, *in_turns]
    ran = Counter(item for turn in range(7, 7 + TURNS) for item in {*items} - left_out(items, turn=turn))
    assert ran == {always: TURNS, **dict.fromkeys(in_turns, 1)}
