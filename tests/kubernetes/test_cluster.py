"""The cluster itself: it runs pods, and Spark in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.spark import HOST_SPARK


@pytest.mark.slow
def test_a_pod_runs(cluster: Cluster) -> None:
    namespace = cluster.namespace("a-pod")
    cluster.run(namespace, "hello", "/usr/bin/python3", "-c", "import os; print('user', os.getuid())")
    assert cluster.wait_for_end(namespace, "hello") == "Succeeded"
    assert cluster.log(namespace, "hello") == "user 0\n"


@pytest.mark.slow
def test_spark_runs_with_two_executors(cluster: Cluster) -> None:
    namespace = cluster.namespace("spark-pi")
    submit(cluster, cluster.spark_conf(namespace), "local:///opt/spark/examples/src/main/python/pi.py", "4")
    assert "Pi is roughly 3." in cluster.log(namespace, "driver")
    executors = cluster.api.list_namespaced_pod(namespace, label_selector="spark-role=executor").items
    assert len(executors) == 2
    for executor in executors:
        assert "Finished task" in cluster.log(namespace, executor.metadata.name)


SHARING = """
import pathlib, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(1000).repartition(4).write.parquet(sys.argv[1] + "/numbers")
pathlib.Path(sys.argv[1], "count").write_text(str(spark.read.parquet(sys.argv[1] + "/numbers").count()))
"""


@pytest.mark.slow
def test_pods_share_a_folder_with_the_host(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace("sharing")
    shared = tmp_path / "shared"
    shared.mkdir()
    # A local file, which spark-submit puts into the shared folder for the driver.
    application = tmp_path / "sharing.py"
    application.write_text(SHARING)
    uploads = {"spark.kubernetes.file.upload.path": (shared / "uploads").as_uri()}
    submit(cluster, cluster.spark_conf(namespace, shared) | uploads, str(application), str(shared))
    assert (shared / "count").read_text() == "1000"
    assert len([*shared.glob("numbers/*.parquet")]) == 4


def submit(cluster: Cluster, conf: Mapping[str, str], *application: str) -> None:
    """Run an application in cluster mode to its end, with two executors. Its driver's pod is called ``driver``."""
    conf = {
        **conf,
        "spark.executor.instances": "2",
        "spark.kubernetes.driver.pod.name": "driver",
        "spark.kubernetes.executor.deleteOnTermination": "false",
        # No task begins before both executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    command = [str(HOST_SPARK / "bin" / "spark-submit"), "--master", f"k8s://{cluster.address}"]
    options = ["--deploy-mode", "cluster", *(f"--conf={name}={value}" for name, value in conf.items())]
    environment = os.environ | cluster.environment
    done = subprocess.run(
        [*command, *options, *application], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    namespace = conf["spark.kubernetes.namespace"]
    # spark-submit's exit code doesn't say how the application ended.
    assert cluster.wait_for_end(namespace, "driver") == "Succeeded", cluster.log(namespace, "driver")
