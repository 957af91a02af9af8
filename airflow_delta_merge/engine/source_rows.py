"""Which source rows the rewrite of touched files needs: those whose keys are within what the files hold.

The search for matches joins all source rows with all candidate files. Where it leaves few of these, most source rows
lead to none of them; they need be neither broadcast, nor shuffled, a second time.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame

from airflow_delta_merge.engine.file_statistics import is_comparable, range_of_all
from airflow_delta_merge.engine.source_keys import within
from airflow_delta_merge.engine.trusted_bounds import with_margin

if TYPE_CHECKING:
    from airflow_delta_merge.engine.delta_jvm import FileSet
    from airflow_delta_merge.engine.merge_context import MergeContext

#: The driver asks for each file's statistics.
_MOST_FILES = 50
#: So many of the candidate files, at most, are touched: else most source rows lead to one of them.
_MOST_OF_CANDIDATES = 0.5


def source_for(merge: MergeContext, files: FileSet) -> DataFrame:
    """The source for a join with the rows of ``files``, hinted for a broadcast if it is small.

    :param files: some of the candidate files. Source rows that can match none of their rows may be left out.
    """
    source = merge.source.for_join()
    predicates = _within(merge, files) if _is_worth_it(merge, files) else []
    return source.filter(reduce(Column.__and__, predicates)) if predicates else source


def _is_worth_it(merge: MergeContext, files: FileSet) -> bool:
    if not merge.settings.prune_by_source or files.count > _MOST_FILES:
        return False
    from_rows = merge.settings.narrow_source_from_rows
    is_part = files.count <= merge.candidates.count * _MOST_OF_CANDIDATES
    return not from_rows or (is_part and merge.source.num_rows >= from_rows)


def _within(merge: MergeContext, files: FileSet) -> list[Column]:
    """Predicates over the source, all of which are true for every row that can match one of the files' rows."""
    transaction = merge.transaction
    keys = [
        (key, column)
        for key in merge.statement.equalities
        if is_comparable(key.type)
        and not key.null_safe
        and (column := transaction.files.physical_name(key.target_name))
    ]
    statistics = transaction.files.statistics(files) if keys else None
    if statistics is None:
        return []
    predicates = []
    for key, column in keys:
        bounds = range_of_all(column, key.type, statistics)
        if bounds is not None:
            # A zone doesn't matter: no timestamps are compared here.
            predicates.append(within(key.source, with_margin(key.type, bounds, in_utc=True), key.type))
    return predicates
