"""``make compose-check``: ``docker-compose.yaml`` on a Docker engine, as people run it.

``python -m tests.compose.check [CHECK …]`` builds the images, starts the services under a project of its own, and runs
the checks in :data:`CHECKS`, or those that are named. It ends with a table of what was run by which engine, and leaves
no container, network or volume behind.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from tests.compose.bases import Bases
from tests.compose.composition import Composition
from tests.compose.engine import Engine, engine
from tests.compose.leaks import CommandLines, check_leaks
from tests.compose.limits import check_limits
from tests.compose.machine import CheckError
from tests.compose.merges import Merges

_Check = Callable[[Composition, Merges, CommandLines], str]
#: By their names, in their order. Later ones compare tables that the earlier ones have made.
CHECKS: dict[str, tuple[str, _Check]] = {
    "examples": ("all example DAGs run green", lambda _, merges, __: merges.examples()),
    "tables": ("tables equal what pandas expects", lambda _, merges, __: merges.tables()),
    "deferred": ("a deferrable merge", lambda _, merges, __: merges.deferred()),
    "limits": ("memory limits hold", lambda services, _, __: check_limits(services)),
    "restarts": ("each service restarted", lambda _, merges, __: merges.restarts()),
    "down": ("`down` and `up`, data kept", lambda _, merges, __: merges.down_and_up()),
    "worker": ("a Spark worker killed in mid-merge", lambda _, merges, __: merges.killed("spark-worker-1")),
    "scheduler": ("the scheduler killed in mid-merge", lambda _, merges, __: merges.killed("airflow-scheduler")),
    "scheduler-deferred": (
        "the same, the merge deferred",
        lambda _, merges, __: merges.killed("airflow-scheduler", "counted_deferred"),
    ),
    "leaks": ("no secret in logs, command lines, images", lambda services, _, lines: check_leaks(services, lines)),
}


@dataclass(frozen=True)
class Row:
    """A row of the table at the end."""

    what: str
    seconds: float
    result: str
    is_green: bool


class Report:
    """What was run, said as it happens and as a table at the end."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.engine = "no engine"
        self.bases = "unknown"

    def run(self, what: str, action: Callable[[], str]) -> bool:
        """Run something that returns what came of it; whether it went well."""
        started = time.monotonic()
        try:
            result, is_green = action(), True
        except (CheckError, OSError, LookupError, ValueError) as error:
            result, is_green = str(error) or repr(error), False
        row = Row(what, time.monotonic() - started, result, is_green)
        self.rows.append(row)
        print(f"[{row.seconds:5.0f} s] {'ok' if is_green else 'FAILED'}: {what}: {result}", flush=True)
        return is_green

    def table(self) -> str:
        lines = [f"Engine: {self.engine}", f"Base images: {self.bases}", ""]
        widths = max(len(row.what) for row in self.rows)
        for row in self.rows:
            result = row.result if row.is_green else "FAILED, see above"
            lines.append(f"{row.what:{widths}}  {row.seconds:5.0f} s  {result}")
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make compose-check", description="docker-compose.yaml on a Docker engine.")
    needed = "tables needs examples before it, and down needs deferred or restarts"
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"{', '.join(CHECKS)}; by default all; {needed}")
    names = parser.parse_args().checks or list(CHECKS)
    if unknown := set(names) - set(CHECKS):
        parser.error(f"there is no check {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _leave)
    report = Report()
    try:
        with engine() as docker:
            _check(docker, names, report)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("The check was stopped.", file=sys.stderr)
        return 130
    finally:
        if report.rows:
            print(f"\n{report.table()}", flush=True)
    return 0 if all(row.is_green for row in report.rows) else 1


def _check(docker: Engine, names: list[str], report: Report) -> None:
    report.engine = str(docker)
    print(f"Engine: {report.engine}", flush=True)
    bases = Bases(docker)

    def provide() -> str:
        report.bases = bases.provide()
        return report.bases

    try:
        if report.run("base images", provide):
            _check_services(docker, names, report)
    finally:
        bases.remove()


def _check_services(docker: Engine, names: list[str], report: Report) -> None:
    composition = Composition(docker)
    composition.down("--volumes", "--remove-orphans")  # what a check that was killed has left

    def up() -> str:
        composition.up()
        return f"{len(composition.running)} services healthy, airflow-init ended well"

    try:
        if report.run("`up --build --wait`", up):
            merges, lines = Merges(composition), CommandLines(composition)
            with lines.watched():
                for what, check in map(CHECKS.__getitem__, names):
                    report.run(what, lambda check=check: check(composition, merges, lines))
    finally:
        with suppress(CheckError):
            composition.down("--volumes", "--remove-orphans", "--timeout", "30")


def _leave(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
