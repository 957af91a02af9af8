"""How far a merge has come, for its error messages; and errors that must not end it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
