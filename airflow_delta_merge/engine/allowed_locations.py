"""Restricts which files a merge may read and write, whatever its config or statement says.

It checks twice. First, before Spark looks anything up, the paths in the config and its SQL: Spark already reads files
to learn their columns. Second, once the statement is resolved, the locations behind all names and views.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_delta_merge.config import MergeConfig, MergeSource, MergeStatement, MergeTarget
from airflow_delta_merge.engine.delta_jvm.gateway import Gateway, JavaObject
from airflow_delta_merge.engine.delta_jvm.reads import (
    FILE_FORMATS,
    locations_of,
    locations_of_merge,
    qualified,
    reads_of_text,
)
from airflow_delta_merge.engine.delta_jvm.statement import ResolvedMerge
from airflow_delta_merge.exceptions import MergeConfigError

# A slash within braces: the pattern may contain `..` only after it is expanded.
_SLASH_IN_BRACES = re.compile(r"\{[^}]*/")
# Options that configure the file system (fs.s3a.endpoint) or name another file (avroSchemaUrl, rowValidationXSDPath).
_REACHING_OPTION = re.compile(r"\.|(?<!^base)(url|path)s?$", re.IGNORECASE)


class AllowedLocations:
    """Restricts a merge to folders.

    :param locations: absolute paths or URIs; everything at or under one of them is allowed.
    """

    def __init__(self, gateway: Gateway, locations: Sequence[str]) -> None:
        self._gateway = gateway
        self._described = ", ".join(locations) or "there are none"
        self._allowed = [qualified(gateway, location) for location in locations]

    def check_config(self, config: MergeConfig | MergeStatement, expressions: Iterable[str]) -> None:
        """Check a merge's texts and paths before anything is read.

        :param expressions: its conditions and values.
        :raises MergeConfigError: when a path is not allowed, or the SQL runs code.
        """
        if isinstance(config, MergeStatement):
            self._check_text(config.sql)
        else:
            self._check_text(f"SELECT * FROM {config.target.to_sql()}")  # noqa: S608  quoted
            self._check_source(config.source)
        expected = config.guards.expect_source
        conditions = [each.condition for each in expected.conditions] if expected else []
        for expression in (*expressions, *config.guards.fail_if, *conditions):
            self._check_text(expression, expression=True)
        if expected and expected.failed_rows_path is not None:
            self._check_path(expected.failed_rows_path)

    def check_merge(self, merge: ResolvedMerge) -> None:
        """Check every location that a resolved merge reads or writes.

        :raises MergeConfigError: when a location is not allowed.
        """
        for location in locations_of_merge(self._gateway, merge):
            self._check_path(location)

    def check_new_table(self, target: MergeTarget, source: JavaObject) -> None:
        """Check the source of a target that is about to be created.

        :param source: the source's analysed plan.
        :raises MergeConfigError: when a location is not allowed, or the new table's location isn't known.
        """
        if target.path is None:
            raise MergeConfigError(
                f"The catalog would choose the location of the new table {target.table}, which may be outside "
                "allowed_locations. Set the target's path instead, or create the table first."
            )
        for location in locations_of(self._gateway, source):
            self._check_path(location)

    def _check_source(self, source: MergeSource) -> None:
        if source.needs_view:
            if str(source.format).lower() not in FILE_FORMATS:
                raise MergeConfigError(
                    f"The source's format {source.format!r} may read outside allowed_locations. Use one of "
                    f"{', '.join(FILE_FORMATS)}."
                )
            self._check_options(name for name, _ in source.options)
            for path in (*source.paths, *filter(None, [source.bad_rows_path])):
                self._check_path(path)
        else:
            self._check_text(source.query or f"SELECT * FROM {replace(source, select=None).to_sql()}")  # noqa: S608  quoted
        if source.select is not None:
            self._check_text(source.select)

    def _check_text(self, text: str, *, expression: bool = False) -> None:
        reads = reads_of_text(self._gateway, text, expression=expression)
        if reads.code:
            raise MergeConfigError(
                f"The merge uses {reads.code[0]}, which could reach outside allowed_locations. Remove it."
            )
        self._check_options(reads.options)
        for path in reads.paths:
            self._check_path(path)

    def _check_options(self, names: Iterable[str]) -> None:
        for name in names:
            if _REACHING_OPTION.search(name):
                raise MergeConfigError(
                    f"The source's option {name!r} could reach outside allowed_locations. Remove it. If it is a "
                    f"setting of the file system, put it into conf as spark.hadoop.{name}."
                )

    def _check_path(self, path: str) -> None:
        # In file patterns a backslash escapes a character, also the dots of `..`.
        forms = {qualified(self._gateway, form) for form in (path, path.replace("\\", ""))}
        if _SLASH_IN_BRACES.search(path) or not all(self._is_allowed(*form) for form in forms):
            raise MergeConfigError(
                f"The merge may not use {path}: it is not under the allowed_locations of the Spark connection "
                f"({self._described})."
            )

    def _is_allowed(self, scheme: str, authority: str, path: str) -> bool:
        parts = _parts(path)
        return any(
            (scheme, authority) == allowed[:2] and parts[: len(_parts(allowed[2]))] == _parts(allowed[2])
            for allowed in self._allowed
        )


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
