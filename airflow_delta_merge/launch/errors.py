"""Turns Spark failures into Airflow errors with advice, and decides whether a retry makes sense."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout

from airflow_delta_merge.exceptions import DeltaMergeError, EmptySourceError, MergeGuardError
from airflow_delta_merge.task_exceptions import DeltaMergeException, DeltaMergeFailException, EmptySourceException

if TYPE_CHECKING:
    from airflow_delta_merge.config import MergeTarget
    from airflow_delta_merge.contract.outcome import JobError

# Classes of SQLSTATE (its first two characters) whose errors come from the statement, the table or the rows, so every
# retry would fail: unsupported feature, cardinality (several source rows for one target row), data, constraint, syntax
# or rule (unknown columns, wrong types), and errors that a query raises itself (source_dedupe's ties).
_LASTING_CLASSES = ("0A", "21", "22", "23", "42", "P0")
# Exceptions that time may cure: a table, path or schema that doesn't exist yet.
_PASSING_STATES = ("42P01", "42K03", "42704")
# Advice for the most common errors, by the beginning of their condition; Delta and Spark say what is wrong.
_ADVICE = {
    "DELTA_TABLE_NOT_FOUND": "Create it as a Delta table first (CREATE TABLE … USING delta), or correct the name.",
    "TABLE_OR_VIEW_NOT_FOUND": "Check its name, and that this Spark has the catalog it is in.",
    "PATH_NOT_FOUND": "Check the path in source, and that Spark can read it from where it runs.",
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING": "Keep one source row per key, e.g. with source_dedupe.",
    "DELTA_MERGE_UNRESOLVED_EXPRESSION": "Check the columns in on and clauses against both sides.",
    "UNRESOLVED_COLUMN": "Check the columns in source, on and clauses against both sides.",
    "CAST_INVALID_INPUT": "Clean the values in a source query, e.g. with try_cast.",
    "PARQUET_TYPE_ILLEGAL": "Spark doesn't read this type from Parquet. Timestamps of pandas have nanoseconds (NANOS): "
    'write microseconds with to_parquet(…, coerce_timestamps="us").',
}
# Errors that often mean a missing target.
_MISSING = ("DELTA_TABLE_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND")
_ADVICE_FOR_MISSING_TARGET = (
    "If the target doesn't exist yet, set create_table=True, and the merge creates it with the source's columns (with "
    "sql=, run CREATE TABLE first). If it exists, check target, and that Spark can read it from where it runs."
)
_GUARDS = {MergeGuardError.__name__, *(each.__name__ for each in MergeGuardError.__subclasses__())}
# Spark's plan below an error's sentences: lines that begin with :- or +-, and the line above them.
_PLAN = re.compile(r"\n[^\n]*(?:\n[ :]*[:+]- [^\n]*)+\s*$")
# Advice by what Java says, before a merge begins or within it.
_JAVA_HINTS = {
    "failed to map segment from shared object": "The folder for temporary files is mounted with noexec, so Java can't "
    "load libraries from there. Set TMPDIR to another one.",
    r"basedir must be absolute: \?|invalid null input: name": "The user that runs this task has no name, which Java "
    "needs. Add it to /etc/passwd when the container starts, as the entrypoint of Airflow's image does.",
}
# Advice for errors of spark-submit before a merge begins.
_HINTS = _JAVA_HINTS | {
    r"HADOOP_CONF_DIR|YARN_CONF_DIR": "The Airflow connection {conn_id!r} points to YARN. To run Spark on the worker, "
    "set its host to local[*], or delete it if it is spark_default. To use YARN, set HADOOP_CONF_DIR to the folder of "
    "the cluster's configuration on the worker.",
    r"unresolved dependency": "Check the coordinates in packages, and that the worker reaches the repository.",
    r"Could not reserve enough space|Invalid (maximum|initial) heap size": "Check driver_memory.",
}


@contextmanager
def raised_for_airflow() -> Iterator[None]:
    """Raise errors of this package as Airflow's, so that its retries apply."""
    try:
        yield
    except DeltaMergeError as error:
        cls = DeltaMergeException if error.another_try_helps else DeltaMergeFailException
        raise cls(str(error)) from error


def target_or_number(targets: Sequence[MergeTarget]) -> str:
    """A job's only target, or the number of its targets, for error messages."""
    names = dict.fromkeys(target.to_sql() for target in targets)
    return next(iter(names)) if len(names) == 1 else f"{len(names)} tables"


