"""The Spark applications that ``keep_warm`` keeps running on this machine: finds, names and ends them."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_delta_merge.contract.frames import KIND, LONGEST_PATH, SERVER_LOCK, SOCKET, peer_uid, receive, send
from airflow_delta_merge.exceptions import KeptSparkError
from airflow_delta_merge.launch.keeper import LOCK, is_locked, remove_folder, works_in
from airflow_delta_merge.launch.staging import Staging, own_folders

#: Maximum number of kept Sparks per user and machine. Each needs several hundred MB.
MAX_KEPT = 4
#: Longest wait for an answer. On a busy machine Python may need seconds for one.
_SECONDS_TO_ANSWER = 60.0


@dataclass(frozen=True)
class KeptSpark:
    """A Spark application that takes merges from several tasks.

    :param folder: its staging folder, which also has its socket.
    """

    folder: Path

    @property
    def socket_path(self) -> Path:
        return self.folder / SOCKET

    @property
    def takes_merges(self) -> bool:
        """Whether it takes merges, now or once it has started."""
        return (self.folder / KIND).exists() and is_locked(self.folder / LOCK)

    @classmethod
    def all(cls) -> list[KeptSpark]:
        """This user's kept Sparks that take merges."""
        return [kept for kept in map(cls, own_folders()) if kept.takes_merges]

    @classmethod
    def find(cls, kind: str) -> KeptSpark | None:
        """The kept Spark of this kind, if there is one."""
        for kept in cls.all():
            with suppress(OSError):  # it no longer takes merges
                if (kept.folder / KIND).read_text() == kind:
                    return kept
        return None

    @classmethod
    def make(cls, staging: Staging, kind: str) -> KeptSpark:
        """Register a new one. The caller starts it.

        :raises KeptSparkError: when the path of its socket is too long.
        """
        kept = cls(staging.folder)
        if len(os.fsencode(kept.socket_path)) > LONGEST_PATH:
            raise KeptSparkError(
                f"keep_warm can't create a socket in {tempfile.gettempdir()}, because the path is too long. Set TMPDIR "
                "to a shorter path."
            )
        staging.write(KIND, kind)
        return kept

    def connect(self) -> socket.socket:
        """Connect to it.

        :raises OSError: when it doesn't listen, or no longer does.
        :raises KeptSparkError: when the folder or the process isn't this user's alone.
        """
        require_private(self.folder)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_SECONDS_TO_ANSWER)
            connection.connect(str(self.socket_path))
            if (uid := peer_uid(connection)) != os.getuid():
                raise KeptSparkError(
                    f"The socket {self.socket_path} belongs to a process of user {uid}. Remove the folder."
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def end_if_idle(self) -> bool:
        """Ask it to end, and return whether it will."""
        with suppress(OSError, ValueError), self.connect() as connection:
            send(connection, {"end": "if idle"})
            answer = receive(connection)
            return answer is not None and bool(answer.get("ends"))
        return False


@contextmanager
def user_lock() -> Iterator[None]:
    """Hold this user's lock on this machine while searching for and starting kept Sparks.

    :raises KeptSparkError: when another user can reach the locked folder.
    """
    folder = Path(tempfile.gettempdir()) / f"airflow-delta-merge-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    require_private(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def require_private(folder: Path) -> None:
    """Check that only this user has access to a folder.

    :raises KeptSparkError: when it has another owner or mode, or is a link.
    """
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o170777 != 0o040700:
        raise KeptSparkError(
            f"keep_warm needs {folder} as a folder of user {os.getuid()} with mode 0700, but it belongs to user "
            f"{status.st_uid} and has mode {status.st_mode & 0o7777:04o}. Find out who created it, and remove it."
        )


def make_room() -> bool:
    """Whether another Spark may be kept. If there are too many, this first asks idle ones to end."""
    kept = KeptSpark.all()
    return len(kept) < MAX_KEPT or any(each.end_if_idle() for each in kept)


def remove_orphans() -> None:
    """End kept Sparks whose keeper was killed, and remove their folders. Call it under :func:`user_lock`."""
    for folder in own_folders():
        with suppress(OSError, ValueError):
            if not (folder / KIND).exists() and not (folder / SERVER_LOCK).exists():
                continue
            if not (folder / LOCK).exists() or is_locked(folder / LOCK):
                continue
            if is_locked(folder / SERVER_LOCK):
                server = int((folder / SERVER_LOCK).read_text())
                if works_in(server, folder):
                    os.killpg(os.getpgid(server), signal.SIGKILL)
            remove_folder(folder)
