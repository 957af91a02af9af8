"""Names the task in errors of a DAG that is being parsed: Airflow's list of import errors shows no line of the DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


@contextmanager
def task_named(task_id: Any, which: str = "") -> Iterator[None]:
    """Add a task's id, and which of the mapped ones it is, to an error about its arguments."""
    try:
        yield
    except (ValueError, TypeError) as error:
        error.add_note(f"This is about the task {task_id!r}{which}.")
        raise


def names_its_task(init: Callable[..., None]) -> Callable[..., None]:
    """Let the ``__init__`` of an operator name its task in each error."""

    @wraps(init)
    def named(self: Any, *args: Any, **kwargs: Any) -> None:
        with task_named(kwargs.get("task_id")):
            init(self, *args, **kwargs)

    return named
