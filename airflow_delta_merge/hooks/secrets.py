"""Which values of a task's arguments are secrets, for Airflow to mask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.providers.common.compat.sdk import mask_secret, redact

# What Spark itself takes for a secret (spark.redaction.regex), and how storage drivers name theirs: keys and shared
# access signatures of Azure accounts, private keys. But not the names of classes and files that go with them.
_SECRET_NAME = re.compile(
    r"secret|password|passwd|passphrase|token|credential|\bsas\b|(access|account|private|api)[._-]?key", re.IGNORECASE
)
_MASK = "***"
_NO_SECRET_NAME = re.compile(r"(provider|type|class|enabled|impl|file|path|expiration)s?$", re.IGNORECASE)


def mask_secrets(*arguments: Any) -> None:
    """Let Airflow mask each value in (nested) dicts whose name looks like a secret's, wherever it would be shown."""
    for argument in arguments:
        for value in _secrets(argument):
            mask_secret(value)


def holds_secrets(options: Mapping[str, Any]) -> list[str]:
    """The names of options whose values look like secrets."""
    return [name for name, value in options.items() if next(_secrets({name: value}), None) is not None]


def masked_parts(values: Any) -> Iterator[str]:
    """What Airflow, in this process, masks of the texts in (nested) dicts and lists: so that another one can."""
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
    elif isinstance(value, str) and value and _SECRET_NAME.search(name) and not _NO_SECRET_NAME.search(name):
        yield value
