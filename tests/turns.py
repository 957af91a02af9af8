"""Which commit runs what of that which is too much for each: one way of a test, one in ten tests."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: In how many commits each of the tests runs that are marked ``in_turns``.
TURNS = 10
#: The fixture ``in_turn``: of the ways that a test can go, those that it goes in this run.
InTurn = Callable[[Iterable[str]], list[str]]


def one_in_turn(ways: Sequence[str], test: str, turn: int) -> str:
    """One way, another one for the same test at the next commit, so that all ways meet all tests in a few.

    :param test: what tells the test from others, which begin with other ways.
    :param turn: a number that changes from commit to commit.
    """
    return ways[(turn + int(hashlib.sha256(test.encode()).hexdigest(), 16)) % len(ways)]


@cache
def commits_so_far() -> int:
    """The number of commits."""
    return int(_git("rev-list", "--count", "HEAD") or 0)


def seed_of_commit() -> int:
    """A number that is another one for each commit, from which statements are made up."""
    return int(_git("rev-parse", "--short=8", "HEAD") or "0", 16)


def _git(*arguments: str) -> str:
    """What git says; nothing outside a repository."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""
