"""Names in the documentation's prose: what it says of arguments, keys, settings, messages and versions is there."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any

import pytest

from airflow_delta_merge.config import GUARDED_COUNTS, JdbcSource
from airflow_delta_merge.contract.merge_plan import MergePlan
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.engine.settings import Settings
from airflow_delta_merge.runtime.jars import DELTA_VERSION
from tests.docs.pages import PAGES, ROOT, prose

PACKAGE = ROOT / "airflow_delta_merge"
COUNTS = {field.name for cls in (MergeResult, MergePlan, JdbcSource) for field in fields(cls)} | set(GUARDED_COUNTS)


def _documented() -> list[Any]:
    """What the reference shows and people call."""
    from airflow_delta_merge import config, engine
    from airflow_delta_merge.assets import delta
    from airflow_delta_merge.contract.identity import MergeIdentity, application_id
    from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
    from airflow_delta_merge.operators.spark_options import SparkOptions
    from airflow_delta_merge.patterns import PATTERNS
    from airflow_delta_merge.sensors.delta_merge import DeltaMergeSensor
    from airflow_delta_merge.sensors.delta_table import DeltaTableSensor
    from airflow_delta_merge.triggers.delta_commit import DeltaCommitTrigger

    merges = [engine.merge, engine.merge_sql, engine.plan, delta.create_asset, delta.delta_asset, application_id]
    configs = [value for name, value in vars(config).items() if name in config.__all__ and callable(value)]
    tasks = [DeltaMergeHook, MergeIdentity, DeltaMergeOperator, DeltaMergeSensor, DeltaTableSensor, DeltaCommitTrigger]
    return [*merges, *configs, *PATTERNS.values(), *tasks, SparkOptions]


def _parameters(called: Any) -> set[str]:
    return set(inspect.signature(called).parameters)


def test_arguments_exist() -> None:
    from airflow.sdk import DAG, BaseOperator
    from airflow.sdk.bases.sensor import BaseSensorOperator

    known = set[str]().union(*map(_parameters, [*_documented(), BaseOperator, BaseSensorOperator, DAG]))
    assert _unknown(lambda page: set(re.findall(r"`([a-z_]+)=[^=]", prose(page))) - known) == {}


def test_counts_exist() -> None:
    count = re.compile(r"\b(?:num_[a-z_]+[a-z]|[a-z]+_fraction)\b")
    assert _unknown(lambda page: set(count.findall(PAGES[page])) - COUNTS) == {}


def _unknown(names_of: Callable[[str], set[str]]) -> dict[str, set[str]]:
    return {page: names for page in PAGES if (names := names_of(page))}


def test_every_key_in_the_table_of_results_is_in_the_result() -> None:
    table = PAGES["docs/results.md"].partition("## What comes back through XCom")[2].partition("\n## ")[0]
    keys = {key for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)}
    assert keys - {field.name for field in fields(MergeResult)} == {"result_version"}


@pytest.mark.parametrize("page", ["docs/strategies.md", "docs/tuning.md"])
def test_the_settings_are_those_of_the_engine(page: str) -> None:
    settings = {each.metadata["name"] for each in fields(Settings)}
    assert set(re.findall(r"spark\.deltaMerge\.\w+(?:\.\w+)*", PAGES[page])) == settings


def test_every_parameter_is_described() -> None:
    for called in filter(inspect.isclass, _documented()):
        described = set(re.findall(r":param (\w+):", inspect.getdoc(called) or ""))
        if not issubclass(called, Enum):
            assert _parameters(called) - described - {"kwargs"} == set(), called


@cache
def _texts() -> list[str]:
    """Every text in the package; what differs in one stands there as ``…``."""
    texts = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(re.sub(r"%[.\d]*[sdf]", "…", node.value))
            elif isinstance(node, ast.JoinedStr):
                texts.append("".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values))
    for path in PACKAGE.rglob("*.java"):
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8"))
        texts.append("…".join(parts))
    return texts


def _messages() -> list[str]:
    """What stands in the headings, and in the first column of the tables, of the page about messages."""
    page = PAGES["docs/troubleshooting.md"]
    lines = re.findall(r"^(?:### |\| )(`.*?)(?: \||$)", page, re.MULTILINE)
    return [message for line in lines for message in re.findall(r"`([^`]+)`", line)]


def test_messages_are_those_of_the_package() -> None:
    assert [message for message in _messages() if not _is_said(message)] == []


def _is_said(message: str) -> bool:
    if re.fullmatch(r"[A-Z_]+", message):
        return message in PAGES["docs/errors.md"]
    pattern = re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)
    return any(pattern.search(text) for text in _texts())


def test_versions_are_those_of_the_lock() -> None:
    page = PAGES["docs/compatibility.md"]
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    locked = {package["name"]: package.get("version") for package in lock["package"]}
    rows_of = {"apache-airflow": "Apache Airflow", "apache-airflow-providers-apache-spark": "Airflow's Spark provider",
            "pyspark": "PySpark", "pyspark-client": "`pyspark-client`", "delta-spark": "Delta Lake",
            "pandas": "pandas", "deltalake": "`deltalake`",
            "apache-airflow-providers-openlineage": "`apache-airflow-providers-openlineage`"}  # fmt: skip
    for package, row in rows_of.items():
        assert re.search(rf"^\| {re.escape(row)}.* \| {re.escape(locked[package])} \|$", page, re.MULTILINE), package
    assert f"| {DELTA_VERSION}, no other |" in page
