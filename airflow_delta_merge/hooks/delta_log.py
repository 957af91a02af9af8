"""A Delta table's log read without Spark, by ``deltalake``: what sensors and triggers wait for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_delta_merge.identity import application_id

if TYPE_CHECKING:
    from deltalake import DeltaTable

# A log that is listed while somebody commits may lack a file in the middle, which deltalake takes for a broken log.
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0)
_INSTALL = "Install it where this runs: pip install 'airflow-provider-delta-merge[deltalake]'."


@dataclass(frozen=True, kw_only=True)
class TableCondition:
    """What a table's log is to tell; all that is given must be true, and the table be there.

    :param path: the table's folder or URI.
    :param storage_options: access to its storage, by the names of ``deltalake``.
    :param version: the table has this version or a later one.
    :param updated_since: its newest commit is of this moment or later (ISO 8601; UTC when it names no zone).
    :param partition: it has a file in this partition, by the values of some or all partition columns.
    :param merged_by: a task instance has merged into it: ``dag_id``, ``task_id``, ``run_id``, and ``map_index`` or
        ``namespace`` if it has them.
    """

    path: str
    storage_options: dict[str, str] = field(default_factory=dict)
    version: int | None = None
    updated_since: str | None = None
    partition: dict[str, str] = field(default_factory=dict)
    merged_by: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON types, for the arguments of a trigger."""
        return asdict(self)

    def met_by(self) -> int | None:
        """The version of the table that meets the condition, None as long as there is none.

        :raises AirflowFailException: when waiting won't help: ``deltalake`` is missing or can't read such a table.
        :raises AirflowException: when the log can't be read, at the last of several looks either.
        """
        try:
            from deltalake.exceptions import DeltaError
        except ImportError as error:
            raise AirflowFailException(
                f"The log of {self.path} is read by deltalake, which is missing. {_INSTALL}"
            ) from error
        for pause in _PAUSES_SECONDS:
            try:
                return self._look()
            except DeltaError:
                time.sleep(pause)
        try:
            return self._look()
        except DeltaError as error:
            (what, *_) = str(error).splitlines()  # the rest are frames without names
            raise AirflowException(
                f"The log of {self.path} can't be read, tried {len(_PAUSES_SECONDS) + 1} times: {what} Is the storage "
                "reachable with these storage_options, and can Spark read the table?"
            ) from error

    def _look(self) -> int | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

        options = self.storage_options or None
        if not DeltaTable.is_deltatable(self.path, options):
            return None
        try:
            table = DeltaTable(self.path, storage_options=options)
            return table.version() if self._is_met(table) else None
        except TableNotFoundError:  # dropped since
            return None
        except DeltaError as error:
            if not isinstance(error, DeltaProtocolError) and "Unsupported" not in str(error):
                raise
            raise AirflowFailException(
                f"This release of deltalake can't read {self.path}: {error}. Upgrade it, or wait for the merge itself "
                "with DeltaMergeSensor."
            ) from error

    def _is_met(self, table: DeltaTable) -> bool:
        if self.version is not None and table.version() < self.version:
            return False
        if self.updated_since is not None and _last_update(table) < _moment(self.updated_since):
            return False
        if self.merged_by and table.transaction_version(application_id(**self.merged_by)) is None:
            return False
        filters = [(name, "=", value) for name, value in self.partition.items()]
        return not filters or bool(table.file_uris(filters))


def check_condition(*, merged_by: Mapping[str, Any], updated_since: str | None) -> None:
    """Check the parts of a condition whose values are known.

    :raises ValueError: for what no run could make right.
    """
    known, needed = {"dag_id", "task_id", "run_id", "map_index", "namespace"}, {"dag_id", "task_id", "run_id"}
    if merged_by and not needed <= set(merged_by) <= known:
        raise ValueError(
            f"merged_by names a task instance by dag_id, task_id and run_id (and map_index or namespace), not by "
            f"{', '.join(merged_by)}."
        )
    if updated_since is not None and "{{" not in updated_since:
        _moment(updated_since)


def _last_update(table: DeltaTable) -> datetime:
    return datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"updated_since is {text!r}, which is no moment like 2026-01-31T06:00:00+00:00.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
