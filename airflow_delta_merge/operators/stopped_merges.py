"""What becomes of a task whose merge a guard stopped: it is skipped, or it fails and keeps what the guard said as an
XCom, for the page of the table's merges."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowSkipException, redact

from airflow_delta_merge.task_exceptions import DeltaMergeException, EmptySourceException

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context

#: The XCom's key. Airflow removes the XCom when the task is tried again.
STOPPED_BY_GUARD = "stopped_by_guard"
_MOST_CHARACTERS = 2000

log = logging.getLogger(__name__)


@contextmanager
def guards_kept(operator: BaseOperator, context: Context) -> Iterator[None]:
    """Store what a guard said, if one stops the merge, and let the task fail with it."""
    try:
        yield
    except DeltaMergeException as error:
        if error.stopped_by_guard is not None and operator.do_xcom_push:
            try:
                said = str(redact(error.stopped_by_guard))[:_MOST_CHARACTERS]
                context["ti"].xcom_push(key=STOPPED_BY_GUARD, value=said)
            except Exception:  # the task fails by the guard, whatever becomes of its mark
                log.warning("What the guard said could not be stored as an XCom.", exc_info=True)
        raise


@contextmanager
def skipped_if_empty(on_empty_source: str) -> Iterator[None]:
    """Skip the task when its merge's source has no rows.

    :param on_empty_source: the merge's guard; with any other value than ``skip`` the error stays.
    """
    try:
        yield
    except EmptySourceException as error:
        if on_empty_source == "skip":
            raise AirflowSkipException(str(error)) from error
        raise
