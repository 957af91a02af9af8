"""Merges into S3: by a DAG and by the hook, with a table's rows read back by ``deltalake``."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

import pytest

from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.history.awaited import RecordedMerge
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow.canary import CANARY, Watch
from tests.airflow.conftest import DAGS, SPARK
from tests.airflow.test_dags import Run
from tests.object_storage.orders import config, rows, table
from tests.object_storage.s3_server import S3Server
from tests.session import COPIED_WHATEVER_THE_SIZE

pytestmark = pytest.mark.slow


def test_a_dag_whose_keys_are_nowhere(
    server: S3Server, bucket: str, airflow_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    feed = io.BytesIO(b"id,name\n1,Ada\n2,Grace\n")
    server.client.upload_fileobj(feed, bucket, "landing/orders.csv")
    dag = DagBag(DAGS / "s3.py", bundle_name="dags-folder").dags["orders_in_s3"]
    watch = Watch(Path(tempfile.gettempdir()))
    run = Run(dag, {"bucket": bucket})
    watch.stop()
    said = "".join(capfd.readouterr())
    assert run.states == {"merge": "success", "table": "success"}
    assert (run.xcom("merge", "num_inserted_rows"), run.xcom("table")) == (2, 1)
    assert rows(bucket) == [(1, "Ada"), (2, "Grace")]
    # The keys were really on their way, and needed: in the private folder, by one file.
    assert watch.with_canary == {("spark.properties", 0o100600)}
    assert watch.folder_modes == {0o700}
    assert watch.command_lines > 100
    assert watch.with_canary_on_command_line == set()
    # Not in what was logged; nor in what Airflow keeps: XCom, rendered templates, logs; nor in the table and its log.
    assert "Merge: Ready to commit" in said
    assert CANARY not in said
    kept = {path: path.read_bytes() for path in airflow_home.rglob("*") if path.is_file()}
    assert airflow_home / "airflow.db" in kept
    written = server.objects(bucket)
    assert f"orders/_delta_log/{1:020}.json" in written
    assert [name for name, data in [*kept.items(), *written.items()] if CANARY.encode() in data] == []


def test_a_retry_returns_what_was_recorded(server: S3Server, bucket: str) -> None:
    merge = config(bucket, "SELECT id, 'x' AS name FROM range(3)")
    who = MergeIdentity(application_id="me", generation=1)
    first = DeltaMergeHook(conf=SPARK).merge(merge, identity=who)
    assert (first.num_inserted_rows, first.version, first.already_committed) == (3, 1, False)
    assert first.location == f"s3a://{bucket}/orders"
    # The bucket stands in the path of each request, though the endpoint's name would do for one of its own.
    assert re.search(rf'"[^"]*PUT /{bucket}/orders/_delta_log/{1:020}\.json ', server.log.read_text())
    second = DeltaMergeHook(conf=SPARK).merge(merge, identity=who)
    recorded = {**first.to_dict(), "already_committed": True, "durations_ms": second.durations_ms}  # up to the commit
    assert second.to_dict() == recorded
    assert (table(bucket).version(), rows(bucket)) == (1, [(0, "x"), (1, "x"), (2, "x")])
    # What a sensor finds in the log, by the same connection; and no key in what the commit has as its userMetadata.
    sought = RecordedMerge(path=first.location, aws_conn_id="my_lake", application_id="me")
    assert sought.found() == {"result": {**recorded, "already_committed": False}}
    commit = server.objects(bucket)[f"orders/_delta_log/{1:020}.json"]
    assert b"userMetadata" in commit
    assert CANARY.encode() not in commit


def test_touched_files_are_fetched_copied_and_put_back(server: S3Server, bucket: str) -> None:
    encrypted = {"spark.hadoop.fs.s3a.encryption.algorithm": "AES256"}
    hook = DeltaMergeHook(conf={**SPARK, **COPIED_WHATEVER_THE_SIZE, **encrypted})
    hook.merge(config(bucket, "SELECT id, 'old' AS name FROM range(100)"))
    changed = hook.merge(config(bucket, "SELECT 7L AS id, 'new' AS name"))
    assert "which are copied without these rows" in changed.executor_reason
    assert rows(bucket) == [(number, "new" if number == 7 else "old") for number in range(100)]
    copies = [key for key in server.objects(bucket) if ".c000." in key]
    assert copies
    for key in copies:
        head = server.client.head_object(Bucket=bucket, Key=key)
        assert head["ServerSideEncryption"] == "AES256", "a copy is written by the session's settings"
