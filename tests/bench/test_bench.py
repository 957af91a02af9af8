"""The benchmark on tiny tables: contestants really run, and other rows are a failure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.case import Case
from bench.cases import CASES, choose
from bench.contestants import BuiltIn, Contestant, Facts, Ours, Run
from bench.data import Templates
from bench.drawn import drawn_cases
from bench.event_log import Stage, covered_ms
from bench.floor import Floor, bytes_of_commit
from bench.other_commit import OfOtherCommit, require_commit
from bench.report import circumstances, header, markdown, save, summary, table_row
from bench.runner import CaseResult, Outcome, Runner
from bench.saved import joined, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
TINY = 0.0001


class LosesARow(BuiltIn):
    """Merges rightly and then deletes one row."""

    name = "loses a row"

    def merge(self, run: Run) -> Facts:
        facts = super().merge(run)
        run.spark.sql(f"DELETE FROM delta.`{run.target}` WHERE id = 500")
        return facts


class Fails(Contestant):
    name = "fails"

    def merge(self, run: Run) -> Facts:
        return Facts({"none": run.spark.sql("SELECT no_such_column").count()})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def run(spark: SparkSession, home: Path, case: str, *contestants: Contestant, rounds: int = 1) -> CaseResult:
    templates = Templates(spark, home / "tables", TINY)
    runner = Runner(spark, templates, contestants, work=home / "work", rounds=rounds, say=lambda line: None)
    (chosen,) = choose([case])
    return runner.run(chosen)


@pytest.mark.slow
def test_other_rows_are_a_failure(spark: SparkSession, home: Path) -> None:
    result = run(spark, home, "small_table", Ours(), BuiltIn(), LosesARow())
    assert result.outcomes["ours"].counts
    assert result.outcomes["built-in"].counts
    wrong = result.outcomes["loses a row"]
    assert wrong.other_rows
    assert wrong.median is None
    assert result.failures == ["small_table: loses a row left other rows than the built-in MERGE"]
    assert not any((home / "work").iterdir())


@pytest.mark.slow
def test_a_failing_contestant_does_not_stop_the_others(spark: SparkSession, home: Path) -> None:
    result = run(spark, home, "small_table", Fails(), BuiltIn())
    assert len(result.outcomes["built-in"].seconds) == 1
    (failure,) = result.failures
    assert failure.startswith("small_table: fails failed: ")
    assert "no_such_column" in failure


@pytest.mark.slow
def test_floor_writes_the_rows_of_the_new_files_and_nothing_else(spark: SparkSession, home: Path) -> None:
    floor = Floor(home / "floor")
    result = run(spark, home, "small_table_dv", Ours(), floor)
    assert result.failures == []
    # Each of the two files has rows that change, so both are marked and one more file or two hold the new rows.
    assert result.outcomes["floor"].facts.values["marked_files"] == 2
    known = bytes_of_commit(home / "floor" / "merged")
    assert known.vectors
    written = spark.read.parquet(*(str(home / "floor" / "merged" / path) for path in known.written))
    assert written.count() == 10 + 5  # every hundredth of 1,000 rows changes, as many two-hundredths are new


def run_tiny(home: Path, *options: str, contestants: tuple[str, ...]) -> tuple[str, Path, dict[str, Any]]:
    """Run one tiny case from the command line, once by each: what it printed, the run's folder, what it saved there."""
    command = [sys.executable, "-m", "bench", *options, "--quick", "--scale", str(TINY)]
    ended = subprocess.run(
        [*command, "--home", str(home)], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = (home / "results").iterdir()
    saved = json.loads((folder / "results.json").read_text())
    (case,) = saved["cases"]
    for name in contestants:
        assert len(case["contestants"][name]["seconds"]) == 1
    return ended.stdout, folder, saved


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    said, folder, saved = run_tiny(
        tmp_path, "--profile", "--only", "small_table", contestants=("ours", "built-in", "floor")
    )
    assert re.search(r"^small_table +\d", said, re.MULTILINE)
    (case,) = saved["cases"]
    assert case["ratio"] == pytest.approx(saved["geometric_mean"])
    assert saved["failures"] == []
    assert all(run["total"] > 0 for run in case["contestants"]["ours"]["durations_ms"])
    assert "| small_table |" in (folder / "report.md").read_text()
    profile = (folder / "profile.txt").read_text()
    assert re.search(r"^small_table, ours: \d+ ms, [1-9]\d* stages, \d+ ms without a stage$", profile, re.MULTILINE)
    assert "MERGE operation - materialize source" in profile
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("run-")] == []


