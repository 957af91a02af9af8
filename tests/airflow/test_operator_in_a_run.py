"""The operator in a run: its values, the text of its log, its identity."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_delta_merge.config import (
    MergeTarget,
    SourceExpectations,
    when_matched_delete,
    when_matched_update,
    when_matched_update_all,
    when_not_matched_insert_all,
)
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.description import announce, describe, readable_statement
from airflow_delta_merge.operators.task_identity import merge_identity
from tests.airflow.test_operator import GOOD, NO_PARTS, operator
from tests.readable_ids import readable


def test_statements_and_queries_are_read_from_files_and_rendered(tmp_path: Path) -> None:
    (tmp_path / "merge.sql").write_text("MERGE INTO {{ params.t }} USING s ON true WHEN MATCHED THEN DELETE;\n")
    (tmp_path / "query.sql").write_text("SELECT '{{ params.t }}' AS id")
    with DAG("files", schedule=None, template_searchpath=[str(tmp_path)], params={"t": "day"}):
        by_statement = operator(**NO_PARTS, sql="merge.sql")
        by_query = DeltaMergeOperator(**{**GOOD, "task_id": "by_query", "source": "query.sql"})
    for merge in (by_statement, by_query):
        merge.resolve_template_files()
        merge.name = "fixed"
        merge.render_template_fields({"params": {"t": "day"}})  # type: ignore[typeddict-item]
    assert by_statement._merge_config().target == MergeTarget(table="day")
    assert "SELECT 'day' AS id" in by_query._merge_config().to_sql()


def test_how_a_table_is_made_may_be_templates() -> None:
    operator(create_table={"partitioned_by": ["{{ params.by }}"], "properties": {"owner": "{{ dag.owner }}"}})
    with pytest.raises(MergeConfigError, match="unknown keys: partition_by"):
        operator(create_table={"partition_by": ["{{ params.by }}"]})


def test_what_becomes_of_bad_rows_may_be_templates() -> None:
    kept = {"bad_rows_path": "/bad/{{ ds }}", "max_bad_rows": "{{ params.most }}"}
    operator(source={"path": "/in/a.csv", "bad_rows": "keep", **kept})
    operator(source={"path": "/in/a.csv", "bad_rows": "{{ params.bad_rows }}", **kept})
    operator(source={"path": "/in/{{ ds }}.csv", "bad_rows": "skip"})
    operator(source={"paths": ["/in/{{ ds }}.csv"], "bad_rows": "skip"})
    operator(source={"path": "/in/{{ ds }}", "format": "{{ params.format }}", "bad_rows": "skip"})
    with pytest.raises(MergeConfigError, match="bad_rows must be one of fail, skip, keep"):
        operator(source={"path": "/in/{{ ds }}.csv", "bad_rows": "drop"})


def test_guards_may_be_templates() -> None:
    operator(fail_if={"deleted_fraction": "{{ params.most }}"}, on_empty_source="{{ params.empty }}")
    with pytest.raises(MergeConfigError, match="unknown count"):
        operator(fail_if={"deleted_rows": "{{ params.most }}"})
    operator(expect_source={"unique": "{{ params.keys }}", "sample": "{{ params.sample }}"})
    operator(expect_source={"columns": {"{{ params.key }}": "{{ params.type }}"}, "not_null": ["{{ params.key }}"]})
    operator(expect_source="{{ params.expected }}")
    severities = {"a": {"condition": "x > {{ params.x }}", "on_failure": "{{ params.how }}"}}
    operator(expect_source=severities)
    operator(expect_source={**severities, "failed_rows_path": "/lake/{{ ds }}"})
    operator(expect_source={"unique": "{{ params.unique }}", "failed_rows_path": "/lake/failed"})
    aside = {"a": {"condition": "x > 0", "on_failure": "set_aside"}}
    operator(expect_source={**aside, "not_null": "{{ params.keys }}", "failed_rows_path": "{{ params.failed }}"})
    with pytest.raises(MergeConfigError, match="must be one of keys, rows, none, got"):
        operator(expect_source={"unique": ["{{ params.key }}"], "sample": "all"})


def test_expectations_may_be_an_output_and_are_rendered() -> None:
    with DAG("some", schedule=None):
        upstream = DeltaMergeOperator(task_id="up", **GOOD)
        output = upstream.output
        for number, expected in enumerate((output, {"unique": output["keys"]}, {"unique": ["id", output["key"]]})):
            DeltaMergeOperator(**GOOD, task_id=f"merge_{number}", expect_source=expected)
    merge = operator(expect_source=SourceExpectations(unique=("{{ key }}",), sample="none"), name="merge")
    merge.render_template_fields({"key": "day"})  # type: ignore[typeddict-item]
    assert merge._merge_config().guards.expect_source == SourceExpectations(unique=("day",), sample="none")


def test_templates_are_rendered_everywhere() -> None:
    merge = operator(
        target="/data/{{ table }}",
        source={"path": "/in/{{ day }}.csv", "options": {"header": True, "nullValue": "{{ null }}"}},
        on=["{{ key }}"],
        clauses=[when_matched_update(set={"a": "{{ value }}"}, condition="source.day = '{{ day }}'")],
        name="{{ table }}",
    )
    values = {"table": "t", "day": "2026-01-31", "key": "id", "value": "source.a + 1", "null": "-"}
    merge.render_template_fields(values)
    assert (merge.target, merge.on, merge.name) == ("/data/t", ["id"], "t")
    assert merge.source == {"path": "/in/2026-01-31.csv", "options": {"header": True, "nullValue": "-"}}
    assert merge.clauses[0]["values"] == [["a", "source.a + 1"]]
    assert merge.clauses[0]["condition"] == "source.day = '2026-01-31'"


@pytest.mark.parametrize(
    "changes", [{"source": "/in/{{ x }}"}, {"source": {"path": "/in/{{ x }}"}}, {"on": ["{{ x }}"]}], ids=readable
)
def test_values_from_another_task_are_not_rendered(changes: dict[str, Any]) -> None:
    """Airflow tells the values of a mapped task by their identity, so they must not be copied before."""
    merge = operator(**changes, name="merge")
    ((field, value),) = changes.items()
    _render_mapped(merge, value)
    assert getattr(merge, field) == value


def test_the_statement_of_a_run_is_among_the_rendered_fields() -> None:
    merge = operator(target="sales.{{ table }}", on=["{{ key }}"], name="merge")
    assert ("statement" in merge.template_fields, merge.statement) == (True, None)
    merge.render_template_fields({"table": "orders", "key": "id"})
    assert merge.statement == merge._merge_config().to_sql()
    assert "MERGE INTO `sales`.`orders`" in merge.statement


@pytest.mark.parametrize("name", ["ds", "ts_nodash", "data_interval_start | ds", "logical_date.year"])
def test_a_date_that_the_run_lacks_is_no_empty_text(name: str) -> None:
    """Jinja would make /in/.csv of it. In Airflow 3 asset-triggered and some manual runs have no logical date."""
    run_after = datetime(2026, 1, 31, 12, tzinfo=UTC)
    no_date: Any = {"dag_run": SimpleNamespace(run_after=run_after, logical_date=None)}
    merge = operator(source=f"/in/{{{{ {name} }}}}.csv", name="merge")
    with pytest.raises(AirflowFailException, match=r"This run has no logical date.* Use dag_run.run_after, e.g. {{"):
        merge.render_template_fields(no_date)
    merge = operator(source="/in/{{ dag_run.run_after | ds }}-{{ ds | default('x') }}.csv", name="merge")
    merge.render_template_fields(no_date)
    assert merge.source == "/in/2026-01-31-x.csv"


def test_a_date_that_is_none_is_not_the_text_none() -> None:
    """Airflow sets both ends of an interval wherever there is a logical date, also without an interval."""
    context: Any = {"dag_run": SimpleNamespace(), "ds": "2026-01-31", "data_interval_start": None}
    merge = operator(source="SELECT * FROM s WHERE at >= '{{ data_interval_start }}'", name="merge")
    with pytest.raises(AirflowFailException, match="so data_interval_start has no value"):
        merge.render_template_fields(context)
    merge = operator(source="SELECT * FROM s WHERE at >= '{{ data_interval_start | default(ds) }}'", name="merge")
    merge.render_template_fields(context)
    assert merge.source == "SELECT * FROM s WHERE at >= '2026-01-31'"


def test_the_statement_is_no_template() -> None:
    """Airflow renders the fields of a task again when it is resumed; what a run's values hold is never run."""
    merge, called = operator(on="target.id = '{{ x }}'", name="merge"), []
    context = {"x": "{{ call(1) }}", "call": called.append}
    merge.render_template_fields(context)
    assert "{{ call(1) }}" in (merge.statement or "")
    merge.on = "target.id = source.id"
    merge.render_template_fields(context)
    assert called == []


