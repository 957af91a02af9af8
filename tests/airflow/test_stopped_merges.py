"""What a task leaves behind when a guard stops its merge."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import mask_secret

from airflow_delta_merge.contract.outcome import JobError
from airflow_delta_merge.exceptions import MergeExecutionError, MergeGuardError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.errors import error_of_job
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.stopped_merges import STOPPED_BY_GUARD
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.test_links import MERGE, Ti

STOPPED = MergeGuardError("It would delete 7 rows of the secret of this merge.")


def left_by(monkeypatch: pytest.MonkeyPatch, error: Exception, ti: Ti, **arguments: Any) -> None:
    """Run the operator with a hook whose merge fails; the task fails with just that."""

    def merge(*_: Any, **__: Any) -> None:
        raise raised

    raised = error_of_job(JobError.of(error), "`t`")
    monkeypatch.setattr(DeltaMergeHook, "merge", merge)
    operator = DeltaMergeOperator(task_id="merge", exactly_once=False, **MERGE, **arguments)
    with pytest.raises(DeltaMergeException) as caught:
        operator.execute({"ti": ti})  # type: ignore[typeddict-item]
    assert caught.value is raised


def test_what_the_guard_said_is_an_xcom_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    mask_secret("the secret of this merge")
    left_by(monkeypatch, STOPPED, ti := Ti())
    assert ti.pushed == {STOPPED_BY_GUARD: "It would delete 7 rows of ***."}


def test_other_failures_leave_no_such_xcom(monkeypatch: pytest.MonkeyPatch) -> None:
    left_by(monkeypatch, MergeExecutionError("No such column."), ti := Ti())
    assert ti.pushed == {}


def test_a_task_that_pushes_no_xcoms_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    left_by(monkeypatch, STOPPED, ti := Ti(), do_xcom_push=False)
    assert ti.pushed == {}


def test_a_mark_that_cannot_be_stored_does_not_hide_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(Ti):
        def xcom_push(self, key: str, value: str) -> None:
            raise OSError("Airflow's API is away.")

    left_by(monkeypatch, STOPPED, Away())
