"""Moto's S3 as a program: ``python -m tests.object_storage.serve PORT FOLDER``.

Of objects that are written at the same time S3 takes one after the other; moto, without the lock here, may look for two
of one key before it keeps either. While there is a file ``hold`` in the folder, requests to write an object whose key
ends with the file's text wait, once they have arrived: each leaves a file ``held.…``, until that is gone.

A file ``fault`` has in one line what goes wrong, how often, and how the key ends of which it goes wrong:

- ``500``, ``503``: a request to write is not carried out, and answered so
- ``lost``: a request to write is carried out, and the connection closed without an answer
- ``deaf``: ``If-None-Match`` is ignored, as some stores do
- ``slow``: a list takes a second more
"""

from __future__ import annotations

import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

REFUSALS = {"500": ("500 Internal Server Error", "InternalError"), "503": ("503 Slow Down", "SlowDown")}


class Faults:
    """What shall go wrong, by a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def take(self, path: str, *kinds: str) -> str | None:
        """The fault of a request, which is one less then; None if nothing goes wrong with it."""
        with self._lock:
            if not self._file.exists():
                return None
            kind, times, key = self._file.read_text().split(" ", 2)
            if kind not in kinds or not path.endswith(key) or times == "0":
                return None
            self._file.write_text(f"{kind} {int(times) - 1} {key}")
            return kind


def serve(port: int, folder: Path) -> None:
    moto = DomainDispatcherApplication(create_backend_app)
    hold = folder / "hold"
    faults = Faults(folder / "fault")
    one_at_a_time = threading.Lock()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            if "list-type=" in environ["QUERY_STRING"] and faults.take("", "slow"):
                time.sleep(1)
            return moto(environ, start_response)  # type: ignore[no-any-return]
        if hold.exists() and environ["PATH_INFO"].endswith(hold.read_text()):
            held = folder / f"held.{uuid.uuid4()}"
            held.touch()
            while held.exists():
                time.sleep(0.05)
        kind = faults.take(environ["PATH_INFO"], "500", "503", "lost", "deaf")
        if kind in ("500", "503"):
            status, code = REFUSALS[kind]
            start_response(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code></Error>".encode()]
        if kind == "deaf":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with one_at_a_time:
            answer = moto(environ, start_response)
        if kind == "lost":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer  # type: ignore[no-any-return]

    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