def test_a_run_without_a_merge_and_a_statement_of_ones_own_show_no_second_statement() -> None:
    merge = operator(target="{{ nothing }}", name="merge")
    merge.render_template_fields({"nothing": ""})
    assert merge.statement is None
    written = operator(**NO_PARTS, sql="MERGE INTO {{ x }} USING s ON true WHEN MATCHED THEN DELETE", name="merge")
    written.render_template_fields({"x": "day"})
    assert (written.statement, written.sql) == (None, "MERGE INTO day USING s ON true WHEN MATCHED THEN DELETE")


def test_properties_of_spark_have_their_names_in_the_dag() -> None:
    operator(conf={"spark.sql.shuffle.partitions": "{{ params.partitions }}"})
    with DAG("some", schedule=None):
        upstream = operator()
        for task_id, conf in (("template", "{{ dag_run.conf['spark'] }}"), ("output", upstream.output)):
            with pytest.raises(MergeConfigError, match="fixed names in the DAG file"):
                DeltaMergeOperator(**GOOD, task_id=task_id, conf=conf)
    conf = {"spark.jars": "/tmp/evil.jar"}
    with pytest.raises(AirflowFailException, match="fixed names in the DAG file"):
        _render_mapped(operator(conf=conf, name="merge"), conf)


def test_a_value_of_a_run_refers_to_nothing() -> None:
    written = operator(conf={"spark.app.name": "${env:USER} {{ x }}"}, name="merge")
    written.render_template_fields({"x": "y"})
    assert written.conf == {"spark.app.name": "${env:USER} y"}
    given = operator(conf={"spark.app.name": "{{ x }}"}, name="merge")
    with pytest.raises(AirflowFailException, match=r"value of spark.app.name in this run contains \$\{…\}"):
        given.render_template_fields({"x": "${env:PASSWORD}"})


