"""Ours, Delta's built-in MERGE, delta-rs and the physical floor on the same tables; exit code 1 when a case failed.

With ``--iceberg`` Iceberg's MERGE, too. With ``--drawn`` ours and the built-in MERGE in cases drawn by chance. With
``--against`` these two and the engine of another commit, with ``--conf`` these two and ours with other settings.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import cold, iceberg, report, saved, session, warm
from bench.case import Case
from bench.cases import CASES, QUICK, choose
from bench.contestants import BuiltIn, Contestant, DeltaRs, Ours, OursWith
from bench.data import Templates
from bench.drawn import drawn_cases
from bench.event_log import profile, read_stages
from bench.floor import Floor
from bench.other_commit import OfOtherCommit, require_commit
from bench.own_cases import SCALING_GROUP
from bench.parts_of_task import PartsOfTask
from bench.runner import CaseResult, Runner

ROUNDS = 5
QUICK_SCALE = 0.05
#: Before the first case, so that it isn't the only one in a cold session.
WARM_UP_CASE, WARM_UP_SECONDS = "small_table", 90
DOCS = Path(__file__).parent.parent / "docs" / "developers"
COLD_CASE = "one_day_of_a_year"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.list:
        for case in CASES:
            print(f"{case.name:50} {case.group:12} {case.regime:15} {'' if case.in_default else 'only when named'}")
        return 0
    try:
        cases = drawn_cases(options.drawn, options.seed, options.only) if options.drawn else choose(options.only)
        if options.against:
            require_commit(options.against)
        earlier = [saved.read(folder) for folder in options.earlier]
        if any(run.scale != options.scale for run in earlier):
            raise ValueError(f"An earlier run was of another scale than {options.scale:g}.")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    options.home.mkdir(parents=True, exist_ok=True)
    if options.iceberg:
        iceberg.on_its_spark(options.home, sys.argv[1:] if arguments is None else arguments)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=options.home))
    try:
        if options.warm:
            return _run_warm(cases, options, work)
        return _run_cold(cases, options, work) if options.cold else _run(cases, earlier, options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(cases: Sequence[Case], earlier: Sequence[saved.EarlierRun], options: argparse.Namespace, work: Path) -> int:
    folder = options.home / "results" / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    folder.mkdir(parents=True)
    events = folder / "events" if options.profile else None
    if events:
        events.mkdir()
    extras = session.warm(iceberg.extras(options.home) if options.iceberg else session.NO_EXTRAS)
    about = report.circumstances(_command(), options.scale, options.rounds, extras)
    contestants = _contestants(options, work)
    spark = session.start(work, event_log=events, extras=extras)
    results: list[CaseResult] = []
    try:
        templates = Templates(spark, options.home / "tables", options.scale)
        runner = Runner(spark, templates, contestants, work=work, rounds=options.rounds)
        if not options.quick:
            (small,) = choose([WARM_UP_CASE])
            runner.warm_up(small, WARM_UP_SECONDS)
        for case in cases:
            results.append(result := runner.run(case))
            titles = report.header(result)
            if len(results) == 1:
                print(report.terminal_line(titles, titles))
            print(report.terminal_line(titles, report.table_row(result)), flush=True)
            report.save(results, about, folder, earlier)  # after each case: it stays when the run is ended
    finally:
        spark.stop()
    failures = [sentence for result in results for sentence in result.failures]
    for line in [*report.summary(results), *(f"FAILURE: {sentence}" for sentence in failures)]:
        print(line)
    if events:
        text = profile(results, read_stages(events))
        (folder / "profile.txt").write_text(text, encoding="utf-8")
        print(f"\n{text}")
    if options.docs:
        report.write_docs(results, about, DOCS, earlier)
    print(f"Saved in {folder}")
    return 1 if failures else 0


def _contestants(options: argparse.Namespace, work: Path) -> list[Contestant]:
    contestants: list[Contestant] = [Ours(), BuiltIn()]
    if options.against:
        contestants.append(OfOtherCommit(options.against, work))
    contestants += (OursWith(*pair) for pair in options.conf)
    if not (options.against or options.conf or options.drawn):
        contestants += [DeltaRs(), Floor(work / "floor")]
    if options.iceberg:
        contestants += map(iceberg.Iceberg, iceberg.MODES)
    return contestants


def _run_cold(cases: Sequence[Case], options: argparse.Namespace, work: Path) -> int:
    failed = False
    for case in cases:
        result = cold.run_cold(
            case,
            home=options.home,
            work=work,
            scale=options.scale,
            rounds=options.rounds,
            num_merges=options.merges,
            parts=PartsOfTask() if options.profile else None,
        )
        merges = f", {options.merges} merges" if options.merges > 1 else ""
        print(f"{case.name}, cold, scale {options.scale:g}{merges}", *result.lines(), sep="\n", flush=True)
        failed |= bool(result.other_rows)
    return 1 if failed else 0


def _run_warm(cases: Sequence[Case], options: argparse.Namespace, work: Path) -> int:
    for case in cases:
        result = warm.run_warm(
            case, home=options.home, work=work, scale=options.scale, rounds=options.rounds, num_merges=options.warm
        )
        print(f"{case.name}, warm, scale {options.scale:g}", *result.lines(), sep="\n", flush=True)
    return 0


def _command() -> str:
    return shlex.join(["python", "-m", "bench", *sys.argv[1:]])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="cases or groups, see --list; with --drawn their numbers"
    )
    parser.add_argument("--quick", action="store_true", help="a minute's look: few cases, few rows, one round")
    parser.add_argument("--scale", type=float, help="factor on the tables' rows (default: 1, that is 4 million rows)")
    parser.add_argument("--rounds", type=int, help=f"rounds that count, after one to warm up (default: {ROUNDS})")
    parser.add_argument(
        "--profile", action="store_true", help="show time by phase and stage; with --cold by part of the task"
    )
    parser.add_argument(
        "--scaling", action="store_true", help="tables of 100, 1,000 and 10,000 files, the same few files touched"
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help=f"whole tasks, against SparkSubmitOperator + MERGE and delta-rs (by default {COLD_CASE})",
    )
    parser.add_argument(
        "--warm",
        type=int,
        default=0,
        metavar="N",
        help=f"tasks whose Spark is kept, then N more merges through it (by default {COLD_CASE})",
    )
    parser.add_argument(
        "--merges", type=int, default=1, metavar="N", help="with --cold: so many merges, by ours in one task"
    )
    parser.add_argument(
        "--iceberg",
        action="store_true",
        help=f"Iceberg's MERGE as well, all on Spark {iceberg.SPARK_VERSION}, for which it has a runtime",
    )
    parser.add_argument(
        "--drawn", type=int, default=0, metavar="N", help="so many cases drawn by chance, ours and the built-in MERGE"
    )
    parser.add_argument("--seed", type=int, default=1, help="with --drawn: which ones (default: 1)")
    parser.add_argument(
        "--against", metavar="REVISION", help="the engine of another commit as well: what a change gains or costs"
    )
    parser.add_argument(
        "--conf",
        action="append",
        type=_setting,
        default=[],
        metavar="NAME=VALUE",
        help="ours with this setting as well (may be repeated): what a shortcut gains or costs",
    )
    parser.add_argument("--docs", action="store_true", help="also write docs/developers/benchmark.{md,svg}")
    parser.add_argument(
        "--with",
        dest="earlier",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="folders of earlier runs: their results of other cases stand in the same table, and it says so",
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--home", type=Path, default=Path(".cache/bench"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.iceberg and (options.cold or options.earlier):
        parser.error("--iceberg goes with neither --cold nor --with")
    if options.profile and options.merges > 1:
        parser.error("--profile goes with one merge only")
    if options.drawn and (options.cold or options.scaling or options.iceberg):
        parser.error("--drawn goes with none of --cold, --scaling and --iceberg")
    if (options.against or options.conf) and (options.cold or options.iceberg or options.docs):
        parser.error("--against and --conf go with none of --cold, --iceberg and --docs")
    if not options.only and not options.drawn:
        options.only = _by_default(options)
    options.scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    options.home = options.home.absolute()
    return options


def _setting(text: str) -> tuple[str, str]:
    """A setting as ``NAME=VALUE``, as spark-submit takes it."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _by_default(options: argparse.Namespace) -> list[str]:
    if options.scaling:
        return [SCALING_GROUP]
    if options.cold or options.warm:
        return [COLD_CASE]
    if options.quick:
        return list(QUICK)
    return list(iceberg.DEFAULT_CASES) if options.iceberg else []


if __name__ == "__main__":
    sys.exit(main())
