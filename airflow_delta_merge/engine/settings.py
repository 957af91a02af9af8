"""The session settings that tune or turn off the engine's own shortcuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm.gateway import Gateway

PREFIX = "spark.deltaMerge."

#: A table property. Delta refuses unknown properties that begin with ``delta.``.
PRUNE_BY_SOURCE = "deltaMerge.pruneBySource.enabled"


@dataclass(frozen=True)
class Settings:
    """The session's settings for the engine's shortcuts.

    :param prune_by_source: ``pruneBySource.enabled``: whether the source's keys choose the target's files and rows, and
        bounds in NOT MATCHED BY SOURCE conditions its files. The table property :data:`PRUNE_BY_SOURCE` can turn it
        off, too.
    :param shortcuts: ``shortcuts.enabled``: whether merges may skip steps: write a source without keeping it, write in
        the pass that joins, make new rows from the source alone, choose files from a list on the driver.
    :param use_checksum: ``useChecksum.enabled``: whether a small table's files and its applications' transactions are
        read from its version's checksum file, where Delta lists them, instead of replaying its log.
    :param small_merge_bytes: ``smallMergeBytes``: maximum size of source and candidate files of a small merge, which
        joins all columns once, in one task. 0: no merge is small.
    :param copy_files_from_bytes: ``copyFilesFromBytes``: minimum total size of the touched files for which they are
        copied natively without the rows that clauses take, where possible. 0: always.
    :param broadcast_bytes: ``broadcastBytes``: sources up to this size are broadcast, so the target is never shuffled.
        The hash table takes two to three times this size in the driver and in each executor.
    :param key_filter_from_rows: ``keyFilterFromRows``: minimum candidate rows per core before a Bloom filter of the
        source's keys is used, if the source has far fewer rows; four times as many if it is broadcast and its key is
        one number. 0: always.
    :param cluster_keys_from: ``clusterKeysFrom``: minimum number of the table's files before the source's keys are
        grouped into clusters; fewer files are searched faster without.
    :param one_pass_from_rows: ``onePassFromRows``: minimum source rows per candidate file before a merge expects to
        touch them all.
    """

    prune_by_source: bool = True
    shortcuts: bool = True
    use_checksum: bool = True
    small_merge_bytes: int = 8 * 1024 * 1024
    copy_files_from_bytes: int = 8 * 1024 * 1024
    broadcast_bytes: int = 64 * 1024 * 1024
    key_filter_from_rows: int = 1_000_000
    cluster_keys_from: int = 8
    one_pass_from_rows: int = 25

    @classmethod
    def of(cls, gateway: Gateway) -> Settings:
        """Read them from the session.

        :raises MergeConfigError: when a value is invalid.
        """
        return cls(
            prune_by_source=_flag(gateway, "pruneBySource.enabled", cls.prune_by_source),
            shortcuts=_flag(gateway, "shortcuts.enabled", cls.shortcuts),
            use_checksum=_flag(gateway, "useChecksum.enabled", cls.use_checksum),
            small_merge_bytes=_number(gateway, "smallMergeBytes", cls.small_merge_bytes),
            copy_files_from_bytes=_number(gateway, "copyFilesFromBytes", cls.copy_files_from_bytes),
            broadcast_bytes=_number(gateway, "broadcastBytes", cls.broadcast_bytes),
            key_filter_from_rows=_number(gateway, "keyFilterFromRows", cls.key_filter_from_rows),
            cluster_keys_from=_number(gateway, "clusterKeysFrom", cls.cluster_keys_from),
            one_pass_from_rows=_number(gateway, "onePassFromRows", cls.one_pass_from_rows),
        )

    def of_table(self, table_property: Callable[[str], str | None]) -> Settings:
        """The settings for a table, whose properties may turn off pruning by the source.

        :param table_property: returns a property's value by its name; None if it isn't set.
        :raises MergeConfigError: when a value is invalid.
        """
        value = table_property(PRUNE_BY_SOURCE)
        if value is None or _is_true(f"table property {PRUNE_BY_SOURCE}", value):
            return self
        return replace(self, prune_by_source=False)


def _flag(gateway: Gateway, name: str, default: bool) -> bool:
    value = gateway.conf_if_set(PREFIX + name)
    return default if value is None else _is_true(f"setting {PREFIX}{name}", value)


def _is_true(what: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise MergeConfigError(f"The {what} is {value!r}: set it to true or false.")
    return value.lower() == "true"


def _number(gateway: Gateway, name: str, default: int) -> int:
    value = gateway.conf_if_set(PREFIX + name)
    if value is None:
        return default
    if not value.isdecimal():
        raise MergeConfigError(f"The setting {PREFIX}{name} is {value!r}: set it to a whole number, 0 or greater.")
    return int(value)
