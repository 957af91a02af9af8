"""``dag_run.conf`` as somebody would send it who wants more than a merge: all of it arrives as data."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from tests.airflow import tables
from tests.airflow.conftest import DAGS

# For a shell, a properties file, SQL (its quotes, names, comments, statements and variables), and Jinja.
HOSTILE = (
    "it's \"a\" `b` \\ ; DROP TABLE t -- /* $(touch made) `touch made` ${env:HOME} {{ 7 * 7 }} {% raw %} ' || 'x"
    " ü 😀 \u2028 --conf spark.a=b"
)


def test_hostile_conf_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.chdir(tmp_path)
    value = f"{HOSTILE}\nspark.jars=/x.jar\n"
    table = tables.create_table(tmp_path / HOSTILE.replace("/", "|"))  # a slash parts a path
    # What is read by a path is a pattern, in which braces, brackets and backslashes mean something, and no colon is.
    source = tmp_path / re.sub(r"[][{}\\:/*]", "|", f"{HOSTILE}.csv")
    source.write_text(f'id,name\n1,"a"\n2,"{_in_csv(HOSTILE)}"\n3,NULL{{{{ 7 * 7 }}}}\n')
    conf = {"target": str(table), "source": str(source), "null": "NULL{{ 7 * 7 }}", "value": value}
    conf["property"] = value.replace("${", "$ {")  # with it, it is refused: see test_operator_in_a_run.py
    dag = DagBag(DAGS / "hostile.py", bundle_name="dags-folder").dags["hostile"]
    before = _files(tmp_path)

    run = dag.test(logical_date=datetime(2026, 3, 1, tzinfo=UTC), run_conf=conf)
    assert {ti.task_id: str(ti.state) for ti in run.get_task_instances()} == {"sources": "success", "merge": "success"}
    added = [unquote(action["add"]["path"]) for action in tables.actions(table) if "add" in action]
    rows = [row for path in added for row in pq.read_table(table / path).to_pylist()]
    assert {row["id"]: row["name"] for row in rows} == {1: "a", 2: HOSTILE, 3: value}
    (stored,) = [action["commitInfo"]["userMetadata"] for action in tables.actions(table) if "commitInfo" in action]
    assert stored == conf["property"]
    made = {path for path in _files(tmp_path) - before if table not in path.parents}
    assert made == set(), "something was run, or written elsewhere"


def _in_csv(text: str) -> str:
    return text.replace('"', '""')


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
