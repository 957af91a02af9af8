"""The faults that the suite is tested by: their texts stand in the package, and the tests that look for them exist."""

from __future__ import annotations

import ast

import pytest

from tests.of_tests.check import PROJECT
from tests.of_tests.faults import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_text_stands_in_the_package_once(fault: Fault) -> None:
    text = (PROJECT / fault.file).read_text()
    assert text.count(fault.before) == 1
    assert fault.after != fault.before


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_faulty_file_is_python(fault: Fault) -> None:
    ast.parse((PROJECT / fault.file).read_text().replace(fault.before, fault.after))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_tests_that_look_for_it_exist(fault: Fault) -> None:
    assert fault.tests
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert f"def {name or 'test_'}" in (PROJECT / "tests" / path).read_text()


def test_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
