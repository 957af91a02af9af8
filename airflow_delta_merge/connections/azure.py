"""Access to Azure's storage through an Airflow connection, for Spark (``abfss://``) and for ``deltalake``.

The connection has type ``wasb`` or ``adls``, with the fields of Airflow's Microsoft provider. Hadoop's ABFS driver
signs in, and renews its tokens while a merge runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from airflow_delta_merge.connections.fields import ConnectionFields, mask

_SIGN_IN = "https://login.microsoftonline.com"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"


@dataclass(frozen=True, kw_only=True)
class AzureAccess:
    """A storage account and how to sign in to it: by account key, shared access signature or client.

    Without any of them, the machine that runs Spark signs in with its workload identity or its managed identity.

    :param account: the storage account's name.
    :param account_key: the account's key, in base 64.
    :param sas_token: a shared access signature.
    :param tenant_id: the tenant of the service principal, or of the workload identity.
    :param client_id: the service principal's application id; without a secret, the id of the machine's identity.
    :param client_secret: the service principal's secret.
    """

    account: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, conn_id: str) -> AzureAccess:
        """Read it from a connection, and make Airflow mask its secrets.

        :raises StoreAccessError: when there is no such connection, or it needs something unsupported.
        """
        connection = _AzureConnection.of(conn_id, "Azure", parameter="azure_conn_id", types=("wasb", "adls"))
        access = connection.access()
        mask(access.account_key, access.sas_token, access.client_secret)
        return access

    def spark_properties(self) -> dict[str, str]:
        """Spark properties for Hadoop's ABFS driver."""
        settings: dict[str, str | None]
        if self.account_key:
            settings = {"auth.type": "SharedKey", "key": self.account_key}
        elif self.sas_token:
            return {
                "spark.hadoop.fs.azure.account.auth.type": "SAS",
                "spark.hadoop.fs.azure.sas.fixed.token": self.sas_token,
            }
        elif self.client_secret:
            settings = {
                "auth.type": "OAuth",
                "oauth.provider.type": f"{_PROVIDERS}.ClientCredsTokenProvider",
                "oauth2.client.endpoint": f"{_SIGN_IN}/{self.tenant_id}/oauth2/token",
                "oauth2.client.id": self.client_id,
                "oauth2.client.secret": self.client_secret,
            }
        else:
            by = "WorkloadIdentityTokenProvider" if self.tenant_id else "MsiTokenProvider"
            settings = {
                "auth.type": "OAuth",
                "oauth.provider.type": f"{_PROVIDERS}.{by}",
                "oauth2.msi.tenant": self.tenant_id,
                "oauth2.client.id": self.client_id,
            }
        return {f"spark.hadoop.fs.azure.account.{name}": value for name, value in settings.items() if value}

    def storage_options(self) -> dict[str, str]:
        """Storage options for ``deltalake``."""
        options = {
            "azure_storage_account_name": self.account,
            "azure_storage_account_key": self.account_key,
            "azure_storage_sas_token": self.sas_token,
            "azure_storage_tenant_id": self.tenant_id,
            "azure_storage_client_id": self.client_id,
            "azure_storage_client_secret": self.client_secret,
        }
        return {name: value for name, value in options.items() if value}


class _AzureConnection(ConnectionFields):
    """Reads the fields with the names and the precedence of Airflow's Microsoft provider."""

    def access(self) -> AzureAccess:
        if text := self.text("connection_string"):
            return self._of_connection_string(text)
        account = self._account()
        if tenant_id := self.text("tenant_id"):
            if not (self.connection.login and self.connection.password):
                raise self.refused("has a tenant_id, but not both the application id (login) and the secret (password)")
            return AzureAccess(
                account=account,
                tenant_id=tenant_id,
                client_id=self.connection.login,
                client_secret=self.connection.password,
            )
        if key := self.text("shared_access_key"):
            return AzureAccess(account=account, account_key=key)
        if token := self.text("sas_token"):
            return self._of_sas_token(account, token)
        if key := self.connection.password or self.text("account_key"):
            return AzureAccess(account=account, account_key=key)
        client_id, tenant_id = self.text("managed_identity_client_id"), self.text("workload_identity_tenant_id")
        if tenant_id and not client_id:
            raise self.refused("has a workload_identity_tenant_id, but no managed_identity_client_id")
        return AzureAccess(account=account, client_id=client_id, tenant_id=tenant_id)

    def _account(self) -> str | None:
        """The storage account's name from the host, which may be a URL; else, with type ``wasb``, from the login."""
        host = self.connection.host or ""
        name = (self._url("host", host).hostname or "" if "://" in host else host).partition(".")[0]
        if not name and self.connection.conn_type == "wasb" and not self.text("tenant_id"):
            name = self.connection.login or ""
        return name or None

    def _of_connection_string(self, text: str) -> AzureAccess:
        parts = dict(part.partition("=")[::2] for part in text.split(";") if part.strip())
        account, key, token = (parts.get(name) for name in ("AccountName", "AccountKey", "SharedAccessSignature"))
        if not account:
            endpoint = self._url("BlobEndpoint", parts.get("BlobEndpoint", ""))
            account = (endpoint.hostname or "").partition(".")[0] or None
        if key:
            return AzureAccess(account=account, account_key=key)
        if token:
            return self._of_sas_token(account, token)
        raise self.refused("has a connection_string with neither AccountKey nor SharedAccessSignature")

    def _of_sas_token(self, account: str | None, token: str) -> AzureAccess:
        """Read a token, which may include its URL."""
        if token.startswith("https://"):
            address = self._url("sas_token", token)
            account, token = (address.hostname or "").partition(".")[0], address.query
        return AzureAccess(account=account, sas_token=token.removeprefix("?"))

    def _url(self, name: str, text: str) -> SplitResult:
        try:
            return urlsplit(text)
        except ValueError:  # without the error as cause, which may quote a token
            raise self.refused(f"has a {name} that is not a valid URL. Correct it") from None
