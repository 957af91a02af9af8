"""The list of error conditions is true and whole: see ``make errors``."""

from __future__ import annotations

import re

from tests.differential.errors import DOCUMENT, cases_by_condition, document, known_conditions
from tests.differential.merge_errors import SECTIONS
from tests.differential.other_errors import OTHER_STATEMENTS

RAISED = [name for section in SECTIONS for name in section.raised]
UNREACHABLE = [name for section in SECTIONS for name in section.unreachable]


def test_every_condition_exists() -> None:
    delta, spark = known_conditions()
    for name in RAISED + UNREACHABLE:
        main, _, detail = name.partition(".")
        known = delta.get(main) or spark.get(main)
        assert known, f"neither Delta nor Spark has {main}"
        assert not detail or detail in known["subClass"], f"{main} has no {detail}"
        assert not name.startswith("DELTA_") or main in delta


def test_no_condition_is_listed_twice() -> None:
    assert len(RAISED + UNREACHABLE) == len({*RAISED, *UNREACHABLE})


def test_every_condition_has_a_case_or_a_reason() -> None:
    cases = cases_by_condition()
    assert [name for name in RAISED if name not in cases] == []
    assert [name for name in UNREACHABLE if name in cases] == [], "a case raises what is said to be out of reach"
    assert all(reason for section in SECTIONS for reason in section.unreachable.values())


def test_every_condition_of_a_case_is_listed() -> None:
    unconditional = {name for name in cases_by_condition() if not name.isupper()}  # exceptions without a condition
    assert unconditional == {"org.apache.spark.sql.delta.ColumnMappingException"}
    assert {*cases_by_condition()} - {*RAISED} - unconditional == set()


def test_every_condition_of_delta_is_a_merges_or_another_statements() -> None:
    delta, _ = known_conditions()
    listed = {name.partition(".")[0] for name in RAISED + UNREACHABLE}
    patterns = [pattern for patterns in OTHER_STATEMENTS.values() for pattern in patterns]
    others = {name for name in delta if any(re.fullmatch(pattern, name) for pattern in patterns)}
    assert sorted({*delta} - listed - others) == []
    assert [p for p in patterns if not any(re.fullmatch(p, name) for name in delta)] == []


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text("utf-8") == document(), "run `make errors ARGS=--write`"
