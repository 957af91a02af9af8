"""S3Proxy, the S3 server of ``docker-compose.yaml``, as a process: it keeps objects in a folder, and asks for keys.

Of writers at the same time it lets one win, as S3 does. moto, which starts in a second, stays for everything else.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.real_airflow import free_port
from tests.object_storage.s3_server import KEYS

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache" / "s3proxy"
INSTALL = ROOT / "deploy" / "s3" / "install.sh"
VERSION = INSTALL.read_text().partition("version=")[2].split()[0]
SECONDS_TO_START = 60


@contextmanager
def s3proxy(folder: Path, bucket: str) -> Iterator[str]:
    """The address of a server that runs, with one bucket."""
    environment = {**os.environ, "S3PROXY_HOME": str(HOME), "TMPDIR": str(folder)}
    if not (HOME / "s3proxy.jar").exists():
        subprocess.run(["sh", str(INSTALL)], env=environment, check=True)
    environment |= {"S3PROXY_ADDRESS": f"127.0.0.1:{free_port()}"}
    environment |= {"S3_ACCESS_KEY": KEYS["login"], "S3_SECRET_KEY": KEYS["password"]}
    with (folder / "s3proxy.log").open("wb") as log:
        command = ["sh", str(ROOT / "deploy/s3/serve.sh"), str(folder / "buckets"), bucket]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + SECONDS_TO_START
            while b"Started" not in (folder / "s3proxy.log").read_bytes():
                assert process.poll() is None, (folder / "s3proxy.log").read_text()
                assert time.monotonic() < deadline, "S3Proxy never started"
                time.sleep(0.2)
            yield f"http://{environment['S3PROXY_ADDRESS']}"
        finally:
            process.terminate()
            process.wait(20)
