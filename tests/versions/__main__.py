"""``make test-versions``: the differential core on each combination of Spark and Delta, and the matrix of what passed.

Each version of PySpark gets an environment of its own in ``.cache/versions`` (some 480 MB), made by uv with exact pins;
the one of ``make install`` serves its own. What came of each check is kept there: ``--resume`` goes on after an
interruption, and ``--write`` puts together what ran one by one.
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
#: What the core needs beside PySpark, in the versions of the environment that runs this.
PACKAGES = ("pytest", "pyarrow", "pyroaring")
#: The second compiler doesn't pay off within minutes, and the first alone would get too little room for its code.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when something of it failed."""
    names = [combination.name for combination in COMBINATIONS]
    parser = argparse.ArgumentParser(prog="make test-versions", description="The differential core on each version.")
    parser.add_argument("--only", action="append", choices=names, help="one combination, also several times")
    parser.add_argument("--engine", choices=ENGINES, help="one engine; what is kept of the other stays")
    parser.add_argument("--word", default="", help="only checks whose name has it; nothing is kept of such a run")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run was interrupted")
    parser.add_argument("--write", action="store_true", help="write the matrix into docs/compatibility.md")
    parser.add_argument("--matrix", action="store_true", help="run nothing, only tell what ran before")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
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
    """What came of it when it last ran: each check with why it failed, or None, and whether all have run."""
    kept: dict[str, Any] = {"checks": {}, "ended": False}
    return json.loads(path.read_text("utf-8")) if path.is_file() else kept


def run(combination: Combination, engine: str, word: str, *, resume: bool) -> dict[str, Any]:
    """Run the core by one engine; keep what came of each check as it comes."""
    python, path = environment(combination.spark), result_of(combination, engine)
    os.environ[FOLDER_VARIABLE] = str(HOME / "jars")  # the jars of other versions aren't for the user's own folder
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
            if not line.startswith("{"):  # Java tells its troubles there, too
                print(line, end="", file=sys.stderr)
                continue
            told = json.loads(line)
            if "check" in told:
                found["checks"][told["check"]] = told["failure"]
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


def cell(found: Mapping[str, Any]) -> str:
    """What passed of how many."""
    checks = found["checks"]
    if not checks:
        return "not run"
    if [*checks.items()] == [("refused", None)]:
        return "refused, as never tried"
    passed = f"{sum(why is None for why in checks.values())} of {len(checks)}"
    return passed if found["ended"] else f"{passed}, the rest not run"


def matrix(result: Callable[[Combination, str], Mapping[str, Any]]) -> str:
    """The matrix as Markdown.

    :param result: what came of a combination and an engine.
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
