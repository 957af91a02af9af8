"""What the check does to this machine: runs commands, installs Debian's packages, and puts the network back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = (ROOT / ".cache" / "compose").resolve()  # runc takes no link
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_TABLES = ("nat", "filter")
#: Words that appear in the rules of a Docker engine with the addresses of :mod:`tests.compose.engine`.
_OURS = ("DOCKER", "docker0", "198.18.")


class CheckError(Exception):
    """The check found something wrong, or can't go on; the message says what."""


def run(command: Sequence[object], environment: Mapping[str, str] | None = None, *, text: str | None = None) -> str:
    """Run a command and return what it prints.

    :param environment: variables beside those of this process.
    :param text: what it reads.

    :raises CheckError: when it fails, with the end of what it printed.
    """
    words = list(map(str, command))
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        input=text or "",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise CheckError(f"{' '.join(words)[:300]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def install(*packages: str) -> None:
    """Install Debian packages.

    :raises CheckError: when this isn't root's Debian, or apt fails.
    """
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CheckError("No Docker engine answers. Start one, or run this as root on Debian, which installs one.")
    print(f"Installing {', '.join(packages)} by apt-get", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"])
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], quiet)


class Network:
    """The machine's forwarding as it was before an engine of ours started."""

    def __init__(self) -> None:
        self._had_docker = any("-N DOCKER" in rule for table in _TABLES for rule in _rules(table))
        self._forwarding = _FORWARDING.read_text()
        # A dockerd that has to switch this on itself also forbids to forward anything else.
        _FORWARDING.write_text("1")

    def restore(self) -> None:
        """Remove rules and bridge of an engine that has ended, unless they were there before it."""
        if self._had_docker:
            return
        for table in _TABLES:
            ours = [rule.split() for rule in _rules(table) if any(word in rule for word in _OURS)]
            for _, *rule in [rule for rule in ours if rule[0] == "-A"]:
                run(["iptables", "-t", table, "-D", *rule])
            for _, chain in [rule for rule in ours if rule[0] == "-N"]:
                run(["iptables", "-t", table, "-F", chain])
                run(["iptables", "-t", table, "-X", chain])
        if Path("/sys/class/net/docker0").exists():
            run(["ip", "link", "delete", "docker0"])
        if not any(rule.startswith("-A FORWARD") for rule in _rules("filter")):  # else somebody else needs it by now
            _FORWARDING.write_text(self._forwarding)


def _rules(table: str) -> list[str]:
    return run(["iptables", "-w", "-t", table, "-S"]).splitlines()
