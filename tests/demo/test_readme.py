"""The README, tried as a new user would: its DAG and its command run as they stand there."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from typing import Any

import pytest

from airflow_delta_merge.contract.result import MergeResult
from tests.demo import airflow_run, merge_log
from tests.demo.conftest import CHECKOUT

README = (CHECKOUT / "README.md").read_text()
RESULTS = (CHECKOUT / "docs" / "results.md").read_text()


@pytest.fixture(scope="module")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The README's DAG run twice; only /tmp is another folder."""
    folder = tmp_path_factory.mktemp("readme")
    run_report = airflow_run.run(folder / "airflow", merge_log.readme_dag(folder), "customers_upsert")
    return run_report | {"folder": folder}


def test_the_dag_runs(run_report: dict[str, Any]) -> None:
    assert run_report["errors"] == {}
    assert [run["state"] for run in run_report["runs"]] == ["success", "success"]


def test_the_numbers_are_those_of_the_readme(run_report: dict[str, Any]) -> None:
    for run, says in zip(run_report["runs"], re.findall(r"`(\d new customers, [^`]*)`", README), strict=True):
        merged = run["xcoms"]
        assert says == (
            f"{merged['merge.num_inserted_rows']} new customers, "
            f"{merged['merge.return_value']['num_touched_files']} files touched, "
            f"version {merged['merge.return_value']['version']}"
        )


def test_the_log_of_its_merge_is_the_one_on_the_page_of_the_first_dag(run_report: dict[str, Any]) -> None:
    """`python -m tests.demo.merge_log` writes it there."""
    log = merge_log.first_merge(run_report["output"], run_report["folder"])
    assert merge_log.without_what_differs(merge_log.shown()) == merge_log.without_what_differs(log)


def test_every_key_of_the_result_is_in_the_table() -> None:
    table = RESULTS.partition("## What comes back through XCom")[2].partition("\n## ")[0]
    table = table.replace("`num_deletion_vectors_added`, `…_removed`, `…_updated`", "`num_deletion_vectors_added`")
    for name in (*(field.name for field in fields(MergeResult)), "result_version"):
        if name not in ("num_deletion_vectors_removed", "num_deletion_vectors_updated"):
            assert f"`{name}`" in table, name


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_into_the_repository_lead_somewhere(target: str) -> None:
    assert (CHECKOUT / target).exists()


@pytest.mark.parametrize("anchor", re.findall(r"\]\(#([^)]+)\)", README))
def test_links_within_the_page_lead_to_a_heading(anchor: str) -> None:
    headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_commands_of_the_makefile_are_those_named() -> None:
    listed = subprocess.run(["make", "help"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for command in set(re.findall(r"^make ([a-z]+)$", README, re.MULTILINE)):
        assert f"make {command} " in listed
