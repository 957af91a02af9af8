"""Programs that serve the tests, for as long as these run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS_TO_START = 60


@contextmanager
def serving(
    log: Path,
    *commands: Sequence[str],
    is_up: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Iterator[None]:
    """Run programs that make up a server, and wait until it is up.

    :param log: where their output goes.
    :param is_up: asked until it says so.
    :param environment: theirs; by default this process's.
    :param user: as whom they run; by default as this process.
    """
    with log.open("wb") as output:
        processes = [
            subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=ROOT, user=user)
            for command in commands
        ]
        try:
            deadline = time.monotonic() + SECONDS_TO_START
            while not is_up():
                assert all(process.poll() is None for process in processes), log.read_text()
                assert time.monotonic() < deadline, f"the server of {log} never started"
                time.sleep(0.1)
            yield
        finally:
            for process in processes:
                process.terminate()
                process.wait(20)
