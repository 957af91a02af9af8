"""What the log says after both engines: the table's state, the merge's commit, the files it added."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.differential.delta_log import Action, DeltaTableLog, statistics_of
from tests.differential.outcome import Outcome

ROW_METRICS = (
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceDeleted",
)
# Rows that were copied only because their file was rewritten: fewer is better, if files were left alone for it.
COPY_METRICS = ("numTargetRowsCopied", "numOutputRows")
LESS_IS_BETTER = ("numTargetFilesRemoved", "numTargetBytesRemoved")
DELETION_VECTOR_METRICS = (
    "numTargetDeletionVectorsAdded",
    "numTargetDeletionVectorsRemoved",
    "numTargetDeletionVectorsUpdated",
)
#: A part of a merge's condition, as the history has it.
_EQUAL_COLUMNS = re.compile(r"\([^()]+#\w+ (=|<=>) [^()]+#\w+\)")


def state_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    """Protocol, schema and properties of the table, and its partitions."""
    left, right = builtin.after, ours.after
    parts: dict[str, Callable[[DeltaTableLog], Any]] = {
        "protocol": lambda log: log.protocol,
        "schema": comparable_schema,
        "table properties": _comparable_properties,
        "partition columns": lambda log: log.metadata["partitionColumns"],
        "partitions": lambda log: sorted({json.dumps(add["partitionValues"]) for add in log.files.values()}),
        "clustering": lambda log: log.domains.get("delta.clustering"),
    }
    for name, part in parts.items():
        if part(left) != part(right):
            yield f"{name}: built-in {part(left)}, ours {part(right)}"


def _comparable_properties(log: DeltaTableLog) -> dict[str, str]:
    own = "delta.rowTracking.materialized"
    return {k: v for k, v in log.metadata["configuration"].items() if not k.startswith(own)}


def comparable_schema(log: DeltaTableLog) -> str:
    """The schema with names that are made up by chance (physical names of new columns) made equal."""
    text = json.dumps(log.schema, sort_keys=True, ensure_ascii=False)
    text = re.sub(r'"col-[0-9a-f-]{36}', '"col-…', text)  # with ``.key`` or ``.value`` behind it for Iceberg's readers
    # How far identity values got depends on the number of tasks that wrote.
    return re.sub(r'("delta.identity.highWaterMark"): -?\d+', r"\1: …", text)


def commit_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    left, right = builtin.commit_info, ours.commit_info
    for name in ("operation", "readVersion", "isolationLevel", "isBlindAppend", "tags"):
        if left.get(name) != right.get(name):
            yield f"commitInfo.{name}: built-in {left.get(name)!r}, ours {right.get(name)!r}"
    parameters = tuple(_comparable_parameters(info["operationParameters"]) for info in (left, right))
    if parameters[0] != parameters[1]:
        yield f"operationParameters: built-in {parameters[0]}, ours {parameters[1]}"
    yield from _metric_differences(builtin, ours)
    yield from _file_differences(builtin, ours)
    yield from _marked_file_differences(builtin, ours)
    yield from _removed_file_differences(builtin, ours)


def _comparable_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: re.sub(r"#\d+L?", "#n", value) for name, value in parameters.items()}


def _metric_differences(by_builtin: Outcome, by_ours: Outcome) -> Iterator[str]:
    builtin, ours = by_builtin.metrics, by_ours.metrics
    if builtin.keys() != ours.keys():
        yield f"names of metrics: missing {builtin.keys() - ours.keys()}, more {ours.keys() - builtin.keys()}"
    leaves_more_alone = ours.get("numTargetFilesRemoved", 0) < builtin.get("numTargetFilesRemoved", 0)
    exact = ROW_METRICS + DELETION_VECTOR_METRICS + (() if leaves_more_alone else COPY_METRICS)
    at_most = LESS_IS_BETTER + (COPY_METRICS if leaves_more_alone else ())
    for name in builtin.keys() & ours.keys():
        left, right = builtin[name], ours[name]
        if name == "numSourceRows" and (_never_read_its_source(builtin) or _read_its_source_twice(by_builtin, right)):
            continue
        if (name in exact and left != right) or (name in at_most and left < right):
            yield f"metric {name}: built-in {left}, ours {right}"
        # A merge that touches no file adds its inserts as they are, which are their own change data.
        only_inserts = not (ours["numTargetRowsUpdated"] or ours["numTargetRowsDeleted"])
        if name == "numTargetChangeFilesAdded" and (left > 0) != (right > 0) and not only_inserts:
            yield f"metric {name}: built-in {left}, ours {right}"


def _never_read_its_source(builtin: Mapping[str, int]) -> bool:
    """Whether the built-in, which counts source rows as its first join reads them, had no such join: Spark drops one
    whose condition it finds to be never true (``t.k = s.k AND s.k < t.k``), and no row of the source is counted then,
    though all of them may be inserted."""
    met = ("numTargetRowsMatchedUpdated", "numTargetRowsMatchedDeleted", "numSourceRows")
    return not any(builtin[name] for name in met)


def _read_its_source_twice(builtin: Outcome, num_source_rows: int) -> bool:
    """Whether the built-in counted each source row twice, as Spark's nested loops of an outer join may read it twice:
    ``test_no_source_row_counts_twice`` shows it. A join by equal columns has no such loops."""
    parameters = builtin.commit_info["operationParameters"]
    joins_outer = any(parameters[name] != "[]" for name in ("notMatchedPredicates", "notMatchedBySourcePredicates"))
    if not joins_outer or any(map(_EQUAL_COLUMNS.fullmatch, json.loads(parameters["predicate"]))):
        return False
    return builtin.metrics["numSourceRows"] == 2 * num_source_rows


def _file_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    """What the added files say of themselves: same kinds of facts, statistics on the same columns."""
    if not builtin.added or not ours.added:
        return
    facts = tuple({key for add in o.added for key, v in add.items() if v is not None} for o in (builtin, ours))
    # Files that are copied stay clustered, and say so as they did.
    of_clusters = {"tags", "clusteringProvider"}
    if facts[0] - of_clusters != facts[1] - of_clusters:
        yield f"AddFile's fields: built-in {sorted(facts[0])}, ours {sorted(facts[1])}"
    statistics = tuple(_stats_columns(o) for o in (builtin, ours))
    if statistics[0] != statistics[1]:
        yield f"columns with statistics: built-in {statistics[0]}, ours {statistics[1]}"


def _marked_file_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    """Compare the log entries of files in which both marked rows, except for the location of the marks."""
    entries = ({add["path"]: _marked(add) for add in o.added if add.get("deletionVector")} for o in (builtin, ours))
    yield from _differences_of_files("a file with marked rows", *entries)


def _differences_of_files(what: str, builtin: Mapping[str, Action], ours: Mapping[str, Action]) -> Iterator[str]:
    """Where two tell different things of a file, by its path."""
    for path in builtin.keys() & ours.keys():
        left, right = builtin[path], ours[path]
        for name in sorted(left.keys() | right.keys()):
            if left.get(name) != right.get(name):
                yield f"{name} of {what}: built-in {left.get(name)}, ours {right.get(name)}"


def _marked(add: Action) -> Action:
    vector = {key: value for key, value in add["deletionVector"].items() if key not in ("pathOrInlineDv", "offset")}
    statistics = statistics_of(add, parse_float=str)
    # Of files that a scan has chosen the built-in loses the tags, as it does the statistics that it looks up again.
    others = {name: value for name, value in add.items() if name != "tags"}
    return {**others, "deletionVector": vector, "stats": statistics}


def _removed_file_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    """Compare the log entries of files that both removed, except for the time."""
    entries = ({remove["path"]: _comparable_remove(remove) for remove in _removed(o)} for o in (builtin, ours))
    yield from _differences_of_files("a removed file", *entries)


def _comparable_remove(remove: Action) -> Action:
    # Of files that a scan has chosen the built-in loses the tags, and of their statistics all but the number of rows.
    others = {name: value for name, value in remove.items() if name not in ("deletionTimestamp", "tags")}
    return {**others, "stats": statistics_of(remove).get("numRecords")}


def _removed(outcome: Outcome) -> list[Action]:
    return outcome.after.actions("remove", since=outcome.before.version)


def statistics_differences(builtin: Outcome, ours: Outcome) -> Iterator[str]:
    """What the new file of each tells of its values, where both must hold the same rows."""
    removed = tuple({action["path"] for action in _removed(o)} for o in (builtin, ours))
    one_each = len(builtin.added) == len(ours.added) == 1
    if (
        not one_each
        or removed[0] != removed[1]
        or builtin.after.metadata["schemaString"] != ours.after.metadata["schemaString"]
    ):
        return
    found = [statistics_of(o.added[0], parse_float=_zero_without_sign) for o in (builtin, ours)]
    if found[0] != found[1] and _without_spoilt_bounds(found[0]) != found[1]:
        yield f"statistics: built-in {found[0]}, ours {found[1]}"


def _without_spoilt_bounds(stats: Action) -> Action:
    """The statistics without bounds that are no bounds: of texts that are no UTF-8. Ours may leave these out."""
    bounds = {of: stats[of] for of in ("minValues", "maxValues") if of in stats}
    spoilt = {name for values in bounds.values() for name, value in values.items() if "\ufffd" in str(value)}
    return stats | {
        of: {name: value for name, value in values.items() if name not in spoilt} for of, values in bounds.items()
    }


def _zero_without_sign(number: str) -> str:
    """The number without the sign of a zero. 0.0 and -0.0 are equal, so the first row decides which one is recorded."""
    return number.removeprefix("-") if float(number) == 0 else number


def _stats_columns(outcome: Outcome) -> list[str]:
    stats = [statistics_of(add) for add in outcome.added if not add.get("deletionVector")]
    kinds = ("minValues", "maxValues", "nullCount")
    if outcome.after.metadata["configuration"].get("delta.columnMapping.mode", "none") != "none":
        return sorted({f"{kind}: {len(s[kind])}" for s in stats for kind in ("nullCount",) if kind in s})
    # A column of NULLs only has no range, so ranges depend on which rows share a file: nullCount doesn't.
    return sorted({f"{kind}.{column}" for s in stats for kind in kinds[2:] for column in s.get(kind, {})})


def result_differences(ours: Outcome) -> Iterator[str]:
    """Whether our result tells the same as our commit."""
    result, metrics = ours.result, ours.metrics
    assert result is not None
    said = {
        "version": (result.version, ours.before.version + 1),
        "version_read": (result.version_read, ours.commit_info["readVersion"]),
        "num_files_before_skipping": (result.num_files_before_skipping, len(ours.before.files)),
        "num_removed_files": (result.num_removed_files, metrics.get("numTargetFilesRemoved")),
        "num_added_files": (result.num_added_files, metrics.get("numTargetFilesAdded")),
        "num_updated_rows": (result.num_updated_rows, metrics.get("numTargetRowsUpdated")),
        "num_deleted_rows": (result.num_deleted_rows, metrics.get("numTargetRowsDeleted")),
        "num_inserted_rows": (result.num_inserted_rows, metrics.get("numTargetRowsInserted")),
    }
    for name, (value, truth) in said.items():
        if value != truth:
            yield f"MergeResult.{name} is {value}, the commit says {truth}"
    if result.num_touched_files > result.num_candidate_files > 0:
        yield f"MergeResult: {result.num_touched_files} touched files of {result.num_candidate_files} candidates"
