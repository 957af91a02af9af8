"""The faults that the suite must find: each is a small edit of the package that changes what a merge does.

They are mistakes that are easily made here, spread over the ways in which a merge runs. Where one shows in some of the
harness's ways only (``WAYS`` in ``tests/differential/harness.py``), ``ways`` names them. A fault is looked for in a few
tests, so that a check of it takes some tens of seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

ENGINE = "airflow_delta_merge/engine"
SMALL, LARGE = "ours_as_small", "ours_as_large"


@dataclass(frozen=True)
class Fault:
    """A mistake in the package.

    :param name: what is wrong, in words joined by hyphens.
    :param file: the file of the package, from the project's root.
    :param before: a text that stands in it exactly once.
    :param after: what stands there instead.
    :param shows: what a user would see if it shipped.
    :param tests: the tests that look for it, as paths and node ids of pytest below ``tests``.
    :param words: those of them whose id has one of these texts; all by default.
    :param ways: the ways of the harness, or of the test, in which it shows; empty if it shows in all, or by tests that
        know no ways.
    """

    name: str
    file: str
    before: str
    after: str
    shows: str
    tests: tuple[str, ...]
    words: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def is_looked_for_by(self, test: str) -> bool:
        """Whether a test, by its node id, is one of those that look for the fault."""
        ids = (f"tests/{each}" for each in self.tests)
        is_there = any(test == each or test.startswith((f"{each}[", f"{each}::")) for each in ids)
        return is_there and (not self.words or any(word in test for word in self.words))


# --- which rows match -------------------------------------------------------------------------------------------------

MATCHING = [
    Fault(
        name="rewrite-by-an-inner-join",
        file=f"{ENGINE}/rows/rewrite.py",
        before='how = "left" if by_source or not touched.keeps_rest else "inner"',
        after='how = "inner"',
        shows="Rows that match no source row vanish from every file that is rewritten.",
        tests=("differential/test_classic_merge_executor.py::test_joins",),
        ways=("ours", LARGE),
    ),
    Fault(
        name="insert-only-by-a-semi-join",
        file=f"{ENGINE}/strategies/insert_only.py",
        before='filtered_condition(merge), "left_anti")',
        after='filtered_condition(merge), "left_semi")',
        shows="An insert-only merge of a large source inserts the rows that exist and leaves out the new ones.",
        tests=("differential/test_insert_only_merge_executor.py::test_rows_that_match_nothing_are_appended",),
        ways=(LARGE,),
    ),
    Fault(
        name="matched-source-rows-are-inserted",
        file=f"{ENGINE}/merge_context.py",
        before='same, "left_anti")',
        after='same, "left")',
        shows="Source rows that update a row are inserted once more.",
        tests=("differential/test_classic_merge_executor.py::test_joins",),
        ways=("ours", LARGE),
    ),
    Fault(
        name="null-keys-match-in-a-kept-join",
        file=f"{ENGINE}/rows/kept_join.py",
        before="join_in_one_task(target, merge.source, merge.statement.condition, _join_type(merge))",
        after="join_in_one_task(target, merge.source, merge.statement.conjuncts.equalities[0].target.eqNullSafe("
        "merge.statement.conjuncts.equalities[0].source), _join_type(merge))",
        shows="Rows without a key are updated by source rows without one.",
        tests=("differential/test_matching.py::test_null_keys",),
        ways=(SMALL,),
    ),
    Fault(
        name="key-filter-hashes-by-type",
        file=f"{ENGINE}/pruning/key_filter.py",
        before='return side.cast("bigint") if key.type in INTEGER_BITS else side',
        after="return side",
        shows="With an INT key in the table and a BIGINT key in a large source nothing matches: all rows are inserted.",
        tests=("differential/test_key_filter.py",),
        words=("INT and BIGINT", "BIGINT and SMALLINT"),
    ),
    Fault(
        name="copies-lose-the-row-after-a-taken-one",
        file=f"{ENGINE}/data_files/parquet_copy.py",
        before="stays[position] = 0",
        after="stays[(position + 1) % rows.num_rows] = 0",
        shows="A copy of a file has the taken rows and lacks those after them.",
        tests=("unit/test_parquet_copy.py::test_what_stays_stays_as_it_was",),
    ),
    Fault(
        name="copies-tell-the-bounds-of-their-last-part",
        file=f"{ENGINE}/data_files/arrow_statistics.py",
        before="values.high = high if values.high is None else max(values.high, high)",
        after="values.high = high",
        shows="Rows of a copy are not found by later merges, which insert them again.",
        tests=("unit/test_parquet_copy.py::test_what_stays_stays_as_it_was",),
    ),
    Fault(
        name="kept-join-rewrites-rows-of-other-files",
        file=f"{ENGINE}/rows/kept_join.py",
        before="path.isNotNull() if paths is None else path.isin(*paths)",
        after="path.isNotNull()",
        shows="Rows of files without changes are there twice after a small merge.",
        tests=("differential/test_kept_join.py::test_rows_of_several_files",),
        ways=(SMALL,),
        words=("taken by no clause in one file",),
    ),
]

# --- which files are searched -----------------------------------------------------------------------------------------

FILES = [
    Fault(
        name="file-that-ends-with-the-first-key-is-left-out",
        file=f"{ENGINE}/data_files/file_statistics.py",
        before="low is None or bool(low <= high)",
        after="low is None or bool(low < high)",
        shows="A row that has the greatest key of its file is not found: it is not updated, but inserted again.",
        tests=("differential/test_pruning.py::test_candidate_files",),
        words=("the least and the greatest key",),
        ways=("the log",),
    ),
    Fault(
        name="rows-with-the-greatest-key-are-not-searched",
        file=f"{ENGINE}/pruning/source_keys.py",
        before="ends.append(column <= _literal(largest, type_))",
        after="ends.append(column < _literal(largest, type_))",
        shows="The row with the source's greatest key is not found: it is not updated, but inserted again.",
        tests=("differential/test_clauses.py::test_who_matches",),
        ways=("ours", LARGE),
        words=("everybody matching",),
    ),
    Fault(
        name="moments-without-a-margin",
        file=f"{ENGINE}/data_files/trusted_bounds.py",
        before="margin = _MINUTE if in_utc else _DAY_IN_MICROS",
        after="margin = 0",
        shows="Files are left out by moments that their writer rounded: a row is doubled.",
        tests=("differential/test_foreign_bounds.py::test_bounds_of_other_writers",),
        words=("half a minute off",),
        ways=("from a list",),
    ),
    Fault(
        name="by-source-conditions-believe-each-bound",
        file=f"{ENGINE}/pruning/candidate_files.py",
        before="not merge.settings.prune_by_source or not leaves_files_out(part.type)",
        after="not merge.settings.prune_by_source",
        shows="A by-source clause passes over rows in files whose writer rounded a bound.",
        tests=(
            "differential/test_foreign_bounds.py::test_bounds_of_other_writers_and_conditions_of_by_source_clauses",
        ),
        words=("decimals of delta-rs, cut",),
    ),
    Fault(
        name="null-keys-are-not-searched",
        file=f"{ENGINE}/pruning/source_keys.py",
        before='return self.null_safe and bool(self.found[f"{self.name}_nulls"] > 0)',
        after="return False",
        shows="A merge by <=> never finds the rows whose key is NULL, and inserts them again.",
        tests=(
            "differential/test_matching.py::test_null_keys",
            "differential/test_partition_values.py::test_partition_values",
        ),
        words=("by <=>", "null-safe"),
        ways=("ours", LARGE),
    ),
    Fault(
        name="files-the-source-has-no-key-in-keep-their-rows",
        file=f"{ENGINE}/pruning/by_keys.py",
        before='        "not matched by source" in kinds\n        or bool(',
        after="        bool(",
        shows="NOT MATCHED BY SOURCE clauses do nothing in files in which the source has no key.",
        tests=("differential/test_not_matched_by_source.py",),
        words=("delete partitions", "an empty source and a condition", "beyond the source's keys"),
        ways=(SMALL, LARGE),
    ),
]

# --- which clause takes a row -----------------------------------------------------------------------------------------

CLAUSES = [
    Fault(
        name="condition-of-a-single-clause-ignored",
        file=f"{ENGINE}/rows/output.py",
        before="    if clauses[0].condition is None:\n",
        after="    if len(clauses) == 1:\n",
        shows="WHEN MATCHED AND … takes all matched rows.",
        tests=("differential/test_clauses.py::test_one_clause",),
    ),
    Fault(
        name="insert-clauses-in-reverse-order",
        file=f"{ENGINE}/rows/output.py",
        before="range(1, len(clauses) + 1), number)",
        after="range(len(clauses), 0, -1), number)",
        shows="Of two insert clauses each inserts the other's values.",
        tests=("differential/test_insert_only_merge_executor.py::test_several_clauses",),
    ),
    Fault(
        name="by-source-clauses-numbered-from-one",
        file=f"{ENGINE}/rows/output.py",
        before="first=len(matched) + 1)",
        after="first=1)",
        shows="Rows that the source lacks are treated as the first matched clause says.",
        tests=("differential/test_not_matched_by_source.py",),
        words=("both ways", "synchronise"),
    ),
    Fault(
        name="by-source-clauses-skipped-with-deletion-vectors",
        file=f"{ENGINE}/rows/kept_join.py",
        before='keeps_target = not merge.transaction.writes_deletion_vectors or bool(merge.clauses_of("not matched by '
        'source"))',
        after="keeps_target = not merge.transaction.writes_deletion_vectors",
        shows="NOT MATCHED BY SOURCE clauses do nothing in small merges into tables with deletion vectors.",
        tests=("differential/test_deletion_vectors.py",),
        words=("not matched by source",),
        ways=(SMALL,),
    ),
    Fault(
        name="updates-by-constants-lose-rows-without-a-match",
        file=f"{ENGINE}/rows/rewrite.py",
        before='all(clause.kind == "matched" and clause.needs_only_the_source for',
        after="all(clause.needs_only_the_source for",
        shows="Rows that the source lacks are deleted where a clause sets all their columns to constants.",
        tests=("differential/test_deletion_vectors.py",),
        words=("set to a constant",),
        ways=("ours", LARGE),
    ),
    Fault(
        name="nulls-count-as-changed",
        file=f"{ENGINE}/rows/output.py",
        before="return ~new.eqNullSafe(old)",
        after="return new != old",
        shows="With update_only_changed rows that have a NULL are written anew although nothing changes.",
        tests=("differential/test_config_options.py",),
        words=("only_rows_that_change",),
    ),
]

# --- ambiguous matches ------------------------------------------------------------------------------------------------

AMBIGUITY = [
    Fault(
        name="ambiguous-match-unseen-in-two-phases",
        file=f"{ENGINE}/rows/touched_files.py",
        before="found.pairs > found.matched_rows",
        after="found.pairs > 2 * found.matched_rows",
        shows="A row that two source rows update becomes two rows.",
        tests=("differential/test_kept_join.py::test_rows_of_several_files",),
        words=("two source rows for a row of the last file",),
        ways=("ours", LARGE),
    ),
    Fault(
        name="ambiguous-match-unseen-in-one-pass",
        file=f"{ENGINE}/strategies/one_pass.py",
        before='found["target_rows"] == merge.candidates.num_rows',
        after='found["target_rows"] >= merge.candidates.num_rows',
        shows="A row that two source rows update becomes two rows in a merge that takes one pass.",
        tests=("differential/test_classic_merge_executor.py::test_multiple_matches",),
        words=("two source rows, an upsert", "rows update one target row"),
        ways=(SMALL, LARGE),
    ),
]

# --- what is written and removed --------------------------------------------------------------------------------------

WRITES = [
    Fault(
        name="rewritten-files-stay",
        file=f"{ENGINE}/strategies/shared_steps.py",
        before="return merge.transaction.remove_actions(files)",
        after="return merge.gateway.seq([])",
        shows="Every updated row stays in its old version beside the new one.",
        tests=("differential/test_clauses.py::test_one_clause",),
    ),
    Fault(
        name="deletion-vector-marks-the-next-row",
        file=f"{ENGINE}/delta_jvm/target_scan.py",
        before='metadata.getField("row_index").alias(names.row_index)',
        after='(metadata.getField("row_index") + 1).alias(names.row_index)',
        shows="The row after the one that matched is deleted.",
        tests=("differential/test_deletion_vectors.py",),
        words=("delete in a file with a vector", "update a table with vectors", "delete and insert"),
    ),
    Fault(
        name="one-pass-rewrites-files-without-changes",
        file=f"{ENGINE}/strategies/one_pass.py",
        before='found["touched_files"] == merge.candidates.count',
        after='found["touched_files"] <= merge.candidates.count',
        shows="Files of which no row changes are written anew, and conflict with other writers.",
        tests=("differential/test_one_pass.py",),
        words=("a_file_without_a_match", "misses_a_file"),
    ),
    Fault(
        name="given-up-pass-leaves-its-files",
        file=f"{ENGINE}/strategies/one_pass.py",
        before="    merge.transaction.discard(actions)\n",
        after="",
        shows="Files that no version of the table knows stay in its folder, until somebody vacuums it.",
        tests=("differential/test_one_pass.py",),
        words=("nothing_is_left", "no_file_is_left", "no_change_file_is_left"),
    ),
    Fault(
        name="bound-of-long-texts-cut-below-them",
        file=f"{ENGINE}/data_files/delta_statistics.py",
        before="self.cut_above(high.decode())",
        after="high.decode()[: self.prefix_length]",
        shows="Queries for a long text skip the file that holds it.",
        tests=("differential/test_text_statistics.py::test_the_same_statistics_of_a_copy",),
        words=("longer than the prefix",),
    ),
    Fault(
        name="evolved-column-lost",
        file=f"{ENGINE}/delta_jvm/transaction.py",
        before="schema.get() if schema.isDefined() else analysed,",
        after="analysed,",
        shows="WITH SCHEMA EVOLUTION adds no column.",
        tests=("differential/test_merge_into_command.py::test_schema_evolution",),
    ),
    Fault(
        name="identity-values-not-tracked",
        file=f"{ENGINE}/delta_jvm/transaction.py",
        before="self._transaction.setTrackHighWaterMarks(self._command.trackHighWaterMarks())",
        after="self._command.trackHighWaterMarks()",
        shows="The next insert draws identity values that this merge has given out.",
        tests=("differential/test_identity_columns.py",),
        words=("given_out_once",),
    ),
    Fault(
        name="source-computed-twice",
        file=f"{ENGINE}/source/materialized.py",
        before="with_join_hints(gateway, statement, kept)",
        after="with_join_hints(gateway, statement, frame)",
        shows="A source with rand() or a changing table gives one row to the search and another one to the write.",
        tests=("differential/test_sources.py::test_each_source_row_is_computed_once",),
    ),
]

# --- change data and row tracking -------------------------------------------------------------------------------------

CHANGES = [
    Fault(
        name="preimage-has-the-new-values",
        file=f"{ENGINE}/rows/change_data.py",
        before='_change("old", F.lit("update_preimage"))',
        after='_change("new", F.lit("update_preimage"))',
        shows="The change data feed tells the new values as those before the update.",
        tests=("differential/test_change_data_feed.py::test_change_data_feed",),
        words=("upsert",),
    ),
    Fault(
        name="one-pass-tells-inserts-as-updates",
        file=f"{ENGINE}/strategies/one_pass.py",
        before='.otherwise(F.lit("insert"))',
        after='.otherwise(F.lit("update_postimage"))',
        shows="The change data feed of a merge in one pass tells inserted rows as updated ones.",
        tests=("differential/test_change_data_feed.py::test_change_data_feed",),
        words=("upsert",),
        ways=(SMALL, LARGE),
    ),
    Fault(
        name="row-deleted-twice-has-two-changes",
        file=f"{ENGINE}/rows/rewrite.py",
        before="        ).distinct()\n",
        after="        )\n",
        shows="The change data feed tells a delete once for each source row that matches.",
        tests=("differential/test_classic_merge_executor.py::test_change_data",),
    ),
    Fault(
        name="row-id-not-kept",
        file=f"{ENGINE}/rows/rewrite.py",
        before="if column.changes_with_row and updates else",
        after="if updates else",
        shows="Updated rows get new row ids.",
        tests=("differential/test_row_tracking.py",),
        words=("row tracking: update", "row tracking: upsert"),
    ),
]

# --- metrics, transactions, conflicts ---------------------------------------------------------------------------------

COMMITS = [
    Fault(
        name="source-rows-counted-one-too-many",
        file=f"{ENGINE}/read_once.py",
        before="operationNumSourceRows=source.num_rows)",
        after="operationNumSourceRows=source.num_rows + 1)",
        shows="numSourceRows in the history is one more than the source has.",
        tests=("differential/test_clauses.py::test_one_clause",),
    ),
    Fault(
        name="deleted-rows-counted-as-copied",
        file=f"{ENGINE}/target_metrics.py",
        before="_num_rows(merge, files) - updated - deleted",
        after="_num_rows(merge, files) - updated",
        shows="numTargetRowsCopied counts deleted rows, and numTargetRowsInserted misses as many.",
        tests=("differential/test_classic_merge_executor.py::test_counts",),
    ),
    Fault(
        name="first-load-counts-inserted-rows-as-source-rows",
        file=f"{ENGINE}/strategies/facts.py",
        before="any(clause.condition is None for clause in merge.insert_clauses)",
        after="bool(merge.insert_clauses)",
        shows="numSourceRows of a first load leaves out the rows that no insert clause takes.",
        tests=("differential/test_first_load.py::test_tables_without_files",),
        words=("for some rows only",),
        ways=("ours", SMALL, LARGE),
    ),
    Fault(
        name="rows-read-once-are-not-counted",
        file=f"{ENGINE}/strategies/stream_inserts.py",
        before="counted = statement.counting_rows(source)",
        after="counted = source",
        shows="numSourceRows is 0 for inserts into a small table.",
        tests=("differential/test_insert_only_merge_executor.py::test_one_clause",),
        ways=(SMALL,),
    ),
    Fault(
        name="idempotent-transaction-not-recorded",
        file=f"{ENGINE}/delta_jvm/transaction.py",
        before="actions = gateway.concat(executed.toList(), actions)",
        after="actions = gateway.concat(gateway.seq([]), actions)",
        shows="A merge with txnAppId and txnVersion is done again when it is tried again.",
        tests=(
            "differential/test_merge_into_command.py::test_the_second_try_of_an_idempotent_transaction_does_nothing",
        ),
    ),
    Fault(
        name="listed-files-do-not-count-as-read",
        file=f"{ENGINE}/delta_jvm/table_files.py",
        before="        self._transaction.trackFilesRead(files.files)\n",
        after="",
        shows="A merge commits although another writer has deleted rows that it took for there.",
        tests=("differential/test_concurrency.py", "differential/test_read_once.py::test_small_tables"),
        words=("a whole file deleted", "a file is removed meanwhile"),
        ways=(SMALL, LARGE),
    ),
    Fault(
        name="execution-not-recorded",
        file=f"{ENGINE}/delta_jvm/transaction.py",
        before="if application is not None and (actions.nonEmpty() or self._changes_metadata()):",
        after="if application is not None and self._changes_metadata():",
        shows="A task that is tried again after its commit merges a second time.",
        tests=("faults/test_exactly_once.py",),
        words=("second_try_returns",),
    ),
]

FAULTS = [*MATCHING, *FILES, *CLAUSES, *AMBIGUITY, *WRITES, *CHANGES, *COMMITS]
