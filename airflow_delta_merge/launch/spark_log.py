"""Spark's own complete log: a file among Airflow's logs, kept as long as these."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.common.compat.sdk import conf

#: The folder below ``[logging] base_log_folder``.
FOLDER = "delta_merge"
_LONGEST_NAME = 200  # bytes; file systems take 255, and the names of a DAG and a task may be longer together

log = logging.getLogger(__name__)


@dataclass
class SparkLog:
    """The file that gets every line.

    :param path: the file; None if it can't be written.
    """

    path: Path | None

    @classmethod
    def of(cls, name: str) -> SparkLog:
        """The path for an application of this name; the file isn't created yet.

        It ends with ``.log`` so that Airflow's own log clean-up finds it.
        """
        base = conf.get("logging", "base_log_folder", fallback="")
        if not base:
            return cls(None)
        whole = re.sub(r"[^\w.=+-]+", "_", name)
        application = whole.encode()[:_LONGEST_NAME].decode(errors="ignore").strip(".") or "merge"
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
        return cls(Path(base).expanduser() / FOLDER / application / f"{moment}-{uuid.uuid4().hex[:6]}.log")

    def open(self) -> bool:
        """Create the file, and return whether it was created. The merge continues without it."""
        if self.path is None:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(0o640, exist_ok=False)
        except FileExistsError:
            return False
        except OSError as error:
            log.warning("Spark's own log is not kept, because %s cannot be created: %s", self.path, error.strerror)
            self.path = None
            return False
        return True

    def write(self, lines: Iterable[str]) -> None:
        """Append lines, whose secrets must be masked; none if the file was never created.

        The merge that starts a kept Spark creates it, and the others have no file.
        """
        if self.path is None or not self.path.exists():
            return
        try:
            with self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line.rstrip()}\n" for line in lines)
        except OSError as error:
            log.warning("Spark's own log in %s is incomplete: %s", self.path, error.strerror)
            self.path = None
