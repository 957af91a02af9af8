"""Access to Google Cloud Storage by an Airflow connection, for Spark (``gs://``) and for ``deltalake``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GoogleAccess:
    @classmethod
    def of(cls, conn_id: str) -> GoogleAccess:
        raise NotImplementedError

    def spark_properties(self) -> dict[str, str]:
        return {}

    def storage_options(self) -> dict[str, str]:
        return {}
