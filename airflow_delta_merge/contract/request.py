"""The request to one Spark application: the JSON file that the job reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.config.checks import check_fields, require_bool
from airflow_delta_merge.config.transport import from_data, to_data
from airflow_delta_merge.contract.identity import MergeIdentity, check_commit_attempts
from airflow_delta_merge.exceptions import MergeConfigError


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """The job's work.

    :param merges: one merge, or several that share a Spark application.
    :param identity: identifies them in the tables, so that each is committed once; None commits at each try.
    :param max_commit_attempts: maximum number of attempts when other writers' commits conflict.
    :param lineage: whether to return column lineage.
    :param dry_run: whether to count only, without a commit.
    :param explain: with ``dry_run``: whether to return Spark's plans, too.
    :param allowed_locations: the locations that the merges may use; None for any.
    :raises MergeConfigError: when a number or a flag is something else.
    """

    merges: MergeConfig | MergeStatement | Sequence[MergeConfig | MergeStatement]
    identity: MergeIdentity | None = None
    max_commit_attempts: int = 1
    lineage: bool = False
    dry_run: bool = False
    explain: bool = False
    allowed_locations: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_commit_attempts(self.max_commit_attempts)
        for name in ("lineage", "dry_run", "explain"):
            require_bool(getattr(self, name), name)

    @property
    def each_merge(self) -> list[MergeConfig | MergeStatement]:
        """The merges as a list, even if there is only one."""
        return [self.merges] if isinstance(self.merges, (MergeConfig, MergeStatement)) else list(self.merges)

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "merges": to_data(self.merges),
            "identity": self.identity and self.identity.to_dict(),
        }

    def to_json(self) -> str:
        """A JSON object; :meth:`from_json` reads it back."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobRequest:
        """Restore it from :meth:`to_json`.

        :raises MergeConfigError: when the text is not a valid request.
        """
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise MergeConfigError(f"The job's request is not JSON: {error}.") from error
        if not isinstance(data, Mapping):
            raise MergeConfigError(f"The job's request must be a JSON object, got {data!r:.80}.")
        check_fields(cls, data, "request")
        identity, locations = data.get("identity"), data.get("allowed_locations")
        return cls(
            **{
                **data,
                "merges": from_data(data["merges"]),
                "identity": None if identity is None else MergeIdentity.from_dict(identity),
                "allowed_locations": None if locations is None else tuple(locations),
            }
        )
