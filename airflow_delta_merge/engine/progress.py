"""How far a merge has come, for its error messages; and errors that must not end it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_delta_merge.engine.delta_jvm.errors import SPARK_ERRORS, merge_error
from airflow_delta_merge.exceptions import DeltaMergeError, MergeExecutionError

_log = logging.getLogger(__name__)

#: The last step.
COMMIT = "commit"


@dataclass
class Progress:
    """How far a merge has come, for its error messages.

    :param table: the target's name or path.
    :param step: the current step, as a verb with its object.
    """

    table: str = "the target"
    step: str = "reach Spark"

    @property
    def outcome(self) -> str:
        """What is known of the commit, in a sentence."""
        if self.step == COMMIT:
            return "Check the table's history to see whether it committed."
        return "Nothing was committed."


@contextmanager
def only_logged(message: str) -> Iterator[None]:
    """Log an error inside as a warning, for work that must not make a merge fail."""
    try:
        yield
    except Exception:
        _log.warning(message, exc_info=True)


@contextmanager
def without_bare_errors() -> Iterator[Progress]:
    """Turn Spark's and Delta's errors into this package's, and wrap unexpected ones in one that tells the progress.

    :raises MergeExecutionError: for any error that isn't this package's own, which becomes its cause.
    """
    progress = Progress()
    try:
        yield progress
    except DeltaMergeError:
        raise
    except SPARK_ERRORS as error:
        raise merge_error(error) from error
    except Exception as error:
        _log.exception("The merge into %s failed with an unexpected error.", progress.table)
        raise MergeExecutionError(
            f"The merge into {progress.table} failed with an unexpected error at the step {progress.step!r}, "
            f"{type(error).__name__}: {error} {progress.outcome} Please report it with the stack trace in the log. "
            'Until then, try the session setting spark.deltaMerge.pruneBySource.enabled=false, or engine="builtin".'
        ) from error
