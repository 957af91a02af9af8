"""From errors in Spark to Airflow's: which of them another try may cure, and what they say."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from py4j.protocol import Py4JNetworkError

from airflow_delta_merge.contract.outcome import JobError
from airflow_delta_merge.exceptions import (
    BadRowsError,
    EmptySourceError,
    MergeConfigError,
    MergeConflictError,
    MergeExecutionError,
    MergeGuardError,
    NullKeysError,
    StaleMergeError,
)
from airflow_delta_merge.launch.errors import error_of_exit, error_of_job, error_of_loss, error_of_several


def reported(condition: str, message: str) -> JobError:
    """What the job reports of an error that Spark or Delta raised."""
    return JobError(type="AnalysisException", message=message, condition=condition, sql_state="42P01")


@pytest.mark.parametrize(
    ("error_class", "condition", "sql_state", "lasting"),
    [
        (MergeConfigError, None, None, True),
        (NotImplementedError, None, None, True),
        (MergeGuardError, None, None, True),
        (EmptySourceError, None, None, True),
        (BadRowsError, None, None, True),
        (NullKeysError, None, None, True),
        (StaleMergeError, None, None, True),
        (MergeConflictError, None, None, False),
        (MergeExecutionError, "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", True),
        (MergeExecutionError, "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "42K09", True),
        (MergeExecutionError, "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", "21506", True),
        (MergeExecutionError, "CAST_INVALID_INPUT", "22018", True),
        (MergeExecutionError, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "23001", True),
        (MergeExecutionError, "DELTA_ONLY_OPERATION", "0AKDD", True),
        (MergeExecutionError, "USER_RAISED_EXCEPTION", "P0001", True),
        # A table or a path may still come to be.
        (MergeExecutionError, "TABLE_OR_VIEW_NOT_FOUND", "42P01", False),
        (MergeExecutionError, "PATH_NOT_FOUND", "42K03", False),
        (MergeExecutionError, "DELTA_CONCURRENT_APPEND", "2D521", False),
        (MergeExecutionError, "FAILED_READ_FILE", "KD001", False),
        (MergeExecutionError, None, None, False),
        (Py4JNetworkError, None, None, False),
    ],
)
def test_another_try_makes_sense(
    error_class: type[Exception], condition: str | None, sql_state: str | None, lasting: bool
) -> None:
    error = error_of_job(replace(JobError.of(error_class("What.")), condition=condition, sql_state=sql_state), "`t`")
    assert isinstance(error, AirflowException)
    assert isinstance(error, AirflowFailException) is lasting
    assert (error.condition, error.sql_state) == (condition, sql_state)
    assert str(error).startswith(f"The merge into `t` failed: What.{f' [{condition}]' if condition else ''}")


@pytest.mark.parametrize("error_class", [MergeGuardError, *MergeGuardError.__subclasses__()])
def test_it_is_known_that_a_guard_stopped_a_merge(error_class: type[MergeGuardError]) -> None:
    stopped = error_of_job(JobError.of(error_class("Too many rows.")), "`t`")
    failed = error_of_job(JobError.of(MergeExecutionError("No such column.")), "`t`")
    assert (stopped.stopped_by_guard, failed.stopped_by_guard) == ("Too many rows.", None)
    assert error_of_several([failed, stopped], 3).stopped_by_guard == "Too many rows."
    assert error_of_several([failed], 3).stopped_by_guard is None


def test_advice_on_a_temporary_folder_without_executable_files() -> None:
    loading = "Caused by: /tmp/libsnappyjava.so: failed to map segment from shared object"
    error = error_of_job(reported("TASK_WRITE_FAILED", f"[TASK_WRITE_FAILED] No. {loading}"), "`t`")
    assert str(error).endswith(
        "mounted with noexec, so Java can't load libraries from there. Set TMPDIR to another one."
    )


def test_advice_on_connections_is_for_errors_before_a_merge() -> None:
    assert str(error_of_job(reported("X", "[X] See HADOOP_CONF_DIR."), "`t`")).endswith("See HADOOP_CONF_DIR.")


@pytest.mark.parametrize("reason", ["basedir must be absolute: ?/.ivy2.5.2/local", "invalid null input: name"])
def test_advice_on_a_user_without_a_name(reason: str) -> None:
    error = error_of_exit(1, reason, "`t`", killed=False, exactly_once=True, conn_id="spark_default")
    assert f"{reason} The user that runs this task has no name" in str(error)


def test_advice_on_timestamps_that_pandas_writes() -> None:
    message = "[PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,false))."
    error = error_of_job(reported("PARQUET_TYPE_ILLEGAL", message), "`t`")
    assert f"{message} Spark doesn't read this type" in str(error)
    assert 'to_parquet(…, coerce_timestamps="us")' in str(error)


def test_condition_is_said_once_and_advice_added() -> None:
    error = error_of_job(reported("PATH_NOT_FOUND", "[PATH_NOT_FOUND] No path."), "`t`")
    assert str(error) == (
        "The merge into `t` failed: [PATH_NOT_FOUND] No path. Check the path in source, and that Spark can read it "
        "from where it runs."
    )


# Messages of Spark 4.2 and Delta 4.4.
@pytest.mark.parametrize(
    ("target", "condition", "message", "is_target"),
    [
        ("delta.`/lake/t`", "PATH_NOT_FOUND", "[PATH_NOT_FOUND] Path does not exist: /lake/t. SQLSTATE: 42K03", True),
        ("delta.`/lake/t`", "PATH_NOT_FOUND", "Path does not exist: file:/lake/t.csv. SQLSTATE: 42K03", False),
        ("delta.`/lake/t`", "PATH_NOT_FOUND", "Path does not exist: file:/in/lake/t. SQLSTATE: 42K03", False),
        ("delta.`/lake/t`", "DELTA_TABLE_NOT_FOUND", "Delta table `/lake/t` doesn't exist.", True),
        ("`db`.`t`", "TABLE_OR_VIEW_NOT_FOUND", "The table or view `db`.`t` cannot be found.", True),
        ("`db`.`t`", "TABLE_OR_VIEW_NOT_FOUND", "The table or view `spark_catalog`.`db`.`t` cannot be found.", True),
        ("`t`", "TABLE_OR_VIEW_NOT_FOUND", "The table or view `db`.`t` cannot be found.", False),
        ("`db`.`t`", "TABLE_OR_VIEW_NOT_FOUND", "The table or view `db`.`t`.`x` cannot be found.", False),
        ("`t`", "UNRESOLVED_COLUMN", "A column `t` cannot be resolved.", False),
    ],
)
def test_a_missing_target_leads_to_create_table(target: str, condition: str, message: str, is_target: bool) -> None:
    said = str(error_of_job(reported(condition, message), target))
    assert ("If the target doesn't exist yet, set create_table=True" in said) is is_target
    assert message in said


def test_sparks_plan_is_left_out_of_an_error() -> None:
    sentences = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `s` cannot be found.\nSQLSTATE: 42P01; line 2 pos 6;"
    plan = """
