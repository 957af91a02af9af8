"""Access to S3 by an Airflow connection of type ``aws``, for Spark (``s3a://``) and for ``deltalake``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection, mask_secret

from airflow_delta_merge.exceptions import DeltaMergeError

CONNECTION_TYPE = "aws"

# By these Airflow's own hook gets other credentials than those that stand in the connection.
_OTHER_CREDENTIALS = ("role_arn", "assume_role_kwargs", "profile_name", "session_kwargs")
_SESSION_CREDENTIALS = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_KEY_CREDENTIALS = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"


class S3AccessError(DeltaMergeError):
    """The AWS connection is missing, or asks for what can't be had by its plain fields."""


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """Who asks which S3, and how.

    Without keys whoever asks takes what its machine gives: the environment, or the role of the instance.

    :param access_key: the access key's id.
    :param secret_key: the secret access key.
    :param session_token: what goes with temporary keys.
    :param region: e.g. ``eu-central-1``.
    :param endpoint_url: where S3 is, if it isn't Amazon's.
    :param path_style: whether the bucket stands in the path of an address, not in its host.
    """

    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    endpoint_url: str | None = None
    path_style: bool = False

    @classmethod
    def of(cls, conn_id: str) -> S3Access:
        """Read it from a connection, and have Airflow mask its keys.

        It is read by its fields. One that asks for other credentials than those that stand in it, by a role or a
        profile, signs in by the hook of Airflow's Amazon provider, where that is installed.

        :raises S3AccessError: when there is no such connection, it asks for what isn't done, or can't sign in.
        """
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise S3AccessError(f"There is no Airflow connection {conn_id!r}, which aws_conn_id names.") from error
        if connection.conn_type != CONNECTION_TYPE:
            raise S3AccessError(
                f"The connection {conn_id!r}, which aws_conn_id names, is of type {connection.conn_type!r}; it must be "
                f"of type {CONNECTION_TYPE!r}."
            )
        access = _Reader(connection).access()
        for secret in (access.access_key, access.secret_key, access.session_token):
            if secret:
                mask_secret(secret)
        return access

    def spark_properties(self) -> dict[str, str]:
        """What Hadoop's S3A driver is told, as Spark properties."""
        settings = {
            "access.key": self.access_key,
            "secret.key": self.secret_key,
            "session.token": self.session_token,
            "endpoint": self.endpoint_url,
            "endpoint.region": self.region,
            "path.style.access": str(self.path_style).lower(),
        }
        if self.secret_key:
            # Only this: Hadoop's default would go on to whatever else it finds on the driver's machine.
            settings["aws.credentials.provider"] = _SESSION_CREDENTIALS if self.session_token else _KEY_CREDENTIALS
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items() if value}

    def storage_options(self) -> dict[str, str]:
        """The same by the names of ``deltalake``."""
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


class _Reader:
    """Reads a connection's fields, by the names that Airflow's Amazon provider gives them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._extra: dict[str, Any] = connection.extra_dejson

    def access(self) -> S3Access:
        if self._object(self._extra, "config_kwargs").get("signature_version"):
            raise self._refused("has a signature_version in its config_kwargs, which isn't followed here")
        if self._extra.get("verify") not in (None, "", True):
            raise self._refused(
                "has verify set, which Spark's S3A driver doesn't know: put the certificate into Java's truststore"
            )
        access_key, secret_key = self._keys()
        endpoint_url = self._text(self._service_config(), "endpoint_url") or self._text(self._extra, "endpoint_url")
        if endpoint_url and not endpoint_url.startswith(("http://", "https://")):
            raise self._refused("has an endpoint_url that doesn't begin with http:// or https://")
        region, session_token = self._text(self._extra, "region_name"), self._text(self._extra, "aws_session_token")
        asked_for = next((name for name in _OTHER_CREDENTIALS if self._extra.get(name)), None)
        if asked_for is not None:
            access_key, secret_key, session_token, region = self._signed_in(asked_for)
        return S3Access(
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            region=region,
            endpoint_url=endpoint_url,
            path_style=self._path_style(endpoint_url),
        )

    def _signed_in(self, asked_for: str) -> tuple[str, str, str | None, str | None]:
        """Access key, secret key, session token and region as Airflow's Amazon provider gets them."""
        try:
            from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
        except ImportError as error:
            raise self._refused(
                f"has a {asked_for}, which Airflow's Amazon provider follows: install "
                "apache-airflow-providers-amazon, this package's extra amazon; or put keys into it, or let it name "
                "none and give the role to the machine where Spark runs"
            ) from error
        try:
            session = AwsBaseHook(aws_conn_id=self._connection.conn_id, client_type="s3").get_session()
            credentials = session.get_credentials().get_frozen_credentials()
        except Exception as error:  # of boto, of the provider, of whatever it asks
            raise self._refused(f"could not sign in by its {asked_for}: {type(error).__name__}: {error}") from error
        return credentials.access_key, credentials.secret_key, credentials.token, session.region_name

    def _keys(self) -> tuple[str | None, str | None]:
        keys = self._connection.login or None, self._connection.password or None
        if keys == (None, None):
            keys = self._text(self._extra, "aws_access_key_id"), self._text(self._extra, "aws_secret_access_key")
        if None in keys and (keys != (None, None) or self._extra.get("aws_session_token")):
            raise self._refused(
                "has only a part of its keys: it needs the access key's id (login) and the secret access key "
                "(password), or neither for those of the machine"
            )
        return keys

    def _service_config(self) -> Mapping[str, Any]:
        return self._object(self._object(self._extra, "service_config"), "s3")

    def _path_style(self, endpoint_url: str | None) -> bool:
        """By botocore's rule: at an endpoint of one's own unless told otherwise, at Amazon's only when told."""
        style = self._object(self._object(self._extra, "config_kwargs"), "s3").get("addressing_style", "auto")
        if style not in ("auto", "path", "virtual"):
            raise self._refused("has an addressing_style that is none of auto, path and virtual")
        return style == "path" or (style == "auto" and endpoint_url is not None)

    def _object(self, parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = parent.get(name) or {}
        if not isinstance(value, Mapping):
            raise self._refused(f"has a {name} that is no JSON object")
        return value

    def _text(self, parent: Mapping[str, Any], name: str) -> str | None:
        value = parent.get(name) or None
        if value is not None and not isinstance(value, str):
            raise self._refused(f"has a {name} that is no text")
        return value

    def _refused(self, why: str) -> S3AccessError:
        return S3AccessError(f"The AWS connection {self._connection.conn_id!r} {why}.")
