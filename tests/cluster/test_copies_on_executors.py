"""Touched files that executors of a standalone cluster copy, with pyarrow and without it."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_delta_merge.config import MergeConfig, when_matched_delete, when_matched_update
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow import tables
from tests.cluster.processes import SMALL, config, rows
from tests.cluster.standalone import Standalone, standalone

CONF = {
    **SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.leafNodeDefaultParallelism": 4,
    "spark.pyspark.python": sys.executable,  # the executors' Python, which has pyarrow
    "spark.deltaMerge.copyFilesFromBytes": 0,
    "spark.deltaMerge.smallMergeBytes": 0,
    "spark.deltaMerge.shortcuts.enabled": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture
def table(cluster: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of 1,000 rows."""
    host, port = cluster.master.rsplit(":", 1)
    monkeypatch.setenv("AIRFLOW_CONN_STANDALONE", json.dumps({"conn_type": "spark", "host": host, "port": int(port)}))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    table = tables.create_table(tmp_path / "table")
    merge(config(table, rows(0, 1000, "old")), {})
    merge(config(table, rows(1000, 2000, "old")), {})
    assert len(tables.files(table)) == 2
    return table


def merge(what: MergeConfig, conf: Mapping[str, str]) -> MergeResult:
    hook = DeltaMergeHook(conn_id="standalone", conf={**CONF, **conf}, total_executor_cores=2, executor_cores=1)
    return hook.merge(what)


def without(folder: Path, *modules: str) -> dict[str, str]:
    """A setting that hides modules from the executors' Python."""
    folder.mkdir()
    for module in modules:
        (folder / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}')\n")
    return {"spark.executorEnv.PYTHONPATH": str(folder)}


def names(table: Path) -> dict[int, str]:
    found = DeltaTable(str(table)).to_pyarrow_table().to_pydict()
    assert len(set(found["id"])) == len(found["id"])
    return dict(zip(found["id"], found["name"], strict=True))


@pytest.mark.slow
def test_executors_that_have_pyarrow_copy_files(table: Path, tmp_path: Path) -> None:
    """They don't have this package."""
    conf = without(tmp_path / "hidden", "airflow_delta_merge")
    before = set(tables.files(table))
    result = merge(config(table, "SELECT id, 'new' AS name FROM range(0, 2001, 40)"), conf)
    assert "which are copied without these rows" in result.executor_reason
    assert names(table) == {id_: "old" if id_ % 40 else "new" for id_ in range(2001)}
    copies = [name for name in set(tables.files(table)) - before if re.search(r"\.c\d+\.", name)]
    assert len(copies) == len(before)
    appended = MergeConfig(
        target=str(table),
        source="SELECT id, 'x' AS name FROM range(0, 2000, 100)",
        on=["id"],
        clauses=[
            when_matched_delete(condition="t.id = 100"),
            when_matched_update(set={"name": "concat(t.name, s.name)"}),
        ],
        target_alias="t",
        source_alias="s",
    )
    result = merge(appended, conf)
    assert "which are copied without these rows" in result.executor_reason
    found = names(table)
    assert (found[200], found[240], found[1], 100 in found, len(found)) == ("newx", "new", "old", False, 2000)


@pytest.mark.slow
def test_spark_rewrites_files_if_executors_have_no_pyarrow(table: Path, tmp_path: Path) -> None:
    conf = without(tmp_path / "hidden", "pyarrow")
    result = merge(config(table, "SELECT id, 'new' AS name FROM range(0, 2001, 40)"), conf)
    assert "which are rewritten" in result.executor_reason
    assert names(table) == {id_: "old" if id_ % 40 else "new" for id_ in range(2001)}
