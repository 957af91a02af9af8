"""How Spark reaches a database: what Airflow's side writes into Spark's private properties, and the engine reads there.

No config holds any of it: a config is shown, staged and digested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_SECRET_NAME = re.compile("pass|secret|token|key", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class JdbcAccess:
    """How Spark reaches the database of one Airflow connection.

    :param url: the JDBC URL.
    :param driver: the driver's class; None to let Java choose one by the URL.
    :param package: group and artifact of the driver's jar at Maven Central, for a person.
    :param user: the login.
    :param password: the password.
    :param properties: further properties of the driver.
    """

    url: str = field(repr=False)
    driver: str | None = None
    package: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def property_of(conn_id: str) -> str:
        """The Spark property that has it whole; "secret" makes Spark hide the value wherever it shows properties."""
        return f"spark.deltaMerge.jdbc.{conn_id}.secret"

    def reader_options(self) -> dict[str, str]:
        """The options of Spark's reader."""
        given = {"url": self.url, "driver": self.driver, "user": self.user, "password": self.password}
        return {**self.properties, **{name: value for name, value in given.items() if value is not None}}

    def hidden_in(self, text: str) -> str:
        """A text without the secrets, which drivers may quote with their URL."""
        secrets = [value for name, value in self.properties.items() if _SECRET_NAME.search(name)]
        for secret in filter(None, [self.url, self.password, *secrets]):
            text = text.replace(secret, "***")
        return text

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JdbcAccess:
        return cls(**json.loads(text))
