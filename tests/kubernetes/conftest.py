"""One cluster for all tests of Spark on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if not any("tests/kubernetes" in argument for argument in request.config.args):
        pytest.skip("`make test-kubernetes` runs these as root, and builds Kubernetes the first time.")
    with Cluster() as cluster:
        yield cluster
