"""The examples of the documentation: each runs as it stands, but for the merges, which would need Spark.

The blocks of a page are one DAG file, from top to bottom. What runs at parse is run: imports, clauses, configs,
operators, sensors. In the bodies of tasks, and in the few blocks marked as not run, the arguments of what this
package has are checked by name.
"""

from __future__ import annotations

import ast
import inspect
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, Block, blocks

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
SQL_FILES = [block for page in PAGES for block in blocks(page, "sql") if block.title.endswith(".sql")]


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import DAG

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    with DAG("example", schedule=None):
        for block in blocks(page, "python"):
            tree = ast.parse(block.padded, filename=page)
            if not block.is_run:
                tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
            exec(compile(tree, page, "exec"), names)
            _check_parts(names)
    for block in blocks(page, "python"):
        assert _unknown_arguments(block, names) == []


def _check_parts(names: dict[str, Any]) -> None:
    """Parts of a merge that stand by themselves must make one, too: lists of clauses, and values named as arguments."""
    from airflow_delta_merge.config import MergeClause, MergeConfig, when_matched_delete

    merge = {"target": "t", "source": "s", "on": ["id"], "clauses": [when_matched_delete()]}
    MergeConfig(
        **merge | {name: names[name] for name in ("source", "on") if name in names},
        guards={"expect_source": names.get("expect_source")},
    )
    for value in names.values():
        if isinstance(value, list) and value and all(isinstance(clause, MergeClause) for clause in value):
            MergeConfig(**merge | {"clauses": value})


def _unknown_arguments(block: Block, names: dict[str, Any]) -> list[str]:
    """Arguments by a name that the called function or class of this package doesn't have."""
    return [
        f"{block.page}:{call.lineno}: {ast.unparse(call.func)} has no {argument.arg}"
        for call in ast.walk(ast.parse(block.padded))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        for argument in call.keywords
        if argument.arg is not None and not _takes(names.get(call.func.id), argument.arg)
    ]


def _takes(called: Any, argument: str) -> bool:
    if not getattr(called, "__module__", "").startswith("airflow_delta_merge"):
        return True
    parameters = inspect.signature(called).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


COMMANDS = [
    command
    for page in PAGES
    for block in blocks(page, "bash")
    for command in block.code.replace("\\\n", " ").splitlines()
    if command.startswith("airflow ") and "celery" not in command
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_airflow_are_understood(command: str) -> None:
    """Airflow 3 takes the expression for tasks to clear as a text, so that ``^merge$`` cleared nothing in silence."""
    from airflow.cli.cli_parser import get_parser

    given = get_parser().parse_args(shlex.split(command.partition("|")[0])[1:])
    assert (getattr(given, "task_regex", None) or "merge") in "merge"


def test_blocks_that_are_not_run_are_rare() -> None:
    not_run = [str(block) for block in PYTHON if not block.is_run]
    assert 10 * len(not_run) <= len(PYTHON), not_run


@pytest.mark.parametrize("block", SQL_FILES, ids=str)
def test_sql_files_are_merges(block: Block) -> None:
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

    DeltaMergeOperator(task_id="merge", sql=block.code)
    assert f'"{block.title}"' in PAGES[block.page], "an example names the file"