@pytest.mark.slow
def test_iceberg_merges_into_its_own_table_of_the_same_files(tmp_path: Path) -> None:
    # The warm-up and the round: if the table weren't set back in between, the second merge would find other rows.
    modes = ("iceberg copy-on-write", "iceberg merge-on-read")
    said, _, saved = run_tiny(tmp_path, "--iceberg", "--only", "small_table", contestants=("ours", "built-in", *modes))
    assert saved["about"]["versions"]["pyspark"].startswith("4.1.")
    assert all(f"geometric mean of {mode} ÷ ours: " in said for mode in modes)
    # Neither wrote into the template, whose files both tables are made of.
    (table,) = (tmp_path / "tables" / f"{TINY:g}").glob("small-*/target")
    assert len(list(table.glob("*.parquet"))) == 2
    assert (
        sorted(path.name.rsplit("_", 3)[0][:5] for path in (tmp_path / "iceberg" / "bench").iterdir()) == ["small"] * 2
    )


def test_contestants_by_request_have_columns_of_their_own() -> None:
    seconds = {"ours": 2.0, "built-in": 4.0, "iceberg": 5.0, "floor": 1.0}
    result = CaseResult(CASES[0], "", 1, {name: Outcome(seconds=[value]) for name, value in seconds.items()})
    shown = dict(zip(header(result), table_row(result), strict=True))
    assert shown["iceberg s"].startswith("5.00")
    assert shown["iceberg ÷ ours"] == "2.50"
    assert "geometric mean of iceberg ÷ ours: 2.50" in summary([result])
    assert "| iceberg ÷ ours |" in markdown([result], circumstances("bench", scale=1, rounds=1))


def test_the_docs_leave_spreads_and_phases_to_the_report() -> None:
    outcomes = {"ours": Outcome(seconds=[1.0, 1.1], durations_ms=[{"scan": 7}]), "built-in": Outcome(seconds=[2.0])}
    results, about = [CaseResult(CASES[0], "", 1, outcomes)], circumstances("bench", scale=1, rounds=2)
    report, page = markdown(results, about), markdown(results, about, for_docs=True)
    assert f"| {CASES[0].name} | 1.05 ±5 % | 2.00 ±0 % | 1.90 |" in report
    assert f"| {CASES[0].name} | 0 | 0 | 7 | 0 | 0 |" in report
    assert f"| {CASES[0].name} | 1.05 | 2.00 | 1.90 |" in page
    assert "| case | resolve |" not in page
    assert ("Session: " in report, "Session: " in page) == (True, False)
    assert "is at most 5 % of the median. The run's `report.md` has it" in page


