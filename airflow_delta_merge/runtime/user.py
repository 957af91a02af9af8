"""The user that merges run as on this machine."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """The name of this process's user; the number if it has no name, as in a container with an arbitrary user id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError before Python 3.13
        return str(os.getuid())
