"""The sensor that waits for a Delta table from any writer. It reads the table's log, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import PokeReturnValue, conf

from airflow_delta_merge.history.awaited import TableCondition, moment
from airflow_delta_merge.operators.arguments import is_unknown
from airflow_delta_merge.operators.named_errors import names_its_task
from airflow_delta_merge.sensors.table_log import (
    TableLogSensor,
    check_number,
    check_path,
    whole_number,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger


class DeltaTableSensor(TableLogSensor):
    """Waits until a Delta table exists and its log meets all conditions. Its XCom is the table's version.

    Needs the extra ``deltalake``. To wait for a merge and its numbers in a table's log, use
    :class:`~airflow_delta_merge.sensors.delta_merge.DeltaMergeSensor` with ``path``.

    :param path: the table's folder or URI. (templated)
    :param version: wait for this version or a later one. (templated)
    :param updated_since: wait for any commit at this time or later, e.g. ``"{{ data_interval_end }}"``: ISO 8601, in
        UTC if it has no time zone. (templated)
    :param partition: wait for a file in this partition, by the values of some or all partition columns, e.g.
        ``{"day": "{{ ds }}"}``. (templated)
    :param storage_options: access to the storage, by the names of ``deltalake`` (``AWS_ACCESS_KEY_ID`` …); values that
        look like secrets are masked. (templated)
    :param aws_conn_id: for a table in S3: a connection of type ``aws``, read as for merges (see
        ``docs/how_to/object_storage.md``); ``storage_options`` take precedence.
    :param azure_conn_id: the same for a table in Azure's storage: a connection of type ``wasb`` or ``adls``.
    :param gcp_conn_id: the same for a table in Google Cloud Storage: one of type ``google_cloud_platform``.
    :param deferrable: whether to wait in the triggerer, without a worker slot. (Default: ``[operators]
        default_deferrable``.)
    :raises ValueError: when the DAG is parsed, for an invalid ``version`` or ``updated_since``.
    """

    template_fields: Sequence[str] = (
        "path",
        "version",
        "updated_since",
        "partition",
        "storage_options",
    )
    texts = ("path", "updated_since")
    dicts = ("partition", "storage_options")
    ui_color = "#c9f0c9"

    @names_its_task
    def __init__(
        self,
        *,
        path: str,
        version: int | str | None = None,
        updated_since: str | None = None,
        partition: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        aws_conn_id: str | None = None,
        azure_conn_id: str | None = None,
        gcp_conn_id: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.version = version
        self.updated_since = updated_since
        self.partition: Any = partition
        self.storage_options: Any = storage_options
        self.aws_conn_id = aws_conn_id
        self.azure_conn_id = azure_conn_id
        self.gcp_conn_id = gcp_conn_id
        self.deferrable = deferrable
        self._check_given(vars(self), is_all=True)
        self._make_plain()

    @classmethod
    def _check_given(cls, given: Mapping[str, Any], *, is_all: bool = False) -> None:
        super()._check_given(given, is_all=is_all)
        if is_all:
            check_path(given.get("path"))
        check_number("version", given.get("version"))
        since = given.get("updated_since")
        if since is not None and not is_unknown(since):
            moment(str(since))

    def _condition(self) -> TableCondition:
        return TableCondition(
            path=self.path,
            storage_options=self.storage_options,
            aws_conn_id=self.aws_conn_id,
            azure_conn_id=self.azure_conn_id,
            gcp_conn_id=self.gcp_conn_id,
            version=whole_number("version", self.version),
            updated_since=self.updated_since or None,
            partition={name: str(value) for name, value in self.partition.items()},
        )

    def _look(self, context: Context) -> PokeReturnValue:
        version = self._condition().met_by()
        if version is None:
            self.log.info("Waiting for %s", self.path)
        return PokeReturnValue(is_done=version is not None, xcom_value=version)

    def _trigger(self, context: Context) -> BaseTrigger:
        from airflow_delta_merge.triggers.delta_table import DeltaTableTrigger

        return DeltaTableTrigger(
            condition=self._condition().to_dict(), poke_interval=self.poke_interval, silent_fail=self.silent_fail
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> int:
        """Return what the trigger found."""
        return int(self._found_by(event))
