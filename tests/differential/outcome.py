"""What one engine made of a case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.delta_log import Action, DeltaTableLog

if TYPE_CHECKING:
    from airflow_delta_merge.contract.result import MergeResult


@dataclass
class Outcome:
    """What one engine made of a case."""

    path: Path
    table: str
    before: DeltaTableLog
    after: DeltaTableLog
    num_rows: tuple[int, ...] | None = None
    error: Exception | None = None
    result: MergeResult | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None

    @property
    def committed(self) -> bool:
        return self.after.version > self.before.version

    @property
    def commit_info(self) -> Action:
        """The merge's own commit: the first after the state it found."""
        return self.after.actions("commitInfo", since=self.before.version)[0]

    @property
    def metrics(self) -> dict[str, int]:
        return {name: int(value) for name, value in self.commit_info.get("operationMetrics", {}).items()}

    @property
    def added(self) -> list[Action]:
        return self.after.actions("add", since=self.before.version)
