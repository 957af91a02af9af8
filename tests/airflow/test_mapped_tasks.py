"""What mapped tasks share and are mapped over, while a DAG is parsed."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_delta_merge.assets.delta import delta_asset
from airflow_delta_merge.config import when_matched_delete
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.patterns import Upsert
from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
from tests.airflow.test_operator import GOOD, UPSERT
from tests.readable_ids import readable


@pytest.mark.parametrize(
    ("shared", "sentence"),
    [
        ({"on": "id"}, r"use on=\['id'\]"),
        ({"clauses": ["update"]}, "is not a clause"),
        ({"target": {"name": "t"}}, "target has unknown keys: name"),
        ({"pattern": {"pattern": "upsrt", "keys": ["id"]}}, "no pattern 'upsrt'"),
        ({"pattern": Upsert(keys=("id",)), "on": ["id"]}, "Remove on, or remove pattern"),
        ({"sql": "MERGE INTO t USING s", "target": "t"}, "Remove target, or remove sql"),
        ({"window": {"column": "at", "timezone": "Berlin"}}, "no timezone 'Berlin'"),
        ({"merges": [GOOD], "target": "t"}, "merges can't be combined with target"),
        ({"driver_memory": 2}, "driver_memory must be a string"),
        ({"conf": {"fs.s3a.endpoint": "x"}}, "which Spark ignores"),
        ({"conn_id": None}, "conn_id must be a string"),
        ({"deferrable": "no"}, "deferrable must be True or False"),
        ({"asset_events": "commit"}, "asset_events must be one of"),
        ({"max_commit_attempts": 0}, "whole number ≥ 1"),
    ],
    ids=readable,
)
def test_what_mapped_tasks_share_is_checked_at_parse(shared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConfigError, match=sentence):
        DeltaMergeOperator.partial(task_id="merge", **shared)


@pytest.mark.parametrize(
    "shared",
    [
        {},
        {"null_safe": True, "source_dedupe": "at", "expect_source": {"unique": ["id"]}, "null_keys": "fail"},
        {"on": None, "window": "day", "target": "{{ params.t }}", "clauses": (each for each in GOOD["clauses"])},
        {"pattern": Upsert(keys=("id",)), "target": delta_asset("/t")},
        {"sql": "{{ params.sql }}", "fail_if": {"num_deleted_rows": 5}},
        {"merges": [GOOD], "keep_warm": 60},
        {"fail_if": {"deleted_fraction": "{{ params.most }}"}, "conf": {"spark.x": "y"}, "pool": "spark"},
    ],
)
def test_what_mapped_tasks_share_may_leave_the_rest_open(shared: dict[str, Any]) -> None:
    assert DeltaMergeOperator.partial(task_id="merge", **shared).kwargs.items() >= shared.items()


@pytest.mark.parametrize(
    ("shared", "mapped", "sentence"),
    [
        ({"target": "t"}, {"sql": ["MERGE INTO t USING s ON 1 = 1 WHEN MATCHED THEN DELETE"]}, "Remove target, or rem"),
        ({"pattern": Upsert(keys=("id",))}, {"on": [["id"]]}, "Remove on, or remove pattern"),
        ({"target": "t", "on": ["id"]}, {"source": ["/a", "/b"]}, "missing: clauses"),
        (GOOD, {"engine": ["builtin", "delta"]}, "engine must be one of"),
        ({"target": "t", **UPSERT}, {"source": {"/a": 1}}, "Expected a string"),
        (GOOD, {"keep_warm": [60, "long"]}, "keep_warm must be a number"),
        ({"target": "t"}, [UPSERT | {"source": "/a"}, UPSERT | {"source": "/b", "on": "id"}], "'merge' of map index 1"),
    ],
    ids=readable,
)
def test_what_tasks_are_mapped_over_is_checked_with_what_they_share(shared: Any, mapped: Any, sentence: str) -> None:
    """Airflow builds mapped tasks only in a run, so each of these failed in each run."""
    with DAG("some", schedule=None), pytest.raises(MergeConfigError) as caught:
        _mapped(shared, mapped)
    assert sentence in "".join([str(caught.value), *caught.value.__notes__])


@pytest.mark.parametrize(
    ("defaults", "shared", "mapped"),
    [
        (UPSERT, {"target": "t"}, {"source": ["/a", "/{{ ds }}"], "fail_if": [{"num_deleted_rows": 1}, {}]}),
        ({}, {"target": "t", "source": "s", "on": ["id"]}, {"clauses": [when_matched_delete(), GOOD["clauses"]]}),
        ({}, {"target": "t", "on": ["id"], "clauses": (each for each in GOOD["clauses"])}, {"source": ["a", "b"]}),
        ({}, {"clauses": when_matched_delete()}, [{"target": "t", "source": "s", "on": ["id"]}]),
        ({}, {}, {"merges": [[GOOD], [GOOD, GOOD]]}),
        ({}, GOOD, {"window": []}),
    ],
)
def test_what_tasks_are_mapped_over_may_be_anything_that_fits(defaults: Any, shared: Any, mapped: Any) -> None:
    with DAG("some", schedule=None, default_args=defaults):
        assert _mapped(shared, mapped).is_mapped


@pytest.mark.parametrize(
    "name",
    ["null_safe", "engine", "max_commit_attempts", "asset_events", "exactly_once", "keep_warm", "driver_memory"],
)
def test_tasks_may_be_mapped_over_an_output_for_what_is_not_templated(name: str) -> None:
    """Airflow makes the tasks of its values; the error for a template advises so."""

    @task
    def upstream() -> list[Any]:
        return []

    with DAG("some", schedule=None):
        assert _mapped(GOOD, {name: upstream(), "window": ["day"]}).is_mapped
    with DAG("other", schedule=None), pytest.raises(MergeConfigError, match="fail_if"):
        _mapped(GOOD, {name: upstream(), "fail_if": [{"num_rows": 1}]})


class MergeOfRegion(DeltaMergeOperator):
    """As people write one, to give the same arguments once."""

    def __init__(self, *, region: str, source: int, **kwargs: Any) -> None:
        super().__init__(**{**GOOD, "source": f"/in/{region}/{source}"}, **kwargs)


class GateOfMerge(DeltaMergeSensor):
    def __init__(self, *, most: int, **kwargs: Any) -> None:
        super().__init__(external_task_id="merge", at_most={"num_deleted_rows": most}, **kwargs)


class NamedMerge(DeltaMergeOperator):
    """Takes the same arguments."""


def test_a_class_of_ones_own_is_mapped_over_its_own_arguments() -> None:
    """They were taken for the operator's, whose other ones were missing."""
    with DAG("some", schedule=None):
        assert MergeOfRegion.partial(task_id="a", source=7).expand(region=["eu", "us"]).is_mapped
        assert MergeOfRegion.partial(task_id="b").expand_kwargs([{"region": "eu", "source": 7}]).is_mapped
        assert GateOfMerge.partial(task_id="c").expand(most=[1, 2]).is_mapped
        with pytest.raises(MergeConfigError, match="missing: source"):
            NamedMerge.partial(task_id="d", target="t").expand(on=[["id"]])


def _mapped(shared: dict[str, Any], over: dict[str, Any] | list[Any]) -> Any:
    partial = DeltaMergeOperator.partial(task_id="merge", **shared)
    return partial.expand_kwargs(over) if isinstance(over, list) else partial.expand(**over)
