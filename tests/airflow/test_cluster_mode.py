"""Deploy mode cluster without a cluster: what the connection needs, and what Spark makes of the command."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_delete
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import ClusterManagerError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.spark_application import SparkApplication
from airflow_delta_merge.launch.staging import staged
from airflow_delta_merge.launch.yarn import ResourceManager
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.readable_ids import readable

CONFIG = MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_delete()])
WHO = MergeIdentity(application_id="airflow:/dag/task/run/-1", generation=1)
YARN = {
    "deploy-mode": "cluster",
    "result_path": "hdfs:///airflow/results/",
    "yarn_resourcemanager_webapp_address": "rm.internal:8088",
}
KUBERNETES = {"deploy-mode": "cluster", "result_path": "s3a://bucket/results"}
# What Airflow's Spark provider has where that for Kubernetes is installed.
KUBE_CLIENT = "airflow.providers.apache.spark.hooks.spark_submit.kube_client"
SECRET = {"spark.hadoop.fs.s3a.secret.key": "s3cr3t-value"}
# What Spark's own parser and its preparation, up to the handing over to the cluster's client, make of a command.
UNDERSTAND = """
import json, os, sys
from pyspark import SparkContext
SparkContext._ensure_initialized()
jvm = SparkContext._jvm
python = jvm.org.apache.spark.api.python.PythonUtils
command, environment = python.toSeq(sys.argv[1:]), python.toScalaMap(dict(os.environ))
arguments = jvm.org.apache.spark.deploy.SparkSubmitArguments(command, environment)
prepared = jvm.org.apache.spark.deploy.SparkSubmit().prepareSubmitEnvironment(arguments, jvm.scala.Option.empty())
children, conf = prepared._1(), prepared._3()
print(json.dumps({
    "main_class": prepared._4(),
    "arguments": [children.apply(at) for at in range(children.size())],
    "conf": {entry._1(): entry._2() for entry in conf.getAll()},
}))
"""


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Define the connection ``lake``."""
    return lambda master, extra: monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "spark", "host": master, "extra": extra})
    )


@pytest.mark.parametrize(
    ("master", "extra", "sentence"),
    [
        ("spark://h:7077", YARN, "can't run Python applications on a standalone cluster. Use deploy mode client"),
        ("local[2]", YARN, r"which Spark doesn't support with the master local\[2\]"),
        ("yarn", YARN | {"result_path": None}, "no result_path in its extra"),
        ("yarn", YARN | {"result_path": "/shared"}, "result_path that is not the URI of a folder"),
        ("yarn", YARN | {"yarn_resourcemanager_webapp_address": ""}, "no yarn_resourcemanager_webapp_address"),
        ("yarn", YARN | {"yarn_resourcemanager_webapp_address": "ftp://h"}, "that is not a web address"),
        ("yarn", YARN | {"yarn_resourcemanager_webapp_address": "http://u:p@h"}, "with a user or password in it"),
        ("k8s://https://h:6443", KUBERNETES | {"result_path": None}, "no result_path in its extra"),
        ("k8s://https://h:6443", KUBERNETES | {"spark_operator": True}, "can't start a merge from the result_path s3a"),
        ("k8s://https://h:6443", {"spark_operator": True}, r"needs a host k8s://… and deploy mode cluster"),
        ("yarn", YARN | {"spark_operator": True}, r"needs a host k8s://… and deploy mode cluster"),
        ("k8s://https://h:6443", KUBERNETES | {"kubernetes_conn_id": "none"}, "no Airflow connection 'none'"),
    ],
    ids=readable,
)
def test_a_missing_setting_fails_before_anything_starts(
    define: Any, master: str, extra: dict[str, Any], sentence: str
) -> None:
    define(master, extra)
    with pytest.raises(DeltaMergeException, match=sentence):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)


@pytest.mark.parametrize(
    ("master", "extra", "sentence"),
    [
        ("spark://h:7077", YARN, "can't run Python applications on a standalone cluster"),
        ("yarn", YARN | {"yarn_resourcemanager_webapp_address": ""}, "no yarn_resourcemanager_webapp_address"),
    ],
    ids=readable,
)
def test_a_merge_that_cannot_be_deferred_does_not_start(
    define: Any, master: str, extra: dict[str, Any], sentence: str
) -> None:
    define(master, extra)
    with pytest.raises(DeltaMergeException, match=sentence):
        DeltaMergeHook(conn_id="lake").start(JobRequest(merges=CONFIG, identity=WHO))


def test_kubernetes_needs_its_provider(define: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KUBE_CLIENT, None)  # as where it isn't installed
    define("k8s://https://h:6443", KUBERNETES)
    with pytest.raises(DeltaMergeException, match=r"Install airflow-provider-delta-merge\[kubernetes\]"):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)


def test_a_missing_resource_manager_is_reported() -> None:
    with pytest.raises(ClusterManagerError, match=r"doesn't answer at http://127.0.0.1:1 .*Connection refused"):
        ResourceManager("http://127.0.0.1:1").end("tag")


