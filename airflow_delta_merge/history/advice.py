"""Advice from the numbers of a table's merges: pure functions from records to advice, with evidence.

Only this package's merges count, because only they record all the numbers. ``docs/how_to/advice.md`` lists the rules
and their limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.history.records import Commit, Table

PAGE = "docs/how_to/advice.md"

#: Minimum number of merges as evidence.
FEWEST_MERGES = 3
#: Deletion vectors are advised from this many rows copied per changed row, and this many bytes rewritten.
COPIED_PER_CHANGED = 10
REWRITTEN_BYTES = 1 << 20
#: Minimum number of a table's files for advice on how many are searched.
FEWEST_FILES = 8
#: Minimum share of files that are searched, and maximum share of these that hold a changed row.
SEARCHED_SHARE = 0.5
TOUCHED_SHARE = 0.1
#: Minimum number of partitions searched per changed one.
SEARCHED_PER_CHANGED_PARTITION = 3
#: Compaction is advised from this many files on, below this mean size.
MANY_FILES = 100
SMALL_FILE_BYTES = 16 << 20
FILES_PER_PARTITION = 10
#: Minimum number of merges that replaced files by equal ones.
FEWEST_REPEATS = 2
_EQUAL = "wrote files of the same sizes and statistics as those they replaced"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Something to do, and why.

    :param name: its name: ``deletion-vectors``, ``cluster-by-key``, ``partition-in-on``, ``compaction``,
        ``update-only-changed``, ``source-repeats``.
    :param text: what to do, in a sentence.
    :param because: why, with the numbers, in a sentence.
    :param evidence: these numbers by name.
    :param versions: the commits with these numbers, newest first.
    """

    name: str
    text: str
    because: str
    evidence: Mapping[str, int | float | str]
    versions: tuple[int, ...]

    @property
    def link(self) -> str:
        """The page that has the rule and says how to do it."""
        return f"{PAGE}#{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """JSON types with stable keys."""
        return {
            **asdict(self),
            "evidence": dict(self.evidence),
            "versions": list(self.versions),
            "link": self.link,
        }


def advise(table: Table, commits: Sequence[Commit]) -> list[Advice]:
    """All advice from these commits, most important first.

    :param table: the table as it is now.
    :param commits: some of its commits, the newest first.
    """
    found = (rule(table, commits) for rule in _RULES)
    return [advice for advice in found if advice is not None]


def source_repeats(table: Table, commits: Sequence[Commit]) -> Advice | None:
    """The same merge, of as many source rows, has replaced files by equal ones: its source was the same."""
    oldest_first = [*reversed(_merges(commits))]
    repeats = []
    for commit in _replaced_by_equal_files(commits):
        earlier = [each for each, _ in oldest_first if each.version < commit.version and _same_source(each, commit)]
        if earlier:
            repeats.append(commit)
    if len(repeats) < FEWEST_REPEATS:
        return None
    tasks = sorted({_who(commit) for commit in repeats})
    return Advice(
        name="source-repeats",
        text="Check the source: it was merged again unchanged. Its file may not be replaced in time.",
        because=f"{len(repeats)} merges ({', '.join(tasks)}) had the same config and number of source rows as an "
        f"earlier one, inserted and deleted nothing, and {_EQUAL}.",
        evidence={"merges": len(repeats), **_rewritten(repeats)},
        versions=_versions(repeats),
    )


def update_only_changed(table: Table, commits: Sequence[Commit]) -> Advice | None:
    """Merges have replaced files by equal ones, so they have updated rows to what these were."""
    repeats = _replaced_by_equal_files(commits)
    if len(repeats) < FEWEST_REPEATS:
        return None
    rewritten = _rewritten(repeats)
    return Advice(
        name="update-only-changed",
        text=f"Set update_only_changed=True. It would have avoided {rewritten['removed_files']} rewrites of files.",
        because=f"{len(repeats)} merges updated {rewritten['updated_rows']:,} rows, {_EQUAL} "
        f"({rewritten['added_bytes']:,} bytes).",
        evidence={"merges": len(repeats), **rewritten},
        versions=_versions(repeats),
    )


def partition_in_on(table: Table, commits: Sequence[Commit]) -> Advice | None:
    """Merges search several times the partitions that they change, and their condition names no partition column."""
    found = []
    for commit, result in _searching_merges(commits):
        searched = result.metrics.get("numTargetPartitionsAfterSkipping", 0)
        changed = max(1, result.metrics.get("numTargetPartitionsRemovedFrom", 0))
        named = _names_in(commit.parameters.get("predicate", ""))
        missing = [column for column in table.partition_columns if column.lower() not in named]
        if named and missing and searched >= SEARCHED_PER_CHANGED_PARTITION * changed:
            found.append((commit, searched, changed, missing))
    if len(found) < FEWEST_MERGES:
        return None
    searched, changed = sum(each[1] for each in found), sum(each[2] for each in found)
    columns = ", ".join(found[0][3])
    return Advice(
        name="partition-in-on",
        text=f"Add the partition column ({columns}) to on, if the source has it. Merges then skip other partitions.",
        because=f"{len(found)} merges searched {searched:,} partitions and changed {changed:,}. Their condition "
        f"doesn't use {columns}.",
        evidence={
            "merges": len(found),
            "searched_partitions": searched,
            "changed_partitions": changed,
            "columns": columns,
        },
        versions=_versions(each[0] for each in found),
    )


def cluster_by_key(table: Table, commits: Sequence[Commit]) -> Advice | None:
    """Merges search most files of a table without partitions, and few of these hold a changed row."""
    if table.partition_columns:
        return None
    found = [
        (commit, result)
        for commit, result in _searching_merges(commits)
        if result.num_touched_files <= TOUCHED_SHARE * result.num_candidate_files
    ]
    if len(found) < FEWEST_MERGES:
        return None
    before = sum(result.num_files_before_skipping for _, result in found)
    candidates = sum(result.num_candidate_files for _, result in found)
    touched = sum(result.num_touched_files for _, result in found)
    how = "Run OPTIMIZE on the table, or cluster it" if table.is_clustered else "Cluster the table"
    return Advice(
        name="cluster-by-key",
        text=f"{how} by the merge key, unless the key is random. Merges then search few files.",
        because=f"{len(found)} merges searched {candidates:,} of {before:,} files ({candidates / before:.0%}), and "
        f"only {touched:,} held a changed row.",
        evidence={
            "merges": len(found),
            "files": before,
            "candidate_files": candidates,
            "touched_files": touched,
            "searched_share": round(candidates / before, 3),
        },
        versions=_versions(commit for commit, _ in found),
    )


def deletion_vectors(table: Table, commits: Sequence[Commit]) -> Advice | None:
    """Merges copy many rows for each one that they change, and the table has no deletion vectors."""
    if table.has_deletion_vectors:
        return None
    found = [commit for commit, _ in _merges(commits) if commit.rows.copied]
    copied = sum(commit.rows.copied or 0 for commit in found)
    rewritten = _rewritten(found)
    changed = int(rewritten["updated_rows"]) + int(rewritten["deleted_rows"])
    enough = len(found) >= FEWEST_MERGES and rewritten["removed_bytes"] >= REWRITTEN_BYTES
    if not enough or copied < COPIED_PER_CHANGED * changed:
        return None
    return Advice(
        name="deletion-vectors",
        text="Turn on deletion vectors. Merges then mark changed rows instead of copying the others.",
        because=f"{len(found)} merges changed {changed:,} rows and copied {copied:,} unchanged ones. They replaced "
        f"{rewritten['removed_bytes']:,} bytes. The table has no deletion vectors.",
        evidence={"merges": len(found), "copied_rows": copied, "changed_rows": changed, **rewritten},
        versions=_versions(found),
    )


def compaction(table: Table, commits: Sequence[Commit]) -> Advice | None:
    """The newest merge has found many small files, and no later commit has removed any."""
    if not commits or commits[0].version != table.version:  # an older page says nothing of the table as it is
        return None
    for commit in commits:
        result = commit.result
        if result is not None:
            return _compaction(commit, result)
        if not _only_adds(commit):
            return None
    return None


def _compaction(commit: Commit, result: MergeResult) -> Advice | None:
    files, size = result.num_files_before_skipping, result.num_bytes_before_skipping
    partitions = result.metrics.get("numTargetPartitionsAfterSkipping", 0)
    spread = partitions > 0 and result.num_candidate_files < FILES_PER_PARTITION * partitions
    if files < MANY_FILES or size >= files * SMALL_FILE_BYTES or spread:
        return None
    return Advice(
        name="compaction",
        text="Compact the table (OPTIMIZE). It has many small files, and each merge reads all of their entries.",
        because=f"The newest merge found {files:,} files of {size // files:,} bytes each on average.",
        evidence={"files": files, "bytes": size, "bytes_per_file": size // files},
        versions=(commit.version,),
    )


_RULES: tuple[Callable[[Table, Sequence[Commit]], Advice | None], ...] = (
    source_repeats,
    update_only_changed,
    partition_in_on,
    cluster_by_key,
    deletion_vectors,
    compaction,
)


def _merges(commits: Sequence[Commit]) -> list[tuple[Commit, MergeResult]]:
    return [(commit, result) for commit in commits if (result := commit.result) is not None]


def _searching_merges(commits: Sequence[Commit]) -> list[tuple[Commit, MergeResult]]:
    """Merges that have searched most files of a table that has several."""
    return [
        (commit, result)
        for commit, result in _merges(commits)
        if result.num_files_before_skipping >= FEWEST_FILES
        and result.num_candidate_files >= SEARCHED_SHARE * result.num_files_before_skipping
    ]


def _replaced_by_equal_files(commits: Sequence[Commit]) -> list[Commit]:
    """Merges that only updated, into files of the sizes and statistics of those that they replaced; the newest first.

    What was replaced is known of files that an earlier one of these commits has added.
    """
    known: dict[str, str] = {}
    found = []
    for commit in reversed(commits):
        added = {path: said for path, said in commit.added_files.items() if path not in commit.removed_files}
        removed = [path for path in commit.removed_files if path not in commit.added_files]
        rows = commit.rows
        only_updates = bool(rows.updated) and not rows.inserted and not rows.deleted
        if only_updates and removed and sorted(known.get(path, path) for path in removed) == sorted(added.values()):
            found.append(commit)
        known.update(commit.added_files)
    return found[::-1]


def _only_adds(commit: Commit) -> bool:
    if commit.operation in ("WRITE", "STREAMING UPDATE") and not commit.files.removed:
        return commit.parameters.get("mode", "Append").lower() != "overwrite"
    return commit.files.removed == 0


def _same_source(earlier: Commit, later: Commit) -> bool:
    if earlier.record is None or later.record is None:
        return False
    rows = [each.metrics.get("numSourceRows") for each in (earlier, later)]
    return earlier.record.config_digest == later.record.config_digest and rows[0] == rows[1] is not None


def _rewritten(commits: Sequence[Commit]) -> dict[str, int]:
    return {
        "updated_rows": sum(commit.rows.updated or 0 for commit in commits),
        "deleted_rows": sum(commit.rows.deleted or 0 for commit in commits),
        "removed_files": sum(commit.files.removed or 0 for commit in commits),
        "removed_bytes": sum(commit.bytes.removed or 0 for commit in commits),
        "added_bytes": sum(commit.bytes.added or 0 for commit in commits),
    }


def _versions(commits: Any) -> tuple[int, ...]:
    return tuple(commit.version for commit in commits)


def _who(commit: Commit) -> str:
    task = commit.task_instance
    if task is not None:
        return f"{task.dag_id}.{task.task_id}"
    return "no task" if commit.record is None else commit.record.identity.application_id


def _names_in(condition: str) -> set[str]:
    """The names in a condition, in lower case."""
    return {name.lower() for name in re.findall(r"[^\W\d]\w*", condition)}
