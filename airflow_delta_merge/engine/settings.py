"""The session settings by which the engine's own shortcuts are tuned or switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta_merge.exceptions import MergeConfigError

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import Gateway

PREFIX = "spark.deltaMerge."

#: A table property; Delta refuses those that begin with ``delta.`` and are not its own.
PRUNE_BY_SOURCE = "deltaMerge.pruneBySource.enabled"


@dataclass(frozen=True)
class Settings:
    """What the session says of the engine's shortcuts.

    :param use_checksum: ``useChecksum.enabled``: whether a small table's files and its applications' transactions are
        taken from its version's checksum file, where Delta lists them, rather than by replaying its log.
    :param list_files_up_to: ``listFilesUpTo``: of a table of no more files the driver fetches what the log says of each
        to choose by it those that a merge by simple keys looks at. 0: never.
    :param prune_by_source: ``pruneBySource.enabled``: whether the source's keys choose the target's files and rows.
        The table property :data:`PRUNE_BY_SOURCE` can say no, too.
    :param prune_from_bytes: ``pruneFromBytes``: the source's keys choose neither files nor rows of an unpartitioned
        table of few files that is smaller, since that would take longer than to read it.
    :param cluster_keys_from: ``clusterKeysFrom``: from so many files of the table on, the keys are cut into clusters;
        fewer are searched sooner than that.
    :param key_filter_from_rows: ``keyFilterFromRows``: from so many rows of the candidate files on, for each core, they
        are looked for in a Bloom filter of the source's keys first, if the source has far fewer rows; four times as
        many if it is broadcast and its key one number. 0: always.
    :param narrow_source_from_rows: ``narrowSourceFromRows``: from so many rows of the source on, the rewrite joins
        those alone whose keys are within what the touched files hold, if these are but some of the candidate files.
        0: always.
    :param update_from_source: ``updateFromSource.enabled``: whether, with deletion vectors, new versions of rows that
        need no old value are made without reading the target again.
    :param plan_once: ``planOnce.enabled``: whether merges of a broadcast source into an unpartitioned table are planned
        once, not adaptively.
    :param broadcast_bytes: ``broadcastBytes``: sources up to this size are sent whole to every task, so that the target
        is never shuffled. A hash table takes two to three times as much in the driver and in each executor.
    :param join_once_bytes: ``joinOnceBytes``: where source and candidate files take no more, all their columns are
        joined once, in one task, and the rows kept; four times as much is joined so where no row must be kept. A merge
        that only inserts reads a table of this size whole, and does not keep its source.
    :param first_load: ``firstLoad.enabled``: whether a source is written as it is read where the table has no files.
    :param read_once: ``readOnce.enabled``: whether a merge that only inserts writes its source as it is read, and does
        not keep it, where the table is small or the source is large and its keys may be in any file.
    :param one_pass: ``onePass.enabled``: whether a merge that is expected to touch all candidate files writes the new
        ones in the pass that joins them with the source.
    :param one_pass_from_rows: ``onePassFromRows``: from so many rows for each candidate file on, a source that takes
        what it matches is expected to touch them all.
    :param footer_statistics_from_bytes: ``footerStatisticsFromBytes``: where a write takes in so many bytes of text
        columns, if all columns took the same, their statistics are taken from the new files' footers. 0: always.
    :param copy_files_from_bytes: ``copyFilesFromBytes``: minimum total size of the touched files for which they are
        copied natively without the rows that clauses take, where possible. 0: always.
    """

    use_checksum: bool = True
    list_files_up_to: int = 2_000
    prune_by_source: bool = True
    prune_from_bytes: int = 1024 * 1024
    cluster_keys_from: int = 8
    key_filter_from_rows: int = 1_000_000
    narrow_source_from_rows: int = 10_000
    update_from_source: bool = True
    plan_once: bool = True
    broadcast_bytes: int = 64 * 1024 * 1024
    join_once_bytes: int = 8 * 1024 * 1024
    first_load: bool = True
    read_once: bool = True
    one_pass: bool = True
    one_pass_from_rows: int = 25
    footer_statistics_from_bytes: int = 4 * 1024 * 1024
    copy_files_from_bytes: int = 8 * 1024 * 1024

    @classmethod
    def of(cls, gateway: Gateway) -> Settings:
        """Read them from the session.

        :raises MergeConfigError: when one has a value that it can't have.
        """
        return cls(
            use_checksum=_flag(gateway, "useChecksum.enabled", cls.use_checksum),
            list_files_up_to=_number(gateway, "listFilesUpTo", cls.list_files_up_to),
            prune_by_source=_flag(gateway, "pruneBySource.enabled", cls.prune_by_source),
            prune_from_bytes=_number(gateway, "pruneFromBytes", cls.prune_from_bytes),
            cluster_keys_from=_number(gateway, "clusterKeysFrom", cls.cluster_keys_from),
            key_filter_from_rows=_number(gateway, "keyFilterFromRows", cls.key_filter_from_rows),
            narrow_source_from_rows=_number(gateway, "narrowSourceFromRows", cls.narrow_source_from_rows),
            update_from_source=_flag(gateway, "updateFromSource.enabled", cls.update_from_source),
            plan_once=_flag(gateway, "planOnce.enabled", cls.plan_once),
            broadcast_bytes=_number(gateway, "broadcastBytes", cls.broadcast_bytes),
            join_once_bytes=_number(gateway, "joinOnceBytes", cls.join_once_bytes),
            first_load=_flag(gateway, "firstLoad.enabled", cls.first_load),
            read_once=_flag(gateway, "readOnce.enabled", cls.read_once),
            one_pass=_flag(gateway, "onePass.enabled", cls.one_pass),
            one_pass_from_rows=_number(gateway, "onePassFromRows", cls.one_pass_from_rows),
            footer_statistics_from_bytes=_number(
                gateway, "footerStatisticsFromBytes", cls.footer_statistics_from_bytes
            ),
            copy_files_from_bytes=_number(gateway, "copyFilesFromBytes", cls.copy_files_from_bytes),
        )

    def of_table(self, table_property: Callable[[str], str | None]) -> Settings:
        """The settings for a table, whose properties may switch pruning by the source off.

        :param table_property: gives a property's value by its name; None for one that isn't set.
        :raises MergeConfigError: when one has a value that it can't have.
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
