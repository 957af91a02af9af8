"""`python -m bench`: arguments in, a table out; exit code 1 when a case failed."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import report, session
from bench.cases import CASES, QUICK, Case, choose
from bench.contestants import BuiltIn, Contestant, DeltaRs, Ours
from bench.data import Templates
from bench.floor import Floor
from bench.runner import CaseResult, Runner

ROUNDS = 5
QUICK_SCALE = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.list:
        for case in CASES:
            print(f"{case.name:44} {case.group:8} {case.regime:16} {'' if case.in_default else 'only when named'}")
        return 0
    try:
        cases = choose(options.only)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    home = options.home
    results_folder = home / "results" / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    home.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    try:
        results = _run(cases, options, work, results_folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if any(result.failures for result in results) else 0


def _run(cases: Sequence[Case], options: argparse.Namespace, work: Path, folder: Path) -> list[CaseResult]:
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    about = report.circumstances(command, options.scale, options.rounds)
    spark = session.start(work)
    results: list[CaseResult] = []
    try:
        contestants: list[Contestant] = [Ours(), BuiltIn(), DeltaRs(), Floor(work / "floor")]
        templates = Templates(spark, options.home / "tables", options.scale)
        runner = Runner(spark, templates, contestants, work=work, rounds=options.rounds)
        print(report.terminal_line(), flush=True)
        for case in cases:
            results.append(runner.run(case))
            print(report.terminal_line(report.table_row(results[-1])), flush=True)
            report.save(results, about, folder)  # after each case: what was measured stays when the run is ended
    finally:
        spark.stop()
    for line in [*report.summary(results), *(f"FAILURE: {each}" for result in results for each in result.failures)]:
        print(line)
    print(f"Saved in {folder}")
    return results


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cases or groups of cases, see --list")
    parser.add_argument("--quick", action="store_true", help="a minute's look: few cases, few rows, one round")
    parser.add_argument("--scale", type=float, help="factor on the tables' rows (default: 1, that is 4 million rows)")
    parser.add_argument("--rounds", type=int, help=f"rounds that count, after one to warm up (default: {ROUNDS})")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--home", type=Path, default=Path(".cache/bench"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick and not options.only:
        options.only = list(QUICK)
    options.scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    options.home = options.home.absolute()
    return options


if __name__ == "__main__":
    sys.exit(main())
