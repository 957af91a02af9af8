"""One merge, given as a ``MERGE`` statement."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import require_text, without_end
from airflow_delta_merge.config.options import MergeOptions
from airflow_delta_merge.config.relations import MergeTarget
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart

_PART = r"(?:`(?:[^`]|``)+`|[^\s`.;,()]+)"
_MERGE_INTO = re.compile(
    rf"\bMERGE\s+(?:WITH\s+SCHEMA\s+EVOLUTION\s+)?INTO\s+(?P<target>{_PART}(?:\s*\.\s*{_PART}){{0,2}})", re.IGNORECASE
)
# Statements around a merge. Spark would run a script itself, without this package's engine, and again at each retry.
_OTHER_STATEMENT = re.compile(r"\s*(?:BEGIN|EXECUTE|EXPLAIN)\b", re.IGNORECASE)
# A name in backticks, which is kept; a comment or a string, in which no statement begins.
_NAME_OR_NOISE = re.compile(r"""(`(?:[^`]|``)*`)|--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class MergeStatement(MergeOptions):
    """An existing ``MERGE INTO`` statement.

    :param sql: the statement, in the dialect of Spark and Delta.
    :param update_only_changed: as for :class:`~airflow_delta_merge.config.MergeConfig`.
    :param guards: as for :class:`~airflow_delta_merge.config.MergeConfig`.
    :param engine: as for :class:`~airflow_delta_merge.config.MergeConfig`.
    :raises MergeConfigError: when the statement has no ``MERGE INTO``.
    """

    _WHAT = "statement"

    sql: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sql", without_end(require_text(self.sql, "sql")).rstrip())
        _ = self.target

    @property
    def target(self) -> MergeTarget:
        """The table behind ``MERGE INTO``."""
        text = _NAME_OR_NOISE.sub(lambda match: match[1] or " ", self.sql)
        found = None if _OTHER_STATEMENT.match(text) else _MERGE_INTO.search(text)
        if found is None:
            raise MergeConfigError(f"sql must be a MERGE INTO statement, got {self.sql[:80]!r}.")
        name = re.sub(r"\s*\.\s*(?=(?:[^`]*`[^`]*`)*[^`]*$)", ".", found["target"])
        parts = parse_multipart(name)
        if len(parts) == 2 and parts[0].lower() == "delta":
            return MergeTarget(path=parts[1])
        return MergeTarget(table=name)

    def to_sql(self) -> str:
        return self.sql

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; ``from_dict`` reads it back."""
        return {"sql": self.sql, **super().to_dict()}
