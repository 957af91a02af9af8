"""Patterns and windows as arguments of the operator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG

from airflow_delta_merge.config import MergeConfig, MergeWindow
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import PATTERNS, ApplyChanges, Scd2, Sync, Upsert
from airflow_delta_merge.task_exceptions import DeltaMergeFailException
from tests.readable_ids import readable

UPSERT = {"pattern": "upsert", "keys": ["id"]}


def operator(**arguments: Any) -> DeltaMergeOperator:
    return DeltaMergeOperator(**{"task_id": "merge", "target": "t", "source": "s", "name": "n", **arguments})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"pattern": UPSERT, "on": ["id"]}, "A pattern brings its own condition and clauses. Remove on"),
        ({"pattern": UPSERT, "target": None}, "missing: target"),
        ({"pattern": UPSERT, "sql": "MERGE INTO t USING s"}, "Remove target, source, pattern, or remove sql"),
        ({"pattern": "upsert"}, "A pattern must be e.g. Upsert"),
        ({"pattern": {"pattern": "update", "keys": ["id"]}}, "no pattern 'update'. Known are: upsert, insert_new"),
        ({"pattern": {"pattern": "upsert"}}, "pattern upsert lacks: keys"),
        ({"pattern": {**UPSERT, "key": "id"}}, "pattern upsert has unknown keys: key"),
        ({"pattern": {**UPSERT, "keys": []}}, "keys is empty"),
        ({"pattern": {"pattern": "scd2", "keys": ["a"], "columns": [], "effective_at": "at"}}, "columns is empty"),
        ({"pattern": {"pattern": "scd2", "keys": ["a"], "columns": ["A"], "effective_at": "at"}}, "A, a of the target"),
        ({"pattern": {"pattern": "apply_changes", "keys": ["a"], "sequence_by": ["s"], "deleted_column": "d"}},
         "deleted_column needs operation_column"),
        ({"pattern": Scd2(keys="a", columns="b", effective_at="at"), "create_table": True}, "in create_table"),
        ({"pattern": UPSERT, "window": {"colum": "day"}}, "window has unknown keys: colum"),
        ({"pattern": UPSERT, "window": {"column": "day", "start": "{{ a }}", "timezone": "nowhere"}}, "no timezone"),
        ({"pattern": UPSERT, "window": {"column": "day", "start": "2024-01-02", "end": "2024-01-01"}}, "is empty"),
        ({"pattern": UPSERT, "window": 7}, "A window must be a dict"),
        ({"pattern": {**UPSERT, "keep": ["address.city"]}}, "except_columns has 'address.city', which is a field"),
        ({"pattern": Scd2(keys="a", columns="b", effective_at="at"), "window": "at"}, "not available with Scd2"),
        ({"pattern": {"pattern": "soft_delete", "keys": "a", "keep": "`Is_Deleted`"}}, "keep has `Is_Deleted`"),
    ], ids=readable
)  # fmt: skip
def test_refused_at_parse(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        operator(**arguments)


def test_a_window_of_a_key_is_one_of_whole_histories() -> None:
    operator(pattern=Scd2(keys=["id", "day"], columns=["name"], effective_at="at"), window="Day")


@pytest.mark.parametrize(
    "pattern",
    [
        Upsert(keys="id", keep=["created_at"]),
        Sync(keys=("a", "b"), where="target.region = 'EU'"),
        ApplyChanges(keys="id", sequence_by="seq", operation_column="op"),
        Scd2(keys="id", columns=["name"], effective_at="at"),
    ],
    ids=[
        "Upsert",
        "Sync",
        "ApplyChanges",
        "Scd2",
    ],
)
def test_a_pattern_and_its_dict_are_the_same_merge(pattern: Any) -> None:
    config = pattern.to_config(target="t", source="s")
    assert operator(pattern=pattern)._merge_config() == operator(pattern=pattern.to_dict())._merge_config() == config
    assert pattern.NAME in PATTERNS


def test_parts_of_a_pattern_may_be_templates_and_outputs() -> None:
    with DAG("some", schedule=None):
        upstream = operator(task_id="up", pattern=UPSERT)
        merge = operator(pattern={"pattern": "upsert", "keys": upstream.output["keys"]})
    assert merge.upstream_task_ids == {"up"}
    merge = operator(pattern={"pattern": "sync", "keys": ["{{ key }}"], "where": "target.day = '{{ ds }}'"})
    merge.render_template_fields({"key": "id", "ds": "2024-01-01"})
    assert merge._merge_config() == Sync(keys=("id",), where="target.day = '2024-01-01'").to_config(
        target="t", source="s"
    )


def rendered(window: Any, timezone: str = "Europe/Berlin", start: str = "2024-03-31") -> MergeConfig:
    zone = pendulum.timezone(timezone)
    first = pendulum.parse(start, tz=zone)
    with DAG("some", schedule=timedelta(days=1), start_date=first) as dag:
        merge = operator(pattern=UPSERT, window=window)
    interval = {"data_interval_start": first.in_tz("UTC"), "data_interval_end": first.add(days=1).in_tz("UTC")}
    merge.render_template_fields({"dag": dag, **interval})
    config = merge._merge_config()
    assert isinstance(config, MergeConfig)
    return config


def test_a_column_stands_for_the_runs_interval_in_the_dags_timezone() -> None:
    config = rendered({"column": "day", "column_type": "date"})
    assert config.window == MergeWindow(
        column="day", column_type="date", start="2024-03-31", end="2024-04-01", timezone="Europe/Berlin"
    )
    moments = rendered("at").window
    assert moments is not None
    assert (moments.start, moments.end) == ("2024-03-30T23:00:00+00:00", "2024-03-31T22:00:00+00:00")


def test_a_run_without_an_interval_fails_with_a_sentence_unless_the_window_is_given() -> None:
    merge = operator(pattern=UPSERT, window="at")
    merge.render_template_fields({"data_interval_end": None, "dag": DAG("d", schedule=None)})
    with pytest.raises(DeltaMergeFailException, match="this run has no data interval"):
        merge._merge_configs()
    now = pendulum.datetime(2024, 1, 1)  # as with schedule="@daily" in Airflow 3
    merge = operator(pattern=UPSERT, window="at")
    merge.render_template_fields({"data_interval_start": now, "data_interval_end": now, "dag": DAG("d", schedule=None)})
    with pytest.raises(DeltaMergeFailException, match=r"has empty ones\. Use CronDataIntervalTimetable"):
        merge._merge_configs()
    given = operator(pattern=UPSERT, window=MergeWindow(column="at", start="2024-01-01", end="2024-01-02"))
    given.render_template_fields({})
    assert given._merge_config().window.end == "2024-01-02T00:00:00+00:00"
