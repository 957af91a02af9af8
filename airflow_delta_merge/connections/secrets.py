"""Finds secrets among a task's arguments, for Airflow to mask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from airflow.providers.common.compat.sdk import mask_secret, redact

# Spark's own pattern for secrets (spark.redaction.regex), and the names of storage drivers' secrets: keys and shared
# access signatures of Azure accounts, private keys. Excluded below: names of related classes and files.
_SECRET_NAME = re.compile(
    r"secret|password|passwd|passphrase|token|credential|\bsas\b|(access|account|private|api)[._-]?key", re.IGNORECASE
)
_MASK = "***"
# In a text: name=value in the query of a URL, in a JDBC URL or in a connection string; and user:password@host.
_NAME_AND_VALUE = re.compile(r"(?:^|[?&;])\s*([\w.-]+)\s*=\s*(\{(?:[^}]|\}\})*\}|[^&;\s'\"`]+)")
_PASSWORD_OF_USER = re.compile(r"://[^/@:\s]*:([^/@\s]+)@")
# In a JDBC URL also: Oracle's user/password@host, MySQL's (name=value,name=value) and DB2's :name=value.
_PASSWORD_OF_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/@\s]*/(\"[^\"]+\"|[^@\s]+)@")
_JDBC_URL = re.compile(r"jdbc:[^\s'\"`]+")
_NAME_AND_VALUE_OF_JDBC = re.compile(r"[(,:]([\w.-]+)=([^&;,()\s]+)")
_NAME_IN_TEXT = re.compile(r"^(sig|pwd)$|signature$", re.IGNORECASE)
_NO_SECRET_NAME = re.compile(r"(provider|type|class|enabled|impl|file|path|expiration|name)s?$", re.IGNORECASE)


def mask_secrets(*arguments: Any) -> None:
    """Make Airflow mask the secrets among these values.

    These are values in (nested) dicts whose name looks like a secret's, and parts of any text: the values of
    ``password=``, ``sig=``, ``token=``, ``AccountKey=`` and the like in a URL, a path or a connection string.
    """
    for argument in arguments:
        for value in _secrets(argument):
            mask_secret(value)


def holds_secrets(options: Mapping[str, Any]) -> list[str]:
    """The names of options whose values look like secrets."""
    return [name for name, value in options.items() if next(_secrets({name: value}), None) is not None]


def masked_parts(values: Any) -> Iterator[str]:
    """The parts of texts in (nested) dicts and lists that Airflow masks in this process, to mask them in another."""
    if isinstance(values, Mapping):
        for item in values.values():
            yield from masked_parts(item)
    elif isinstance(values, (list, tuple)):
        for item in values:
            yield from masked_parts(item)
    elif isinstance(values, str):
        shown = str(redact(values)).split(_MASK)
        hidden = re.fullmatch("(.+?)".join(map(re.escape, shown)), values, re.DOTALL)
        yield from (part for part in (hidden.groups() if hidden else ()) if part != _MASK)


def _secrets(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, f"{name} {key}")
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _secrets(item, name)
    elif isinstance(value, str) and value:
        if _is_secret(name):
            yield value
        else:
            yield from _secrets_in_text(value)


def holds_password(text: str) -> bool:
    """Whether a URL in the text has a user's password."""
    return bool(_PASSWORD_OF_USER.search(text))


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _NO_SECRET_NAME.search(name) is None


def _secrets_in_text(text: str) -> Iterator[str]:
    pairs = _NAME_AND_VALUE.findall(text)
    pairs += [pair for url in _JDBC_URL.findall(text) for pair in _NAME_AND_VALUE_OF_JDBC.findall(url)]
    found = [value for name, value in pairs if _is_secret(name) or _NAME_IN_TEXT.search(name)]
    for value in [*found, *_PASSWORD_OF_USER.findall(text), *_PASSWORD_OF_ORACLE.findall(text)]:
        yield value
        bare = value[1:-1].replace("}}", "}") if value.startswith("{") else value.strip('"')
        # Drivers may print it without quotes, or decoded.
        yield from (other for other in dict.fromkeys((bare, unquote(value))) if other not in ("", value))
