"""Large tables in small drivers: seconds and heap by step, ours beside the built-in MERGE.

``python -m bench.at_scale`` (``make bench-scale``) runs each contestant in a Java process of its own, whose memory is
bounded, after some small merges to warm it up. Driver and executor are one process here, so the heap holds what the
tasks hold, too.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench import report, session
from bench.case import DELETE, UPSERT, Case, Regime
from bench.cases import choose
from bench.contestants import BuiltIn, Contestant, Ours, Run
from bench.data import Table, Templates, copy_table, made_once
from bench.event_log import Stage, read_stages
from bench.events import CHANGED, EVENTS, ONE_DAY
from bench.many_files import make_files, make_table
from bench.runner import Runner, hash_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES, _ROWS_PER_FILE = 100_000, 40
_WARM_UP_MERGES = 4
#: What a process is for that makes a case's table and source, and the memory for it.
_MAKE, _MEMORY_TO_MAKE = "make", "8g"
_CONTESTANTS: dict[str, type[Contestant]] = {"ours": Ours, "built-in": BuiltIn}
_DOCS = Path(__file__).parent.parent / "docs" / "scale.md"
_BEGIN, _END = "<!-- results: written by make bench-scale ARGS=--docs -->", "<!-- end of results -->"


@dataclass(frozen=True, kw_only=True)
class AtScale:
    """A merge and the memory it is given.

    :param case: the merge. Its table's rows only matter if the table is the one of many files.
    :param what: the case, for people.
    :param driver_memory: of the process.
    :param many_files: whether the table is that of :mod:`bench.many_files`.
    """

    case: Case
    what: str
    driver_memory: str
    many_files: bool = False


_SMALL_FILES = Table(name="many_files", rows=_FILES * _ROWS_PER_FILE, files=_FILES, scales=False)
_LARGE = replace(EVENTS, name="events_200m", rows=200_000_000, files=2_000)

CASES = [
    AtScale(
        case=Case(
            name="many_files_upsert",
            regime=Regime.LITTLE_IN_MUCH,
            table=_SMALL_FILES,
            source="SELECT id, amount + 1 AS amount, note FROM {table} WHERE id BETWEEN 2000000 AND 2000399 "
            "UNION ALL SELECT id + {rows}, amount, note FROM {table} WHERE id BETWEEN 2000000 AND 2000039",
            on=("id",),
            clauses=UPSERT,
        ),
        what="100,000 files, upsert of 440 rows in 10 files",
        driver_memory="2g",
        many_files=True,
    ),
    AtScale(
        case=Case(
            name="many_files_touched",
            regime=Regime.MUCH_TO_CHANGE,
            table=_SMALL_FILES.with_properties(enableDeletionVectors="true"),
            source="SELECT id FROM {table} WHERE id % 400 = 7",
            on=("id",),
            clauses=DELETE,
        ),
        what="100,000 files, delete of a row in each of 10,000 of them, by deletion vectors",
        driver_memory="1g",
        many_files=True,
    ),
    AtScale(
        case=Case(
            name="many_rows_one_day",
            regime=Regime.LITTLE_IN_MUCH,
            table=_LARGE,
            source=ONE_DAY,
            on=("id",),
            clauses=UPSERT,
        ),
        what="200 million rows in 2,000 files, upsert of one day of a year",
        driver_memory="4g",
    ),
    AtScale(
        case=Case(
            name="many_rows_spread_thin",
            regime=Regime.MUCH_TO_CHANGE,
            table=_LARGE.with_properties(enableDeletionVectors="true"),
            source=f"SELECT {CHANGED} FROM {{table}} WHERE id % 100000 = 7",
            on=("id",),
            clauses=DELETE,
        ),
        what="200 million rows in 2,000 files, delete of a row in each, by deletion vectors",
        driver_memory="4g",
    ),
]


@dataclass(frozen=True)
class Step:
    """What one step of a merge took: from its first stage to the last, and Java's heap after collections meanwhile.

    :param heap_mb: the most; None when no collection fell into the step.
    """

    name: str
    seconds: float
    heap_mb: int | None


@dataclass(frozen=True)
class Measured:
    """One merge.

    :param seconds: of the whole merge.
    :param heap_mb: the most heap after a collection; None when there was none.
    :param python_mb: the most that Python took.
    :param steps: its steps, in their order.
    :param rows: number and hash of the table's rows afterwards.
    :param error: why there is no result; empty if there is one.
    """

    seconds: float
    heap_mb: int | None
    python_mb: int
    steps: list[Step]
    rows: tuple[int, int]
    error: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    chosen = [each for each in CASES if not options.only or each.case.name in options.only]
    if options.run:
        (case,) = chosen
        if options.run == _MAKE:
            _made(case, options.home, session.start(Path(options.work), driver_memory=_MEMORY_TO_MAKE))
        else:
            print(json.dumps(asdict(_measure(case, options.run, options.home, Path(options.work)))))
        return 0
    options.home.mkdir(parents=True, exist_ok=True)
    lines, failed = [], False
    for case in chosen:
        # By a Spark that has more memory than the merges.
        _in_own_process(case, _MAKE, options.home)
        results = {name: _measured(case, name, options.home) for name in _CONTESTANTS}
        failed |= any(each.error for each in results.values())
        if len({each.rows for each in results.values() if not each.error}) > 1:
            failed = True
            print(f"FAILURE: {case.case.name}: ours left other rows than the built-in MERGE", file=sys.stderr)
        rows = [_table_row(case, name, each) for name, each in results.items()]
        print(*rows, sep="\n", flush=True)
        lines += rows
    if options.docs:
        _write_docs(lines, chosen)
    return int(failed)


def _measured(case: AtScale, contestant: str, home: Path) -> Measured:
    try:
        values = json.loads(_in_own_process(case, contestant, home).splitlines()[-1])
    except subprocess.CalledProcessError:
        return Measured(0, None, 0, [], (0, 0), error=f"failed with {case.driver_memory}, see above")
    values |= {"steps": [Step(**each) for each in values["steps"]], "rows": tuple(values["rows"])}
    return Measured(**values)


def _in_own_process(case: AtScale, what: str, home: Path) -> str:
    work = Path(tempfile.mkdtemp(prefix="scale-", dir=home))
    command = [sys.executable, "-m", "bench.at_scale", "--home", str(home), "--work", str(work)]
    command += ["--run", what, "--only", case.case.name]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _measure(case: AtScale, name: str, home: Path, work: Path) -> Measured:
    events, collections = work / "events", work / "gc.log"
    events.mkdir(parents=True)
    log = session.Extras(java_options=f"-Xlog:gc:file={collections}:timemillis")
    spark = session.start(work, event_log=events, driver_memory=case.driver_memory, extras=log)
    template, source = _made(case, home, spark)
    templates = Templates(spark, home / "tables", 1.0)
    contestant = _CONTESTANTS[name]()
    runner = Runner(spark, templates, [contestant], work=work, rounds=_WARM_UP_MERGES)
    (small,) = choose(["small_table"])
    runner.run(small)
    run = Run(spark, case.case, template, target=work / "table" / "target", source=source, scratch=work)
    copy_table(template, run.target)
    contestant.prepare(run)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "measured")
    began, start = round(time.time() * 1000), time.perf_counter()
    contestant.merge(run)
    ended, seconds = round(time.time() * 1000), time.perf_counter() - start
    spark.sparkContext._jsc.setLocalProperty("spark.jobGroup.id", None)
    # Else Spark takes each small file for 4 MB, and reads them by thousands of tasks.
    spark.conf.set("spark.sql.files.openCostInBytes", "65536")
    rows = hash_of_rows(contestant.rows(run))
    spark.stop()
    heap = _heap_after_collections(collections)
    stages = [stage for stage in read_stages(events) if stage.run == "measured" and stage.step]
    return Measured(
        seconds=seconds,
        heap_mb=_most(heap, began, ended),
        python_mb=_python_mb(),
        steps=_steps(stages, heap),
        rows=rows,
    )


def _made(case: AtScale, home: Path, spark: SparkSession) -> tuple[Path, Path]:
    """The table and the source, made if they aren't there."""
    templates = Templates(spark, home / "tables", 1.0)
    if not case.many_files:
        return templates.target(case.case.table), templates.source(case.case.table, case.case.source)
    folder = home / "at_scale" / case.case.name
    target, source = folder / "target", folder / "source.parquet"
    if source.exists():
        return target, source
    shutil.rmtree(folder, ignore_errors=True)
    data = made_once(folder.parent / "data", lambda path: make_files(path, files=_FILES, rows_per_file=_ROWS_PER_FILE))
    vectors = case.case.has_deletion_vectors
    make_table(spark, target, data=data, rows_per_file=_ROWS_PER_FILE, deletion_vectors=vectors)
    query = case.case.source.format(table=f"delta.`{target}`", rows=case.case.table.rows)
    return target, made_once(source, lambda path: templates.write_source(query, path))


