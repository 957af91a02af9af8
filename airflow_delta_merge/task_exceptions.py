"""The exceptions by which a task fails. They are Airflow's, so they stay on the worker."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException


class DeltaMergeException(AirflowException):
    """A merge failed; Airflow's retries apply.

    :param message: what happened and what to do, in sentences.
    :param condition: the error condition of Delta or Spark, if there is one.
    :param sql_state: its SQLSTATE, if there is one.
    :param stopped_by_guard: what a guard said that stopped the merge; None if none did.
    """

    def __init__(
        self,
        message: str,
        *,
        condition: str | None = None,
        sql_state: str | None = None,
        stopped_by_guard: str | None = None,
    ) -> None:
        super().__init__(message)
        self.condition = condition
        self.sql_state = sql_state
        self.stopped_by_guard = stopped_by_guard


class DeltaMergeFailException(DeltaMergeException, AirflowFailException):
    """A merge failed in a way that a retry cannot cure, so Airflow doesn't retry it."""


class EmptySourceException(DeltaMergeFailException):
    """The source has no rows, and the merge's guards don't allow that."""
