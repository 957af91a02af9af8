"""Groups of rows, whatever the session makes of a group's own columns."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame


def grouped(rows: DataFrame, by: Mapping[str, Column], aggregates: Mapping[str, Column]) -> DataFrame:
    """Aggregate rows by groups.

    ``groupBy`` alone gives the group's columns only if the session has ``spark.sql.retainGroupColumns``.

    :param by: the columns that make a group, by their names in the result. No column of ``rows`` may have such a name.
    :param aggregates: aggregates by their names in the result.
    :return: the columns of ``by``, then the aggregates.
    """
    named = {**by, **aggregates}
    return rows.groupBy(*by.values()).agg(*(column.alias(name) for name, column in named.items())).select(*named)
