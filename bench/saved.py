"""Results of earlier runs, to stand in one table with those of this one: a run of all cases takes hours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cases import CASES
from bench.contestants import Facts
from bench.runner import CaseResult, Outcome


@dataclass(frozen=True)
class EarlierRun:
    """What a run has left in its folder.

    :param made: when, at which commit and with how many rounds.
    :param scale: of its tables.
    :param results: of the cases that there still are.
    """

    made: str
    scale: float
    results: list[CaseResult]


def read(folder: Path) -> EarlierRun:
    """Read what :func:`bench.report.save` wrote.

    :raises ValueError: when it isn't there.
    """
    try:
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{folder} has no results: name a folder that an earlier run printed as saved.") from error
    cases = {case.name: case for case in CASES}
    about = found["about"]
    return EarlierRun(
        made=f"on {about['when']} at commit {about['commit']}, {about['rounds']} rounds",
        scale=about["scale"],
        results=[
            CaseResult(
                case=cases[each["name"]],
                statement=each["statement"],
                source_rows=each["source_rows"],
                outcomes={
                    name: Outcome(
                        seconds=outcome["seconds"],
                        durations_ms=outcome["durations_ms"],
                        facts=Facts(values=outcome["facts"], how=outcome["how"]),
                        refused=outcome["refused"],
                        error=outcome["error"],
                        other_rows=outcome["other_rows"],
                    )
                    for name, outcome in each["contestants"].items()
                },
            )
            for each in found["cases"]
            if each["name"] in cases
        ],
    )


def joined(results: Sequence[CaseResult], earlier: Iterable[EarlierRun]) -> tuple[list[CaseResult], list[str]]:
    """Results of this run and of earlier ones, in the cases' usual order.

    :param earlier: the first that has a case counts, where this run has none.
    :return: the results, and a sentence for each earlier run that some are from.
    """
    known = {result.case.name: result for result in results}
    sentences = []
    for run in earlier:
        added = {each.case.name: each for each in run.results if each.case.name not in known}
        known |= added
        if added:
            sentences.append(f"Made {run.made}: {', '.join(added)}.")
    order = {case.name: number for number, case in enumerate(CASES)}
    return sorted(known.values(), key=lambda result: order.get(result.case.name, len(order))), sentences
