"""The fields of an Airflow connection to an object store, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection, mask_secret

from airflow_delta_merge.exceptions import StoreAccessError


@dataclass(frozen=True)
class ConnectionFields:
    """Reads a connection's fields.

    :param connection: the connection.
    :param kind: whose it is, for messages: ``AWS``.
    """

    connection: Connection
    kind: str

    @classmethod
    def of(cls, conn_id: str, kind: str, *, parameter: str, types: tuple[str, ...]) -> Self:
        """Find a connection.

        :param parameter: what names the connection, for messages: ``aws_conn_id``.
        :param types: the connection types that it may have.
        :raises StoreAccessError: when there is none, or it is of another type.
        """
        try:
            connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise StoreAccessError(f"There is no Airflow connection {conn_id!r}, which {parameter} names.") from error
        if connection.conn_type not in types:
            raise StoreAccessError(
                f"The connection {conn_id!r}, which {parameter} names, is of type {connection.conn_type!r}; it must be "
                f"of type {' or '.join(map(repr, types))}."
            )
        return cls(connection, kind)

    @property
    def extra(self) -> Mapping[str, Any]:
        extra: dict[str, Any] = self.connection.extra_dejson
        return extra

    def object(self, name: str, parent: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """A field that is a JSON object, of the extra or of an object in it; an empty one if it isn't there."""
        value = (self.extra if parent is None else parent).get(name) or {}
        if not isinstance(value, Mapping):
            raise self.refused(f"has a {name} that is no JSON object")
        return value

    def value(self, name: str, parent: Mapping[str, Any] | None = None) -> Any:
        """A field of the extra, or of an object in it; None if it is empty or isn't there.

        Older releases of Airflow's forms keep a field as ``extra__<type>__<name>``.
        """
        fields = self.extra if parent is None else parent
        return fields.get(name) or fields.get(f"extra__{self.connection.conn_type}__{name}") or None

    def text(self, name: str, parent: Mapping[str, Any] | None = None) -> str | None:
        """As :meth:`value`, of a field that must be a text."""
        value = self.value(name, parent)
        if value is not None and not isinstance(value, str):
            raise self.refused(f"has a {name} that is no text")
        return value

    def refused(self, why: str) -> StoreAccessError:
        """The error that says why the connection can't be used."""
        return StoreAccessError(f"The {self.kind} connection {self.connection.conn_id!r} {why}.")


def mask(*secrets: str | None) -> None:
    """Have Airflow mask secrets wherever they would be shown; None is none."""
    for secret in secrets:
        if secret:
            mask_secret(secret)
