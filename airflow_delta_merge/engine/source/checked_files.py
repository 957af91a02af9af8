"""Source files of JSON and CSV without their bad rows, which make the merge fail, are left out, or kept elsewhere.

Spark reports bad rows only in a column with their text. Queries that don't read it get rows of NULLs. So the files are
read with that column, which neither the view nor any target has.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from airflow_delta_merge.engine.delta_jvm.gateway import Gateway
from airflow_delta_merge.engine.delta_jvm.statement import BAD_ROW
from airflow_delta_merge.exceptions import BadRowsError, EmptySourceError, MergeExecutionError
from airflow_delta_merge.identifiers import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_delta_merge.config import MergeConfig
    from airflow_delta_merge.config.bad_rows import BadRows
    from airflow_delta_merge.engine.source.kept_rows import KeptRows

_log = logging.getLogger(__name__)

# A column that no record has.
_NOTHING = "_delta_merge_nothing_"
#: The error that reading a bad row raises where a source must have none.
BAD_ROW_FOUND = "The source has a row that can't be parsed."
_SAMPLE_SIZE = 5
_LONGEST_SAMPLE = 100
_REASONS = {
    "json": "no JSON object, or values of other types than those of the columns",
    "csv": "too few or too many fields, or values of other types than those of the columns",
}


class CheckedFiles:
    """The JSON or CSV files of a source.

    :param rule: what becomes of bad rows.
    :raises BadRowsError: when the rule allows none, and reading the columns has met some.
    :raises EmptySourceError: when the files hold nothing, not even columns, and the guards want no merge of none.
    """

    def __init__(self, gateway: Gateway, config: MergeConfig, rule: BadRows) -> None:
        self._config, self._rule = config, rule
        self._format = str(config.source.format).lower()
        reader = gateway.spark.read.format(self._format).options(**config.source.reader_options)
        # Spark must read all fields of a row to detect that it has too few or too many.
        reader = reader.options(columnNameOfCorruptRecord=BAD_ROW, columnPruning="false")
        paths = list(config.source.paths)
        found = reader.load(paths).schema
        self._columns = [field.name for field in found if field.name != BAD_ROW]
        if not self._columns and BAD_ROW not in found.names:
            self._refuse_nothing()
        schema = StructType([field for field in found if field.name != BAD_ROW]).add(BAD_ROW, StringType())
        if self._format == "json":
            schema = schema.add(_NOTHING, StringType())
        self._rows = reader.schema(schema).load(paths)
        if self._takes_headers_as_one:
            self._rows = reader.option("enforceSchema", "false").schema(schema).load(paths)
        # Spark reads JSON completely to infer its columns. For CSV it doesn't report bad rows while inferring.
        if not self._columns or (rule.action == "fail" and BAD_ROW in found.names):
            self.raise_for_bad_rows(None)

    @property
    def _takes_headers_as_one(self) -> bool:
        """Whether Spark would apply the first file's header to all files, as no option makes it compare them."""
        given = {name.lower(): value.lower() for name, value in self._config.source.options}
        is_csv = self._format == "csv" and given.get("header") == "true" and "enforceschema" not in given
        return is_csv and len(self._rows.inputFiles()) > 1

    def _refuse_nothing(self) -> None:
        paths = ", ".join(self._config.source.paths)
        if self._config.guards.on_empty_source != "merge":
            raise EmptySourceError(f"The source has no rows and no columns, so nothing was merged: {paths} is empty.")
        raise MergeExecutionError(
            f'The source has no rows and no columns: {paths} is empty. If that is expected, set on_empty_source="skip".'
        )

    @cached_property
    def _any_column(self) -> Column:
        """A column beside the bad rows' texts, as Spark refuses to read these alone."""
        return F.col(_NOTHING if self._format == "json" else quote_identifier(self._columns[0]))

    @cached_property
    def _nothing(self) -> Column:
        """An empty text or NULL, for which Spark has to read :attr:`_any_column`."""
        return F.substring(self._any_column.cast("string"), 1, 0)

    @cached_property
    def _is_bad(self) -> Column:
        return F.col(BAD_ROW).isNotNull() & (F.coalesce(self._nothing, F.lit("")) == "")

    @property
    def good_rows(self) -> DataFrame:
        """The rows without bad ones; where these make the merge fail, reading one raises an error."""
        if self._rule.action == "fail":
            good = self._rows.filter(F.assert_true(~self._is_bad, BAD_ROW_FOUND).isNull())
        else:
            good = self._rows.filter(~self._is_bad)
        return good.drop(BAD_ROW, _NOTHING)

    @cached_property
    def _counts(self) -> tuple[int, int]:
        """How many rows are bad, of how many."""
        bad, rows, _ = self._rows.agg(F.count(BAD_ROW), F.count(F.lit(1)), F.count(self._any_column)).collect()[0]
        return bad, rows

    def _bad_rows(self) -> DataFrame:
        record = F.concat_ws("", F.col(BAD_ROW), self._nothing)
        return self._rows.filter(self._is_bad).select(
            F.col("_metadata.file_path").alias("file"), record.alias("record")
        )

    def leave_out(self, kept_rows: KeptRows | None) -> int:
        """Count the bad rows, look at the bound, and keep the rows where that is asked for; how many there are."""
        bad, rows = self._counts
        if not self._rule.allows(bad, rows):
            self.raise_for_bad_rows(None)
        path, reason = self._rule.path, _REASONS[self._format]
        if bad:
            kept = f"kept in {path}" if path and kept_rows else "left out"
            _log.warning("%d of the source's %d rows are bad and %s: %s.", bad, rows, kept, reason)
        if bad and kept_rows and path is not None:
            kept_rows.keep(self._bad_rows().withColumn("reason", F.lit(reason)), path, "bad_rows")
        return bad

    def raise_for_bad_rows(self, cause: BaseException | None) -> None:
        """Say how many bad rows there are, and show some in the log.

        :raises BadRowsError: when there are any.
        """
        bad, rows = self._counts
        if not bad:
            return
        _log.warning("Of the source's bad rows, up to %d:", _SAMPLE_SIZE)
        for file, record in self._bad_rows().limit(_SAMPLE_SIZE).collect():
            _log.warning("  %s: %s", file, record[:_LONGEST_SAMPLE])
        bound = "" if self._rule.most is None else f", more than max_bad_rows={self._rule.most} allows"
        raise BadRowsError(
            f"{bad} of the source's {rows} rows are bad ({_REASONS[self._format]}){bound}, so nothing was merged. The "
            'log above shows some of them. Correct the file, or set bad_rows to "skip" or "keep" and a '
            "max_bad_rows that allows them. If CSV fields hold line breaks, read them with the option multiLine."
        ) from cause
