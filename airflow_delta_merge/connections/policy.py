"""What the extra of a Spark connection allows merges to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from airflow_delta_merge.exceptions import ConnectionPolicyError


@dataclass(frozen=True)
class ConnectionPolicy:
    """The limits in a connection's extra; a missing limit allows everything.

    :param conn_id: the connection.
    :param allowed_locations: absolute paths or URIs; a merge may only read and write files under them.
    :param allowed_conf: patterns (``spark.sql.*``) for the names of Spark properties that a merge may set.
    """

    conn_id: str
    allowed_locations: tuple[str, ...] | None = None
    allowed_conf: tuple[str, ...] | None = None

    @classmethod
    def of(cls, conn_id: str, extra: Mapping[str, Any]) -> ConnectionPolicy:
        """Read it from a connection's extra.

        :raises ConnectionPolicyError: when a limit is not a list of strings.
        """
        bounds = {name: extra.get(name) for name in ("allowed_locations", "allowed_conf")}
        for name, value in bounds.items():
            if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                raise ConnectionPolicyError(
                    f"{name} in the extra of the Spark connection {conn_id!r} must be a list of strings, got {value!r}."
                )
        return cls(conn_id, **{name: tuple(value) for name, value in bounds.items() if value is not None})

    def check_conf(self, names: Iterable[str]) -> None:
        """Check that the merge may set each Spark property.

        :raises ConnectionPolicyError: when it may not set one.
        """
        if self.allowed_conf is None:
            return
        refused = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in self.allowed_conf)]
        if refused:
            raise ConnectionPolicyError(
                f"The Spark connection {self.conn_id!r} doesn't allow a merge to set {', '.join(refused)}. Its "
                f"allowed_conf is: {', '.join(self.allowed_conf) or 'empty'}."
            )
