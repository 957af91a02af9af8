"""``make test-versions``: the differential core on each combination of Spark and Delta, and the matrix of what passed.

Each version of PySpark gets an environment of its own in ``.cache/versions`` (some 480 MB), made by uv with exact pins;
the one of ``make install`` serves its own. What came of a combination is kept there, so that ``--write`` can put
together what ran one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflow_delta_merge.jars import FOLDER_VARIABLE, fetched
from tests.versions.combinations import COMBINATIONS, Combination

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".cache" / "versions"
RESULTS = HOME / "results"
ENGINES = {"delta_merge": "this engine", "builtin": '`engine="builtin"`'}
DOCUMENTS = (ROOT / "docs" / "compatibility.md", ROOT / "README.md")
BEGIN, END = "<!-- versions: made by make test-versions -->", "<!-- versions: end -->"
#: What the core needs beside PySpark, in the versions of the environment that runs this.
PACKAGES = ("pytest", "pyarrow", "pyroaring")
#: The second compiler doesn't pay off within minutes.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when something of it failed."""
    names = [combination.name for combination in COMBINATIONS]
    parser = argparse.ArgumentParser(prog="make test-versions", description="The differential core on each version.")
    parser.add_argument("--only", action="append", choices=names, help="one combination, also several times")
    parser.add_argument("--engine", choices=ENGINES, help="one engine; what is kept of the other stays")
    parser.add_argument("--word", default="", help="only checks whose name has it; nothing is kept of such a run")
    parser.add_argument("--write", action="store_true", help="write the matrix into the README and the docs")
    parser.add_argument("--matrix", action="store_true", help="run nothing, only tell what ran before")
    options = parser.parse_args(arguments)
    asked = [each for each in COMBINATIONS if options.only is None or each.name in options.only]
    engines, failed = [options.engine] if options.engine else [*ENGINES], False
    for combination in [] if options.matrix else asked:
        print(f"Spark {combination.spark}, Delta {combination.delta} …", flush=True)
        found = run(combination, engines, options.word)
        failed |= any(not each or each["failures"] for each in found.values())
        for engine, each in found.items():
            print(f"  {ENGINES[engine]}: {cell(each)}", flush=True)
        if not options.word:
            kept = kept_of(combination) | found
            RESULTS.mkdir(parents=True, exist_ok=True)
            result_of(combination).write_text(json.dumps(kept, indent=1), "utf-8")
    table = matrix({each.name: kept_of(each) for each in COMBINATIONS})
    print(table)
    if options.write:
        for document in DOCUMENTS:
            document.write_text(with_matrix(document.read_text("utf-8"), table), "utf-8")
    return int(failed)


def kept_of(combination: Combination) -> dict[str, Any]:
    """What came of it when it last ran, by engine."""
    path = result_of(combination)
    kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return kept


def result_of(combination: Combination) -> Path:
    """Where the result of a combination is kept."""
    return RESULTS / f"{combination.name}.json"


def run(combination: Combination, engines: Sequence[str], word: str) -> dict[str, Any]:
    """Run the core by engines; what came of it by engine, None when it did not come to an end."""
    python = environment(combination.spark)
    os.environ[FOLDER_VARIABLE] = str(HOME / "jars")  # the jars of other versions aren't for the user's own folder
    other = next(each for each in COMBINATIONS if each.spark != combination.spark)
    jars, wrong = fetched(combination.jars), fetched(other.jars[:1])
    command = [str(python), "-m", "tests.versions.run_core", "--jars", ",".join(jars), "--wrong-jar", *wrong]
    command += ["--word", word, *(part for engine in engines for part in ("--engine", engine))]
    settings = {**os.environ, "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {JAVA_OPTIONS}"}
    done = subprocess.run(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return dict.fromkeys(engines)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(spark: str) -> Path:
    """The Python of the environment with a version of PySpark, made if it isn't there."""
    if spark == version("pyspark"):
        return Path(sys.executable)
    folder = HOME / f"spark-{spark}"
    if not (folder / ".made").is_file():
        uv = str(ROOT / "scripts" / "uv.sh")
        pins = [f"pyspark=={spark}", *(f"{name}=={version(name)}" for name in PACKAGES)]
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *pins], check=True)
        (folder / ".made").touch()
    return folder / "bin" / "python"


def cell(found: Mapping[str, Any] | None) -> str:
    """What passed of how many."""
    if not found:
        return "not run"
    checks, failures = found["checks"], found["failures"]
    if checks == ["refused"] and not failures:
        return "refused, as never tried"
    return f"{len(checks) - len(failures)} of {len(checks)}"


def matrix(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The matrix as Markdown, by the names of the combinations."""
    lines = [f"| Spark | Delta | Scala | {' | '.join(ENGINES.values())} |", "|---|---|---|---|---|"]
    for each in COMBINATIONS:
        cells = (cell(found.get(each.name, {}).get(engine)) for engine in ENGINES)
        lines.append(f"| {each.spark} | {each.delta} | {each.scala} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_matrix(page: str, table: str) -> str:
    """A page with the matrix between its marks."""
    return re.sub(f"(?s){re.escape(BEGIN)}.*{re.escape(END)}", f"{BEGIN}\n\n{table}\n\n{END}", page)


if __name__ == "__main__":
    sys.exit(main())
