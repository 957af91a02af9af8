"""Finds processes by what their command lines name."""

from __future__ import annotations

import psutil


def naming(text: str) -> list[psutil.Process]:
    """The processes with an argument that has this text, without zombies; each has its ``cmdline`` in ``info``."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(text in argument for argument in command):
            found.append(process)
    return found
