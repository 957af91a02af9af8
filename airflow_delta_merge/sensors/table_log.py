"""Waiting for a Delta table's log, in the sensor or in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    BaseSensorOperator,
    PokeReturnValue,
)
from jinja2 import UndefinedError

from airflow_delta_merge.config.checks import option_text
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.exceptions import TableLogError
from airflow_delta_merge.operators.templates import with_missing_dates

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger


class TableLogSensor(BaseSensorOperator):
    """Waits by poking or, if it is deferrable, by one poke and then its trigger."""

    #: Arguments that are texts, also if the DAG renders templates as Python's values: a date, or an id of digits.
    texts: ClassVar[Sequence[str]]

    deferrable: bool
    storage_options: dict[str, str]
    aws_conn_id: str | None
    azure_conn_id: str | None
    gcp_conn_id: str | None

    @abstractmethod
    def _look(self, context: Context) -> PokeReturnValue:
        """Check once."""

    @abstractmethod
    def _trigger(self, context: Context) -> BaseTrigger:
        """The trigger that waits; its event goes to ``execute_complete``."""

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once; if it is deferrable, then wait in the triggerer.

        It defers here and not in ``execute``, where Airflow treats errors by ``soft_fail`` and its kind.
        """
        looked = self._look(context)
        if self.deferrable and not looked.is_done:
            self.defer(
                trigger=self._trigger(context), method_name="execute_complete", timeout=timedelta(seconds=self.timeout)
            )
        return looked

    def _found_by(self, event: Mapping[str, Any], path: str) -> Any:
        """What the trigger found. Its errors count as those of a check here.

        :raises AirflowException: if the trigger failed.
        :raises TableLogError: if it may succeed later. With ``soft_fail`` Airflow would skip the task for any other.
        """
        from airflow_delta_merge.triggers.delta_table import found_by

        try:
            return found_by(event, path)
        except AirflowFailException:
            raise
        except AirflowException as error:
            if self.soft_fail:
                raise TableLogError(str(error)) from error
            raise

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, *args: Any, **kwargs: Any
    ) -> None:
        """Render, and have Airflow mask the secrets. Mapped sensors come here, too."""
        try:
            super()._do_render_template_fields(parent, template_fields, with_missing_dates(context), *args, **kwargs)
        except UndefinedError as error:
            raise AirflowFailException(str(error)) from error
        for name in self.texts:
            if (value := getattr(self, name)) is not None:
                setattr(self, name, str(value))
        self.storage_options = {name: option_text(value) for name, value in self.storage_options.items()}
        mask_secrets(self.storage_options)


def whole_number(argument: str, value: int | str | None) -> int | None:
    """The value of an argument in this run; None if it is empty.

    :raises AirflowFailException: when it is none.
    """
    if value is None or value == "":
        return None
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise AirflowFailException(
            f"{argument} must be a whole number, but is {value!r} in this run. Correct it, or its template."
        ) from error
