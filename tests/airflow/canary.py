"""A word that every secret of some tests has in it, so that where they went can be looked for."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

#: What must be found nowhere.
CANARY = "canary-5f2c81"


class Watch:
    """Looks, all the time, at every command line of this machine and at the files staged for merges."""

    def __init__(self, temporary: Path, secret: str = CANARY) -> None:
        self._secret = secret.encode()
        self.command_lines = 0
        self.with_canary_on_command_line: set[str] = set()
        self.with_canary: set[tuple[str, int]] = set()
        self.folder_modes: set[int] = set()
        self._temporary = temporary
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.command_lines += 1
                    if self._secret in (line := path.read_bytes()):
                        self.with_canary_on_command_line.add(line.decode())
            for folder in self._temporary.glob("airflow_delta_merge_*"):
                with suppress(OSError):
                    self.folder_modes.add(folder.stat().st_mode & 0o777)
                    for path in folder.iterdir():
                        if path.is_file() and self._secret in path.read_bytes():
                            self.with_canary.add((path.name, path.stat().st_mode))