def error_of_job(error: JobError, target: str) -> DeltaMergeException:
    """The Airflow error for an error that a job reports."""
    condition = error.condition
    message = _PLAN.sub("", error.message or "no reason was given.")
    suffix = f" [{condition}]" if condition and condition not in message else ""
    advice = next((text for start, text in _ADVICE.items() if str(condition).startswith(start)), "")
    if str(condition).startswith(_MISSING) and _is_about(target, message):
        advice = _ADVICE_FOR_MISSING_TARGET
    advice = advice or _hint(_JAVA_HINTS, message)
    cls = DeltaMergeFailException if _is_lasting(error) else DeltaMergeException
    if error.type == EmptySourceError.__name__:
        cls = EmptySourceException
    text = f"The merge into {target} failed: {message}{suffix} {advice}".rstrip()
    guard = message if error.type in _GUARDS else None
    return cls(text, condition=condition, sql_state=error.sql_state, stopped_by_guard=guard)


def _is_about(target: str, message: str) -> bool:
    """Whether a message about a missing table or path is about the target.

    :param target: its name in the statement: ``delta.`/path` `` or a table's quoted name.
    """
    path = target.removeprefix("delta.").strip("`") if target.startswith("delta.`") else None
    if path is None:
        return re.search(rf"(?:^|[^.])(?:`spark_catalog`\.)?{re.escape(target)}(?![.`])", message) is not None
    return re.search(rf"(?:^|[\s`:]){re.escape(path)}/?(?:\.?(?:\s|$)|`)", message) is not None


def error_of_several(errors: Sequence[DeltaMergeException], num_merges: int) -> DeltaMergeException:
    """The Airflow error for several merges, some failed. It is retried if a retry makes sense for one of them."""
    lasting = all(isinstance(error, AirflowFailException) for error in errors)
    cls = DeltaMergeFailException if lasting else DeltaMergeException
    text = "\n".join([f"{len(errors)} of {num_merges} merges failed; the others are done.", *map(str, errors)])
    guards = [error.stopped_by_guard for error in errors if error.stopped_by_guard is not None]
    return cls(text, stopped_by_guard="\n".join(guards) or None)


def _is_lasting(error: JobError) -> bool:
    if not error.another_try_helps:
        return True
    state = error.sql_state or ""
    return state[:2] in _LASTING_CLASSES and state not in _PASSING_STATES


def error_of_exit(
    exit_code: int, reason: str, target: str, *, killed: bool, exactly_once: bool, conn_id: str
) -> DeltaMergeException:
    """The Airflow error for a spark-submit that ended without a result file.

    :param reason: the reason from its output; empty if there is none.
    :param conn_id: the Spark connection.
    """
    what = f"The merge into {target} was not completed: "
    check = _where_to_look(exactly_once)
    if killed:
        return DeltaMergeException(f"{what}Airflow ended this task, and Spark with it. {check}")
    if (number := _signal_number(exit_code)) is not None:
        name = signal.Signals(number).name
        hint = ""
        if number == signal.SIGKILL:
            hint = " A machine that runs out of memory ends processes in this way. Check its memory and driver_memory."
        return DeltaMergeException(f"{what}Spark was killed from outside by {name}.{hint} {check}")
    if not reason:
        reason = "it gave no reason. Spark's own log, named in this log, may say more."
    hint = _hint(_HINTS, reason).format(conn_id=conn_id)
    return DeltaMergeException(
        f"{what}Spark ended with exit code {exit_code} and left no result: {reason} {hint}".rstrip()
    )


def _hint(hints: Mapping[str, str], reason: str) -> str:
    return next((text for pattern, text in hints.items() if re.search(pattern, reason)), "")


def error_of_loss(error: str, target: str, *, another_try_helps: bool, exactly_once: bool) -> DeltaMergeException:
    """The Airflow error for a Spark application whose outcome is unknown; ``error`` says why."""
    cls = DeltaMergeException if another_try_helps else DeltaMergeFailException
    return cls(f"The merge into {target} was not completed: {error} {_where_to_look(exactly_once)}")


def timed_out(target: str, *, exactly_once: bool) -> AirflowTaskTimeout:
    """The error of a deferred task whose merge exceeded its ``execution_timeout``."""
    return AirflowTaskTimeout(
        f"The merge into {target} was not completed within the task's execution_timeout, so its Spark application was "
        f"ended. {_where_to_look(exactly_once)}"
    )


def _where_to_look(exactly_once: bool) -> str:
    if exactly_once:
        return "If it did commit, the next try finds that in the table's log and returns its result."
    return "Check the table's history to see whether it committed."


def _signal_number(exit_code: int) -> int | None:
    """The signal behind an exit code: negative for spark-submit itself, above 128 for the Python process under it."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    return number if number in {member.value for member in signal.Signals} else None
