"""The resource that goes to the Spark operator, and what is made of its state; ``tests/kubernetes`` has a real one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import SparkConnectionError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.kubernetes import KubernetesNamespace
from airflow_delta_merge.launch.spark_operator import SparkOperatorNamespace, spark_application
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.staging import Staging, staged

PROPERTIES = {
    "spark.kubernetes.namespace": "spark",
    "spark.kubernetes.driver.pod.name": "merge-one-driver",
    "spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY": "lake:key",
    "spark.redaction.regex": "(?i)secret|password",
}

SAID = """failed to run spark-submit: WARNING: Using incubator modules
26/11/28 11:09:09 WARN NativeCodeLoader: Unable to load native-hadoop library
Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: no such account
\tat io.fabric8.kubernetes.client.Client.post(Client.java:1)
"""


def resource(*options: str, **properties: str) -> dict[str, Any]:
    return spark_application(
        options,
        PROPERTIES | properties,
        application="/staging/job.py",
        arguments=["--request", "/shared/request.json"],
        for_driver=lambda file: file.replace("/staging/", "local:///shared/"),
        spark_version="4.2.0",
        labels={"of": "merge"},
    )


def test_options_of_spark_submit_become_fields_of_the_resource() -> None:
    made = resource(
        *("--master", "k8s://https://h:6443", "--conf", "spark.kubernetes.driverEnv.A=b=c"),
        *("--properties-file", "/private/spark.properties", "--py-files", "/staging/engine.zip"),
        *("--jars", "/staging/a.jar,s3a://b/b.jar", "--executor-memory", "2g", "--driver-memory", "1g"),
        *("--name", "merge", "--verbose", "--deploy-mode", "cluster", "--proxy-user", "lake", "--load-spark-defaults"),
    )
    assert made["metadata"] == {"name": "merge-one", "namespace": "spark", "labels": {"of": "merge"}}
    spec = made["spec"]
    assert (spec["mainApplicationFile"], spec["arguments"]) == (
        "local:///shared/job.py",
        ["--request", "/shared/request.json"],
    )
    assert spec["deps"] == {
        "pyFiles": ["local:///shared/engine.zip"],
        "jars": ["local:///shared/a.jar", "s3a://b/b.jar"],
    }
    assert (spec["proxyUser"], spec["restartPolicy"]) == ("lake", {"type": "Never"}), "Airflow retries"
    given = {name: value for name, value in spec["sparkConf"].items() if name not in PROPERTIES}
    assert given == {
        "spark.kubernetes.driverEnv.A": "b=c", "spark.executor.memory": "2g", "spark.driver.memory": "1g"
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net"]
)
def test_secrets_are_not_given_to_the_operator(name: str) -> None:
    with pytest.raises(SparkConnectionError, match="which the Spark operator would log") as raised:
        resource(**{name: "s3cr3t"})
    assert name in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_an_option_that_the_operator_does_not_have() -> None:
    with pytest.raises(SparkConnectionError, match="keytab is not available with spark_operator"):
        resource("--keytab", "/etc/lake.keytab")


@pytest.mark.parametrize(
    ("status", "state", "has_ended", "diagnostics"),
    [
        ({}, "NEW", False, "waits for the Spark operator"),
        ({"applicationState": {"state": "SUBMITTED"}}, "SUBMITTED", False, ""),
        ({"applicationState": {"state": "FAILED", "errorMessage": SAID}}, "FAILED", True, "no such account"),
        ({"applicationState": {"state": "FAILED", "errorMessage": "no driver."}}, "FAILED", True, "no driver"),
    ],
    ids=["not seen yet", "submitted", "failed submission", "failed"],
)
def test_the_state_of_a_resource_without_a_pod(
    monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], state: str, has_ended: bool, diagnostics: str
) -> None:
    waiting = {"metadata": {"name": "merge-one"}, "status": status}
    monkeypatch.setattr(KubernetesNamespace, "find", lambda self, submission: None)
    monkeypatch.setattr(SparkOperatorNamespace, "_list", lambda self, label, value: [waiting])
    found = SparkOperatorNamespace(namespace="spark").find("one")
    assert found is not None
    assert (found.id, found.state, found.has_ended, found.diagnostics) == ("merge-one", state, has_ended, diagnostics)


JAR = "https://joe:of-jars@repo/x.jar"


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SparkSubmit, Staging]]:
    """A merge that the operator is to start."""
    extra = {"deploy-mode": "cluster", "spark_operator": True, "result_path": tmp_path.as_uri(), "jars": JAR}
    connection = {"conn_type": "delta_merge", "host": "k8s://https://h:6443", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_OPERATED", json.dumps(connection))
    request = JobRequest(merges=MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_delete()]))
    with staged() as staging:
        yield DeltaMergeHook(conn_id="operated").preparation.for_merge(staging, request), staging


def test_jars_stay_options_so_that_local_ones_are_copied(prepared: tuple[SparkSubmit, Staging]) -> None:
    """No process of this machine has the options on its command line."""
    submit, staging = prepared
    command = submit.command(str(staging.application))
    assert command[command.index("--jars") + 1].endswith(f",{JAR}")
    assert "spark.jars=" not in staging.properties.read_text()


def test_the_copied_request_stays_private(
    prepared: tuple[SparkSubmit, Staging], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkOperatorNamespace, "create", lambda *_: None)
    submit, staging = prepared
    assert submit.run(str(staging.application)) == 0
    ((request,), (package,)) = (list(tmp_path.rglob(name)) for name in ("request.json", "airflow_delta_merge.zip"))
    assert request.read_text() == staging.request.read_text()
    assert [path.stat().st_mode & 0o777 for path in (request, package)] == [0o600, 0o644]


def test_files_that_cannot_be_copied_are_named(prepared: tuple[SparkSubmit, Staging], tmp_path: Path) -> None:
    submit, staging = prepared
    submit._jars = "/no/such.jar"
    with pytest.raises(SparkConnectionError, match=r"No such file or directory: '/no/such\.jar'\. Check that all"):
        submit.run(str(staging.application))
    assert list((tmp_path / staging.folder.name / "uploads").iterdir()) == []
    shutil.rmtree(tmp_path / staging.folder.name)
    (tmp_path / staging.folder.name).touch()  # where the folder would be
    with pytest.raises(SparkConnectionError, match=r"Not a directory: .* can write to the result_path"):
        submit.run(str(staging.application))


@pytest.mark.parametrize("before", [True, False])
def test_a_resource_of_a_killed_task_is_not_left(
    prepared: tuple[SparkSubmit, Staging], monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    submit, staging = prepared
    asked: list[str] = []

    def create(*_: Any) -> None:
        asked.append("create")
        submit.on_kill()  # the API doesn't show the resource yet
        asked.append("created")

    monkeypatch.setattr(SparkOperatorNamespace, "create", create)
    monkeypatch.setattr(SparkOperatorNamespace, "kill", lambda *_: asked.append("kill") or [])
    if before:
        submit.on_kill()
        asked.clear()
    submit.run(str(staging.application))
    assert asked[:1] == ([] if before else ["create"])
    assert asked[-1:] == ([] if before else ["kill"])


def test_a_resource_of_a_task_whose_time_is_over_is_not_left(
    prepared: tuple[SparkSubmit, Staging], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, staging = prepared
    asked: list[str] = []

    def create(*_: Any) -> None:
        raise AirflowTaskTimeout  # while the API answers

    monkeypatch.setattr(SparkOperatorNamespace, "create", create)
    monkeypatch.setattr(SparkOperatorNamespace, "kill", lambda *_: asked.append("kill") or [])
    with pytest.raises(AirflowTaskTimeout):
        submit.run(str(staging.application))
    assert asked == ["kill"]