'MergeIntoTable ('target.id = 'source.id), [updatestaraction(None)], [insertstaraction(None)], false
:- SubqueryAlias target
:  +- RelationV2[id#0, name#1] spark_catalog.delta.`/t`
+- 'SubqueryAlias source
   +- 'UnresolvedRelation [s], [], false
"""
    error = reported("TABLE_OR_VIEW_NOT_FOUND", sentences + plan)
    assert str(error_of_job(error, "`t`")) == (
        f"The merge into `t` failed: {sentences} Check its name, and that this Spark has the catalog it is in."
    )


@pytest.mark.parametrize("exit_code", [-signal.SIGKILL, 128 + signal.SIGKILL])
def test_killed_from_outside(exit_code: int) -> None:
    said = str(error_of_exit(exit_code, "", "`t`", killed=False, exactly_once=False, conn_id="spark_default"))
    assert "not completed: Spark was killed from outside by SIGKILL" in said
    assert "driver_memory" in said


def test_killed_by_airflow() -> None:
    assert "Airflow ended this task, and Spark with it" in str(
        error_of_exit(-15, "", "`t`", killed=True, exactly_once=False, conn_id="spark_default")
    )


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Master must either be yarn or start with spark", ": Master must either be yarn or start with spark"),
        ("", ": it gave no reason. Spark's own log, named in this log, may say more."),
        (
            "either HADOOP_CONF_DIR or YARN_CONF_DIR must be set",
            ": either HADOOP_CONF_DIR or YARN_CONF_DIR must be set The Airflow connection 'lake' points to YARN. To "
            "run Spark on the worker, set its host to local[*], or delete it if it is spark_default. To use YARN, set "
            "HADOOP_CONF_DIR to the folder of the cluster's configuration on the worker.",
        ),
    ],
    ids=["a reason", "no reason", "YARN"],
)
def test_any_other_end(reason: str, said: str) -> None:
    error = error_of_exit(1, reason, "`t`", killed=False, exactly_once=False, conn_id="lake")
    assert str(error) == f"The merge into `t` was not completed: Spark ended with exit code 1 and left no result{said}"


def test_a_lost_result_is_found_by_the_next_try() -> None:
    said = str(error_of_exit(-9, "", "`t`", killed=False, exactly_once=True, conn_id="spark_default"))
    assert "If it did commit, the next try finds that in the table's log" in said


@pytest.mark.parametrize("another_try_helps", [True, False])
def test_an_application_of_which_nothing_is_known(another_try_helps: bool) -> None:
    error = error_of_loss("It is gone.", "`t`", another_try_helps=another_try_helps, exactly_once=False)
    assert isinstance(error, AirflowFailException) is not another_try_helps
    assert str(error) == (
        "The merge into `t` was not completed: It is gone. Check the table's history to see whether it committed."
    )
