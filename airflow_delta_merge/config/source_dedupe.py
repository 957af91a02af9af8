"""Chooses one of several source rows with the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta_merge.config.checks import check_fields, column_names, refuse_set
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import quote_identifier, quote_name, quote_text

_RANK = "`_source_dedupe_rank_`"
_TIES = "`_source_dedupe_ties_`"
_KEY = "`_source_dedupe_key_`"


@dataclass(frozen=True, kw_only=True)
class SourceDedupe:
    """Merges only the source row with the greatest values for each key.

    :param latest_by: source columns, most significant first; NULL is the least value.
    :param on_ties: for several rows with the same key and the same values: ``fail``, or ``pick`` any of them.
    :raises MergeConfigError: when ``latest_by`` is empty or a value is invalid.
    """

    latest_by: tuple[str, ...]
    on_ties: str = "fail"

    def __post_init__(self) -> None:
        refuse_set(self.latest_by, "source_dedupe's latest_by")
        object.__setattr__(self, "latest_by", column_names(self.latest_by, "source_dedupe's latest_by"))
        if not self.latest_by:
            raise MergeConfigError("source_dedupe needs latest_by, the columns that determine the latest row of a key.")
        if self.on_ties not in ("fail", "pick"):
            raise MergeConfigError(f"source_dedupe's on_ties must be fail or pick, got {self.on_ties!r}.")

    def to_dict(self) -> dict[str, Any]:
        return {"latest_by": list(self.latest_by), "on_ties": self.on_ties}

    @classmethod
    def of(cls, value: SourceDedupe | str | Sequence[str] | Mapping[str, Any]) -> SourceDedupe:
        """Read it from a column, a list of columns or a dict of the parameters."""
        if isinstance(value, SourceDedupe):
            return value
        if isinstance(value, Mapping):
            check_fields(cls, value, "source_dedupe")
            return cls(**value)
        refuse_set(value, "source_dedupe")
        return cls(latest_by=column_names(value, "source_dedupe"))

    def to_sql(
        self, relation: str, keys: Sequence[str], *, null_safe: bool, columns: Sequence[str] | None = None
    ) -> str:
        """A query for the rows of ``relation`` without the outdated ones.

        Without ``null_safe``, rows with a NULL key match nothing, so they have no duplicates.

        :param columns: the columns of ``relation``, unquoted, where Spark can't take all but some of a query's columns.
        """
        quoted = [quote_name(key) for key in keys]
        latest = ", ".join(f"{quote_name(column)} DESC NULLS LAST" for column in self.latest_by)
        rank = "rank" if self.on_ties == "fail" else "row_number"
        no_key = "" if null_safe else "".join(f" OR {key} IS NULL" for key in quoted)
        # Windows with names: in a SELECT list, spark.sql.parser.quotedRegexColumnNames takes `a-b` for a pattern.
        ranked = (
            f"SELECT *, {rank}() OVER {_KEY} AS {_RANK}\nFROM {relation}\n"
            f"WINDOW {_KEY} AS (PARTITION BY {', '.join(quoted)} ORDER BY {latest})"
        )
        kept = f"SELECT * FROM (\n{ranked}\n) WHERE {_RANK} = 1{no_key}"
        given = None if columns is None else ", ".join(map(quote_identifier, columns))
        if self.on_ties == "pick":
            return f"(\nSELECT {given or f'* EXCEPT ({_RANK})'} FROM (\n{kept}\n)\n)"
        message = f"source_dedupe: several source rows with the same {', '.join(keys)} are the latest by "
        message = quote_text(message + ", ".join(self.latest_by))
        counted = (
            f"SELECT *, count(*) OVER {_KEY} AS {_TIES} FROM (\n{kept}\n)\n"
            f"WINDOW {_KEY} AS (PARTITION BY {', '.join(quoted)})"
        )
        return (
            f"(\nSELECT {given or f'* EXCEPT ({_RANK}, {_TIES})'} FROM (\n{counted}\n)\n"
            f"WHERE assert_true({_TIES} = 1{no_key}, {message}) IS NULL\n)"
        )
