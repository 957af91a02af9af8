"""The harness itself: engines that are wrong on purpose must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import airflow_delta_merge.engine
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeExecutionError
from tests.differential.cases import ANYTHING, PEOPLE, Case
from tests.differential.harness import Harness
from tests.differential.running import NUM_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = Case("upsert", "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *", does="update, insert")
AMBIGUOUS = Case(
    "ambiguous",
    "WHEN MATCHED THEN UPDATE SET *",
    source="VALUES (2, 'x', 1), (2, 'y', 2) AS s(id, name, age)",
    fails="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
)
Engine = Callable[..., MergeResult]


def _result(**changes: int) -> MergeResult:
    values = {"version_read": 1, "version": 2, "num_files_before_skipping": 1, **changes}
    return MergeResult(table="t", executor="ClassicMergeExecutor", executor_reason="", **values)  # type: ignore[arg-type]


def _altered(*replacement: str, **changes: int) -> Engine:
    """The built-in as engine, of another statement than the one it was given."""

    def merge_sql(spark: SparkSession, statement: str, *, max_commit_attempts: int) -> MergeResult:
        row = spark.sql(statement.replace(*replacement)).collect()[0]
        counts = {name: row[name] for name in NUM_ROWS}
        files = {"num_removed_files": 1, "num_added_files": 1}
        return _result(**{**counts, **files, **changes})

    return merge_sql


def _does_nothing(spark: SparkSession, statement: str, *, max_commit_attempts: int) -> MergeResult:
    return _result(num_affected_rows=4, num_updated_rows=2, num_inserted_rows=2)


def _raises(error: Exception) -> Engine:
    def merge_sql(spark: SparkSession, statement: str, *, max_commit_attempts: int) -> MergeResult:
        raise error

    return merge_sql


@pytest.fixture
def check(engines: Harness, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case, Engine], None]:
    """``check(case, engine)``: the harness with another engine in place of ours."""

    def check(case: Case, engine: Engine) -> None:
        monkeypatch.setattr(airflow_delta_merge.engine, "merge_sql", engine)
        engines.check(case)
        if engines.recording:
            pytest.skip("compares nothing")

    return check


def test_the_same_passes(check: Callable[[Case, Engine], None]) -> None:
    check(UPSERT, _altered("", ""))


@pytest.mark.parametrize(
    ("case", "engine", "words"),
    [
        pytest.param(UPSERT, _altered("'BOB'", "'bOB'"), "rows only in ours: 1 x .*bOB", id="another value"),
        pytest.param(
            UPSERT, _altered("(8, NULL, 18)", "(8, NULL, NULL)"), "rows only in built-in: 1 x ", id="a NULL too many"
        ),
        pytest.param(UPSERT, _altered("UPDATE SET *", "DELETE"), "num_affected_rows", id="another action"),
        pytest.param(
            UPSERT,
            _altered("WHEN NOT", "WHEN NOT MATCHED AND false THEN INSERT * WHEN NOT"),
            "operationParameters",
            id="another statement in the history",
        ),
        pytest.param(UPSERT, _altered("", "", num_inserted_rows=3), "num_inserted_rows", id="another row count"),
        pytest.param(
            UPSERT,
            _altered("", "", num_added_files=7),
            "num_added_files is 7, the commit says 1",
            id="a result that differs from its commit",
        ),
        pytest.param(UPSERT, _does_nothing, "version: built-in 2, ours 1", id="no commit"),
        pytest.param(
            UPSERT,
            _raises(MergeExecutionError("no", condition="DIVIDE_BY_ZERO")),
            "ours fails, the built-in doesn't",
            id="an error of ours alone",
        ),
        pytest.param(
            AMBIGUOUS, _does_nothing, "the built-in fails with DELTA_MULTIPLE", id="an error of the built-in alone"
        ),
        pytest.param(
            AMBIGUOUS,
            _raises(MergeExecutionError("no", condition="DIVIDE_BY_ZERO")),
            "error condition: built-in DELTA_M",
            id="another error",
        ),
    ],
)
def test_differences_are_found(check: Callable[[Case, Engine], None], case: Case, engine: Engine, words: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=words):
        check(case, engine)


def test_the_same_error_passes(check: Callable[[Case, Engine], None]) -> None:
    check(AMBIGUOUS, _raises(MergeExecutionError("two rows", condition=AMBIGUOUS.fails)))


def test_a_not_implemented_error_is_an_expected_failure(check: Callable[[Case, Engine], None]) -> None:
    with pytest.raises(pytest.xfail.Exception, match="not there yet: no upserts"):
        check(UPSERT, _raises(NotImplementedError("no upserts")))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case("says too little", UPSERT.clauses, does="update"), "the case says it does 'update'"),
        (Case("says it fails", UPSERT.clauses, fails="DIVIDE_BY_ZERO"), "but the built-in succeeds"),
        (Case("fails otherwise", AMBIGUOUS.clauses, source=AMBIGUOUS.source, fails="X"), "the built-in raises DELTA_M"),
    ],
    ids=str,
)
def test_a_case_that_says_something_wrong_is_refused(engines: Harness, case: Case, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        engines.check(case)


def test_a_case_says_what_it_does() -> None:
    with pytest.raises(ValueError, match="say what the case does"):
        Case("says nothing", "WHEN MATCHED THEN DELETE")
    with pytest.raises(ValueError, match="unknown kinds"):
        Case("says nonsense", "WHEN MATCHED THEN DELETE", does="upsert")


def test_a_refusal_that_quotes_the_built_in_is_no_trip_over_null_keys(engines: Harness) -> None:
    """On tables with deletion vectors its message shows the expression that raises the error for such rows."""
    case = Case(
        "a string by source",
        "WHEN NOT MATCHED BY SOURCE AND t.name THEN DELETE",
        does=ANYTHING,
        table=replace(PEOPLE, properties={"delta.enableDeletionVectors": "true"}),
    )
    assert engines.check_anything(case) == "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE"
