"""Waiting for a Delta table's log, in the sensor or in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    BaseSensorOperator,
    PokeReturnValue,
)
from jinja2 import UndefinedError

from airflow_delta_merge.config.checks import is_output, option_text, require_bool
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.exceptions import TableLogError
from airflow_delta_merge.operators.arguments import check_is_known, is_unknown, to_plain
from airflow_delta_merge.operators.checked_partial import checked_partial
from airflow_delta_merge.operators.rendering import none_in_this_run
from airflow_delta_merge.operators.templates import is_expression, with_missing_dates

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial
    from airflow.triggers.base import BaseTrigger


class TableLogSensor(BaseSensorOperator):
    """Waits by poking or, if it is deferrable, by one poke and then its trigger."""

    #: Arguments that are texts, also if the DAG renders templates as Python's values: a date, or an id of digits.
    texts: ClassVar[Sequence[str]]
    #: Arguments that are dicts.
    dicts: ClassVar[Sequence[str]] = ("storage_options",)

    deferrable: bool
    path: Any
    storage_options: dict[str, str]
    aws_conn_id: str | None
    azure_conn_id: str | None
    gcp_conn_id: str | None

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Check the arguments that mapped tasks share; Airflow makes the tasks themselves only in a run."""
        return checked_partial(cls, super().partial, kwargs)

    @classmethod
    def _check_given(cls, given: Mapping[str, Any], *, is_all: bool = False) -> None:
        """Check some of the arguments at parse time, as far as they are known.

        :param is_all: whether there are no others.
        :raises ValueError: when no other arguments could make them valid.
        """
        for name in ("aws_conn_id", "azure_conn_id", "gcp_conn_id", "deferrable"):
            check_is_known(name, given.get(name))
        for name in ("aws_conn_id", "azure_conn_id", "gcp_conn_id"):
            if given.get(name) is not None:
                check_text(name, given[name])
        if given.get("deferrable") is not None:
            require_bool(given["deferrable"], "deferrable")
        if given.get("path") is not None:
            check_path(given["path"])
        for name in cls.dicts:
            check_dict(name, given.get(name))

    def _make_plain(self) -> None:
        """Turn paths into texts, and dicts and None into plain dicts, where Airflow finds templates."""
        self.path = to_plain(self.path)
        for name in self.dicts:
            value = getattr(self, name)
            setattr(self, name, {} if value is None else to_plain(value))

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

    def _found_by(self, event: Mapping[str, Any]) -> Any:
        """What the trigger found. Its errors count as those of a check here.

        :raises AirflowException: if the trigger failed.
        :raises TableLogError: if it may succeed later. With ``soft_fail`` Airflow would skip the task for any other.
        """
        if "found" in event:
            return event["found"]
        is_lasting = event.get("type") == AirflowFailException.__name__
        error = AirflowFailException if is_lasting else TableLogError if self.soft_fail else AirflowException
        raise error(f"Waiting for {self.path} failed: {event.get('error')}")

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, *args: Any, **kwargs: Any
    ) -> None:
        """Render, and have Airflow mask the secrets. Mapped sensors come here, too."""
        names = [name for name in template_fields if _is_needed(getattr(parent, name))]
        try:
            super()._do_render_template_fields(parent, template_fields, with_missing_dates(context), *args, **kwargs)
        except UndefinedError as error:
            raise AirflowFailException(str(error)) from error
        for name in names:
            if getattr(parent, name) in (None, "None"):  # without its condition the sensor would succeed too early
                raise AirflowFailException(str(none_in_this_run(name)))
        for name in self.texts:
            if (value := getattr(self, name)) is not None:
                setattr(self, name, str(value))
        if self.path is not None:
            try:
                check_path(self.path)
            except ValueError as error:
                raise AirflowFailException(str(error)) from error
        for name in self.dicts:
            _check_dict(name, getattr(self, name))
        self.storage_options = {name: option_text(value) for name, value in self.storage_options.items()}
        mask_secrets(self.storage_options)


def _is_needed(value: Any) -> bool:
    """Whether an argument has a value in each run; a template with ``{% if … %}`` may leave it out."""
    return is_output(value) or is_expression(value)


def _check_dict(argument: str, value: Any) -> None:
    """Check a dict that has its values of this run."""
    if not isinstance(value, Mapping):
        raise AirflowFailException(f"{argument} must be a dict, but is {value!r:.80} in this run. Correct it.")
    for key, part in value.items():
        if str(part) == "None":
            raise AirflowFailException(str(none_in_this_run(f"{argument}.{key}")))


def check_text(argument: str, value: Any) -> None:
    """Check an argument that is a text or a path, or that only the run knows.

    :raises ValueError: when it is something else, or empty.
    """
    value = to_plain(value)
    if not is_unknown(value) and (not isinstance(value, str) or not value.strip()):
        raise ValueError(f"{argument} must be a string that is not empty, got {value!r:.80}.")


def check_path(value: Any) -> None:
    """Check the path of a table. A name would be a folder of the worker's working directory.

    :raises ValueError: when it is something else, and not known only in the run.
    """
    check_text("path", value)
    path = to_plain(value)
    if not is_unknown(path) and "/" not in path:
        raise ValueError(
            f"path must be a folder or a URI, with a /, got {path!r:.80}. A sensor can't look up a table's name."
        )


def check_dict(argument: str, value: Any) -> None:
    """Check an argument that is a dict or None, or that only the run knows.

    :raises ValueError: when it is something else.
    """
    if value is not None and not is_unknown(value) and not isinstance(value, Mapping):
        raise ValueError(f"{argument} must be a dict of names and values, got {value!r:.80}.")


def check_number(argument: str, value: Any, *, least: int = 0) -> None:
    """Check an argument that is a whole number, also as text, or None, or that only the run knows.

    :param least: the least number.
    :raises ValueError: when it is something else.
    """
    is_number = value >= least if type(value) is int else isinstance(value, str) and value.isdecimal()
    if value is not None and not is_unknown(value) and not is_number:
        raise ValueError(f"{argument} must be a whole number ≥ {least} or a template of one, got {value!r:.80}.")


def whole_number(argument: str, value: int | str | None, *, least: int = 0) -> int | None:
    """The value of an argument in this run; None if it is empty.

    :param least: the least number.
    :raises AirflowFailException: when it is no whole number, or less.
    """
    if value is None or value == "":
        return None
    with suppress(TypeError, ValueError):
        if (number := int(value)) >= least:
            return number
    raise AirflowFailException(
        f"{argument} must be a whole number ≥ {least}, but is {value!r} in this run. Correct it, or its template."
    )
