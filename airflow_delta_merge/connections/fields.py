"""Reads and checks the fields of an Airflow connection to an object store or to Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection, mask_secret

from airflow_delta_merge.exceptions import DeltaMergeError, StoreAccessError


def existing_connection(conn_id: str, error: type[DeltaMergeError], advice: str) -> Connection:
    """Get a connection. Its ``extra_dejson`` is a dict.

    :param error: the error to raise when there is none, or its extra has another form. Not an AirflowException:
        Airflow's Spark hook would then fall back to YARN.
    :param advice: what to do if there is none, as a sentence.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as missing:
        raise error(f"There is no Airflow connection {conn_id!r}. {advice}") from missing
    if not _is_object(connection.extra):  # of the environment or a secrets backend
        raise error(f"The connection {conn_id!r} has an extra that is not a JSON object. Correct or empty it.")
    return connection


def _is_object(extra: str | None) -> bool:
    """Whether an extra can be read; Airflow takes what is no JSON for empty, with all that it forbids."""
    try:
        return not (extra or "").strip() or isinstance(json.loads(extra or ""), dict)
    except ValueError:
        return False


@dataclass(frozen=True)
class ConnectionFields:
    """Reads a connection's fields.

    :param connection: the connection.
    :param kind: the provider's name, for messages: ``AWS``.
    :cvar error: what is raised when the connection can't be used.
    """

    connection: Connection
    kind: str
    error: ClassVar[type[DeltaMergeError]] = StoreAccessError

    @classmethod
    def of(cls, conn_id: str, kind: str, *, parameter: str, types: tuple[str, ...]) -> Self:
        """Find a connection.

        :param parameter: the parameter that names the connection, for messages: ``aws_conn_id``.
        :param types: the allowed connection types.
        :raises DeltaMergeError: :attr:`error` when there is no such connection, or it has another type.
        """
        connection = existing_connection(conn_id, cls.error, f"Create it, or correct {parameter}.")
        if connection.conn_type not in types:
            raise cls.error(
                f"The connection {conn_id!r}, which {parameter} names, has type {connection.conn_type!r}. It must have "
                f"type {' or '.join(map(repr, types))}."
            )
        return cls(connection, kind)

    @property
    def extra(self) -> Mapping[str, Any]:
        extra: dict[str, Any] = self.connection.extra_dejson
        return extra

    def object(self, name: str, parent: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """A JSON object in the extra, or in an object of it; empty if it is missing."""
        value = (self.extra if parent is None else parent).get(name) or {}
        if not isinstance(value, Mapping):
            raise self.refused(f"has a {name} that is not a JSON object")
        return value

    def value(self, name: str, parent: Mapping[str, Any] | None = None) -> Any:
        """A field of the extra, or of an object in it; None if it is empty or missing.

        Older releases of Airflow store a form's field as ``extra__<type>__<name>``.
        """
        fields = self.extra if parent is None else parent
        return fields.get(name) or fields.get(f"extra__{self.connection.conn_type}__{name}") or None

    def text(self, name: str, parent: Mapping[str, Any] | None = None) -> str | None:
        """Like :meth:`value`, for a field that must be a string."""
        value = self.value(name, parent)
        if value is not None and not isinstance(value, str):
            raise self.refused(f"has a {name} that is not a string")
        return value

    def refused(self, why: str) -> DeltaMergeError:
        """An error that says why the connection can't be used."""
        return self.error(f"The {self.kind} connection {self.connection.conn_id!r} {why}.")


def mask(*secrets: str | None) -> None:
    """Make Airflow mask these secrets; None is ignored."""
    for secret in secrets:
        if secret:
            mask_secret(secret)
