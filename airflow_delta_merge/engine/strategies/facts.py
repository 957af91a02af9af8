"""The numbers and flags that decide which strategy a merge takes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeGuards
from airflow_delta_merge.engine.pruning.by_keys import keys_separate_files
from airflow_delta_merge.engine.pruning.key_filter import TARGET_ROWS_FOR_ONE
from airflow_delta_merge.engine.settings import Settings

if TYPE_CHECKING:
    from airflow_delta_merge.engine.merge_context import MergeContext
    from airflow_delta_merge.engine.started_merge import StartedMerge

#: Opening a file takes longer than reading a small one, and one task opens files one after another. Two phases open
#: each file twice, but on all cores: the more cores, the fewer files one task should open.
_FILES_FOR_ONE_CORE = 128
_FILES_FOR_MANY_CORES = 16
#: Maximum rows for one task. Repeated values take almost no space in a file, but every row costs the task time.
MOST_ROWS = 500_000
#: A source smaller than the broadcast limit divided by this isn't large.
_PART_OF_BROADCAST = 4


@dataclass(frozen=True)
class Facts:
    """What is known of a merge before its source is read, and after.

    :param has_guards: whether the source or the changes must be checked before the commit.
    :param limits_changes: whether guards must know the changes before anything is written.
    :param settings: the session's settings for the engine's shortcuts.
    :param cores: tasks that run at a time.
    :param inserts: whether there are insert clauses.
    :param only_inserts: whether there are only insert clauses, and several matches of a source row don't matter.
    :param inserts_all: whether an insert clause takes every source row without a match.
    :param takes_all_by: ``update`` or ``delete``, if a clause without a condition does so to all matched rows.
    :param update_only_changed: whether updates skip rows that would not change.
    :param can_copy_rows: whether Spark can cast rows that stay to the types that their columns evolve to.
    :param has_equality: whether the condition compares columns for equality.
    :param joins_by_python: whether the condition calls a Python function, which Spark may refuse in an outer join.
    :param is_partition_a_key: whether it compares a partition column with the source.
    :param deletion_vectors: whether deletion vectors mark the removed rows.
    :param generates_identity: whether new rows get identity values.
    :param tracks_rows: whether the table has row tracking.
    :param collects_statistics: whether the session collects statistics.
    :param table_files: number of the table's files.
    :param table_bytes: their size.
    :param table_rows: their rows; None if only a Spark job could count them.
    :param estimated_source_bytes: Spark's estimate of the source's size; 0 unless inserts need it.
    :param reads_whole_files: whether the source is a whole table or whole files.
    :param keys_in_any_file: whether each of the source's keys is known to be possible in most files.
    :param source_is_read: whether the following facts are known.
    :param source_rows: number of source rows.
    :param source_bytes: their size in memory.
    :param source_is_broadcast: whether the source is small enough to be broadcast.
    :param candidate_files: number of files that can hold a match.
    :param candidate_bytes: their size.
    :param candidate_rows: their rows; 0 if unknown.
    :param copies_files: whether touched files can be copied natively, and are large enough for that.
    """

    has_guards: bool = False
    limits_changes: bool = False
    settings: Settings = field(default_factory=Settings)
    cores: int = 1
    inserts: bool = False
    only_inserts: bool = False
    inserts_all: bool = False
    takes_all_by: frozenset[str] = frozenset()
    update_only_changed: bool = False
    can_copy_rows: bool = True
    has_equality: bool = True
    joins_by_python: bool = False
    is_partition_a_key: bool = False
    deletion_vectors: bool = False
    generates_identity: bool = False
    tracks_rows: bool = False
    collects_statistics: bool = True
    table_files: int = 0
    table_bytes: int = 0
    table_rows: int | None = None
    estimated_source_bytes: int = 0
    reads_whole_files: bool = False
    keys_in_any_file: bool = False
    source_is_read: bool = False
    source_rows: int = 0
    source_bytes: int = 0
    source_is_broadcast: bool = False
    candidate_files: int = 0
    candidate_bytes: int = 0
    candidate_rows: int = 0
    copies_files: bool = False

    @property
    def is_small(self) -> bool:
        """Whether one task is enough for candidate files and source, and all their rows may be kept."""
        return self.fits_one_task(self.settings.small_merge_bytes)

    def fits_one_task(self, most_bytes: int) -> bool:
        """Whether candidate files and source are few and small enough for one task to join them.

        Without an equality in the condition, each row is compared with each row of the other side, which needs all
        cores. The join keeps all rows, as only an outer join does.
        """
        files = self.candidate_files
        return (
            files > 0
            and (files <= _FILES_FOR_MANY_CORES or files * self.cores <= _FILES_FOR_ONE_CORE)
            and self.candidate_bytes + self.source_bytes <= most_bytes
            and self.candidate_rows + self.source_rows <= MOST_ROWS
            and self.has_equality
            and not self.joins_by_python
        )

    @property
    def is_source_large(self) -> bool:
        """Whether the source is sure to be shuffled. It must be whole files: Spark can't size other sources."""
        # With a far larger table, a filter of the source's keys avoids shuffling most of the table.
        least = max(self.settings.broadcast_bytes // _PART_OF_BROADCAST, self.table_bytes // TARGET_ROWS_FOR_ONE)
        return self.has_equality and self.reads_whole_files and self.estimated_source_bytes >= least


def facts_before(merge: StartedMerge) -> Facts:
    """What is known before the source is read."""
    transaction, equalities = merge.transaction, merge.statement.conjuncts.equalities
    table_files, table_bytes = transaction.files.table_size
    facts = Facts(
        has_guards=merge.options.guards != MergeGuards(),
        limits_changes=bool(merge.options.guards.fail_if),
        settings=merge.settings,
        cores=merge.gateway.default_parallelism,
        inserts=bool(merge.insert_clauses),
        only_inserts=merge.only_inserts,
        inserts_all=any(clause.condition is None for clause in merge.insert_clauses),
        takes_all_by=frozenset(each.action for each in merge.clauses_of("matched") if each.condition is None),
        update_only_changed=merge.options.update_only_changed,
        can_copy_rows=merge.statement.can_copy_rows,
        has_equality=bool(equalities),
        joins_by_python=merge.statement.joins_by_python,
        is_partition_a_key=any(key.target_name in transaction.partition_columns for key in equalities),
        deletion_vectors=transaction.writes_deletion_vectors,
        generates_identity=transaction.generates_identity,
        tracks_rows=transaction.target.tracks_rows,
        collects_statistics=merge.gateway.flag("spark.databricks.delta.stats.collect"),
        table_files=table_files,
        table_bytes=table_bytes,
    )
    may_stream = facts.only_inserts and facts.settings.shortcuts and not facts.has_guards
    return _with_facts_of_inserts(facts, merge) if may_stream and table_files else facts


def _with_facts_of_inserts(facts: Facts, merge: StartedMerge) -> Facts:
    """Add the numbers and sizes that are known without reading the source. Spark plans it to estimate its size."""
    statement = merge.statement
    facts = replace(facts, table_rows=merge.transaction.files.num_listed_rows)
    if facts.table_bytes > facts.settings.small_merge_bytes:
        facts = replace(
            facts,
            estimated_source_bytes=statement.estimated_source_bytes,
            reads_whole_files=statement.reads_whole_files,
        )
    if not facts.is_source_large:
        return facts
    return replace(facts, keys_in_any_file=not keys_separate_files(merge))


def facts_after(facts: Facts, merge: MergeContext) -> Facts:
    """Add what is known once the source was read and the candidate files were chosen."""
    source, candidates = merge.source, merge.candidates
    return replace(
        facts,
        source_is_read=True,
        source_rows=source.num_rows,
        source_bytes=source.num_bytes,
        source_is_broadcast=source.is_small,
        candidate_files=candidates.count,
        candidate_bytes=candidates.num_bytes,
        candidate_rows=candidates.num_rows or 0,
        copies_files=merge.copies_files,
    )
