"""An STS that S3A can reach: by TLS at its own port, as it knows no other, before moto's, with keys that soon end."""

from __future__ import annotations

import datetime as dt
import re
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

PASSWORD = "of the tests"
HOST = "127.0.0.44"  # of the loopback's, one of which nobody else listens at this port


@dataclass
class Sts:
    """One that runs.

    :param endpoint_url: where.
    :param truststore: a Java truststore that has its certificate, with :data:`PASSWORD`.
    :param asked: what it was asked so far, by parameters of the API.
    """

    endpoint_url: str
    truststore: Path
    asked: list[dict[str, str]] = field(default_factory=list)

    @property
    def java_options(self) -> str:
        """By which a JVM trusts it."""
        return (
            f'-Djavax.net.ssl.trustStore={self.truststore} "-Djavax.net.ssl.trustStorePassword={PASSWORD}" '
            "-Djavax.net.ssl.trustStoreType=PKCS12"
        )


@contextmanager
def sts(folder: Path, behind: str, seconds: float) -> Iterator[Sts]:
    """Run one.

    :param behind: the address of moto's.
    :param seconds: after how many its keys end, by what it says.
    """
    certificate, truststore = folder / "sts.pem", folder / "trusted.p12"
    _run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=sts",
         "-addext", f"subjectAltName=IP:{HOST}", "-keyout", certificate, "-out", folder / "public.pem")  # fmt: skip
    with certificate.open("a") as file:
        file.write((folder / "public.pem").read_text())
    _run("keytool", "-importcert", "-noprompt", "-file", folder / "public.pem", "-alias", "sts", "-storetype", "PKCS12",
         "-keystore", truststore, "-storepass", PASSWORD)  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            running.asked.append({name: value[0] for name, value in parse_qs(body.decode()).items()})
            # Of the headers moto tells by that which service is meant.
            headers = {name: self.headers[name] for name in ("Authorization", "Content-Type", "X-Amz-Date")}
            request = urllib.request.Request(behind, body, headers)
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
                answer = response.read()
            end = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
            answer = re.sub(rb"<Expiration>[^<]*<", f"<Expiration>{end}<".encode(), answer)
            self.send_response(200)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer((HOST, 443), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        running = Sts(f"https://{HOST}", truststore)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield running
        finally:
            server.shutdown()


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
