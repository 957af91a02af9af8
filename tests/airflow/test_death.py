"""Something dies during a merge that is then tried again: applied once, nothing left. The rest is ``make chaos``."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update, when_not_matched_insert_all
from airflow_delta_merge.contract.identity import MergeIdentity, TaskInstanceIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.local_application import LocalApplication
from airflow_delta_merge.launch.spark_application import ApplicationEnd
from airflow_delta_merge.task_exceptions import DeltaMergeException
from airflow_delta_merge.triggers.delta_merge import DeltaMergeTrigger
from tests.airflow import tables
from tests.airflow.conftest import SPARK
from tests.airflow.once import applied
from tests.airflow.processes import naming
from tests.waiting import wait_until

SUBMIT = Path(__file__).parents[1] / "faults" / "seam" / "spark-submit"
WHO = MergeIdentity(
    application_id="me", generation=7, task_instance=TaskInstanceIdentity(dag_id="d", task_id="t", run_id="r")
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files and the orders for the seam, in a folder of this test's own."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "r.-1").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("DELTA_MERGE_CONTROL", str(tmp_path))
    return tmp_path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tables.create_table(tmp_path / "table", {"id": "long", "n": "long"})


def config(table: Path) -> MergeConfig:
    return MergeConfig(
        target=str(table),
        source="SELECT id, 1L AS n FROM range(3)",
        on=["id"],
        clauses=[when_matched_update(set={"n": "target.n + source.n"}), when_not_matched_insert_all()],
    )


def merge(table: Path) -> MergeResult:
    return DeltaMergeHook(conf=SPARK, spark_binary=str(SUBMIT)).merge(config(table), identity=WHO)


def start(table: Path, identity: MergeIdentity = WHO, **conf: str) -> LocalApplication:
    started = DeltaMergeHook(conf=SPARK | conf, spark_binary=str(SUBMIT)).start(
        JobRequest(merges=config(table), identity=identity)
    )
    assert isinstance(started, LocalApplication)
    return started


def end_of(kept: LocalApplication) -> ApplicationEnd:
    """Follow an application to its end, as a triggerer does."""
    trigger = DeltaMergeTrigger(started=kept.to_dict())
    return ApplicationEnd.from_dict(asyncio.run(anext(trigger.run())).payload)


@pytest.mark.parametrize(
    ("victim", "moment", "committed"),
    [("job", "after-commit", True), pytest.param("jvm", "before-commit", False, marks=pytest.mark.slow)],
)
def test_spark_dies_at_the_commit(table: Path, folder: Path, victim: str, moment: str, committed: bool) -> None:
    (folder / "r.-1" / "kill").write_text(f"{victim} {moment}")
    with pytest.raises(DeltaMergeException, match="not completed"):
        merge(table)
    assert (folder / "r.-1" / "kill.done").exists()
    assert applied(table) == (1 if committed else 0)
    result = merge(table)
    assert (result.already_committed, result.version, result.num_inserted_rows) == (committed, 1, 3)
    assert applied(table) == 1
    assert left(folder) == []


def test_the_task_dies(table: Path, folder: Path) -> None:
    code = "import sys, tempfile; from pathlib import Path; from tests.airflow.test_death import merge; "
    code += "tempfile.tempdir = sys.argv[2]; merge(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(table), str(folder / "temporary")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], env=dict(os.environ)) as task:
        wait_until(lambda: any("_job.py --request" in each and "java" not in each[:9] for each in left(folder)), 120)
        task.kill()
    # Spark may have been starting still: it ends once its job has begun.
    wait_until(lambda: left(folder) == [], 60)
    result = merge(table)
    assert (result.version, applied(table)) == (1, 1)


@pytest.mark.slow
def test_the_next_try_finds_the_application_that_a_deferred_one_has_left(table: Path, folder: Path) -> None:
    hold = folder / "r.-1" / "hold"
    hold.touch()
    first = start(table)
    retry = replace(WHO, task_instance=replace(WHO.task_instance, try_number=2))
    assert start(table, retry).folder == first.folder
    hold.unlink()
    end = end_of(first)
    # Another try comes when all is done, and nobody has heard of it.
    assert start(table, retry).folder == first.folder
    assert end_of(first) == end
    result = DeltaMergeHook().result_of(end, str(table), exactly_once=True)
    assert (result.already_committed, result.version, applied(table)) == (False, 1, 1)
    assert len((folder / "r.-1" / "submits").read_text().split()) == 1
    first.kill()
    wait_until(lambda: left(folder) == [], 30)


@pytest.mark.parametrize(
    ("who", "conf"),
    [(replace(WHO, generation=8_000_000), {}), (WHO, {"spark.sql.shuffle.partitions": "3"})],
    ids=[
        "another execution",
        "other settings",
    ],
)
def test_an_application_of_another_execution_or_with_other_settings_is_ended(
    table: Path, folder: Path, who: MergeIdentity, conf: dict[str, str]
) -> None:
    (folder / "r.-1" / "hold").touch()
    first = start(table)
    second = start(table, who, **conf)
    assert not first.is_kept()
    assert {str(second.folder)} == {path for path in left(folder) if path.startswith(str(folder))}
    second.kill()
    # A keeper that was asked to end has let go of its lock, and is gone a moment later.
    wait_until(lambda: left(folder) == [], 30)


def left(folder: Path) -> list[str]:
    """Staging folders, and the command lines of processes that use them (not those of tests)."""
    left = [str(path) for path in (folder / "temporary").iterdir()]
    for process in naming(f"{folder}/temporary/airflow_delta_merge_"):
        program, *arguments = process.info["cmdline"]
        left.append(" ".join([Path(program).name, *arguments]))
    return left