_COLLECTION = re.compile(r"^\[(\d+)ms\].* \d+[KMG]->(\d+)M\(")


def _heap_after_collections(path: Path) -> list[tuple[int, int]]:
    """Time (milliseconds since 1970) and megabytes in use after each collection."""
    found = map(_COLLECTION.match, path.read_text(encoding="utf-8").splitlines())
    return [(int(each[1]), int(each[2])) for each in found if each]


def _most(heap: Iterable[tuple[int, int]], begin: int, end: int) -> int | None:
    return max((megabytes for when, megabytes in heap if begin <= when <= end), default=None)


def _steps(stages: Sequence[Stage], heap: Sequence[tuple[int, int]]) -> list[Step]:
    steps = []
    for name in dict.fromkeys(stage.step for stage in sorted(stages, key=lambda stage: stage.submitted)):
        of_step = [stage for stage in stages if stage.step == name]
        begin, end = min(stage.submitted for stage in of_step), max(stage.completed for stage in of_step)
        steps.append(Step(name.replace("MERGE operation - ", ""), (end - begin) / 1000, _most(heap, begin, end)))
    return steps


def _python_mb() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def _table_row(case: AtScale, name: str, result: Measured) -> str:
    """A row of the table."""
    if result.error:
        return f"| {case.what} | {case.driver_memory} | {name} | {result.error} | | | |"
    steps = "; ".join(
        f"{step.name} {step.seconds:.1f} s{'' if step.heap_mb is None else f', {step.heap_mb} MB'}"
        for step in result.steps
    )
    heap = "–" if result.heap_mb is None else f"{result.heap_mb}"
    cells = [case.what, case.driver_memory, name, f"{result.seconds:.1f}", heap, f"{result.python_mb}", steps]
    return f"| {' | '.join(cells)} |"


def _write_docs(lines: Sequence[str], chosen: Sequence[AtScale]) -> None:
    names = " ".join(each.case.name for each in chosen)
    about = report.circumstances(f"python -m bench.at_scale --docs --only {names}", 1.0, 1)
    header = [
        "| merge | driver memory | who | s | heap MB | Python MB | steps: from first stage to last, heap |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    footer = (
        f"Made on {about['when']} by `{about['command']}` at commit {about['commit']}. Machine: {about['machine']}. "
        f"Versions: {versions}."
    )
    before, after = report.around_marks(_DOCS, _BEGIN, _END)
    _DOCS.write_text("\n".join([before, "", *header, *lines, "", footer, "", after]), encoding="utf-8")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.at_scale", description=__doc__)
    names = [each.case.name for each in CASES]
    parser.add_argument("--only", nargs="+", default=[], choices=names, help="cases (default: all)")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/scale.md, too")
    parser.add_argument("--home", type=Path, default=Path(".cache/bench").absolute(), help=argparse.SUPPRESS)
    parser.add_argument("--run", choices=[_MAKE, *_CONTESTANTS], help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
