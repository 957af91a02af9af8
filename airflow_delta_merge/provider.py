"""What Airflow's provider manager learns of this package through the ``apache_airflow_provider`` entry point."""

from __future__ import annotations

from typing import Any

from airflow_delta_merge import __version__

_OPTIONAL_TEXT = {"type": ["string", "null"]}
_CONNECTION_TYPE = {
    "connection-type": "delta_merge",
    "hook-class-name": "airflow_delta_merge.hooks.delta_merge.DeltaMergeHook",
    "hook-name": "Delta Merge",
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema", "login", "password"],
        "relabeling": {"host": "Master"},
        "placeholders": {"host": "local[*], spark://host:7077, yarn or k8s://https://host:6443"},
    },
    "conn-fields": {
        "deploy-mode": {
            "label": "Deploy mode",
            "description": "client, or on YARN and Kubernetes cluster: Spark's driver runs on the cluster, too.",
            "schema": {**_OPTIONAL_TEXT, "default": "client"},
        },
        "result_path": {
            "label": "Path for results",
            "description": "For deploy mode cluster: a folder that the cluster and the workers reach, as a URI, e.g. "
            "hdfs:///airflow/results.",
            "schema": _OPTIONAL_TEXT,
        },
        "yarn_resourcemanager_webapp_address": {
            "label": "YARN ResourceManager",
            "description": "For deploy mode cluster on YARN: the address of its web application, e.g. "
            "http://rm.internal:8088.",
            "schema": _OPTIONAL_TEXT,
        },
        "kubernetes_conn_id": {
            "label": "Kubernetes connection",
            "description": "For Kubernetes: a connection of type kubernetes for its API. Default: kubernetes_default "
            "if it exists, else the worker's own access.",
            "schema": _OPTIONAL_TEXT,
        },
        "spark_operator": {
            "label": "Spark operator",
            "description": "For deploy mode cluster on Kubernetes: let the Spark operator start the driver, by a "
            "SparkApplication. Needs a file:/// path for results.",
            "schema": {"type": ["boolean", "null"]},
        },
        "jars": {
            "label": "Further jars",
            "description": "Paths or URIs, separated by commas, e.g. an object store's driver. Delta's are added.",
            "schema": _OPTIONAL_TEXT,
        },
        "conf": {
            "label": "Spark properties",
            "description": "A JSON object, e.g. for storage and catalogs. The operator's conf takes precedence.",
            "schema": {"type": ["object", "null"]},
        },
        "aws_conn_id": {
            "label": "AWS connection",
            "description": "For tables and sources in S3 (s3a://): a connection of type aws, with its keys. The jars "
            "of Hadoop's S3A driver are added.",
            "schema": _OPTIONAL_TEXT,
        },
        "azure_conn_id": {
            "label": "Azure connection",
            "description": "For tables and sources in Azure's storage (abfss://): a connection of type wasb or adls. "
            "The jars of Hadoop's ABFS driver are added.",
            "schema": _OPTIONAL_TEXT,
        },
        "gcp_conn_id": {
            "label": "Google Cloud connection",
            "description": "For tables and sources in Google Cloud Storage (gs://): a connection of type "
            "google_cloud_platform. The jar of Google's driver is added.",
            "schema": _OPTIONAL_TEXT,
        },
        "s3_single_writer": {
            "label": "One writer in S3",
            "description": "Set it if only one driver at a time commits to each table in S3, for stores that can't "
            "refuse a second writer.",
            "schema": {"type": ["boolean", "null"]},
        },
        "keep_warm": {
            "label": "Keep warm",
            "description": "For how many seconds Spark stays on the worker after a merge to take the next one; 0 "
            "ends it with the merge. The operator's keep_warm takes precedence.",
            "schema": {"type": ["number", "null"]},
        },
        "namespace": {
            "label": "Namespace",
            "description": "Distinguishes deployments whose DAGs have the same names and merge into the same tables. "
            "Takes precedence over [delta_merge] namespace of the configuration.",
            "schema": _OPTIONAL_TEXT,
        },
        "history_server_url": {
            "label": "History server",
            "description": "The address of Spark's history server, for links from tasks.",
            "schema": _OPTIONAL_TEXT,
        },
        "commit_url": {
            "label": "Address of a commit",
            "description": "For links from tasks: an address with {table} and {version} in it.",
            "schema": _OPTIONAL_TEXT,
        },
    },
}
_ASSET_URIS = {
    "schemes": ["delta"],
    "handler": "airflow_delta_merge.assets.delta.sanitize_uri",
    "factory": "airflow_delta_merge.assets.delta.create_asset",
    "to_openlineage_converter": "airflow_delta_merge.lineage.openlineage.convert_asset_to_openlineage",
}


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
                "description": "How merges into Delta tables are identified, and how their Spark starts.",
                "options": {
                    "namespace": {
                        "description": "Prefix of the application ids by which tables recognize merges. Deployments "
                        "whose DAGs have the same names and merge into the same tables need different ones. A "
                        "connection of type delta_merge may set another one.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "staging",
                        "default": "",
                    },
                    "class_archive": {
                        "description": "Whether the first merge with a local master makes an archive of Java classes "
                        "in the background, 200 MB beside Delta's jars, from which later ones start sooner.",
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": "False",
                        "default": "True",
                    },
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
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_delta_merge.triggers.delta_commit",
                    "airflow_delta_merge.triggers.delta_merge",
                    "airflow_delta_merge.triggers.delta_table",
                ],
            }
        ],
        "asset-uris": [_ASSET_URIS],
        "dataset-uris": [_ASSET_URIS],  # their name in Airflow 2
        "connection-types": [_CONNECTION_TYPE],
        "task-decorators": [
            {"name": "delta_merge", "class-name": "airflow_delta_merge.decorators.delta_merge.delta_merge_task"}
        ],
        "extra-links": [
            "airflow_delta_merge.links.delta_merge.SparkApplicationLink",
            "airflow_delta_merge.links.delta_merge.CommitLink",
        ],
        "hooks": [{"integration-name": integration, "python-modules": ["airflow_delta_merge.hooks.delta_merge"]}],
    }
