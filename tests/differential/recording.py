"""What the built-in MERGE leaves behind in a case, in a form that can be kept, read in a diff and compared later.

A recording holds the commits that the merge made and the rows of the files that it added. What chance or the clock
decides has a fixed name in it: a file that the merge found is ``v1:0``, the first of version 1, a new one ``new 0``.
:func:`as_outcome` puts the commits on top of the table that another engine found in its own copy.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.differential.cases import Case
from tests.differential.delta_log import Action, DeltaTableLog, FileKey, file_key
from tests.differential.error_conditions import RecordedError, error_condition
from tests.differential.fingerprint import code_of, versions
from tests.differential.outcome import Outcome
from tests.differential.plain_rows import can_read_plainly, read_changes_plainly, read_plainly
from tests.differential.tables import identity_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Bag = Counter[str]

_HERE = Path(__file__).parent
_CODE = [str(_HERE / f"{name}.py") for name in ("running", "recording", "plain_rows", "delta_log", "error_conditions")]
_NEW_COLUMN = re.compile(r"col-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EXPRESSION_ID = re.compile(r"#\d+L?")
_OF_THE_CLOCK = (
    "timestamp",
    "modificationTime",
    "deletionTimestamp",
    "createdTime",
    "lastUpdated",
    "inCommitTimestamp",
)
#: Stands for the time of a file that the merge marks and leaves where it is.
_AS_BEFORE = -1
_OF_CHANCE = ("txnId", "engineInfo")
_ENGINE_SETTINGS = "spark.deltaMerge."


@dataclass(frozen=True)
class Recording:
    """What the built-in left behind.

    :param error: the error condition that it raised, if any.
    :param refused: whether it raised that before it read a row: while it parsed or analysed the statement.
    :param num_rows: the row of counts that it returned.
    :param commits: the actions of each commit that it made.
    :param rows: of each file that it added the rows, as :func:`read_plainly` gives them.
    :param all_rows: or all rows of the table as Spark reads them, where the files alone don't give them.
    :param changes: the change data feed's rows, as :func:`read_changes_plainly` gives them.
    :param all_changes: or as Spark reads them, likewise.
    """

    error: str | None = None
    refused: bool = False
    num_rows: tuple[int, ...] | None = None
    commits: tuple[tuple[Action, ...], ...] = ()
    rows: tuple[tuple[str, ...], ...] | None = None
    all_rows: tuple[str, ...] | None = None
    changes: tuple[str, ...] | None = None
    all_changes: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Only what is there."""
        defaults = Recording()
        return {name: value for name, value in asdict(self).items() if value != getattr(defaults, name)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Recording:
        return cls(**{name: _with_tuples(value) for name, value in content.items()})


def key_of(case: Case, session_settings: Mapping[str, str]) -> str:
    """What the recording of a case depends on, as a digest. Settings of our engine mean nothing to the built-in.

    :param session_settings: of the session that runs the built-in.
    """
    tables = [table for table in (case.table, case.source_table) if table is not None]
    of_case = {
        "statement": case.statement,
        "source": case.source_relation("{source_table}" if case.source_table else None),
        "before": case.before,
        "confs": {name: value for name, value in case.confs.items() if not name.startswith(_ENGINE_SETTINGS)},
        "by_name": case.by_name,
        "without": case.without,
        "tables": [identity_of(table) for table in tables],
    }
    made_of = [of_case, dict(session_settings), versions(), code_of(*_CODE)]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def record(case: Case, builtin: Outcome, spark: SparkSession) -> Recording:
    """What the built-in left behind in its copy of the table.

    :raises AssertionError: when it failed and yet committed.
    """
    if builtin.error:
        assert not builtin.committed, f"{case}: the built-in failed and yet committed"
        return Recording(error=error_condition(builtin.error), refused=_is_refusal(builtin.error))
    commits = builtin.after.commits_since(builtin.before.version)
    plainly = can_read_plainly(builtin.after)
    rows = tuple(_sorted(_rows_of(builtin.path, builtin.after, add, case)) for add in builtin.added if plainly)
    with_feed = builtin.committed and builtin.after.enabled("delta.enableChangeDataFeed")
    changes = changes_plainly(case, builtin) if with_feed else None
    return Recording(
        num_rows=builtin.num_rows,
        commits=tuple(_named(builtin, commits)),
        rows=rows if plainly else None,
        all_rows=None if plainly else _sorted(rows_by_spark(spark, case, builtin)),
        changes=None if changes is None else _sorted(changes),
        all_changes=_sorted(changes_by_spark(spark, case, builtin)) if with_feed and changes is None else None,
    )


def _is_refusal(error: Exception) -> bool:
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(error, AnalysisException | ParseException)


def as_outcome(recording: Recording, ours: Outcome) -> Outcome:
    """What the built-in would have left in a copy of the table that stood as ``ours`` found its own."""
    outcome = Outcome(ours.path, ours.table, ours.before, ours.before, num_rows=recording.num_rows)
    if recording.error:
        outcome.error = RecordedError(recording.error)
        return outcome
    names = {name: actual for actual, name in _names_of_files(ours.before).items()}

    def actual(name: str, *, is_file: bool) -> str:
        return names.get(name, name)

    commits = _renamed(copy.deepcopy([*map(list, recording.commits)]), actual)
    times = _times_of_files(ours.before)
    for add in _adds(commits):
        if add["modificationTime"] == _AS_BEFORE:
            add["modificationTime"] = times[add["path"]]
    outcome.after = ours.before.followed_by(commits)
    return outcome


# --- rows ---------------------------------------------------------------------------------------------------------


def rows_plainly(recording: Recording, builtin: Outcome, case: Case, *, skip: set[FileKey]) -> Bag:
    """The built-in's rows but for those of some files.

    :param builtin: what :func:`as_outcome` gave: files that the merge left alone are those of its folder.
    """
    assert recording.rows is not None
    added = {file_key(add): rows for add, rows in zip(builtin.added, recording.rows, strict=True)}
    bag: Bag = Counter()
    for key in builtin.after.files.keys() - skip:
        bag.update(
            added[key] if key in added else _rows_of(builtin.path, builtin.after, builtin.after.files[key], case)
        )
    return bag


def _rows_of(table: Path, log: DeltaTableLog, add: Action, case: Case) -> Bag:
    """The rows of one file."""
    others = log.files.keys() - {file_key(add)}
    return read_plainly(table, log, skip=others, without=case.without)


def changes_plainly(case: Case, outcome: Outcome) -> Bag | None:
    """The change data of the merge, None if the files alone don't give it."""
    if not can_read_plainly(outcome.after):
        return None
    return read_changes_plainly(outcome.path, outcome.after, since=outcome.before.version, without=case.without)


def rows_by_spark(spark: SparkSession, case: Case, outcome: Outcome) -> Bag:
    """The table's rows; where it tracks rows, with their stable ids and commit versions."""
    from pyspark.sql import functions as F

    rows = spark.read.format("delta").load(str(outcome.path)).drop(*case.without)
    if outcome.after.enabled("delta.enableRowTracking"):
        # Ids that the merge itself gives depend on the files it wrote.
        domain = outcome.before.domains.get("delta.rowTracking")
        highest = json.loads(domain)["rowIdHighWaterMark"] if domain else -1
        row_id = F.col("_metadata.row_id")
        known = F.when(row_id <= highest, row_id).otherwise(F.lit(-1))
        version = F.col("_metadata.row_commit_version")
        rows = rows.select("*", known.alias("row id"), version.alias("row version"))
    return bag_of(rows)


def changes_by_spark(spark: SparkSession, case: Case, outcome: Outcome) -> Bag:
    """The change data of the merge."""
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    changes = changes.option("startingVersion", outcome.before.version + 1)
    return bag_of(changes.load(str(outcome.path)).drop("_commit_timestamp", *case.without))


def bag_of(rows: DataFrame) -> Bag:
    """The rows, each as a text that tells all of it."""
    return Counter(repr(_plain(row)) for row in rows.collect())


def _plain(value: Any) -> Any:
    """A value whose repr tells all of it and is the same for the same value."""
    if isinstance(value, dict):
        return sorted((repr(_plain(k)), _plain(v)) for k, v in value.items())
    if isinstance(value, tuple | list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return str(value) if type(value).__name__ == "VariantVal" else value


def _sorted(bag: Bag) -> tuple[str, ...]:
    return tuple(sorted(bag.elements()))


# --- names --------------------------------------------------------------------------------------------------------


def _names_of_files(before: DeltaTableLog) -> dict[str, str]:
    """The fixed names of all files and deletion vectors that the log has had, by their actual ones."""
    names: dict[str, str] = {}
    for version, commit in enumerate(before.commits, before.start):
        _name_files(names, f"v{version}", [*_adds([commit])])
    _name_files(names, "checkpoint", [*before.files.values()])
    return names


def _name_files(names: dict[str, str], where: str, adds: list[Action]) -> None:
    for number, add in enumerate(sorted(adds, key=_content)):
        names.setdefault(add["path"], f"{where}:{number}")
        if vector := add.get("deletionVector"):
            names.setdefault(vector["pathOrInlineDv"], f"vector of {where}:{number}")


def _content(add: Action) -> str:
    told = [add["partitionValues"], add.get("stats"), add["size"], (add.get("deletionVector") or {}).get("cardinality")]
    return json.dumps(told, sort_keys=True)


def _times_of_files(before: DeltaTableLog) -> dict[str, int]:
    return {add["path"]: add["modificationTime"] for add in before.files.values()}


def _adds(commits: Iterable[Iterable[Action]]) -> Iterator[Action]:
    return (action["add"] for action in itertools.chain.from_iterable(commits) if "add" in action)


def _named(builtin: Outcome, commits: list[list[Action]]) -> Iterator[tuple[Action, ...]]:
    """The commits with fixed names, without what the clock and chance decide."""
    names = _names_of_files(builtin.before)
    new_files, new_vectors = itertools.count(), itertools.count()

    def name(actual: str, *, is_file: bool) -> str:
        if actual not in names:
            names[actual] = f"new {next(new_files)}" if is_file else f"new vector {next(new_vectors)}"
        return names[actual]

    commits = copy.deepcopy(commits)
    times = _times_of_files(builtin.before)
    for add in _adds(commits):
        if add["modificationTime"] == times.get(add["path"]):
            add["modificationTime"] = _AS_BEFORE
    old_columns = set(_NEW_COLUMN.findall(json.dumps(builtin.before.metadata)))
    new_columns: dict[str, str] = {}

    def column(match: re.Match[str]) -> str:
        if match[0] in old_columns:
            return match[0]
        return new_columns.setdefault(match[0], f"col-00000000-0000-0000-0000-{len(new_columns):012}")

    for commit in _renamed(commits, name):
        text = _NEW_COLUMN.sub(column, json.dumps(commit))
        yield tuple(_without_clock(action) for action in json.loads(text))


def _renamed(commits: list[list[Action]], name: Callable[..., str]) -> list[list[Action]]:
    for action in itertools.chain.from_iterable(commits):
        for kind in ("add", "remove", "cdc"):
            if file := action.get(kind):
                file["path"] = name(file["path"], is_file=True)
                if vector := file.get("deletionVector"):
                    vector["pathOrInlineDv"] = name(vector["pathOrInlineDv"], is_file=False)
    return commits


def _without_clock(action: Action) -> Action:
    [(kind, content)] = action.items()
    content = {
        name: 0 if name in _OF_THE_CLOCK and value != _AS_BEFORE else value
        for name, value in content.items()
        if name not in _OF_CHANCE
    }
    if parameters := content.get("operationParameters"):
        content["operationParameters"] = {k: _without_ids(v) for k, v in parameters.items()}
    if metrics := content.get("operationMetrics"):
        content["operationMetrics"] = {k: "0" if k.endswith("TimeMs") else v for k, v in metrics.items()}
    return {kind: content}


def _without_ids(parameter: Any) -> Any:
    """Spark numbers expressions through a session."""
    return _EXPRESSION_ID.sub("#n", parameter) if isinstance(parameter, str) else parameter


def _with_tuples(value: Any) -> Any:
    return tuple(_with_tuples(each) for each in value) if isinstance(value, list) else value
