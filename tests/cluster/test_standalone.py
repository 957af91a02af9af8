"""Merges on a standalone cluster of two workers, in client mode: the driver here, the executors there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_delta_merge.config import MergeConfig, when_matched_delete, when_matched_update
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow import tables
from tests.cluster.processes import ENDLESS, SMALL, config, rows
from tests.cluster.standalone import Standalone, standalone
from tests.cluster.warm import check_that_merges_share_an_application
from tests.waiting import wait_until

SEAM = Path(__file__).parent / "seam" / "spark-submit"
CONF = {
    **SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.leafNodeDefaultParallelism": 4,
    # Both executors take part from the first task on.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def connection(cluster: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection to the cluster, and a folder for temporary files of this test's own."""
    host, port = cluster.master.rsplit(":", 1)
    monkeypatch.setenv("AIRFLOW_CONN_STANDALONE", json.dumps({"conn_type": "spark", "host": host, "port": int(port)}))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tables.create_table(tmp_path / "table")


def hook(conf: Mapping[str, str] | None = None, **arguments: Any) -> DeltaMergeHook:
    settings = {**CONF, **(conf or {})}
    return DeltaMergeHook(conn_id="standalone", conf=settings, total_executor_cores=2, executor_cores=1, **arguments)


@pytest.mark.slow
def test_a_merge_over_two_executors(cluster: Standalone, table: Path) -> None:
    before = cluster.ran_executors()
    inserted = hook().merge(config(table, rows(0, 1000, "old")))
    assert {worker for worker, _ in cluster.ran_executors() - before} == {"worker0", "worker1"}
    assert (inserted.num_inserted_rows, inserted.version, tables.count_rows(table)) == (1000, 1, 1000)
    wait_until(lambda: cluster.executors() == [], 10)


@pytest.mark.slow
def test_a_kept_spark_keeps_its_executors(cluster: Standalone, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cluster.ran_executors()
    check_that_merges_share_an_application(lambda: hook(keep_warm=5), table, monkeypatch)
    assert {worker for worker, _ in cluster.ran_executors() - before} == {"worker0", "worker1"}
    assert len(cluster.ran_executors() - before) == 2
    wait_until(lambda: cluster.executors() == [], 10)


# Each task that takes longer than the quickest is started a second time, however short.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1ms",
    "spark.log.level": "INFO",
}
DYNAMIC_ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.log.level": "INFO",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conf", "said"),
    [(SPECULATION, "speculatable"), (DYNAMIC_ALLOCATION, "Requesting 1 new executor")],
    ids=["speculation", "dynamic allocation"],
)
def test_rows_are_counted_once(
    cluster: Standalone, table: Path, capsys: pytest.CaptureFixture[str], conf: Mapping[str, str], said: str
) -> None:
    hook().merge(config(table, rows(0, 200_000, "old")))
    capsys.readouterr()
    result = hook(conf).merge(config(table, rows(100_000, 300_000, "new")))
    assert said in capsys.readouterr().out, "Spark did nothing of the kind"
    assert (result.num_updated_rows, result.num_inserted_rows) == (100_000, 100_000)
    assert (tables.versions(table), tables.count_rows(table)) == ([0, 1, 2], 300_000)
    there = {file.name for file in table.glob("*.parquet")}
    assert set(tables.files(table)) <= there, "the log has a file that isn't there"


