"""A spark-submit that does to a merge what a test wants to happen, then what the real one does.

Given as ``spark_binary``. It looks into ``$DELTA_MERGE_CONTROL/<run id>.<map index>``, appends its process id
to ``submits`` there, and does what files say, each once but for ``hold`` and ``stay``:

- ``hold``: waits before it starts Spark until the file is gone, having written ``held``.
- ``stay``: waits with Spark's end, whose result is there, until the file is gone, having written ``stayed``.
- ``kill``: ``<victim> <moment>``: SIGKILLs ``job`` (the Python process), ``jvm`` or ``submit`` (this process, whose
  place is that of spark-submit), ``before-commit`` or ``after-commit``.
- ``lose-result``, ``tear-result``: what becomes of the result file after the merge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ARGUMENTS = sys.argv[1:]
SUBMIT = str(Path(sys.executable).parent / "spark-submit")
DYING_JOB = str(Path(__file__).parent / "dying_job.py")


def main() -> int:
    control = _control()
    control.mkdir(exist_ok=True)
    with (control / "submits").open("a") as submits:
        print(os.getpid(), file=submits)
    _wait_while(control / "hold", reached=control / "held")
    arguments, environment = list(ARGUMENTS), dict(os.environ)
    order = _take(control, "kill")
    if order:
        victim, moment = order.split()
        job = next(at for at, text in enumerate(arguments) if text.endswith("airflow_delta_merge_job.py"))
        environment |= {"DELTA_MERGE_JOB": arguments[job], "DELTA_MERGE_KILL": f"{victim} {moment} {os.getpid()}"}
        arguments[job] = DYING_JOB
    code = subprocess.call([SUBMIT, *arguments], env=environment)
    _wait_while(control / "stay", reached=control / "stayed")
    result = Path(_value("--result"))
    if _take(control, "lose-result") is not None:
        result.unlink()
        return 1
    if _take(control, "tear-result") is not None:
        os.truncate(result, result.stat().st_size // 2)
    return 128 - code if code < 0 else code


def _control() -> Path:
    who = json.loads(Path(_value("--request")).read_text())["identity"]["task_instance"]
    return Path(os.environ["DELTA_MERGE_CONTROL"]) / f"{who['run_id']}.{who['map_index']}"


def _wait_while(path: Path, *, reached: Path) -> None:
    while path.exists():
        reached.touch()
        time.sleep(0.1)


def _value(option: str) -> str:
    return ARGUMENTS[ARGUMENTS.index(option) + 1]


def _take(control: Path, name: str) -> str | None:
    try:
        text = (control / name).read_text()
        (control / name).rename(control / f"{name}.done")
    except FileNotFoundError:
        return None
    return text


if __name__ == "__main__":
    sys.exit(main())
