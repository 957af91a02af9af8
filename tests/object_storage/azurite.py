"""Azurite, Microsoft's own server of Azure's blobs for tests, and how Hadoop's ABFS driver and ``deltalake`` reach it.

It comes from npm. The driver speaks to it at the blob endpoint, as to accounts without hierarchical namespaces; of such
an address Hadoop 3.5.0 doesn't know the account's name and writes "null", so that is the account's name here.
"""

from __future__ import annotations

import base64
import hmac
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

from scripts.real_airflow import free_port
from tests.object_storage.server import ROOT, serving

HOME = ROOT / ".cache" / "azurite"
VERSION = "3.35.0"
ACCOUNT, KEY = "null", base64.b64encode(b"of the tests" * 5).decode()
OTHER_KEY = base64.b64encode(b"of somebody!" * 5).decode()


def spark_properties(port: int) -> dict[str, str]:
    """How the driver reaches the server, beside its key."""
    settings = {
        "abfs.endpoint": f"127.0.0.1:{port}",
        "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB",
        "networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one, its default, can't do without TLS
        "always.use.https": "false",
    }
    return {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}


def storage_options(port: int) -> dict[str, str]:
    """The same by the names of ``deltalake``."""
    return {"azure_endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}", "allow_http": "true"}


def sas_token() -> str:
    """A shared access signature for the whole account, as Azure's page "Create an account SAS" tells."""
    token = {"sp": "rwdlac", "ss": "b", "srt": "sco", "se": "2100-01-01T00:00:00Z", "spr": "https,http"}
    version = "2021-08-06"
    signed = [ACCOUNT, token["sp"], token["ss"], token["srt"], "", token["se"], "", token["spr"], version, "", ""]
    return urlencode({**token, "sv": version, "sig": _signature("\n".join(signed))})


def _signature(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()


def _make_container(port: int, name: str) -> None:
    """By Azure's REST API, whose signatures are described at "Authorize with Shared Key"."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = [*(f"{header}:{value}" for header, value in headers.items()), f"/{ACCOUNT}/{ACCOUNT}/{name}"]
    text = "PUT" + "\n" * 12 + "\n".join([*signed, "restype:container"])
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {ACCOUNT}:{_signature(text)}", "Content-Length": "0"},
    )
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()


@contextmanager
def azurite(folder: Path, container: str) -> Iterator[int]:
    """The port of a server that runs, with one container."""
    program = HOME / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(HOME), f"azurite@{VERSION}"]
        subprocess.run(install, check=True)
    port = free_port()
    command = [str(program), "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    log = folder / "azurite.log"
    with serving(
        log,
        [*command, "--location", str(folder / "azurite")],
        is_up=lambda: b"successfully listens" in log.read_bytes(),
        environment=environment,
    ):
        _make_container(port, container)
        yield port
