"""Several merges in one task and one Spark application: what is refused at parse, results and errors of each."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG

from airflow_delta_merge.config import (
    MergeConfig,
    MergeStatement,
    when_matched_delete,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.outcome import JobError, JobOutcome, MergeOutcome
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.results import results_of
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.many_merges import build_merges
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow import tables
from tests.airflow.conftest import SPARK
from tests.readable_ids import readable

UPSERT: dict[str, Any] = {"on": ["id"], "clauses": [when_matched_update_all(), when_not_matched_insert_all()]}
GOOD: dict[str, Any] = {"target": "db.one", "source": "SELECT 1 AS id", **UPSERT}
STATEMENT = "MERGE INTO db.two AS t USING db.new AS s ON t.id = s.id WHEN MATCHED THEN DELETE"


def operator(*merges: Any, **arguments: Any) -> DeltaMergeOperator:
    return DeltaMergeOperator(task_id="merge", merges=merges, **arguments)


@pytest.mark.parametrize(
    ("merges", "arguments", "sentence"),
    [
        ([], {}, "at least one merge"),
        ([GOOD], {"target": "t", "on_empty_source": "skip"}, "can't be combined with target, on_empty_source"),
        ([GOOD], {"sql": STATEMENT}, "can't be combined with sql"),
        ([GOOD, {**GOOD, "on": []}], {}, "Merge 2 of merges: on is empty"),
        ([GOOD, {**GOOD, "tagret": "t"}], {}, "Merge 2 .*unknown arguments: tagret. Known are: target, source"),
        ([{**GOOD, "task_id": "t"}], {}, "unknown arguments: task_id"),
        ([{"target": "t"}], {}, "Merge 1 of merges: A merge needs"),
        ([{"sql": STATEMENT, "on": ["id"]}], {}, "sql is the whole statement. Remove on"),
        ([{"sql": "SELECT 1"}], {}, "MERGE INTO statement"),
        ([{**GOOD, "on_empty_source": "ignore"}], {}, "on_empty_source must be one of merge, skip, fail"),
        ([{**GOOD, "window": {"columns": "at"}}], {}, "Merge 1 of merges: The merge window has unknown keys: columns"),
        ([7], {}, "a dict of arguments or a MergeConfig, got 7"),
    ],
    ids=readable,
)
def test_invalid_merges_fail_at_parse(merges: Any, arguments: Any, sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        operator(*merges, **arguments)


@pytest.mark.parametrize("merges", [GOOD, "MERGE", 7], ids=readable)
def test_a_single_merge_is_no_list_of_merges(merges: Any) -> None:
    with pytest.raises(MergeConfigError, match="list of at least one merge"):
        DeltaMergeOperator(task_id="merge", merges=merges)


def test_a_function_says_itself_what_is_merged() -> None:
    from airflow_delta_merge.decorators.delta_merge import delta_merge_task

    def rows() -> str:
        return "SELECT 1 AS id"

    with pytest.raises(MergeConfigError, match="Remove merges from the decorator"):
        delta_merge_task(rows, merges=[GOOD])()


def test_each_form_of_a_merge_comes_to_the_same() -> None:
    config = MergeConfig(**GOOD, guards={"on_empty_source": "skip"})  # type: ignore[arg-type]
    statement = MergeStatement(sql=STATEMENT, update_only_changed=True)
    for merges in (
        [config, statement],
        [config.to_dict(), statement.to_dict()],
        [{**GOOD, "on_empty_source": "skip"}, {"sql": STATEMENT, "update_only_changed": True}],
    ):
        assert build_merges(operator(*merges).merges) == [config, statement]
        assert build_merges(merges) == [config, statement]  # as another task would return it


def test_templates_stand_anywhere_in_them_and_the_statements_are_shown() -> None:
    with DAG("several", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        merge = operator({**GOOD, "target": "db.{{ name }}", "window": "at"}, {"sql": "{{ statement }}"}, name="merge")
    interval = {"data_interval_start": datetime(2026, 3, 1, tzinfo=UTC), "data_interval_end": datetime(2026, 3, 2)}
    context = {"name": "orders", "statement": STATEMENT, "dag": merge.dag, **interval}
    merge.render_template_fields(context)  # type: ignore[arg-type]
    assert merge.statement is not None
    first, second = merge.statement.split(";\n\n")
    assert "MERGE INTO db.orders" in first.replace("`", "")
    assert "2026-03-01" in first
    assert second == STATEMENT


def test_what_only_the_run_knows_may_be_wrong() -> None:
    merge = operator({**GOOD, "target": "{{ nothing }}"})
    merge.merges[0]["target"] = ""
    with pytest.raises(AirflowFailException, match=r"Merge 1 of merges: .* some text for the target"):
        merge._merge_configs()


# With Spark.


def identity(generation: int = 1) -> MergeIdentity:
    return MergeIdentity(application_id="several", generation=generation)


def insert(target: Path, ids: str, **parts: Any) -> MergeConfig:
    source = f"SELECT id, 'new' AS name FROM range({ids})"
    return MergeConfig(**{"target": str(target), "source": source, **UPSERT, **parts})


def transactions(table: Path) -> list[str]:
    return [action["txn"]["appId"] for action in tables.actions(table) if "txn" in action]


def test_a_failing_merge_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = (tables.create_table(tmp_path / name) for name in ("one", "two `'; ü"))
    missing = tmp_path / "missing"
    merges = [
        insert(one, "0, 10"),
        insert(missing, "0, 5"),
        # Into the same table one after the other: this one finds what the first has inserted.
        insert(one, "0, 4", clauses=[when_matched_delete()]),
        insert(missing, "5, 8"),
        insert(two, "0, 3"),
        insert(two, "0, 0", guards={"on_empty_source": "skip"}),
    ]
    applications = []
    hook = DeltaMergeHook(conf=SPARK)
    with pytest.raises(DeltaMergeException) as caught:
        hook.merge_all(merges, identity=identity(), on_application=applications.append)
    assert len(applications) == 1
    assert not isinstance(caught.value, AirflowFailException), "the table may come to be"
    said, *errors = str(caught.value).splitlines()
    assert said == "2 of 6 merges failed; the others are done."
    assert str(missing) in errors[0]
    assert "Not started, because merge 2 into the same table failed" in str(caught.value)
    assert (tables.versions(one), tables.versions(two)) == ([0, 1, 2], [0, 1])
    assert (tables.count_rows(one), tables.count_rows(two)) == (6, 3)
    assert len({*transactions(one)}) == 2
    assert {each.partition("/")[0] for each in transactions(one)} == {"several"}

    tables.create_table(missing)
    results = hook.merge_all([merges[4], *merges[:4], merges[5]], identity=identity())  # in another order
    assert [None if each is None else each.already_committed for each in results] == [
        True,
        True,
        False,
        True,
        False,
        None,
    ]
    assert [None if each is None else each.num_affected_rows for each in results] == [3, 10, 5, 4, 3, None]
    assert (tables.versions(one), tables.versions(missing), tables.versions(two)) == ([0, 1, 2], [0, 1, 2], [0, 1])
    assert "after the merge was done" not in caplog.text


# What a deferred task, or the hook, makes of the job's result file.


def result(table: str) -> MergeResult:
    return MergeResult(table=table, version_read=0, version=1, executor="E", executor_reason="why")


def outcome(**what: Any) -> MergeOutcome:
    return MergeOutcome(target="delta.`/t`", **what)


def test_a_task_whose_sources_are_all_empty_is_skipped() -> None:
    merge = operator(GOOD, GOOD)
    with pytest.raises(AirflowSkipException, match="No source of any merge has rows"):
        merge._complete({}, [], results_of(JobOutcome(merges=(outcome(skipped="No rows."),)), None))  # type: ignore[typeddict-item]


def test_another_try_is_made_if_it_can_help_one_of_them() -> None:
    lasting = outcome(error=JobError.of(MergeConfigError("Wrong.")))
    passing = outcome(error=JobError.of(OSError("No storage.")))
    done = outcome(result=result("t"))
    for merges, is_lasting in (((lasting, done), True), ((lasting, done, passing), False)):
        with pytest.raises(DeltaMergeException) as caught:
            results_of(JobOutcome(merges=merges), None)
        assert isinstance(caught.value, AirflowFailException) is is_lasting
