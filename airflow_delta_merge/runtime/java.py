"""The only prerequisite that is not a Python package: Java 17 or 21, found in the same way as spark-submit does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from airflow_delta_merge.exceptions import JavaError

SUPPORTED_VERSIONS = (17, 21)
_SECONDS_TO_ANSWER = 60.0

_FIX = (
    "Install Java 17 or 21 (e.g. `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`), and set "
    "JAVA_HOME to its folder or put `java` on the PATH."
)


class Java(NamedTuple):
    """An installation of Java.

    :param path: the path of its executable.
    :param version: its major version.
    """

    path: str
    version: int


def check_java() -> Java:
    """Find Java as spark-submit does: ``JAVA_HOME`` if it is set, else the ``PATH``.

    :raises JavaError: when Java is missing, does not start, or has an unsupported version; the message has the fix.
    """
    java = _find()
    major = _major_version(java)
    if major not in SUPPORTED_VERSIONS:
        raise JavaError(f"Spark needs Java 17 or 21, but {java} is Java {major}. {_FIX}")
    return Java(java, major)


def takes_option(option: str) -> bool:
    """Whether the Java that :func:`check_java` finds takes an option without a warning. Not every release has each."""
    try:
        done = _run([_find(), option, "-version"])
    except (OSError, subprocess.SubprocessError):  # e.g. on a machine that is too busy
        return False
    return done.returncode == 0 and "warning" not in (done.stdout + done.stderr).lower()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_SECONDS_TO_ANSWER, check=False
    )


def _find() -> str:
    home = os.environ.get("JAVA_HOME", "")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaError(f"Spark needs Java, but JAVA_HOME is {home} and there is no executable {java}. {_FIX}")
        return str(java)
    on_path = shutil.which("java")
    if on_path is None:
        raise JavaError(f"Spark needs Java, but JAVA_HOME is not set and there is no `java` on the PATH. {_FIX}")
    return on_path


def _major_version(java: str) -> int:
    try:
        done = _run([java, "-version"])
        done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"Spark needs Java, but {java} does not start ({error}). {_FIX}") from error
    # e.g. `openjdk version "17.0.15" 2025-04-15`; Java 8 calls itself 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None:
        raise JavaError(f"Spark needs Java, but {java} does not report its version. {_FIX}")
    return int(found[1])
