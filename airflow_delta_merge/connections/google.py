"""Access to Google Cloud Storage through an Airflow connection, for Spark (``gs://``) and for ``deltalake``.

The connection has the fields of Airflow's Google provider. Google's driver for Hadoop signs in, and renews its tokens
while a merge runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_delta_merge.connections.fields import ConnectionFields, mask

# Ways to sign in that Airflow's provider supports and the driver doesn't.
_NOT_FOLLOWED = ("credential_config_file", "key_secret_name", "idp_issuer_url")
_OF_A_KEY = ("client_email", "private_key", "private_key_id")
_DRIVER = {
    # Hadoop's defaults are for its own driver: they name its classes and have sizes in a form that this one can't read.
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    "fs.gs.block.size": str(64 << 20),
    "fs.gs.outputstream.buffer.size": str(8 << 20),
    "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
    "fs.gs.inputstream.min.range.request.size": str(2 << 20),
}


@dataclass(frozen=True, kw_only=True)
class GoogleAccess:
    """How to sign in. Without a key, the machine that runs Spark signs in with its service account.

    :param project: the project to bill.
    :param key: a service account's key, as Google issues it.
    :param key_path: the path of a file with such a key, on each machine that signs in.
    :param impersonates: the service account to impersonate.
    :param is_anonymous: whether to access storage without signing in.
    """

    project: str | None = None
    key: Mapping[str, Any] | None = field(default=None, repr=False)
    key_path: str | None = None
    impersonates: str | None = None
    is_anonymous: bool = False

    @classmethod
    def of(cls, conn_id: str) -> GoogleAccess:
        """Read it from a connection, and make Airflow mask its key.

        :raises StoreAccessError: when there is no such connection, or it needs something unsupported.
        """
        access = _GoogleConnection.of(
            conn_id, "Google", parameter="gcp_conn_id", types=("google_cloud_platform",)
        ).access()
        if access.key:
            mask(access.key["private_key"], access.key["private_key_id"])
        return access

    def spark_properties(self) -> dict[str, str]:
        """Spark properties for Google's driver. They include the key itself, so no key file is needed."""
        settings = {
            **_DRIVER,
            "fs.gs.project.id": self.project,
            "fs.gs.auth.service.account.json.keyfile": self.key_path,
            "fs.gs.auth.impersonation.service.account": self.impersonates,
        }
        if self.key:
            settings |= {
                "fs.gs.auth.service.account.email": self.key["client_email"],
                "fs.gs.auth.service.account.private.key.id": self.key["private_key_id"],
                "fs.gs.auth.service.account.private.key": self.key["private_key"],
                "fs.gs.token.server.url": self.key.get("token_uri"),
            }
        if self.is_anonymous:
            settings |= {"fs.gs.auth.service.account.enable": "false", "fs.gs.auth.null.enable": "true"}
        return {f"spark.hadoop.{name}": value for name, value in settings.items() if value}

    def storage_options(self) -> dict[str, str]:
        """Storage options for ``deltalake``, which cannot impersonate an account."""
        options = {
            "google_service_account_key": json.dumps(dict(self.key)) if self.key else None,
            "google_service_account": self.key_path,
            "google_skip_signature": "true" if self.is_anonymous else None,
        }
        return {name: value for name, value in options.items() if value}


class _GoogleConnection(ConnectionFields):
    """Reads the fields with the names of Airflow's Google provider."""

    def access(self) -> GoogleAccess:
        for name in _NOT_FOLLOWED:
            if self.text(name):
                raise self.refused(
                    f"has a {name}, which Google's driver for Hadoop doesn't support. Set keyfile_dict or key_path, or "
                    "neither to use the service account of the machine where Spark runs"
                )
        if self.value("is_anonymous"):
            return GoogleAccess(project=self.text("project"), is_anonymous=True)
        key, key_path = self._key(), self.text("key_path")
        if key and key_path:
            raise self.refused("has both a keyfile_dict and a key_path. Remove one of the two")
        if key_path and not key_path.endswith(".json"):
            raise self.refused("has a key_path that is not a .json file")
        return GoogleAccess(project=self.text("project"), key=key, key_path=key_path, impersonates=self._impersonated())

    def _key(self) -> Mapping[str, Any] | None:
        key = self.value("keyfile_dict")
        if isinstance(key, str):
            try:
                key = json.loads(key)
            except (ValueError, RecursionError) as error:
                raise self.refused("has a keyfile_dict that is not JSON") from error
        if key is None:
            return None
        if not isinstance(key, Mapping) or not all(isinstance(key.get(name), str) for name in _OF_A_KEY):
            raise self.refused(f"has a keyfile_dict without {', '.join(_OF_A_KEY)}, which a service account's key has")
        return {**key, "private_key": key["private_key"].replace("\\n", "\n")}  # as the provider does

    def _impersonated(self) -> str | None:
        chain = self.value("impersonation_chain") or []
        accounts = [each.strip() for each in chain.split(",")] if isinstance(chain, str) else chain
        if not isinstance(accounts, list):
            raise self.refused("has an impersonation_chain that is neither a string nor a list")
        if len(accounts) > 1:
            raise self.refused("has an impersonation_chain of several accounts, but the driver supports only one")
        return str(accounts[0]) if accounts else None
