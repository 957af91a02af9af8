"""The resource that goes to the Spark operator, and what is made of its state; ``tests/kubernetes`` has a real one."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta_merge.exceptions import SparkConnectionError
from airflow_delta_merge.launch.kubernetes import KubernetesNamespace
from airflow_delta_merge.launch.spark_operator import SparkOperatorNamespace, spark_application

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
