"""The command ``airflow-delta-merge`` as a process of its own."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).parent / "airflow-delta-merge"


def run(*arguments: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run it with pipes at its ends."""
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, **how)


def on_a_terminal(*arguments: str | Path, columns: int = 80, **how: Any) -> str:
    """What it shows on a terminal of so many columns, without colours and the like."""
    ours, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    try:
        process = subprocess.Popen([COMMAND, *arguments], stdout=its, stderr=its, env=environment, **how)
    finally:
        os.close(its)
    shown = b""
    try:
        while chunk := _read(ours):
            shown += chunk
    finally:
        os.close(ours)
    assert process.wait(60) == 0, shown.decode()
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).replace("\r\n", "\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux tells the end of a terminal
        return b""
