"""S3Proxy, the S3 server of ``docker-compose.yaml``, as a process: it keeps objects in a folder, and asks for keys.

Of writers at the same time it lets one win, as S3 does. moto, which starts in a second, stays for everything else.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.real_airflow import free_port
from tests.object_storage.s3_server import KEYS
from tests.object_storage.server import ROOT, serving

HOME = ROOT / ".cache" / "s3proxy"
INSTALL = ROOT / "deploy" / "s3" / "install.sh"
VERSION = INSTALL.read_text().partition("version=")[2].split()[0]


@contextmanager
def s3proxy(folder: Path, bucket: str, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a server that runs on this host's address, with one bucket."""
    environment = {**os.environ, "S3PROXY_HOME": str(HOME), "TMPDIR": str(folder)}
    if not (HOME / "s3proxy.jar").exists():
        subprocess.run(["sh", str(INSTALL)], env=environment, check=True)
    environment |= {"S3PROXY_ADDRESS": f"{host}:{free_port()}"}
    environment |= {"S3_ACCESS_KEY": KEYS["login"], "S3_SECRET_KEY": KEYS["password"]}
    command = ["sh", str(ROOT / "deploy/s3/serve.sh"), str(folder / "buckets"), bucket]
    log = folder / "s3proxy.log"
    with serving(log, command, is_up=lambda: b"Started" in log.read_bytes(), environment=environment):
        yield f"http://{environment['S3PROXY_ADDRESS']}"