@pytest.mark.slow
@pytest.mark.parametrize("dies", ["executor", "worker"])
def test_a_process_of_the_cluster_dies_in_the_middle_of_a_merge(
    cluster: Standalone, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    hook().merge(config(table, rows(0, 1000, "old")))
    hold = tmp_path / "hold"
    hold.touch()
    monkeypatch.setenv("DELTA_MERGE_HOLD", str(hold))
    results: list[MergeResult] = []
    merging = hook(spark_binary=str(SEAM))
    who = MergeIdentity(application_id="me", generation=1)
    thread = threading.Thread(
        target=lambda: results.append(merging.merge(config(table, rows(500, 1500, "new")), identity=who))
    )
    thread.start()
    try:
        wait_until((tmp_path / "held").exists, 120)
        victim, *others = cluster.executors()
        assert len(others) == 1
        (victim if dies == "executor" else cluster.worker_of(victim)).kill()
        wait_until(lambda: victim.pid not in [executor.pid for executor in cluster.executors()], 10)
    finally:
        hold.unlink()
        thread.join(300)
        cluster.replace_workers()
    (result,) = results
    assert (result.num_updated_rows, result.num_inserted_rows) == (500, 500)
    assert (result.version, tables.versions(table), tables.count_rows(table)) == (2, [0, 1, 2], 1500)
    assert result.source_storage_level == "DISK_ONLY_2", "this is Delta's for the second attempt"


@pytest.mark.slow
def test_spark_takes_no_python_application_in_cluster_mode(
    cluster: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So neither do we, and earlier. When this fails, Spark has learnt it."""
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--deploy-mode", "cluster", "--master", cluster.master]
    environment = os.environ | {"PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run([*submit, __file__], capture_output=True, text=True, check=False, env=environment)
    said = "Cluster deploy mode is currently not supported for python applications on standalone clusters."
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
    extra = {"deploy-mode": "cluster"}
    connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": cluster.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STANDALONE", json.dumps(connection))
    with pytest.raises(DeltaMergeException, match="Spark can't run Python applications on a standalone cluster"):
        hook().merge(config(Path("/lake/t"), "SELECT 1 AS id"))


@pytest.mark.slow
@pytest.mark.parametrize("deferred", [False, True])
def test_an_application_that_is_ended_leaves_no_executor(cluster: Standalone, table: Path, deferred: bool) -> None:
    merging = hook()
    if deferred:
        kept = merging.start(JobRequest(merges=config(table, ENDLESS)))
        end = kept.kill
    else:
        end = merging.on_kill
        thread = threading.Thread(target=lambda: fails(merging, config(table, ENDLESS)))
        thread.start()
    wait_until(lambda: len(cluster.executors()) == 2, 120)
    begun = time.monotonic()
    end()
    wait_until(lambda: cluster.executors() == [], 10 - (time.monotonic() - begun))
    wait_until(lambda: list(Path(tempfile.gettempdir()).iterdir()) == [], 10)
    assert tables.versions(table) == [0]


def fails(merging: DeltaMergeHook, what: MergeConfig) -> None:
    with suppress(DeltaMergeException):
        merging.merge(what)


COPIES = {
    "spark.pyspark.python": sys.executable,  # the executors' Python, which has pyarrow
    "spark.deltaMerge.copyFilesFromBytes": 0,
    "spark.deltaMerge.smallMergeBytes": 0,
    "spark.deltaMerge.shortcuts.enabled": "false",
}
EVERY_40TH = "SELECT id, 'new' AS name FROM range(0, 2001, 40)"


@pytest.fixture
def two_files(table: Path) -> Path:
    """A table of two files of 1,000 rows."""
    hook().merge(config(table, rows(0, 1000, "old")))
    hook().merge(config(table, rows(1000, 2000, "old")))
    assert len(tables.files(table)) == 2
    return table


def without(folder: Path, module: str) -> dict[str, str]:
    """A setting that hides a module from the executors' Python."""
    folder.mkdir()
    (folder / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}')\n")
    return {"spark.executorEnv.PYTHONPATH": str(folder)}


def names(table: Path) -> dict[int, str]:
    found = DeltaTable(str(table)).to_pyarrow_table().to_pydict()
    assert len(set(found["id"])) == len(found["id"])
    return dict(zip(found["id"], found["name"], strict=True))


@pytest.mark.slow
def test_executors_that_have_pyarrow_copy_files(cluster: Standalone, two_files: Path, tmp_path: Path) -> None:
    """They don't have this package."""
    merging = hook(COPIES | without(tmp_path / "hidden", "airflow_delta_merge"))
    before = set(tables.files(two_files))
    result = merging.merge(config(two_files, EVERY_40TH))
    assert "which are copied without these rows" in result.executor_reason
    assert names(two_files) == {id_: "old" if id_ % 40 else "new" for id_ in range(2001)}
    copies = [name for name in set(tables.files(two_files)) - before if re.search(r"\.c\d+\.", name)]
    assert len(copies) == len(before)
    appended = MergeConfig(
        target=str(two_files),
        source="SELECT id, 'x' AS name FROM range(0, 2000, 100)",
        on=["id"],
        clauses=[
            when_matched_delete(condition="t.id = 100"),
            when_matched_update(set={"name": "concat(t.name, s.name)"}),
        ],
        target_alias="t",
        source_alias="s",
    )
    result = merging.merge(appended)
    assert "which are copied without these rows" in result.executor_reason
    found = names(two_files)
    assert (found[200], found[240], found[1], 100 in found, len(found)) == ("newx", "new", "old", False, 2000)


@pytest.mark.slow
def test_spark_rewrites_files_if_executors_have_no_pyarrow(
    cluster: Standalone, two_files: Path, tmp_path: Path
) -> None:
    result = hook(COPIES | without(tmp_path / "hidden", "pyarrow")).merge(config(two_files, EVERY_40TH))
    assert "which are rewritten" in result.executor_reason
    assert names(two_files) == {id_: "old" if id_ % 40 else "new" for id_ in range(2001)}
