"""The strategies of a merge, tried in order."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_delta_merge.engine.strategies.facts import Facts
from airflow_delta_merge.engine.strategies.insert_only import InsertOnly
from airflow_delta_merge.engine.strategies.one_pass import OnePass
from airflow_delta_merge.engine.strategies.outcome import Outcome, Preview
from airflow_delta_merge.engine.strategies.stream_inserts import StreamInserts
from airflow_delta_merge.engine.strategies.two_phase import TwoPhase

__all__ = ["STRATEGIES", "Facts", "Outcome", "Preview", "Strategy", "fitting"]


class Strategy(Protocol):
    """One way to merge.

    :cvar executor: its name in results, as Delta names its executors.
    """

    executor: str

    def fits(self, facts: Facts) -> str | None:
        """Why the merge should use this strategy; None if it can't or shouldn't."""

    def preview(self, merge: Any, facts: Facts, reason: str, *, explain: bool) -> Preview:
        """Find and count what it would do, without writing a file; sets the metrics of rows and files.

        :param merge: a ``StartedMerge``; a ``MergeContext`` once the source was read.
        :param reason: the result of :meth:`fits`.
        :param explain: whether to return Spark's physical plans.
        """

    def run(self, merge: Any, facts: Facts, reason: str) -> Outcome | None:
        """Write the changes and set all metrics.

        :return: None if the strategy turned out not to apply: nothing it wrote is left, and the next one is tried.
        """


#: The first that fits is used. The source is read if none fits before that.
STRATEGIES: tuple[Strategy, ...] = (StreamInserts(), InsertOnly(), OnePass(), TwoPhase())


def fitting(facts: Facts) -> list[tuple[Strategy, str]]:
    """The strategies that fit, in order, each with the reason."""
    reasons = ((strategy, strategy.fits(facts)) for strategy in STRATEGIES)
    return [(strategy, reason) for strategy, reason in reasons if reason is not None]
