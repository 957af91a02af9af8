"""What a Spark connection allows the merges that use it, by its extra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from airflow_delta_merge.exceptions import ConnectionPolicyError


@dataclass(frozen=True)
class ConnectionPolicy:
    """The bounds in a connection's extra; what the extra leaves out is not bounded.

    :param conn_id: the connection.
    :param allowed_locations: paths from the root or URIs, under which all files must lie that a merge reads or writes.
    :param allowed_conf: patterns (``spark.sql.*``) for the names of Spark properties that a merge may set.
    """

    conn_id: str
    allowed_locations: tuple[str, ...] | None = None
    allowed_conf: tuple[str, ...] | None = None

    @classmethod
    def of(cls, conn_id: str, extra: Mapping[str, Any]) -> ConnectionPolicy:
        """Read it from a connection's extra.

        :raises ConnectionPolicyError: for a bound that is no list of texts.
        """
        bounds = {name: extra.get(name) for name in ("allowed_locations", "allowed_conf")}
        for name, value in bounds.items():
            if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                raise ConnectionPolicyError(
                    f"{name} in the extra of the Spark connection {conn_id!r} is a list of texts, not {value!r}."
                )
        return cls(conn_id, **{name: tuple(value) for name, value in bounds.items() if value is not None})

    def check_conf(self, names: Iterable[str]) -> None:
        """Check that each Spark property may be set.

        :raises ConnectionPolicyError: when one may not.
        """
        if self.allowed_conf is None:
            return
        refused = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in self.allowed_conf)]
        if refused:
            raise ConnectionPolicyError(
                f"The Spark connection {self.conn_id!r} doesn't allow a merge to set {', '.join(refused)}; its "
                f"allowed_conf is: {', '.join(self.allowed_conf) or 'empty'}."
            )
