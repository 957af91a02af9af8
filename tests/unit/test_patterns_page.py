"""The statements in docs/patterns.md are those that the patterns above them make."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.patterns import PATTERNS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "patterns.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n.*?```sql\n(.*?)\n```", PAGE, re.DOTALL)


def last_value(code: str) -> Any:
    """The value of the example's last line, as in a console."""
    *before, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    exec(compile(ast.Module(before, []), "patterns.md", "exec"), names)
    return eval(compile(ast.Expression(last.value), "patterns.md", "eval"), names)


@pytest.mark.parametrize(("code", "sql"), EXAMPLES, ids=[re.findall(r"(\w+)\(", code)[-2] for code, _ in EXAMPLES])
def test_an_example_makes_the_statement_below_it(code: str, sql: str) -> None:
    assert last_value(code).to_sql() == sql


def test_each_pattern_has_an_example() -> None:
    code_of_examples = " ".join(code for code, _ in EXAMPLES)
    assert [name for name in (each.__name__ for each in PATTERNS.values()) if f"{name}(" not in code_of_examples] == []
