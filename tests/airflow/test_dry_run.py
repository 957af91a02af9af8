"""The operator's dry run: templates are rendered as far as that is possible without a run, or refused at once.

``test_warm.py`` has one by a real Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task

from airflow_delta_merge.config import MergeConfig, when_matched_update_all, when_not_matched_insert_all
from airflow_delta_merge.contract.merge_plan import MergePlan
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

DAY = datetime(2026, 1, 31, tzinfo=UTC)
COUNTS = (name for name in MergePlan.__dataclass_fields__ if name.startswith("num_"))
PLAN = MergePlan(table="t", version_read=0, executor="", executor_reason="", **dict.fromkeys(COUNTS, 0))
UPSERT: dict[str, Any] = {"on": ["id"], "clauses": [when_matched_update_all(), when_not_matched_insert_all()]}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DeltaMergeHook, MergeConfig]]:
    """What would go to Spark."""
    seen: list[tuple[DeltaMergeHook, MergeConfig]] = []

    def plan(self: DeltaMergeHook, config: MergeConfig) -> MergePlan:
        seen.append((self, config))
        return PLAN

    monkeypatch.setattr(DeltaMergeHook, "plan", plan)
    return seen


def test_templates_are_rendered_for_the_date_and_params_given(
    planned: list[tuple[DeltaMergeHook, MergeConfig]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_LANDING", "/landing")
    params = {"table": Param("of_the_dag", type="string"), "key": "id"}
    with DAG("dry", schedule=None, params=params, user_defined_macros={"suffix": ".parquet"}):
        merge = DeltaMergeOperator(
            task_id="merge",
            target="/lake/{{ params.table }}",
            source="{{ var.value.landing }}/{{ ds }}{{ suffix }}",
            on=["{{ params.key }}"],
            clauses=[when_matched_update_all(condition="source.at > '{{ ts }}'")],
            conf={"spark.app.tag": "{{ ti.task_id }}-{{ dag.dag_id }}-{{ dag_run.run_after | ds_nodash }}"},
        )
    merge.dry_run(logical_date=DAY, params={"table": "orders"})
    ((hook, config),) = planned
    assert (config.target.path, config.source.paths, config.on) == (
        "/lake/orders",
        ("/landing/2026-01-31.parquet",),
        ("id",),
    )
    assert config.clauses[0].condition == "source.at > '2026-01-31T00:00:00+00:00'"
    assert hook.preparation.conf == {"spark.app.tag": "merge-dry-20260131"}
    # The operator itself goes into the next run as it was.
    assert merge.target == "/lake/{{ params.table }}"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("/in/{{ ds }}.csv", r"can't render source: 'ds' is undefined. Call dry_run\(logical_date=…"),
        ("/in/{{ params.day }}.csv", "can't render source: .* has no attribute 'day'"),
        ("/in/{{ ti.xcom_pull('up') }}", "can't render source: .* has no attribute 'xcom_pull'"),
        ("/in/{{ data_interval_start }}", "can't render source: 'data_interval_start' is undefined"),
    ],
)
def test_what_only_a_run_knows_is_refused_at_once(
    planned: list[tuple[DeltaMergeHook, MergeConfig]], source: str, sentence: str
) -> None:
    merge = DeltaMergeOperator(task_id="merge", target="/lake/t", source=source, **UPSERT)
    with pytest.raises(MergeConfigError, match=sentence):
        merge.dry_run()
    assert planned == []


def test_the_output_of_another_task_is_refused_at_once(planned: list[tuple[DeltaMergeHook, MergeConfig]]) -> None:
    @task
    def extract() -> str:
        return "/in/day.csv"

    with DAG("dry", schedule=None):
        merge = DeltaMergeOperator(task_id="merge", target="/lake/t", source={"path": extract()}, **UPSERT)
    with pytest.raises(MergeConfigError, match="doesn't know source, because it comes from the task extract"):
        merge.dry_run(logical_date=DAY)
    assert planned == []


def test_what_airflow_has_rendered_is_not_rendered_again(planned: list[tuple[DeltaMergeHook, MergeConfig]]) -> None:
    """As `airflow tasks test --dry-run` of Airflow 2 does it; a value of a run is no template."""
    merge = DeltaMergeOperator(task_id="merge", target="/lake/t", source="/in/{{ x }}", name="n", **UPSERT)
    merge.render_template_fields({"x": "{{ ds }}"})  # type: ignore[typeddict-item]
    merge.dry_run(logical_date=DAY)
    assert planned[0][1].source.paths == ("/in/{{ ds }}",)


def test_a_statement_of_a_file_is_read_and_rendered(
    tmp_path: Path, planned: list[tuple[DeltaMergeHook, MergeConfig]]
) -> None:
    (tmp_path / "day.sql").write_text("MERGE INTO t USING s_{{ ds_nodash }} AS s ON true WHEN MATCHED THEN DELETE")
    with DAG("dry", schedule=None, template_searchpath=[str(tmp_path)]):
        merge = DeltaMergeOperator(task_id="merge", sql="day.sql")
    merge.dry_run(logical_date=DAY)
    assert "USING s_20260131 AS s" in planned[0][1].to_sql()


def test_a_secret_of_a_template_is_masked(
    planned: list[tuple[DeltaMergeHook, MergeConfig]], monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    monkeypatch.setenv("AIRFLOW_VAR_SIGNATURE", "abcdef")
    merge = DeltaMergeOperator(
        task_id="merge", target="/lake/t", source="/in/day.csv?sig={{ var.value.signature }}", **UPSERT
    )
    merge.dry_run()
    assert masked == ["abcdef"]
