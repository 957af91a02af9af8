"""What strategies return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import JavaObject


@dataclass(frozen=True)
class Outcome:
    """What a strategy has written.

    :param actions: JVM sequence of the file actions to commit.
    :param reason: how the merge worked and why, in one sentence.
    :param num_touched_files: files with a row that a clause takes.
    """

    actions: JavaObject
    reason: str
    num_touched_files: int = 0


@dataclass(frozen=True)
class Preview:
    """What a strategy would do.

    :param reason: as of :class:`Outcome`.
    :param num_touched_files: as of :class:`Outcome`.
    :param touched_bytes: size of these files.
    :param spark_plans: Spark's physical plans by what they compute, if they were asked for.
    """

    reason: str
    num_touched_files: int = 0
    touched_bytes: int = 0
    spark_plans: Mapping[str, str] = field(default_factory=dict)
