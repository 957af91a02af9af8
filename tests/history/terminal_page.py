"""The outputs on ``docs/how_to/terminal.md``: those of the command, run on the log of a table that was really merged.

- ``python -m tests.history.terminal_page write``: put the command's outputs into the page.
- ``python -m tests.history.terminal_page record``: merge such a table anew, by Spark, and keep its log.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.history.command import on_a_terminal

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "terminal.md"
#: Where the table ``orders`` is; of it there is the log alone.
LAKE = Path(__file__).parent / "lake"
_OUTPUT = re.compile(
    r"^```bash\n(?P<command>airflow-delta-merge (?P<arguments>[^\n]*))\n```\n\n```text\n(?P<output>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def outputs(text: str) -> list[tuple[str, str]]:
    """Each command on the page that is followed by what it shows, as its arguments and that."""
    return [(match["arguments"], match["output"]) for match in _OUTPUT.finditer(text)]


def output_of(arguments: str) -> str:
    """What the command shows now, on a terminal of 80 columns."""
    return on_a_terminal(*arguments.split(), cwd=LAKE).strip("\n") + "\n"


def _written(match: re.Match[str]) -> str:
    return f"```bash\n{match['command']}\n```\n\n```text\n{output_of(match['arguments'])}```"


def write() -> None:
    PAGE.write_text(_OUTPUT.sub(_written, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def record() -> None:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.runtime.jars import delta_jars
    from tests.history import merged_tables
    from tests.session import SESSION_SETTINGS

    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(delta_jars()))
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    with tempfile.TemporaryDirectory() as folder:
        spark = builder.getOrCreate()
        table = merged_tables.accounts(spark, Path(folder) / "orders").path
        spark.sql(f"DELETE FROM delta.`{table}` WHERE id < 100")
        spark.stop()
        log = LAKE / "orders" / "_delta_log"
        shutil.rmtree(log, ignore_errors=True)
        log.mkdir(parents=True)
        for commit in sorted((table / "_delta_log").glob("*.json")):
            text = commit.read_text(encoding="utf-8").replace(str(table), "/lake/orders")
            (log / commit.name).write_text(text, encoding="utf-8")


_COMMANDS: dict[str, Callable[[], None]] = {"write": write, "record": record}

if __name__ == "__main__":
    _COMMANDS[sys.argv[1]]()
