"""Searches for secrets of ``.env`` where none may appear: in logs, command lines, images and their layers."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

from tests.compose.composition import Composition
from tests.compose.machine import CheckError

_CHUNK = 1 << 24
_SECONDS_BETWEEN_LOOKS = 2.0
#: Prints the logs of tasks and of Spark's executors.
_PRINT_LOGS = "find /airflow/logs /work -type f -exec cat {} + 2> /dev/null || true"


class CommandLines:
    """The command lines of all containers, looked at again and again.

    :param composition: the services.
    """

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self.lines: set[str] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Collect them until the block ends."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(_SECONDS_BETWEEN_LOOKS):
                with suppress(CheckError):  # of a service that restarts
                    self.lines |= set(self._composition.compose("top").splitlines())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def check_leaks(composition: Composition, command_lines: CommandLines) -> str:
    """Check that no secret appears where others than the services themselves can read it.

    :param command_lines: those that were seen.

    :raises CheckError: when one does.
    """
    secrets = {name: secret.encode() for name, secret in composition.secrets.items()}
    logs = composition.compose("logs", "--no-color")
    kept = [
        composition.run_inside(name, "sh", "-c", _PRINT_LOGS) for name in ("airflow-scheduler", *_workers(composition))
    ]
    images = sorted({str(service["image"]) for service in composition.services.values()})
    texts = {"the services' logs": logs, "the logs of tasks and executors": "".join(kept)}
    texts["a command line"] = "\n".join(command_lines.lines)
    for image in images:
        texts[f"the history of {image}"] = composition.engine.docker("history", "--no-trunc", image)
        texts[f"the settings of {image}"] = composition.engine.docker("image", "inspect", image)
    if not all(texts.values()) or not any("spark-submit" in line.lower() for line in command_lines.lines):
        raise CheckError("Nothing was found where secrets are looked for.")
    for where, text in texts.items():
        _check(secrets, where, [text.encode()])
    size = _check(secrets, "a layer", _layers(composition, images))
    megabytes = sum(map(len, texts.values())) / 2**20
    return (
        f"{len(secrets)} secrets, {megabytes:.0f} MiB of logs, {len(command_lines.lines):,} command lines, "
        f"{len(images)} images of {size / 2**30:.1f} GiB"
    )


def _workers(composition: Composition) -> list[str]:
    return [name for name in composition.running if "worker" in name]


def _check(secrets: Mapping[str, bytes], where: str, chunks: Iterable[bytes]) -> int:
    size, end = 0, b""
    longest = max(map(len, secrets.values()))
    for chunk in chunks:
        size += len(chunk)
        if found := [name for name, secret in secrets.items() if secret in end + chunk]:
            raise CheckError(f"The secret {found[0]} was found in {where}.")
        end = chunk[-longest:]
    return size


def _layers(composition: Composition, images: list[str]) -> Iterator[bytes]:
    """The files of images; tar as Docker writes it doesn't compress them."""
    command = ["docker", "save", *images]
    environment = {**os.environ, **composition.engine.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        output: IO[bytes] | None = process.stdout
        assert output is not None
        while chunk := output.read(_CHUNK):
            yield chunk
    if process.returncode != 0:
        raise CheckError(f"docker save ended with {process.returncode}.")
