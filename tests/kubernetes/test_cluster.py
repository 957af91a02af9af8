"""The cluster itself: it runs pods, and Spark in them."""

from __future__ import annotations

import os
import subprocess

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
    conf = cluster.spark_conf(namespace) | {
        "spark.executor.instances": "2",
        "spark.kubernetes.driver.pod.name": "pi",
        "spark.kubernetes.executor.deleteOnTermination": "false",
        # No task begins before both are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    options = [f"--conf={name}={value}" for name, value in conf.items()]
    submit = [HOST_SPARK / "bin" / "spark-submit", "--master", f"k8s://{cluster.address}", "--deploy-mode", "cluster"]
    pi = "local:///opt/spark/examples/src/main/python/pi.py"
    done = subprocess.run(
        [*map(str, submit), *options, pi, "4"],
        env=os.environ | cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert cluster.wait_for_end(namespace, "pi") == "Succeeded", cluster.log(namespace, "pi")
    assert "Pi is roughly 3." in cluster.log(namespace, "pi")
    executors = cluster.api.list_namespaced_pod(namespace, label_selector="spark-role=executor").items
    assert len(executors) == 2
    for executor in executors:
        assert "Finished task" in cluster.log(namespace, executor.metadata.name)
