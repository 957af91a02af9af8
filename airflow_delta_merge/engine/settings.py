"""The session settings that tune or turn off the engine's own shortcuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway

#: A table property. Delta refuses unknown properties that begin with ``delta.``.
PRUNE_BY_SOURCE = "deltaMerge.pruneBySource.enabled"


def _setting(name: str, default: Any) -> Any:
    """A field with the value of a session setting."""
    return field(default=default, metadata={"name": f"spark.deltaMerge.{name}"})


@dataclass(frozen=True)
class Settings:
    """The session's settings for the engine's shortcuts.

    :param prune_by_source: whether the source's keys choose the target's files and rows, and bounds in NOT MATCHED BY
        SOURCE conditions its files. The table property :data:`PRUNE_BY_SOURCE` can turn it off, too.
    :param shortcuts: whether merges may skip steps: write a source without keeping it, write in the pass that joins,
        make new rows from the source alone, choose files from a list on the driver.
    :param use_checksum: whether a small table's files and its applications' transactions are read from its version's
        checksum file, where Delta lists them, instead of replaying its log.
    :param small_merge_bytes: maximum size of source and candidate files of a small merge, which joins all columns once,
        in one task. A few files of less in all aren't pruned by clusters of keys. 0: no merge is small.
    :param copy_files_from_bytes: minimum total size of the touched files for which they are copied natively without the
        rows that clauses take, where possible. 0: always.
    :param broadcast_bytes: sources up to this size are broadcast, so the target is never shuffled. The hash table takes
        two to three times this size in the driver and in each executor.
    :param key_filter_from_rows: minimum candidate rows per core before a Bloom filter of the source's keys is used, if
        the source has far fewer rows; four times as many if it is broadcast and its key is one number. 0: always.
    :param one_pass_from_rows: minimum source rows per candidate file before a merge expects to touch them all.
    """

    prune_by_source: bool = _setting("pruneBySource.enabled", True)
    shortcuts: bool = _setting("shortcuts.enabled", True)
    use_checksum: bool = _setting("useChecksum.enabled", True)
    small_merge_bytes: int = _setting("smallMergeBytes", 8 * 1024 * 1024)
    copy_files_from_bytes: int = _setting("copyFilesFromBytes", 8 * 1024 * 1024)
    broadcast_bytes: int = _setting("broadcastBytes", 64 * 1024 * 1024)
    key_filter_from_rows: int = _setting("keyFilterFromRows", 1_000_000)
    one_pass_from_rows: int = _setting("onePassFromRows", 25)

    @classmethod
    def of(cls, gateway: Gateway) -> Settings:
        """Read them from the session.

        :raises MergeConfigError: when a value is invalid.
        """
        return cls(**{each.name: _value(gateway, each.metadata["name"], each.default) for each in fields(cls)})

    def of_table(self, table_property: Callable[[str], str | None]) -> Settings:
        """The settings for a table, whose properties may turn off pruning by the source.

        :param table_property: returns a property's value by its name; None if it isn't set.
        :raises MergeConfigError: when a value is invalid.
        """
        value = table_property(PRUNE_BY_SOURCE)
        if value is None or _is_true(f"table property {PRUNE_BY_SOURCE}", value):
            return self
        return replace(self, prune_by_source=False)


def _value(gateway: Gateway, name: str, default: Any) -> Any:
    value = gateway.conf_if_set(name)
    if value is None:
        return default
    if isinstance(default, bool):
        return _is_true(f"setting {name}", value)
    if not value.isdecimal():
        raise MergeConfigError(f"The setting {name} is {value!r}: set it to a whole number, 0 or greater.")
    return int(value)


def _is_true(what: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise MergeConfigError(f"The {what} is {value!r}: set it to true or false.")
    return value.lower() == "true"
