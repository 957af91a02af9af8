"""Spark's own log, whole: a file among Airflow's logs, which stays there as long as these do."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.common.compat.sdk import conf

#: The folder below ``[logging] base_log_folder``.
FOLDER = "delta_merge"

log = logging.getLogger(__name__)


@dataclass
class SparkLog:
    """The file that gets every line.

    :param path: the file; None when there can be none.
    """

    path: Path | None

    @classmethod
    def of(cls, name: str) -> SparkLog:
        """A new file for an application of this name, not made yet.

        It ends with ``.log``, as all files that Airflow's own clean-up of logs looks at.
        """
        base = conf.get("logging", "base_log_folder", fallback="")
        if not base:
            return cls(None)
        application = re.sub(r"[^\w.=+-]+", "_", name).strip(".") or "merge"
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
        return cls(Path(base).expanduser() / FOLDER / application / f"{moment}-{uuid.uuid4().hex[:6]}.log")

    def open(self) -> bool:
        """Make the file, and tell whether it was made. Without a file the merge goes on all the same."""
        if self.path is None:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
        except FileExistsError:
            return False
        except OSError as error:
            log.warning("Spark's own log is not kept, as %s cannot be made: %s", self.path, error.strerror)
            self.path = None
            return False
        return True

    def write(self, lines: Iterable[str]) -> None:
        """Append lines, whose secrets are masked."""
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line.rstrip()}\n" for line in lines)
        except OSError as error:
            log.warning("Spark's own log is not kept to its end in %s: %s", self.path, error.strerror)
            self.path = None
