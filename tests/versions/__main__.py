"""``make test-versions``: the marked differential cases on each combination of Spark and Delta, and their results.

uv makes an environment with exact pins in ``.cache/versions`` for each version of PySpark (about 480 MB). Only the
version of ``make install`` uses the environment that is there. The result of each check is kept in that folder:
``--resume`` continues after an interruption, and ``--write`` combines the results of several runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflow_delta_merge.runtime.jars import FOLDER_VARIABLE, fetched
from tests.versions.combinations import COMBINATIONS, Combination

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".cache" / "versions"
RESULTS = HOME / "results"
ENGINES = {"delta_merge": "this engine", "builtin": '`engine="builtin"`'}
DOCUMENT = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- versions: made by make test-versions -->", "<!-- versions: end -->"
#: What the run needs besides PySpark, in the versions of the environment that starts it.
PACKAGES = ("pytest", "pyarrow", "pyroaring")
#: The second compiler doesn't pay off within minutes, and the first alone would get too little room for its code.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen combinations; return 1 if a check failed."""
    names = [combination.name for combination in COMBINATIONS]
    parser = argparse.ArgumentParser(
        prog="make test-versions", description="The differential cases marked every_version, on each version."
    )
    parser.add_argument("--only", action="append", choices=names, help="run this combination; can be repeated")
    parser.add_argument("--engine", choices=ENGINES, help="run this engine only; results of the other are kept")
    parser.add_argument("--word", default="", help="run checks whose names contain this word; nothing is kept")
    parser.add_argument("--resume", action="store_true", help="skip checks that passed in an earlier run")
    parser.add_argument("--write", action="store_true", help="write the matrix into docs/compatibility.md")
    parser.add_argument("--matrix", action="store_true", help="run nothing, print the matrix of earlier runs")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the started processes, too
    asked = [each for each in COMBINATIONS if options.only is None or each.name in options.only]
    failed = False
    for combination in [] if options.matrix else asked:
        print(f"Spark {combination.spark}, Delta {combination.delta} …", flush=True)
        for engine in [options.engine] if options.engine else ENGINES:
            found = run(combination, engine, options.word, resume=options.resume)
            failed |= not found["ended"] or any(found["checks"].values())
            print(f"  {ENGINES[engine]}: {cell(found)}", flush=True)
    table = matrix(lambda combination, engine: kept_of(result_of(combination, engine)))
    print(table)
    if options.write:
        DOCUMENT.write_text(with_matrix(DOCUMENT.read_text("utf-8"), table), "utf-8")
    return int(failed)


def result_of(combination: Combination, engine: str) -> Path:
    """Where the result is kept."""
    return RESULTS / f"{combination.name}-{engine}.json"


def kept_of(path: Path) -> dict[str, Any]:
    """The last result: for each check why it failed, or None if it passed, and whether all checks ran."""
    kept: dict[str, Any] = {"checks": {}, "ended": False}
    return json.loads(path.read_text("utf-8")) if path.is_file() else kept


def run(combination: Combination, engine: str, word: str, *, resume: bool) -> dict[str, Any]:
    """Run the checks with one engine; save each result as it arrives."""
    python, path = environment(combination.spark), result_of(combination, engine)
    os.environ[FOLDER_VARIABLE] = str(HOME / "jars")  # keeps jars of other versions out of the user's own folder
    other = next(each for each in COMBINATIONS if each.spark != combination.spark)
    jars, wrong = fetched(combination.jars), fetched(other.jars[:1])
    found = kept_of(path) if resume else {"checks": {}}
    found = {"checks": {name: why for name, why in found["checks"].items() if why is None}, "ended": False}
    command = [str(python), "-m", "tests.versions.run_core", "--jars", ",".join(jars), "--wrong-jar", *wrong]
    command += ["--engine", engine, "--word", word, *(part for name in found["checks"] for part in ("--done", name))]
    settings = {**os.environ, "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {JAVA_OPTIONS}"}
    process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout or ():
            if not line.startswith("{"):  # Java prints its problems there, too
                print(line, end="", file=sys.stderr)
                continue
            message = json.loads(line)
            if "check" in message:
                found["checks"][message["check"]] = message["failure"]
            else:
                found["ended"] = True
            if not word:
                RESULTS.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found, indent=1), "utf-8")
    finally:
        process.terminate()
        process.wait()
    return found


def environment(spark: str) -> Path:
    """The Python of the environment with this version of PySpark; makes the environment if it is missing."""
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


def cell(found: Mapping[str, Any]) -> str:
    """How many checks passed, of how many."""
    checks = found["checks"]
    if not checks:
        return "not run"
    if [*checks.items()] == [("refused", None)]:
        return "refused, as never tried"
    passed = f"{sum(why is None for why in checks.values())} of {len(checks)}"
    return passed if found["ended"] else f"{passed}, the rest not run"


def matrix(result: Callable[[Combination, str], Mapping[str, Any]]) -> str:
    """The matrix as Markdown.

    :param result: returns the result of a combination and an engine.
    """
    lines = [f"| Spark | Delta | Scala | {' | '.join(ENGINES.values())} |", "|---|---|---|---|---|"]
    for each in COMBINATIONS:
        cells = (cell(result(each, engine)) for engine in ENGINES)
        lines.append(f"| {each.spark} | {each.delta} | {each.scala} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_matrix(page: str, table: str) -> str:
    """A page with the matrix between its marks."""
    return re.sub(f"(?s){re.escape(BEGIN)}.*{re.escape(END)}", f"{BEGIN}\n\n{table}\n\n{END}", page)


if __name__ == "__main__":
    sys.exit(main())