@pytest.mark.slow
def test_the_engine_of_another_commit_merges_beside_this_one(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    class Witness(OfOtherCommit):
        def merge(self, run: Run) -> Facts:
            facts = super().merge(run)
            seen.append((self._modules["airflow_delta_merge.engine"].__file__, facts.how))
            return facts

    seen: list[tuple[str | None, str]] = []
    other = Witness("HEAD", tmp_path)
    result = run(spark, home, "small_table", Ours(), BuiltIn(), other)
    assert result.failures == []
    assert len(result.outcomes["ours at HEAD"].durations_ms) == 1
    assert [file for file, _ in seen] == [str(tmp_path / "other_commit" / "airflow_delta_merge/engine/__init__.py")] * 2
    assert all(how.startswith("ClassicMergeExecutor: ") for _, how in seen)
    here = sys.modules["airflow_delta_merge.engine"].__file__
    assert here == str(ROOT / "airflow_delta_merge/engine/__init__.py")
    assert not [path for path in sys.path if path.startswith(str(tmp_path))]


def test_a_commit_that_does_not_exist_is_an_error() -> None:
    require_commit("HEAD")
    with pytest.raises(ValueError, match="no commit 'no-such-commit'"):
        require_commit("no-such-commit")


@pytest.mark.slow
def test_cases_are_drawn_by_chance(tmp_path: Path) -> None:
    seed = "8"  # any whose first case has source rows in a table this small
    said, _, saved = run_tiny(tmp_path, "--drawn", "1", "--seed", seed, contestants=("ours", "built-in"))
    (case,) = saved["cases"]
    assert case["name"] == drawn_cases(1, seed=8)[0].name
    assert case["source_rows"] > 0
    assert "geometric mean of built-in ÷ ours, all cases: " in said


def test_who_takes_no_part_has_no_column() -> None:
    seconds = {"ours": 2.0, "built-in": 4.0}
    result = CaseResult(CASES[0], "", 1, {name: Outcome(seconds=[value]) for name, value in seconds.items()})
    assert header(result) == ("case", "ours s", "built-in s", "built-in ÷ ours", "files")
    assert table_row(result)[3] == "2.00"
    assert "floor" not in markdown([result], circumstances("bench", scale=1, rounds=1))


def test_a_seed_draws_the_same_cases() -> None:
    cases = drawn_cases(30, seed=7)
    assert len({case.name for case in cases}) == 30
    assert drawn_cases(10, seed=7) == cases[:10]
    assert drawn_cases(10, seed=8) != cases[:10]
    assert drawn_cases(10, seed=7, only=["3", "08"]) == [cases[2], cases[7]]
    with pytest.raises(ValueError, match="number 11; there are 1 to 10"):
        drawn_cases(10, seed=7, only=["11"])


def test_the_summary_tells_what_is_left_to_gain() -> None:
    def result(ours: float, builtin: float, floor: float) -> CaseResult:
        seconds = {"ours": ours, "built-in": builtin, "floor": floor}
        return CaseResult(CASES[0], "", 1, {name: Outcome(seconds=[value]) for name, value in seconds.items()})

    said = summary([result(2, 4, 1), result(2, 9, 1)])
    # Square roots of 2 * 4.5, of 4 * 9, and of 2 * 2.
    assert "geometric mean of built-in ÷ ours, all cases: 3.00 (2 cases)" in said
    assert "geometric mean of built-in ÷ floor, which is the most there is to gain: 6.00; of ours ÷ floor: 2.00" in said


def test_results_of_earlier_runs_stand_in_the_table(tmp_path: Path) -> None:
    def results(seconds: float, *cases: Case) -> list[CaseResult]:
        return [CaseResult(case, "MERGE", 1, {"ours": Outcome(seconds=[seconds])}) for case in cases]

    about = {**circumstances("bench", scale=1, rounds=3), "when": "2026-11-21", "commit": "abc"}
    save(results(5, *CASES[:3]), about, tmp_path)
    earlier = read(tmp_path)
    assert earlier.scale == 1
    shown, sentences = joined(results(1, CASES[1]), [earlier, earlier])
    assert [each.case for each in shown] == list(CASES[:3])
    assert [each.outcomes["ours"].median for each in shown] == [5, 1, 5]
    assert sentences == [f"Made on 2026-11-21 at commit abc, 3 rounds: {CASES[0].name}, {CASES[2].name}."]
    page = markdown(shown, about, sentences)
    assert sentences[0] in page
    (drawn,) = drawn_cases(1, seed=1)
    assert [each.case for each in joined(results(1, drawn), [])[0]] == [drawn]
    with pytest.raises(ValueError, match="has no results"):
        read(tmp_path / "nowhere")


def test_names_of_cases_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def test_time_without_a_stage() -> None:
    def stage(submitted: int, completed: int) -> Stage:
        return Stage("", "", "", 1, submitted, completed, 0, 0, 0)

    # Two that overlap, one within another, one beyond the end.
    stages = [stage(10, 30), stage(20, 40), stage(22, 25), stage(90, 200)]
    assert covered_ms(stages, 0, 100) == 30 + 10


def test_an_unknown_case_is_an_error() -> None:
    with pytest.raises(ValueError, match="no_such_case; --list"):
        choose(["small_table", "no_such_case"])
