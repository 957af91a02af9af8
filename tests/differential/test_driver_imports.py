"""What a merge's driver imports: every task waits for it, and a kept Spark holds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from airflow_delta_merge.runtime.jars import delta_jars

_SCRIPT = """
import json, sys
from airflow_delta_merge.engine import merge_sql
from airflow_delta_merge.job.session import start_session

def imported():
    return [name for name in ("pandas", "numpy", "pyarrow", "unittest") if name in sys.modules]

def upsert(first):
    return merge_sql(spark, f'''
        MERGE INTO delta.`{table}` t USING (SELECT id, 0.5 AS v FROM range({first}, {first} + 2)) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    ''').executor_reason

table, spark = sys.argv[1], start_session()
spark.range(0, 100, 1, 1).selectExpr("id", "1.5 AS v").write.format("delta").save(table)
results = [upsert(99), imported()]
spark.conf.set("spark.deltaMerge.smallMergeBytes", 0)
spark.conf.set("spark.deltaMerge.copyFilesFromBytes", 0)
results += [upsert(0), imported()]
print("imported:", json.dumps(results))
"""


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed, so nothing imports it")
def test_a_merge_imports_no_pandas_and_a_small_one_no_arrow(tmp_path: Path) -> None:
    """pyspark and pyarrow import pandas, if it is installed, where a merge has no use for it."""
    jars = os.pathsep.join(map(str, delta_jars()))
    submit = f"--master local[1] --driver-class-path {jars} --conf spark.ui.enabled=false pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "t")],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "imported:" in done.stdout, done.stderr
    small_merge, by_small_merge, copied, by_all = json.loads(done.stdout.partition("imported:")[2])
    assert "without these rows" not in small_merge
    assert by_small_merge == []
    assert "which are copied without these rows" in copied
    assert by_all == ["numpy", "pyarrow"]
