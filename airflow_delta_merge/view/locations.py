"""Compares a table's location with a connection's ``allowed_locations``, without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from airflow_delta_merge.assets.delta import SCHEMES_OF_ONE_STORE

#: What ``deltalake`` can read and merges write to. Others could be any server.
READABLE_SCHEMES = frozenset({"file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs"})
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>/.*)?", re.DOTALL)


def plain_location(location: str) -> str | None:
    """A location as ``deltalake`` takes it: a local path, or a store's URI; None for any other.

    :param location: an absolute path or a URI, as Spark writes it.
    """
    scheme, authority, path = _parts(location)
    if scheme not in READABLE_SCHEMES or not path.startswith("/") or ".." in path.split("/"):
        return None
    path = path.rstrip("/")
    if scheme == "file":
        return None if authority else path or None
    return f"{scheme}://{authority}{path}" if authority and path else None


def is_allowed(location: str, allowed: Iterable[str] | None) -> bool:
    """Whether a location is under one of the allowed ones. What can't be compared is not.

    :param location: a result of :func:`plain_location`.
    :param allowed: the connection's ``allowed_locations``; None allows everything.
    """
    return allowed is None or any(_is_under(location, each) for each in allowed)


def _is_under(location: str, folder: str) -> bool:
    scheme, authority, path = _canonical(location)
    of_scheme, of_authority, of_path = _canonical(folder)
    if ".." in path.split("/") or ".." in of_path.split("/"):
        return False
    names, of_names = _names(path), _names(of_path)
    return (scheme, authority) == (of_scheme, of_authority) and names[: len(of_names)] == of_names


def _canonical(location: str) -> tuple[str, str, str]:
    scheme, authority, path = _parts(location)
    if scheme == "file":
        path = os.path.realpath(path)
    return SCHEMES_OF_ONE_STORE.get(scheme, scheme), authority, path


def _parts(location: str) -> tuple[str, str, str]:
    if location.startswith("/"):
        return "file", "", location
    found = _URI.fullmatch(location)
    if found is None:
        return "", "", location
    return found["scheme"].lower(), found["authority"] or "", found["path"] or ""


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
