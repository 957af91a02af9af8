"""Azurite, Microsoft's own server of Azure's blobs for tests, and how Hadoop's ABFS driver and ``deltalake`` reach it.

It comes from npm. The driver speaks to it at the blob endpoint, as to accounts without hierarchical namespaces; of such
an address Hadoop 3.5.0 doesn't know the account's name and writes "null", so that is the account's name here.
"""

from __future__ import annotations

import base64
import hmac
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from airflow_delta_merge.jars import Jar, fetched
from scripts.real_airflow import free_port

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache" / "azurite"
VERSION = "3.35.0"
ACCOUNT, KEY = "null", base64.b64encode(b"of the tests" * 5).decode()
SECONDS_TO_START = 60

_JARS = [
    Jar(
        "org.apache.hadoop",
        "hadoop-azure",
        "3.5.0",
        "220b5db238b82437960e4b81c7e3eefa4eff2a03ad502887497f11d0ad86e663",
    ),
    Jar(
        "com.microsoft.azure",
        "azure-storage",
        "7.0.1",
        "32249cf9b550e247e257c0a508f93526d35e072509aa637fd33b3d54e267b1e2",
    ),
    Jar(
        "com.microsoft.azure",
        "azure-keyvault-core",
        "1.0.0",
        "d8c6ca5bc1c50fd2c74d81b8731b67aa72fa5c9e086623439ba4e950138937a0",
    ),
    Jar(
        "org.wildfly.openssl",
        "wildfly-openssl",
        "2.1.4.Final",
        "95decbc5d088b40e85f58d7726b8c8f4e3be6312a0f2660c2d714a23cee80279",
    ),
    Jar(
        "org.hdrhistogram",
        "HdrHistogram",
        "2.1.12",
        "9b47fbae444feaac4b7e04f0ea294569e4bc282bc69d8c2ce2ac3f23577281e2",
    ),
]


def azure_jars() -> list[str]:
    """Hadoop's ABFS driver and what it needs that Spark lacks."""
    return fetched(_JARS)


def spark_properties(port: int) -> dict[str, str]:
    """How the driver reaches the server."""
    settings = {
        "abfs.endpoint": f"127.0.0.1:{port}",
        f"account.key.{ACCOUNT}.dfs.core.windows.net": KEY,
        f"account.key.{ACCOUNT}.blob.core.windows.net": KEY,
        "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB",
        "networking.library": "JDK_HTTP_URL_CONNECTION",
        "always.use.https": "false",
    }
    return {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}


def storage_options(port: int) -> dict[str, str]:
    """The same by the names of ``deltalake``."""
    return {
        "azure_storage_account_name": ACCOUNT,
        "azure_storage_account_key": KEY,
        "azure_endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
        "allow_http": "true",
    }


def _make_container(port: int, name: str) -> None:
    """By Azure's REST API, whose signatures are described at "Authorize with Shared Key"."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = [*(f"{header}:{value}" for header, value in headers.items()), f"/{ACCOUNT}/{ACCOUNT}/{name}"]
    text = "PUT" + "\n" * 12 + "\n".join([*signed, "restype:container"])
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"},
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
    with (folder / "azurite.log").open("wb") as log:
        command = [str(program), "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
        process = subprocess.Popen(
            [*command, "--location", str(folder / "azurite")], env=environment, stdout=log, stderr=log
        )
        try:
            deadline = time.monotonic() + SECONDS_TO_START
            while b"successfully listens" not in (folder / "azurite.log").read_bytes():
                assert process.poll() is None, (folder / "azurite.log").read_text()
                assert time.monotonic() < deadline, "Azurite never started"
                time.sleep(0.2)
            _make_container(port, container)
            yield port
        finally:
            process.terminate()
            process.wait(20)