def _render_mapped(merge: DeltaMergeOperator, value: Any) -> None:
    """As Airflow renders a task that was mapped over a value which another task returned."""
    merge._do_render_template_fields(
        parent=merge,
        template_fields=merge.template_fields,
        context={"x": "RENDERED"},
        jinja_env=merge.get_template_env(),
        seen_oids={id(value)},
    )


def test_values_that_make_no_merge_fail_before_spark_starts() -> None:
    from airflow_delta_merge.task_exceptions import DeltaMergeFailException

    merge = operator(target="{{ nothing }}", name="merge")
    merge.render_template_fields({"nothing": ""})
    with pytest.raises(DeltaMergeFailException, match="some text for the target"):
        merge._merge_configs()


class MergeOnWorkdays(DeltaMergeOperator):
    """Has nothing to do on some days."""

    def execute(self, context: Any) -> Any:
        return None


def test_a_class_of_ones_own_may_merge_nothing() -> None:
    merge, pushed = MergeOnWorkdays(task_id="merge", **GOOD), []
    ti = SimpleNamespace(xcom_push=lambda **xcom: pushed.append(xcom))
    run: Any = {"ti": ti}
    merge.post_execute(run, None)
    assert pushed == []


def test_kill_before_anything_runs_is_harmless() -> None:
    operator().on_kill()


def test_result_in_the_log() -> None:
    result = MergeResult(
        table="/t",
        version_read=3,
        version=4,
        executor="ClassicMergeExecutor",
        executor_reason="there is a matched clause",
        num_inserted_rows=1,
        num_updated_rows=2,
        num_touched_files=1,
        num_candidate_files=2,
        num_files_before_skipping=32,
        num_added_files=1,
        metrics={"numTargetRowsCopied": 4022},
        durations_ms={"scan": 1200, "rewrite": 2200, "total": 3456},
    )
    assert describe(result).splitlines() == [
        "Merged into /t: committed version 4",
        "  rows    inserted      1    files  touched   1",
        "          updated       2           removed   0",
        "          deleted       0           added     1",
        "          copied    4,022           searched  2 of 32",
        "  time    scan        1.2 s  ███████",
        "          rewrite     2.2 s  █████████████",
        "          total       3.5 s",
        "  how     ClassicMergeExecutor: there is a matched clause",
    ]
    assert describe(result, "http://airflow/merges").splitlines()[-1] == "  see     http://airflow/merges"
    broken = {"positive": 3, "unique": 0, "not_null": 2}
    failed = replace(result, failed_expectations=broken, num_set_aside_rows=4)
    assert "  broken  positive 3, not_null 2; 4 rows of the source set aside" in describe(failed).splitlines()