def test_yarn_tells_of_the_application() -> None:
    line = "\t tracking URL: http://rm.internal:8088/proxy/application_1795322942133_0001/"
    assert SparkApplication.from_log_line(line) == SparkApplication(
        "application_1795322942133_0001", "http://rm.internal:8088/proxy/application_1795322942133_0001/"
    )


def test_what_spark_makes_of_the_command_for_yarn(define: Any) -> None:
    define("yarn", YARN)
    folder, understood = understand({"spark.yarn.tags": "mine", **SECRET})
    assert understood["main_class"] == "org.apache.spark.deploy.yarn.YarnClusterApplication"
    parts = understood["arguments"]
    assert (parts[0], Path(parts[1]).name) == ("--primary-py-file", "airflow_delta_merge_job.py")
    tag = f"airflow_delta_merge_{hashlib.sha256(WHO.application_id.encode()).hexdigest()[:32]}"
    given = [argument for flag, argument in pairwise(parts) if flag == "--arg"]
    result = f"hdfs:///airflow/results/{tag}/{folder.name}.json"
    assert given == ["--request", "request.json", "--result", result]
    conf = understood["conf"]
    assert conf["spark.yarn.dist.files"] == f"{folder.as_uri()}/request.json"
    assert conf["spark.submit.pyFiles"].endswith("airflow_delta_merge.zip")
    assert "delta-spark_4.2_2.13-4.4.0.jar" in conf["spark.yarn.dist.jars"]
    assert conf["spark.yarn.tags"] == f"mine,{tag},{folder.name}"
    assert (conf["spark.yarn.maxAppAttempts"], conf["spark.yarn.submit.waitAppCompletion"]) == ("1", "true")
    assert conf["spark.hadoop.fs.s3a.secret.key"] == "s3cr3t-value"
    assert "spark.submit.callSystemExitOnMainExit" not in conf, "why YARN refuses it would be lost"


def test_what_spark_makes_of_the_command_for_kubernetes(define: Any) -> None:
    define("k8s://https://h:6443", KUBERNETES | {"namespace": "spark"})
    folder, understood = understand(SECRET)
    assert understood["main_class"] == "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication"
    parts = understood["arguments"]
    assert (parts[0], Path(parts[1]).name) == ("--primary-py-file", "airflow_delta_merge_job.py")
    given = [argument for flag, argument in pairwise(parts) if flag == "--arg"]
    assert given[:3] == ["--request", "request.json", "--result"]
    tag = f"airflow_delta_merge_{hashlib.sha256(WHO.application_id.encode()).hexdigest()[:32]}"
    assert given[3] == f"s3a://bucket/results/{tag}/{folder.name}.json"
    conf = understood["conf"]
    assert conf["spark.files"] == f"{folder.as_uri()}/request.json"
    assert conf["spark.submit.pyFiles"].endswith("airflow_delta_merge.zip")
    assert conf["spark.kubernetes.namespace"] == "spark"
    assert conf["spark.kubernetes.file.upload.path"] == f"s3a://bucket/results/{tag}/uploads"
    assert re.fullmatch(r"airflow-delta-merge-[a-z0-9-]+-staging-driver", conf["spark.kubernetes.driver.pod.name"])
    assert conf["spark.kubernetes.driver.label.airflow-delta-merge/application"] == tag
    assert conf["spark.kubernetes.driver.label.airflow-delta-merge/submission"] == folder.name
    assert conf["spark.kubernetes.submission.waitAppCompletion"] == "false", "its API tells more"


def test_a_property_does_not_send_the_driver_of_client_mode_to_the_cluster(
    define: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("yarn", {})
    (tmp_path / "spark-defaults.conf").write_text("spark.submit.deployMode cluster\nspark.ui.retainedJobs 7\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--deploy-mode client pyspark-shell")  # of the JVM that is asked
    _, understood = understand({})
    assert understood["conf"]["spark.ui.retainedJobs"] == "7", "Spark has read the defaults"
    assert understood["main_class"] == "org.apache.spark.deploy.PythonRunner"
    assert understood["conf"]["spark.submit.deployMode"] == "client"


def understand(conf: dict[str, str]) -> tuple[Path, dict[str, Any]]:
    """The staging folder of a merge with the connection ``lake``, and what Spark makes of its command."""
    with staged() as staging:
        submit = DeltaMergeHook(conn_id="lake", conf=conf).preparation.for_merge(
            staging, JobRequest(merges=CONFIG, identity=WHO)
        )
        command = submit.command(str(staging.application))
        assert "s3cr3t" not in " ".join(command)
        environment = os.environ | {"HADOOP_CONF_DIR": str(staging.folder)}
        done = subprocess.run(
            [sys.executable, "-c", UNDERSTAND, *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return staging.folder, json.loads(done.stdout.strip().splitlines()[-1])
