"""A merge by the image of ``deploy/kubernetes``, which a Docker engine builds and which has nothing of the host's."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from tests.airflow import tables
from tests.cluster.processes import config, rows
from tests.compose.bases import Bases
from tests.compose.engine import engine
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.connections import environment

pytestmark = pytest.mark.slow
IMAGE = "localhost/airflow-delta-merge-spark:test"
ROOT = Path(__file__).parents[2]
# The image's user isn't the one who made the shared folder.
TEMPLATE = "apiVersion: v1\nkind: Pod\nspec:\n  securityContext:\n    runAsUser: 0\n"


@pytest.fixture(scope="module")
def image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    with engine() as docker:
        print(Bases(docker).provide())
        docker.environment["DOCKER_BUILDKIT"] = "0"
        docker.docker("build", "--quiet", "--tag", IMAGE, "--file", ROOT / "deploy" / "kubernetes" / "Dockerfile", ROOT)
        docker.docker("save", "--output", archive, IMAGE)
    cluster.import_image(archive)
    archive.unlink()
    return IMAGE


def test_a_merge_by_the_image_of_this_project(
    cluster: Cluster, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = cluster.namespace("of-image")
    shared, template = tmp_path / "shared", tmp_path / "pod.yaml"
    (shared / "results").mkdir(parents=True)
    template.write_text(TEMPLATE)
    templates = {f"spark.kubernetes.{role}.podTemplateFile": str(template) for role in ("driver", "executor")}
    variables = environment(cluster, namespace, shared, shared / "results", conf=templates, image=image)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    table = tables.create_table(shared / "table")
    result = DeltaMergeHook(conn_id="pods").merge(config(table, rows(0, 1000, "old")))
    assert (result.num_inserted_rows, tables.count_rows(table), tables.versions(table)) == (1000, 1000, [0, 1])
    cluster.delete_namespace(namespace)
