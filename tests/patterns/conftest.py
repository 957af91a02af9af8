"""How many random histories each pattern goes through."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


@pytest.fixture
def few(request: pytest.FixtureRequest) -> settings:
    """Each merge of a history takes some seconds: two histories, always the same, or five when all cases run.

    The first one that hypothesis makes is always the simplest.
    """
    examples = 5 if request.config.getoption("--slow") else 2
    checks = list(HealthCheck)
    return settings(max_examples=examples, derandomize=True, database=None, suppress_health_check=checks)
