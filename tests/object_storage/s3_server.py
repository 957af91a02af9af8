"""A real S3 server of the tests' own: moto's, as a process, which keeps its objects in memory."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scripts.real_airflow import free_port
from tests.airflow.canary import CANARY
from tests.object_storage.server import serving

#: Of a connection to the server, which takes any.
KEYS = {"login": f"{CANARY}-access", "password": f"{CANARY}/secret+key="}


class S3Server:
    """A server that runs.

    :param port: where it listens.
    :param folder: its log, which has each request's method and path, and the files that make it hold some.
    """

    def __init__(self, port: int, folder: Path) -> None:
        # By a name: at an address of numbers every client uses the path style, whatever its settings.
        self.endpoint_url = f"http://localhost:{port}"
        self.log = folder / "s3.log"
        self._folder = folder

    @property
    def client(self) -> Any:
        import boto3

        keys = {"aws_access_key_id": "of-the-tests", "aws_secret_access_key": "of-the-tests"}
        return boto3.client("s3", endpoint_url=self.endpoint_url, region_name="us-east-1", **keys)

    def objects(self, bucket: str) -> dict[str, bytes]:
        """All objects of a bucket, by their keys."""
        client = self.client
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    @contextmanager
    def holding(self, key: str) -> Iterator[Callable[[], list[Path]]]:
        """Hold requests to write an object until the block ends; it gets those that have arrived.

        Each is a file, and goes on when that is deleted.

        :param key: how the object's key ends.
        """
        (self._folder / ".hold").write_text(key)
        (self._folder / ".hold").rename(self._folder / "hold")
        try:
            yield lambda: sorted(self._folder.glob("held.*"))
        finally:
            (self._folder / "hold").unlink()
            for held in self._folder.glob("held.*"):
                held.unlink()

    @contextmanager
    def failing(self, kind: str, key: str = "", times: int = 1_000_000) -> Iterator[Callable[[], int]]:
        """Let requests fail until the block ends; it gets how many have failed.

        :param kind: as in :mod:`tests.object_storage.serve`.
        :param key: how the objects' keys end.
        :param times: how often.
        """
        fault = self._folder / "fault"
        (self._folder / ".fault").write_text(f"{kind} {times} {key}")
        (self._folder / ".fault").rename(fault)
        try:
            yield lambda: times - int(fault.read_text().split(" ")[1])
        finally:
            fault.unlink()


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server that runs."""
    port = free_port()
    server = S3Server(port, folder)
    command = [sys.executable, "-m", "tests.object_storage.serve", str(port), str(folder)]
    with serving(server.log, command, is_up=lambda: _answers(server)):
        yield server


def _answers(server: S3Server) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError):
        opener.open(f"{server.endpoint_url}/moto-api/", timeout=10).close()
        return True
    return False
