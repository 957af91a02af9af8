"""Stands before fake-gcs-server: ``python -m tests.object_storage.gcs_front PORT BACKEND KEY SECONDS``.

That server asks for no sign-in and knows JSON uploads only. This one gives out tokens for an account's key and lets
nobody in without one, takes the XML uploads of ``deltalake``, heeds ``start-after`` in XML lists, and takes some
seconds for each commit, so that writers meet.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

TOKEN = "of-the-tests"

_HEADERS_OF_A_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding"}
_BOUNDARY = "of-the-tests"
_COMMIT = re.compile(r"_delta_log(/|%2F)\d{20}\.json")


class _Server(ThreadingHTTPServer):
    """One for one account.

    :param port: where it listens.
    :param backend: the port of the server behind it.
    :param key: the account's key, in PEM.
    :param seconds_of_a_commit: how long the upload of a commit takes.
    """

    daemon_threads = True

    def __init__(self, port: int, backend: int, key: str, seconds_of_a_commit: float) -> None:
        super().__init__(("127.0.0.1", port), _Front)
        self.backend = backend
        self.seconds_of_a_commit = seconds_of_a_commit
        private = serialization.load_pem_private_key(key.encode(), None)
        assert isinstance(private, rsa.RSAPrivateKey)
        self._public_key = private.public_key()

    def is_signed(self, token: str) -> bool:
        """Whether a JSON web token was signed with the account's key and still holds."""
        try:
            signed, signature = token.rsplit(".", 1)
            decoded = base64.urlsafe_b64decode(f"{signature}==")
            self._public_key.verify(decoded, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(base64.urlsafe_b64decode(f"{signed.split('.')[1]}=="))
        except (ValueError, IndexError, InvalidSignature):
            return False
        return bool(claims["exp"] > time.time())


class _Front(BaseHTTPRequestHandler):
    """One connection of a client's."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.behind = http.client.HTTPConnection("127.0.0.1", self.server.backend, timeout=60)

    def finish(self) -> None:
        self.behind.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        """Nothing: the server behind has a log."""

    def do_any(self) -> None:
        body = self._body()
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if self.path == "/token":
            self._give_token(body)
        elif scheme != "Bearer" or not (token == TOKEN or self.server.is_signed(token)):
            self._answer(401, {}, b"")
        elif self.command == "PUT" and not self.path.startswith("/upload/"):
            self._upload(body)
        else:
            if self.command == "POST" and _COMMIT.search(self.path):
                time.sleep(self.server.seconds_of_a_commit)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HEADERS_OF_A_HOP}
            status, found, content = self._ask(self.command, self.path, body, headers)
            self._answer(status, found, _after(content, parse_qs(urlsplit(self.path).query)))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_any

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _give_token(self, body: bytes) -> None:
        known = self.server.is_signed(parse_qs(body.decode())["assertion"][0])
        answer = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"} if known else {"error": "unknown"}
        self._answer(200 if known else 401, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _upload(self, body: bytes) -> None:
        """An upload of the XML API, as one of the JSON API."""
        if _COMMIT.search(self.path):
            time.sleep(self.server.seconds_of_a_commit)
        bucket, _, name = urlsplit(self.path).path[1:].partition("/")
        query = {"uploadType": "multipart"}
        if "x-goog-if-generation-match" in self.headers:
            query["ifGenerationMatch"] = self.headers["x-goog-if-generation-match"]
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        part = f"--{_BOUNDARY}\r\nContent-Type: application/%s\r\n\r\n"
        described = part % "json" + json.dumps({"name": unquote(name)}) + "\r\n" + part % "octet-stream"
        parts = described.encode() + body + f"\r\n--{_BOUNDARY}--\r\n".encode()
        headers = {"Content-Type": f"multipart/related; boundary={_BOUNDARY}", "Host": self.headers["Host"]}
        status, _, content = self._ask("POST", path, parts, headers)
        made = json.loads(content) if status == 200 else {"etag": "", "generation": ""}
        self._answer(status, {"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]}, b"")

    def _ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        self.behind.request(method, path, body or None, headers)
        response = self.behind.getresponse()
        return response.status, dict(response.headers), response.read()

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HEADERS_OF_A_HOP:
                self.send_header(name, value)
        of_content = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", of_content)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _after(content: bytes, query: Mapping[str, list[str]]) -> bytes:
    """A list of the XML API, without the names up to the one that it was to start after."""
    if "start-after" not in query:
        return content
    last = query["start-after"][0].encode()
    return re.sub(rb"<Contents><Key>(.*?)</Key>.*?</Contents>", lambda m: m[0] if m[1] > last else b"", content)


if __name__ == "__main__":
    port, backend, key, seconds = sys.argv[1:]
    _Server(int(port), int(backend), Path(key).read_text(), float(seconds)).serve_forever()
