"""Where the time of a run went, by the stages in Spark's event log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runner import CaseResult

_ON_SPARK = ("ours", "built-in", "floor")


@dataclass(frozen=True)
class Stage:
    """One stage that ran; times in milliseconds since 1970, ``busy_ms`` summed over tasks.

    :param run: the job group of the run that it belongs to.
    :param step: the job's description, which ours and Delta give to each step of a merge.
    :param name: what Spark calls the stage.
    """

    run: str
    step: str
    name: str
    tasks: int
    submitted: int
    completed: int
    busy_ms: int
    rows_read: int
    shuffled_bytes: int


def read_stages(folder: Path) -> list[Stage]:
    """The stages of an event log, in the order in which they ended."""
    of_stage: dict[int, dict[str, str]] = {}
    stages = []
    for event in _events(folder):
        kind = event["Event"]
        if kind == "SparkListenerJobStart":
            for number in event["Stage IDs"]:
                of_stage.setdefault(number, event.get("Properties") or {})
        elif kind == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            properties = of_stage.get(info["Stage ID"], {})
            if "Submission Time" in info and "Completion Time" in info:
                stages.append(_stage(info, properties))
    return stages


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _stage(info: dict[str, Any], properties: dict[str, str]) -> Stage:
    sums = {each["Name"]: each.get("Value", 0) for each in info.get("Accumulables", [])}

    def metric(name: str) -> int:
        return int(sums.get(f"internal.metrics.{name}", 0))

    return Stage(
        run=properties.get("spark.jobGroup.id", ""),
        step=properties.get("spark.job.description", ""),
        name=info["Stage Name"],
        tasks=info["Number of Tasks"],
        submitted=info["Submission Time"],
        completed=info["Completion Time"],
        busy_ms=metric("executorRunTime"),
        rows_read=metric("input.recordsRead"),
        shuffled_bytes=metric("shuffle.write.bytesWritten"),
    )


def covered_ms(stages: Iterable[Stage], begin: int, end: int) -> int:
    """How long at least one of the stages ran between two times."""
    covered, until = 0, begin
    for start, stop in sorted((stage.submitted, stage.completed) for stage in stages):
        covered += max(0, min(stop, end) - max(start, until))
        until = max(until, min(stop, end))
    return covered


def profile(results: Sequence[CaseResult], stages: Sequence[Stage]) -> str:
    """The last round of each contestant in each case: phases as ours reports them, stages, and time without a stage."""
    lines = []
    for result in results:
        for name in _ON_SPARK:
            outcome = result.outcomes.get(name)
            if outcome is None or not outcome.counts:
                continue
            run = f"{result.case.name}|{name}|{len(outcome.seconds)}"
            begin, end = outcome.spans[-1]
            of_run = [stage for stage in stages if stage.run == run]
            idle = end - begin - covered_ms(of_run, begin, end)
            lines += [f"{result.case.name}, {name}: {end - begin} ms, {len(of_run)} stages, {idle} ms without a stage"]
            if phases := outcome.facts.durations_ms:
                lines.append("  phases: " + ", ".join(f"{phase} {ms} ms" for phase, ms in phases.items()))
            if outcome.facts.how:
                lines.append(f"  {outcome.facts.how}")
            if of_run:
                lines.append("    at ms   took ms   busy ms  tasks        rows  shuffle kB  stage")
            lines += [_stage_line(stage, begin) for stage in sorted(of_run, key=lambda stage: stage.submitted)]
            lines.append("")
    return "\n".join(lines)


def _stage_line(stage: Stage, begin: int) -> str:
    return (
        f"{stage.submitted - begin:>9}{stage.completed - stage.submitted:>10}{stage.busy_ms:>10}{stage.tasks:>7}"
        f"{stage.rows_read:>12}{stage.shuffled_bytes // 1024:>12}  {stage.name.split(' at ')[0]}: {stage.step}"
    )
