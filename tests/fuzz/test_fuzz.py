"""Statements that nobody thought of, on tables that nobody made: both engines must still agree.

``pytest tests/fuzz --fuzz-examples 1000`` makes up that many statements; ``--fuzz-seed N`` repeats a run. A failure is
printed with its seed, the table's and the merge's SQL, shrunk by hypothesis to the least that still fails.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.cases import Case
from tests.differential.harness import Harness
from tests.fuzz.statements import STATEMENTS_PER_TABLE, cases

FEW = 5  # in the normal suite, always the same ones


def test_both_engines_agree_on_made_up_statements(engines: Harness, request: pytest.FixtureRequest) -> None:
    examples = request.config.getoption("--fuzz-examples")
    start = request.config.getoption("--fuzz-seed")
    if start is None:
        start = 1 if examples is None else random.randrange(2**32)
    print(f"fuzz: --fuzz-seed {start} --fuzz-examples {examples or FEW}")
    outcomes: Counter[str] = Counter()

    @seed(start)
    @settings(
        max_examples=-(-(examples or FEW) // STATEMENTS_PER_TABLE),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(some=cases())
    def agree(some: list[Case]) -> None:
        for case in some:
            try:
                outcomes[engines.check_anything(case)] += 1
            except BaseException as failure:
                print(f"fuzz: {failure}", flush=True)  # hypothesis tells of it when it is shrunk, in some minutes
                raise
        if outcomes.total() % 100 == 0:
            print(f"fuzz: {outcomes.total()} statements", flush=True)
        engines.forget(some[0].table)

    try:
        agree()
    finally:
        print(f"fuzz: {outcomes.total()} statements: {dict(outcomes)}")
