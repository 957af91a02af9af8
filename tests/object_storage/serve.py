"""Moto's S3 as a program: ``python -m tests.object_storage.serve PORT FOLDER``.

Of objects that are written at the same time S3 takes one after the other; moto, without the lock here, may look for two
of one key before it keeps either. While there is a file ``hold`` in the folder, requests to write an object whose key
ends with the file's text wait, once they have arrived, until the file is gone; each leaves a file ``held.…``.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def serve(port: int, folder: Path) -> None:
    moto = DomainDispatcherApplication(create_backend_app)
    hold = folder / "hold"
    one_at_a_time = threading.Lock()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return moto(environ, start_response)  # type: ignore[no-any-return]
        if hold.exists() and environ["PATH_INFO"].endswith(hold.read_text()):
            (folder / f"held.{uuid.uuid4()}").touch()
            while hold.exists():
                time.sleep(0.05)
        with one_at_a_time:
            return moto(environ, start_response)  # type: ignore[no-any-return]

    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
