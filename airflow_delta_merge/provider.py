"""What Airflow's provider manager learns of this package through the ``apache_airflow_provider`` entry point."""

from __future__ import annotations

from typing import Any

from airflow_delta_merge import __version__


def get_provider_info() -> dict[str, Any]:
    """The provider's description, by the schema ``airflow/provider_info.schema.json``."""
    integration = "Delta Merge"
    return {
        "package-name": "airflow-provider-delta-merge",
        "name": integration,
        "description": "Upserts into Delta tables through a two-phase merge engine on PySpark.",
        "versions": [__version__],
        "integrations": [
            {"integration-name": integration, "external-doc-url": "https://docs.delta.io/", "tags": ["software"]}
        ],
        "config": {
            "delta_merge": {
                "description": "How merges into Delta tables are told apart.",
                "options": {
                    "namespace": {
                        "description": "Stands in front of the application id by which a table knows which merges it "
                        "has. Deployments that have DAGs of the same names and merge into the same table need "
                        "different ones.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "staging",
                        "default": "",
                    }
                },
            }
        },
        "operators": [
            {"integration-name": integration, "python-modules": ["airflow_delta_merge.operators.delta_merge"]}
        ],
        "sensors": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_delta_merge.sensors.delta_merge",
                    "airflow_delta_merge.sensors.delta_table",
                ],
            }
        ],
        "triggers": [{"integration-name": integration, "python-modules": ["airflow_delta_merge.triggers.delta_table"]}],
        "asset-uris": [
            {
                "schemes": ["delta"],
                "handler": "airflow_delta_merge.assets.delta.sanitize_uri",
                "factory": "airflow_delta_merge.assets.delta.create_asset",
            }
        ],
        "task-decorators": [
            {"name": "delta_merge", "class-name": "airflow_delta_merge.decorators.delta_merge.delta_merge_task"}
        ],
        "extra-links": [
            "airflow_delta_merge.links.delta_merge.SparkApplicationLink",
            "airflow_delta_merge.links.delta_merge.CommitLink",
        ],
        "hooks": [{"integration-name": integration, "python-modules": ["airflow_delta_merge.hooks.delta_merge"]}],
    }
