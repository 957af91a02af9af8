"""Names in Spark SQL: ``catalog.schema.table`` and ``struct.field``, quoted with backticks."""

from __future__ import annotations

import re

from airflow_delta_merge.exceptions import MergeConfigError


def quote_identifier(part: str) -> str:
    """Quote one name part, so that it may contain any character: ``a`b`` becomes `` `a``b` ``."""
    return "`" + part.replace("`", "``") + "`"


def quote_multipart(parts: tuple[str, ...]) -> str:
    """Quote each part and join them with dots: ``("db", "my table")`` becomes `` `db`.`my table` ``."""
    return ".".join(quote_identifier(part) for part in parts)


def quote_name(name: str) -> str:
    """Quote each part of a name: ``db.my table`` becomes `` `db`.`my table` ``.

    :raises MergeConfigError: as :func:`parse_multipart`.
    """
    return quote_multipart(parse_multipart(name))


def quote_text(text: str) -> str:
    """A text in Spark SQL: ``it's`` becomes ``('it' || chr(39) || 's')``.

    With ``spark.sql.parser.escapedStringLiterals`` a backslash is a character like any other, so it escapes nothing.
    """
    parts = [f"chr({ord(part)})" if part in "'\\" else f"'{part}'" for part in re.split(r"(['\\])", text) if part]
    return f"({' || '.join(parts)})" if len(parts) > 1 else "".join(parts) or "''"


def parse_multipart(name: str) -> tuple[str, ...]:
    """Split a name at its dots. Inside backticks a dot is a character and a doubled backtick a backtick.

    Outside backticks, every character except a dot and a backtick is literal, so a column named ``order id`` needs no
    quotes here.

    :raises MergeConfigError: for an empty name or part, or a backtick that is never closed.
    """
    parts: list[str] = []
    position = 0
    while True:
        part, position = _read_part(name, position)
        parts.append(part)
        if position == len(name):
            return tuple(parts)
        position += 1  # the dot


def _read_part(name: str, start: int) -> tuple[str, int]:
    """Read the part that begins at ``start``. Returns it and the position of the dot (or end) after it."""
    if name.startswith("`", start):
        part, end = _read_quoted(name, start)
    else:
        end = name.find(".", start)
        end = len(name) if end < 0 else end
        part = name[start:end]
        if "`" in part:
            raise MergeConfigError(
                f"{name!r} is not a valid name: backticks must enclose a whole part, and are doubled inside it."
            )
    if not part.strip():
        raise MergeConfigError(f"{name!r} is not a valid name: a part is empty.")
    return part, end


def _read_quoted(name: str, start: int) -> tuple[str, int]:
    position = start + 1
    while True:
        closing = name.find("`", position)
        if closing < 0:
            raise MergeConfigError(f"{name!r} is not a valid name: a backtick is never closed.")
        if not name.startswith("``", closing):
            break
        position = closing + 2
    if closing + 1 < len(name) and name[closing + 1] != ".":
        raise MergeConfigError(
            f"{name!r} is not a valid name: a closing backtick must be followed by a dot or the end."
        )
    return name[start + 1 : closing].replace("``", "`"), closing + 1
