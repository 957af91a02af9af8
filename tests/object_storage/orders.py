"""The table ``orders`` of a bucket: merges into it, and its rows as ``deltalake`` reads them."""

from __future__ import annotations

from deltalake import DeltaTable

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.connections.s3 import S3Access


def table(bucket: str) -> DeltaTable:
    return DeltaTable(f"s3a://{bucket}/orders", storage_options=S3Access.of("my_lake").storage_options())


def rows(bucket: str) -> list[tuple[int, str]]:
    return sorted((row["id"], row["name"]) for row in table(bucket).to_pyarrow_table().to_pylist())


def config(bucket: str, source: str) -> MergeConfig:
    return config_at(f"s3a://{bucket}/orders", source)


def config_at(path: str, source: str) -> MergeConfig:
    """An upsert into a table in any store, which the first one creates."""
    return MergeConfig(
        target=path,
        source=source,
        on=["id"],
        clauses=[when_matched_update_all(), when_not_matched_insert_all()],
        create_table=True,
    )
