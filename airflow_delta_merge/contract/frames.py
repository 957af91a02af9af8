"""Messages between a task and a kept Spark: JSON objects over a Unix socket, each with its length in front."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

#: Files in a kept Spark's folder: what identifies it, which is removed as soon as it takes no more merges; where it
#: listens; and what its driver's process locks, with its id in it.
KIND = "kind"
SOCKET = "socket"
SERVER_LOCK = "server.lock"
#: Longest message in bytes: a request or an outcome of a hundred merges has a few hundred kB.
MOST_BYTES = 64 << 20
#: Longest path of a Unix socket in bytes, on Linux.
LONGEST_PATH = 107
_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")  # process, user and group


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message.

    :raises OSError: when the other side is gone.
    """
    text = json.dumps(message, ensure_ascii=False).encode("utf-8", errors="surrogatepass")
    connection.sendall(_LENGTH.pack(len(text)) + text)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Wait for a message.

    :return: the message; None when the other side has closed the connection.
    :raises OSError: when the connection breaks, or its timeout is over.
    :raises ValueError: when it is no message.
    """
    header = _read(connection, _LENGTH.size)
    if header is None:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > MOST_BYTES:
        raise ValueError(f"A message of {length} bytes is too long.")
    text = _read(connection, length)
    if text is None:
        return None
    message = json.loads(text.decode("utf-8", errors="surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("A message must be a JSON object.")
    return message


def peer_uid(connection: socket.socket) -> int:
    """The user of the process at the other end of a Unix socket, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _read(connection: socket.socket, length: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
