"""Statements that nobody thought of, on tables that nobody made or that others did: both engines must still agree.

``pytest tests/fuzz --fuzz-examples 1000`` makes up that many statements; ``--fuzz-seed N`` repeats a run. A failure is
printed with its seed, the table's and the merge's SQL, shrunk by hypothesis to the least that still fails.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.differential.cases import Case
from tests.differential.harness import Harness
from tests.fuzz.foreign_statements import foreign_cases
from tests.fuzz.statements import STATEMENTS_PER_TABLE, cases
from tests.turns import seed_of_commit

EXAMPLES = 100  # merges by this engine into each kind of table on each push; others at each commit
PARTS = 4  # which different workers can run


@pytest.mark.parametrize("part", range(PARTS))
def test_both_engines_agree_on_made_up_statements(part: int, engines: Harness, request: pytest.FixtureRequest) -> None:
    _try(cases(), part, engines, request.config)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_both_engines_agree_on_foreign_tables(part: int, engines: Harness, request: pytest.FixtureRequest) -> None:
    _try(foreign_cases(), part, engines, request.config)


def _try(strategy: SearchStrategy[list[Case]], part: int, engines: Harness, config: pytest.Config) -> None:
    if engines.recording:
        pytest.skip("made-up statements are not recorded")
    examples = config.getoption("--fuzz-examples") or EXAMPLES // max(1, len(engines.ways or ()))
    first = config.getoption("--fuzz-seed")
    start = (seed_of_commit() if first is None else first) + part
    _say(f"part {part}: --fuzz-seed {start - part} --fuzz-examples {examples}")
    outcomes: Counter[str] = Counter()

    @seed(start)
    @settings(
        max_examples=-(-examples // (STATEMENTS_PER_TABLE * PARTS)),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(some=strategy)
    def agree(some: list[Case]) -> None:
        for case in some:
            try:
                outcomes[engines.check_anything(case)] += 1
            except BaseException as failure:
                # Hypothesis tells of it when it is shrunk, in some minutes.
                _say(str(failure) if isinstance(failure, pytest.fail.Exception) else traceback.format_exc())
                raise
        if outcomes.total() % 100 == 0:
            _say(f"part {part}: {outcomes.total()} statements")

    try:
        agree()
    finally:
        _say(f"part {part}: {outcomes.total()} statements: {dict(outcomes)}")


def _say(what: str) -> None:
    print(f"fuzz: {what}", file=sys.stderr, flush=True)  # which pytest-xdist lets through with -s