def test_the_log_begins_with_what_is_merged_into_what_from_what() -> None:
    config = operator(
        target="/lake/orders",
        source=["/in/am.csv", "/in/pm.csv"],
        clauses=[
            when_matched_delete(condition="source.status = 'cancelled'"),
            when_matched_update(set={"status": "'new'", "seen": "1"}, condition="source.fresh"),
            when_matched_update_all(except_columns=["created_at"]),
            when_not_matched_insert_all(),
        ],
        source_dedupe="at",
    )._merge_config()
    assert announce([config]).splitlines() == [
        "Merge into delta.`/lake/orders`",
        "  from  /in/am.csv and 1 more (csv), the latest row of each id by at; ties fail",
        "  on    id",
        "  when matched and source.status = 'cancelled': delete",
        "  when matched and source.fresh: update status, seen",
        "  when matched: update all without created_at",
        "  when not matched: insert all",
    ]
    query = operator(source=f"SELECT {'1 +' * 100} 1\nAS id")._merge_config()
    several = announce([query, operator(**NO_PARTS, sql="MERGE INTO t USING s")._merge_config()])
    assert several.splitlines()[1] == f"  from  (SELECT {'1 +' * 31}…)"
    assert several.splitlines()[-2:] == ["Merge 2 into `t`", "  by    the statement in sql"]


def test_the_statement_of_dedupe_is_folded() -> None:
    config = operator(source="s", source_dedupe={"latest_by": ["at", "nr"], "on_ties": "pick"})._merge_config()
    assert "AS (PARTITION BY" in config.to_sql()
    assert readable_statement(config).splitlines()[:3] == [
        "MERGE INTO `db`.`target` AS `target`",
        "-- source_dedupe: the latest row of each id by at, nr; any row of a tie",
        "USING `s` AS `source`",
    ]
    plain = operator(source="s")._merge_config()
    assert readable_statement(plain) == plain.to_sql()


def test_recorded_result_in_the_log() -> None:
    result = MergeResult(table="/t", version_read=3, version=4, executor="", executor_reason="", num_commit_attempts=3)
    assert describe(result).startswith("Merged into /t: committed version 4; attempt 3, the others conflicted\n")
    again = replace(result, already_committed=True, num_commit_attempts=1)
    assert describe(again).startswith("Merged into /t: already committed by an earlier try, as version 4; nothing was")
    lost = replace(again, version=None)
    assert describe(lost).startswith("Merged into /t: already committed by an earlier try; nothing was done now")


def context(**changes: Any) -> dict[str, Any]:
    start = datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC)
    run = {"start_date": start, "clear_number": 2, "logical_date": None, "run_after": start - timedelta(seconds=1)}
    ti = {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1, "try_number": 2, "max_tries": 3}
    return {"ti": SimpleNamespace(**ti), "dag_run": SimpleNamespace(**run | changes)}


@pytest.mark.parametrize(("counts_clears", "generation"), [(True, 1772409601000002003), (False, 1772409601000999003)])
def test_identity_of_a_task(*, counts_clears: bool, generation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_MERGE__NAMESPACE", "staging")
    monkeypatch.setattr("airflow_delta_merge.operators.task_identity.AIRFLOW_V_3_2_PLUS", counts_clears)
    identity = merge_identity(context())
    assert identity is not None
    assert (identity.application_id, identity.generation) == ("airflow:staging/d/t/r/-1", generation)
    assert identity.task_instance.try_number == 2


def test_runs_of_dag_test_have_no_identity() -> None:
    date = datetime(2026, 3, 1, tzinfo=UTC)
    assert merge_identity(context(start_date=date, logical_date=date)) is None
    assert merge_identity(context(start_date=date, run_after=date)) is None
