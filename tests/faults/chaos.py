"""Kill what takes part in a merge at random moments, under a real scheduler with retries, and look at what remains.

``make chaos`` runs ``python -m tests.faults.chaos``. Each kill has a DAG run of its own whose merge adds 1 to
every row of one table, so after k runs each row must say k, in k commits. What is killed, and when, is drawn from the
seed that is printed; ``--seed`` repeats it (the moments, not what the machine is doing then). With ``--s3`` the table
is in S3Proxy, which keeps objects as files, so that they can be looked at as those of any other table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.airflow import tables
from tests.airflow.once import Once, applied, commits, record, running
from tests.faults.writers import SHARED
from tests.object_storage.s3_server import KEYS
from tests.object_storage.s3proxy import s3proxy

DAG_ID = "once_chaos"
COLUMNS = {"id": "long", "n": "long"}
SECONDS_TO_VANISH = 10
#: Who is killed at a random moment of the run of its merge.
PROCESSES = ("jvm", "job", "submit", "task", "worker", "scheduler")
#: Who is killed right before or after Delta's commit.
COMMITTING = ("jvm", "job", "submit")
#: Dead tasks are found sooner than in Airflow's five minutes, and what a dead scheduler had is given to the next.
SETTINGS = {
    "scheduler": {
        "scheduler_idle_sleep_time": 0.5,
        "task_instance_heartbeat_timeout": 12,
        "task_instance_heartbeat_timeout_detection_interval": 3,
        "task_instance_heartbeat_sec": 3,
        "scheduler_health_check_threshold": 12,
        "orphaned_tasks_check_interval": 5,
        "job_heartbeat_sec": 3,
    },
}


@dataclass
class Kill:
    """One kill and what came of it.

    :param victim: who is killed.
    :param moment: a part of the time a merge takes, or ``before-commit``, ``after-commit``.
    """

    victim: str
    moment: float | str
    happened: bool = False
    tries: int = 0
    outcome: str = ""
    violations: list[str] = field(default_factory=list)

    @property
    def sooner(self) -> float | str:
        """When to try again what came too late."""
        return self.moment if isinstance(self.moment, str) else self.moment / 2

    def row(self, number: int) -> tuple[str, ...]:
        moment = self.moment if isinstance(self.moment, str) else f"at {self.moment:.0%} of its time"
        what = "; ".join(self.violations) or "once"
        return str(number), self.victim, moment, str(self.tries), self.outcome, what


def draw(kills: int, seed: int) -> list[Kill]:
    """Kills spread over all kinds, in an order and at moments by chance."""
    chance = random.Random(seed)
    kinds = [(victim, None) for victim in PROCESSES] * 2
    kinds += [(victim, moment) for victim in COMMITTING for moment in ("before-commit", "after-commit")]
    drawn = [kinds[number % len(kinds)] for number in range(kills)]
    chance.shuffle(drawn)
    return [Kill(victim, moment or chance.random()) for victim, moment in drawn]


class Chaos:
    """Runs kills one after the other against one table.

    :param airflow: an Airflow that runs.
    :param table: the table's folder.
    :param target: where it is for the merge.
    """

    def __init__(self, airflow: Once, table: Path, target: str) -> None:
        self.airflow = airflow
        self.table = table
        self.target = target
        self.runs = 0
        self.seconds = 0.0
        self.orphans: list[int] = []

    def stop_orphans(self) -> None:
        """End the workers of schedulers that were killed; Airflow leaves them waiting for work for ever."""
        for group in self.orphans:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def measure(self) -> None:
        """One merge without a kill: how long Spark takes."""
        start = time.monotonic()
        run_id = self._start()
        while not self._submits(run_id):
            start = time.monotonic()
            time.sleep(0.1)
        while psutil.pid_exists(self._submits(run_id)[-1]):
            time.sleep(0.1)
        self.seconds = time.monotonic() - start
        self.airflow.run_ended(DAG_ID, run_id)
        assert self._violations(run_id) == []

    def kill(self, kill: Kill) -> None:
        """Start a run, kill, wait for its end and fill in what came of it."""
        if isinstance(kill.moment, str):
            run_id = self._start(f"{kill.victim} {kill.moment}")
        else:
            run_id = self._start()
            kill.happened = self._kill_at(run_id, kill)
        with suppress(AssertionError):
            self.airflow.run_ended(DAG_ID, run_id)
        if isinstance(kill.moment, str):
            kill.happened = (self.airflow.control / f"{run_id}.-1" / "kill.done").exists()
        task = self.airflow.task(DAG_ID, run_id)
        kill.tries = task["try_number"]
        if task["state"] != "success":
            kill.violations.append(f"the task is {task['state']}")
            return
        was_committed = self.airflow.result(DAG_ID, run_id)["already_committed"]
        kill.outcome = "recorded result returned" if was_committed else f"merged by try {kill.tries}"
        kill.violations += self._violations(run_id)

    def _start(self, order: str | None = None) -> str:
        self.runs += 1
        run_id = f"run{self.runs}"
        if order:
            self.airflow.order(run_id, "kill", order)
        self.airflow.trigger(DAG_ID, run_id, table=self.target)
        return run_id

    def _submits(self, run_id: str) -> list[int]:
        submits = self.airflow.control / f"{run_id}.-1" / "submits"
        return [int(line) for line in submits.read_text().split()] if submits.exists() else []

    def _kill_at(self, run_id: str, kill: Kill) -> bool:
        self.airflow.wait(lambda: self._submits(run_id))
        time.sleep(float(kill.moment) * self.seconds)
        with suppress(psutil.NoSuchProcess, IndexError):
            self._find(kill.victim, self._submits(run_id)[-1]).kill()
            if kill.victim == "scheduler":
                killed = self.airflow.processes.pop("scheduler --skip-serve-logs")
                killed.wait()
                self.orphans.append(killed.pid)
                self.airflow.start("scheduler --skip-serve-logs")
            return True
        return False

    def _find(self, victim: str, submit: int) -> psutil.Process:
        if victim == "scheduler":
            return psutil.Process(self.airflow.processes["scheduler --skip-serve-logs"].pid)
        process = psutil.Process(submit)
        if victim in ("jvm", "job"):
            children = process.children(recursive=True)
            return [child for child in children if (child.name() == "java") == (victim == "jvm")][-1]
        return {"submit": [process], "task": process.parents()[:1], "worker": process.parents()[1:2]}[victim][0]

    def _violations(self, run_id: str) -> list[str]:
        checks = (self._check_table, self._check_xcom, self._check_processes, self._check_log)
        found = []
        for check in checks:
            try:
                found += list(check(run_id))
            except Exception as error:
                found.append(f"{check.__name__}: {type(error).__name__} {error}"[:300])
        return found

    def _check_table(self, run_id: str) -> Iterator[str]:
        count = applied(self.table)
        if count != self.runs:
            yield f"after {self.runs} runs the rows say {count}"

    def _check_xcom(self, run_id: str) -> Iterator[str]:
        returned, recorded = self.airflow.result(DAG_ID, run_id), record(self.table)
        expected = recorded.result_of(self.runs).to_dict()
        known = {key: ms for key, ms in returned["durations_ms"].items() if key not in ("commit", "total")}
        if {**returned, "durations_ms": known, "already_committed": False} != expected:
            yield f"XCom has {returned}, the log {expected}"

    def _check_processes(self, run_id: str) -> Iterator[str]:
        until = time.monotonic() + SECONDS_TO_VANISH
        while left := self._left():
            if time.monotonic() > until:
                yield f"left behind: {', '.join(left)}"
                return
            time.sleep(0.2)

    def _left(self) -> list[str]:
        """Processes of merges, and folders they were staged in."""
        temporary = str(self.airflow.temporary)
        left = [str(path) for path in self.airflow.temporary.glob("airflow_delta_merge_*")]
        for process in psutil.process_iter(["cmdline", "status"]):
            command = " ".join(process.info["cmdline"] or [])
            if temporary in command and process.info["status"] != psutil.STATUS_ZOMBIE:
                left.append(f"process {process.pid} {command[:80]}")
        return left

    def _check_log(self, run_id: str) -> Iterator[str]:
        from deltalake import DeltaTable

        names = sorted(path.name for path in (self.table / "_delta_log").glob("*.json"))
        if names != [f"{version:020}.json" for version in range(len(names))]:
            yield f"the log has gaps: {names}"
        table = DeltaTable(str(self.table))
        missing = [uri for uri in table.file_uris() if not Path(uri.removeprefix("file://")).exists()]
        if missing or table.version() != self.runs:
            yield f"deltalake reads version {table.version()}, files missing: {missing}"


@contextmanager
def in_s3(folder: Path) -> Iterator[dict[str, str]]:
    """S3Proxy with a bucket ``lake`` that has the table, and the connections that lead there."""
    import boto3

    with s3proxy(folder, "lake") as address:
        keys = {"aws_access_key_id": KEYS["login"], "aws_secret_access_key": KEYS["password"]}
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys)
        first = tables.create_table(folder / "first", COLUMNS) / "_delta_log" / f"{0:020}.json"
        # Of a file that it has not written itself S3Proxy doesn't know what it needs to serve it.
        client.upload_file(str(first), "lake", f"chaos/_delta_log/{first.name}")
        lake = {"conn_type": "aws", "extra": {"endpoint_url": address, "region_name": "us-east-1"}, **KEYS}
        spark = {"conn_type": "delta_merge", "host": "local[2]", "extra": {"aws_conn_id": "lake"}}
        yield {"AIRFLOW_CONN_LAKE": json.dumps(lake), "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark)}


def chaos(folder: Path, kills: list[Kill], *, s3: bool = False, say: bool = True) -> list[Kill]:
    """Run kills in an Airflow of their own, and as many more as came too late to kill anybody.

    :param s3: whether the table is in S3.
    """
    done: list[Kill] = []
    with (
        in_s3(folder) if s3 else nullcontext() as environment,
        running(folder, SETTINGS, environment) as airflow,
    ):
        if s3:
            run = Chaos(airflow, folder / "buckets" / "lake" / "chaos", "s3a://lake/chaos")
        else:
            table = tables.create_table(folder / "chaos", COLUMNS)
            run = Chaos(airflow, table, str(table))
        try:
            run.measure()
            left = list(kills)
            while left:
                kill = left.pop(0)
                start = time.monotonic()
                run.kill(kill)
                done.append(kill)
                if not kill.happened:
                    kill.outcome += " (the kill came too late)"
                    left.append(Kill(kill.victim, kill.sooner))
                if say:
                    print(f"[{time.monotonic() - start:3.0f} s]", *kill.row(len(done)), sep="  ", flush=True)
                if any("the rows say" in violation for violation in kill.violations):
                    break  # all that follows would be wrong, too
        except KeyboardInterrupt:
            print("Stopped: what was seen so far", flush=True)
        finally:
            run.stop_orphans()
    return done


def write_concurrently(folder: Path, processes: int, writers: int, merges: int) -> list[str]:
    """Writers in several Sparks on one table; what is wrong afterwards."""
    table = tables.create_table(folder / "written", {"part": "string", "id": "string", "n": "long"})
    each = writers // processes
    command = [sys.executable, "-m", "tests.faults.writers", str(table)]
    started = [
        subprocess.Popen([*command, str(first), str(each), str(merges)], stderr=subprocess.PIPE, text=True)
        for first in range(0, writers, each)
    ]
    try:
        failures = [process.communicate()[1] for process in started]
    finally:
        for process in started:
            process.kill()
    wrong = [text[-500:] for process, text in zip(started, failures, strict=True) if process.returncode]
    return wrong + wrong_counts(table, writers, merges)


def wrong_counts(table: Path, writers: int, merges: int) -> list[str]:
    """Rows of the writers' table that were not counted up once by each merge, and other faults of its log."""
    import pyarrow as pa
    from deltalake import DeltaTable

    rows = pa.table(DeltaTable(str(table)).to_pyarrow_table()).to_pylist()
    found = sorted((row["id"], row["n"]) for row in rows)
    expected = [(f"writer {number}", merges - merges // 2) for number in range(writers)]
    expected = sorted([*expected, (SHARED, writers * (merges // 2))])
    wrong = [] if found == expected else [f"the rows are {found}, not {expected}"]
    if len(commits(table)) != writers * merges + 1:
        wrong.append(f"{len(commits(table)) - 1} commits, not {writers * merges}")
    return wrong


def print_table(kills: list[Kill]) -> None:
    header = ("", "killed", "moment", "tries", "outcome", "effect")
    rows = [header, *(kill.row(number) for number, kill in enumerate(kills, 1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--s3", action="store_true", help="the table of the kills is in S3Proxy")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--merges", type=int, default=10)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"Seed {seed} (--seed {seed} draws the same kills)", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="delta_merge_chaos_"))
    print(f"Airflow, tables and logs: {folder}", flush=True)
    kills = chaos(folder, draw(options.kills, seed), s3=options.s3) if options.kills else []
    print()
    print_table(kills)
    violations = sum(bool(kill.violations) for kill in kills)
    happened = sum(kill.happened for kill in kills)
    print(f"\n{happened} kills in {len(kills)} runs, {violations} violations (seed {seed})")
    wrong = write_concurrently(folder, 2, options.writers, options.merges) if options.writers else []
    if options.writers:
        verdict = "; ".join(wrong) or "none lost, none doubled"
        print(f"{options.writers} concurrent writers with {options.merges} merges each on one table: {verdict}")
    return 1 if violations or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
