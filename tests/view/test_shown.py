"""What a page shows of commits: numbers as recorded, nothing of DAGs that the user may not read, all escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.history.commit_files import PartitionChange
from airflow_delta_merge.history.records import OWN_WRITER, Commit, Files, Rows, Table
from airflow_delta_merge.history.table_history import CommitDetails, HistoryPage
from airflow_delta_merge.view.pages import merge_address, rendered, security_policy, table_address
from airflow_delta_merge.view.shown import NOT_SHOWN, shown_commit, shown_history
from tests.history.test_table_history import RECORD, RESULT

EVIL = "<script>alert('1')</script>\"&é"
TABLE = Table(path="/lake/t", version=3)


def merged(version: int, result: MergeResult = RESULT, **more: Any) -> Commit:
    """A merge by the task ``load.merge``."""
    return Commit(
        version=version,
        timestamp_ms=1_767_225_600_000,
        operation="MERGE",
        writer=OWN_WRITER,
        parameters={"predicate": "source.id = target.id"},
        rows=Rows(inserted=3, updated=2000, deleted=0, copied=90),
        files=Files(before=9, candidate=5, touched=2, added=1),
        bytes=Files(added=700),
        durations_ms={"scan": 400, "rewrite": 300, "total": 1200},
        record=replace(RECORD, result=result),
        **more,
    )


WRITE = Commit(version=2, operation="WRITE", writer="Apache-Spark/4.2.0", rows=Rows(inserted=7))
DELTAS = Commit(version=1, operation="MERGE", writer="Apache-Spark/4.2.0", rows=Rows(inserted=1, updated=1))


def page(*commits: Commit, **more: Any) -> HistoryPage:
    return HistoryPage(table=TABLE, commits=commits, **more)


def test_the_numbers_are_those_of_the_log_and_kinds_are_words() -> None:
    shown = shown_history(page(merged(3), WRITE, DELTAS, older=1), {"load"})
    assert [(row.version, row.kind, row.numbers) for row in shown.rows] == [
        (3, "merge", ("3", "2,000", "0", "90", "2 / 5 / 9", "700 B", "1.2 s")),
        (2, "other writer", ("7", "-", "-", "-", "-", "-", "-")),
        (1, "other merge", ("1", "1", "-", "-", "-", "-", "-")),
    ]
    assert shown.rows[0].by == "load.merge r1 try 2"
    assert shown.older == 1
    charts = {chart.name: [*chart.rows()] for chart in shown.charts}
    assert charts["Rows by merge, with the copied ones"] == [(1, ["1", "1", "-", "-"]), (3, ["3", "2,000", "0", "90"])]
    assert charts["Time by merge and phase"][1] == (3, ["-", "-", "400 ms", "300 ms"])
    assert charts["Files added by merge"][1] == (3, ["1"])


@pytest.mark.parametrize(
    ("rows", "ratio"),
    [
        (Rows(inserted=4), "1.0"),
        (Rows(updated=10, copied=990), "100.0"),
        (Rows(inserted=1, updated=1, deleted=2, copied=4), "1.5"),
        (Rows(deleted=5, copied=0), "0.0"),
        (Rows(inserted=0, updated=0, deleted=0, copied=0), "-"),
    ],
    ids=["inserts only", "a rewritten file", "all kinds", "a removed file", "nothing changed"],
)
def test_bytes_written_per_byte_changed(rows: Rows, ratio: str) -> None:
    shown = shown_history(page(merged(3), replace(DELTAS, rows=rows)), {"load"})
    charts = {chart.name: [*chart.rows()] for chart in shown.charts}
    assert charts["Bytes written per byte changed by merge, if rows are of equal size"] == [(1, [ratio]), (3, ["1.0"])]


def test_of_a_dag_that_the_user_may_not_read_only_the_numbers_are_shown() -> None:
    shown = shown_history(page(merged(3), WRITE), {"other"})
    assert (shown.rows[0].by, shown.rows[0].task_instance, shown.rows[0].numbers[1]) == (NOT_SHOWN, None, "2,000")
    commit = shown_commit(CommitDetails(table=TABLE, commit=merged(3), partitions=()), {"other"})
    assert not {"load", "merge", "r1"} & set(re.findall(r"\w+", " ".join(commit.facts.values())))
    assert "predicate" not in commit.facts


def test_a_commit_tells_its_strategy_with_the_reason_and_what_it_replaced() -> None:
    partitions = (
        PartitionChange(partition={"day": "a"}, added=1, removed=2, removed_bytes=2048, added_bytes=10),
        PartitionChange(partition={"day": None}, marked=3),
    )
    commit = shown_commit(CommitDetails(table=TABLE, commit=merged(3), partitions=partitions), {"load"})
    assert commit.strategy == f"{RESULT.executor}: {RESULT.executor_reason}"
    assert commit.replaced.startswith("2 files (2.0 kB) left the table; 3 stayed")
    assert commit.partitions == [("day=a", "1", "2", "0", "10 B", "2.0 kB"), ("day=NULL", "0", "0", "3", "0 B", "0 B")]


def shown_table(**more: Any) -> Mapping[str, Any]:
    table = SimpleNamespace(name="t", location="/lake/t", tasks=(), version=1, time=datetime(2026, 1, 1, tzinfo=UTC))
    values = {"table": table, "before": None, "trouble": None, "history": None, "links": {}, "runs": []}
    return values | more


def test_each_chart_has_its_table_and_a_pattern_beside_each_colour() -> None:
    html = rendered("table.html", **shown_table(history=shown_history(page(merged(3), DELTAS), {"load"})))
    assert html.count('<svg role="img"') == html.count("as a table</summary>") == 7
    assert re.findall(r'class="s(\d)"', html) == re.findall(r'fill="url\(#p(\d)\)"', html)
    assert "2,000" in html


def test_every_value_is_escaped() -> None:
    evil = replace(RESULT, executor_reason=EVIL, table=EVIL)
    commit = merged(3, result=evil, trouble=EVIL)
    task = replace(RECORD.identity.task_instance, dag_id=EVIL)  # type: ignore[type-var]
    identity = replace(RECORD.identity, task_instance=task)
    commit = replace(commit, record=replace(RECORD, result=evil, identity=identity), operation=EVIL)
    details = CommitDetails(table=TABLE, commit=commit, partitions=(PartitionChange(partition={EVIL: EVIL}, added=1),))
    table = SimpleNamespace(name=EVIL, location=f"/{EVIL}", tasks=(), version=1, time=datetime(2026, 1, 1, tzinfo=UTC))
    links = {task: "dags/x"}
    pages = [
        rendered("table.html", **shown_table(table=table, links=links, history=shown_history(page(commit), {EVIL}))),
        rendered("table.html", **shown_table(table=table, trouble=EVIL)),
        rendered("tables.html", heading="Tables", tables=[table], hidden=0, nothing=""),
        rendered(
            "merge.html",
            table=table, version=3, trouble=None, commit=shown_commit(details, {EVIL}), links=links, advice=[],
            statement=EVIL,
        ),
    ]  # fmt: skip
    for html in pages:
        own = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
        assert own is not None
        rest = html.replace(own[0], "")
        assert "<script" not in rest
        assert EVIL in unescape(rest)


def test_the_policy_lets_only_the_pages_own_script_and_style_run() -> None:
    html = rendered("tables.html", heading="Tables", tables=[], hidden=0, nothing="none")
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in security_policy()
    assert not re.search(r"https?://|@import|\bstyle=|\bon\w+=", html)


def test_addresses_carry_any_location() -> None:
    assert table_address("s3a://l/a b&c", 7) == "table?location=s3a%3A%2F%2Fl%2Fa+b%26c&before=7"
    assert merge_address("/l/é?#", 3) == "merge?location=%2Fl%2F%C3%A9%3F%23&version=3"
