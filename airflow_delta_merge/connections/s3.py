"""Access to S3 through an Airflow connection of type ``aws``, for Spark (``s3a://``) and for ``deltalake``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_delta_merge.connections.fields import ConnectionFields, mask

# Fields with which Airflow's own hook gets other credentials than the connection's.
_OTHER_CREDENTIALS = ("role_arn", "assume_role_kwargs", "profile_name", "session_kwargs")
# Fields of ``assume_role_kwargs`` that S3A supports for a role that it assumes itself.
_OF_A_ROLE = frozenset({"ExternalId", "RoleSessionName", "DurationSeconds", "Policy"})
_MACHINE_CREDENTIALS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
)
_ROLE_CREDENTIALS = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
_SESSION_CREDENTIALS = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_KEY_CREDENTIALS = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"


@dataclass(frozen=True, kw_only=True)
class AssumedRole:
    """A role that S3A assumes itself, on the driver and on each executor, and renews before its keys expire.

    :param arn: the role's ARN.
    :param session_name: the name of its sessions.
    :param external_id: the external id that the role's owner requires.
    :param duration_seconds: how long its keys are valid.
    :param policy: a policy that restricts it, as JSON.
    :param endpoint: the host of AWS's Security Token Service.
    :param region: the region for signing requests to that service.
    """

    arn: str
    session_name: str
    endpoint: str
    region: str
    external_id: str | None = None
    duration_seconds: int | None = None
    policy: str | None = None

    def spark_properties(self) -> dict[str, str | None]:
        """S3A settings for the role, without the prefix ``fs.s3a.``."""
        return {
            "assumed.role.arn": self.arn,
            "assumed.role.session.name": self.session_name,
            "assumed.role.external.id": self.external_id,
            "assumed.role.session.duration": f"{self.duration_seconds}s" if self.duration_seconds else None,
            "assumed.role.policy": self.policy,
            "assumed.role.sts.endpoint": self.endpoint,
            "assumed.role.sts.endpoint.region": self.region,
        }


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """Credentials and address of an S3.

    Without keys, the client uses its machine's credentials: the environment, or the role of the instance.

    :param access_key: the access key's id.
    :param secret_key: the secret access key.
    :param session_token: the session token of temporary keys.
    :param region: e.g. ``eu-central-1``.
    :param endpoint_url: the URL of an S3 that isn't Amazon's.
    :param path_style: whether the bucket is in the URL's path, not in its host.
    :param role: a role to assume with these keys.
    """

    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    endpoint_url: str | None = None
    path_style: bool = False
    role: AssumedRole | None = None

    @classmethod
    def of(cls, conn_id: str, *, assumes_role: bool = False) -> S3Access:
        """Read it from a connection's fields, and make Airflow mask its keys.

        If the connection uses other credentials, through a role or a profile, the hook of Airflow's Amazon provider
        signs in, if that provider is installed.

        :param assumes_role: whether the client can assume a plain role itself, as S3A can; no sign-in is needed then.
        :raises StoreAccessError: when there is no such connection, it needs something unsupported, or can't sign in.
        """
        access = _AwsConnection.of(conn_id, "AWS", parameter="aws_conn_id", types=("aws",)).access(
            assumes_role=assumes_role
        )
        mask(access.access_key, access.secret_key, access.session_token)
        return access

    def spark_properties(self) -> dict[str, str]:
        """Spark properties for Hadoop's S3A driver."""
        settings = {
            "access.key": self.access_key,
            "secret.key": self.secret_key,
            "session.token": self.session_token,
            "endpoint": self.endpoint_url,
            "endpoint.region": self.region,
            "path.style.access": str(self.path_style).lower(),
        }
        # Only these providers: Hadoop's default would fall back to other credentials on the driver's machine.
        by_keys = _SESSION_CREDENTIALS if self.session_token else _KEY_CREDENTIALS
        if self.role:
            settings |= self.role.spark_properties()
            settings["aws.credentials.provider"] = _ROLE_CREDENTIALS
            settings["assumed.role.credentials.provider"] = by_keys if self.secret_key else _MACHINE_CREDENTIALS
        elif self.secret_key:
            settings["aws.credentials.provider"] = by_keys
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items() if value}

    def storage_options(self) -> dict[str, str]:
        """Storage options for ``deltalake``."""
        options = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ALLOW_HTTP": "true" if (self.endpoint_url or "").startswith("http://") else None,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not self.path_style).lower(),
        }
        return {name: value for name, value in options.items() if value}


