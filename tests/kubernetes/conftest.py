"""One cluster for all tests of Spark on Kubernetes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib import metadata

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import version


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if not any("tests/kubernetes" in argument for argument in request.config.args):
        pytest.skip("`make test-kubernetes` runs these as root, and builds Kubernetes the first time.")
    with Cluster() as cluster:
        yield cluster


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was run, by which versions."""
    ran = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.nodeid.startswith("tests/kubernetes/")
    ]
    if not ran:
        return
    containerd = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=False).stdout.split()
    versions = [f"containerd {containerd[2] if len(containerd) > 2 else '?'}"]
    versions += [f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark", "apache-airflow")]
    terminalreporter.section(f"Kubernetes {version()} of one node, {', '.join(versions)}")
    for report in ran:
        name = report.nodeid.partition("::test_")[2].replace("_", " ")
        terminalreporter.write_line(f"{report.outcome:7} {report.duration:5.0f} s  {name}")
