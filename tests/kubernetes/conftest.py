"""One cluster for all tests of Spark on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster
