"""``make errors``: the error conditions that a MERGE can raise, each with the cases that raise it in both engines.

``--write`` puts the list into docs/errors.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import textwrap
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark

from airflow_delta_merge.runtime.jars import delta_jars
from tests.differential.cases import Case
from tests.differential.merge_errors import SECTIONS

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "errors.md"
INTRODUCTION = """\
# Errors

Conditions that a MERGE can raise, each with the first case in `tests/differential` that raises it, in the built-in and
in this engine. [Errors by message](troubleshooting.md) says what to do. `make errors ARGS=--write` writes this page.
"""


def all_cases() -> Iterator[tuple[str, Case]]:
    """Every differential case, with the module it stands in."""
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.differential.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, list):
                yield from ((path.stem, case) for case in value if isinstance(case, Case))


def cases_by_condition() -> Mapping[str, list[str]]:
    """``module: name`` of the cases that raise each condition."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, case in all_cases():
        if case.fails:
            found[case.fails].append(f"{module}: {case.name}")
    return found


def known_conditions() -> tuple[dict[str, Any], dict[str, Any]]:
    """Delta's and Spark's own lists of conditions, out of the pinned jars."""
    [delta] = [Path(jar) for jar in delta_jars() if Path(jar).name.startswith("delta-spark_")]
    [spark] = Path(pyspark.__file__).parent.glob("jars/spark-common-utils_2*.jar")
    return _read(delta, "error/delta-error-classes.json"), _read(spark, "error/error-conditions.json")


def _read(jar: Path, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(jar) as archive:
        conditions: dict[str, Any] = json.loads(archive.read(name))
    return conditions


def document() -> str:
    """The list as Markdown: the conditions that a case raises."""
    cases = cases_by_condition()
    lines = [INTRODUCTION]
    for section in SECTIONS:
        if section.raised:
            lines += [f"## {section.title}", "", f"Raised by {section.sources}.", ""]
            lines += [_line(name, cases.get(name, [])) for name in section.raised]
            lines.append("")
    raised = sum(len(section.raised) for section in SECTIONS)
    unreachable = sum(len(section.unreachable) for section in SECTIONS)
    lines += [
        f"These are {raised} conditions. `tests/differential/merge_errors.py` has {unreachable} more that no case can",
        "raise, each with the reason.",
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, cases: list[str]) -> str:
    first = cases[0].partition(": ")[2] if cases else "none"
    return textwrap.fill(f"- {name}: {first}", 120, subsequent_indent="  ", break_on_hyphens=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.relative_to(HERE.parents[1])}")
    if parser.parse_args().write:
        DOCUMENT.write_text(document(), "utf-8")
    else:
        sys.stdout.write(document())


if __name__ == "__main__":
    main()