class _AwsConnection(ConnectionFields):
    """Reads the fields with the names of Airflow's Amazon provider."""

    def access(self, *, assumes_role: bool) -> S3Access:
        if self.object("config_kwargs").get("signature_version"):
            raise self.refused("has a signature_version in its config_kwargs, which is not supported. Remove it")
        if self.extra.get("verify") not in (None, "", True):
            raise self.refused(
                "has verify set, which Spark's S3A driver doesn't support. Add the certificate to Java's truststore"
            )
        access_key, secret_key = self._keys()
        endpoint_url = self.text("endpoint_url", self._service_config()) or self.text("endpoint_url")
        if endpoint_url and not endpoint_url.startswith(("http://", "https://")):
            raise self.refused("has an endpoint_url that doesn't start with http:// or https://")
        region, session_token = self.text("region_name"), self.text("aws_session_token")
        role = self._plain_role() if assumes_role else None
        asked_for = next((name for name in _OTHER_CREDENTIALS if self.extra.get(name)), None)
        if asked_for is not None and role is None:
            access_key, secret_key, session_token, region = self._signed_in(asked_for)
        return S3Access(
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            region=region,
            endpoint_url=endpoint_url,
            path_style=self._path_style(endpoint_url),
            role=role,
        )

    def _plain_role(self) -> AssumedRole | None:
        """The role, if S3A can assume it without features of Airflow's provider."""
        arn, arguments = self.text("role_arn"), self.object("assume_role_kwargs")
        method = self.extra.get("assume_role_method") or "assume_role"
        endpoint = self.text("endpoint_url", self.object("sts", self.object("service_config"))) or ""
        if (
            arn is None
            or method != "assume_role"
            or any(self.extra.get(name) for name in ("profile_name", "session_kwargs"))
            or not _OF_A_ROLE.issuperset(arguments)
            or not re.fullmatch("(https://)?[^:/]*/?", endpoint)  # S3A accepts only a host
        ):
            return None
        region = self.text("region_name")
        of_region = f"sts.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}" if region else None
        return AssumedRole(
            arn=arn,
            session_name=arguments.get("RoleSessionName") or _session_name(f"Airflow_{self.connection.conn_id}"),
            external_id=arguments.get("ExternalId"),
            duration_seconds=arguments.get("DurationSeconds"),
            policy=arguments.get("Policy"),
            endpoint=endpoint.removeprefix("https://").rstrip("/") or of_region or "sts.amazonaws.com",
            region=region or "us-east-1",
        )

    def _signed_in(self, asked_for: str) -> tuple[str, str, str | None, str | None]:
        """Access key, secret key, session token and region from Airflow's Amazon provider."""
        try:
            from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
        except ImportError as error:
            raise self.refused(
                f"has a {asked_for}, which needs Airflow's Amazon provider. Install apache-airflow-providers-amazon "
                "(this package's extra amazon), set keys, or set none and give the role to the machine where Spark runs"
            ) from error
        try:
            session = AwsBaseHook(aws_conn_id=self.connection.conn_id, client_type="s3").get_session()
            credentials = session.get_credentials().get_frozen_credentials()
        except Exception as error:  # from boto, the provider or a service
            raise self.refused(f"could not sign in with its {asked_for}: {type(error).__name__}: {error}") from error
        return credentials.access_key, credentials.secret_key, credentials.token, session.region_name

    def _keys(self) -> tuple[str | None, str | None]:
        keys = self.connection.login or None, self.connection.password or None
        if keys == (None, None):
            keys = self.text("aws_access_key_id"), self.text("aws_secret_access_key")
        if None in keys and (keys != (None, None) or self.extra.get("aws_session_token")):
            raise self.refused(
                "has only some of its keys. Set the access key's id (login) and the secret access key (password), or "
                "neither to use the machine's"
            )
        return keys

    def _service_config(self) -> Mapping[str, Any]:
        return self.object("s3", self.object("service_config"))

    def _path_style(self, endpoint_url: str | None) -> bool:
        """Whether to use path style, by botocore's rule: at custom endpoints by default, at Amazon's only if set."""
        style = self.object("s3", self.object("config_kwargs")).get("addressing_style", "auto")
        if style not in ("auto", "path", "virtual"):
            raise self.refused("has an addressing_style that is not auto, path or virtual")
        return style == "path" or (style == "auto" and endpoint_url is not None)


def _session_name(text: str) -> str:
    """A text with only the characters that a role's session name allows."""
    return re.sub(r"[^\w+=,.@-]", "", text, flags=re.ASCII)[:64]
