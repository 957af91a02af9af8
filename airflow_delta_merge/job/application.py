"""The PySpark application: reads a request and writes an outcome, both as JSON files.

It runs wherever spark-submit starts the driver, so it needs only the standard library, pyspark and the parts of this
package that are shipped as py-files. The outcome (:class:`~airflow_delta_merge.contract.outcome.JobOutcome`) is the
only way back. Its file is written atomically and only its owner can read it. A driver on a cluster writes it to a URI
on storage, from where the worker fetches it.
"""

from __future__ import annotations

import argparse
import contextvars
import json
import logging
import os
import sys
import tempfile
import threading
import traceback
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta_merge.config import MergeConfig, MergeStatement
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.outcome import JobError, JobOutcome, MergeOutcome
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.exceptions import DeltaMergeError, EmptySourceError, MergeExecutionError
from airflow_delta_merge.job.process import end_with
from airflow_delta_merge.job.session import describe_application, start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.lineage import ColumnLineage

#: Limit for concurrent merges: they need the driver's memory and processors, regardless of the executors.
_MAX_AT_ONCE = 8

#: Errors whose message says all. The log has the traceback of all others.
EXPLAINED = (DeltaMergeError, NotImplementedError)

log = logging.getLogger("airflow_delta_merge.job")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the request file. Returns 0 after success, 1 after a failure, with a sentence on stderr."""
    options = _parse(arguments)
    if options.parent_pid:
        end_with(options.parent_pid, options.staging_folder)
    try:
        outcome = _run(JobRequest.from_json(Path(options.request).read_text(encoding="utf-8")), options.result)
    except Exception as error:
        outcome = JobOutcome(error=JobError.of(error))
        write_outcome(options.result, outcome)
        if not isinstance(error, EXPLAINED):
            traceback.print_exc()
        print(f"The merge failed: {outcome.errors[0].message}", file=sys.stderr)
    return 1 if outcome.errors else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="airflow_delta_merge_job", description="Merge into a Delta table.")
    parser.add_argument("--request", required=True, help="path of the request (JSON)")
    parser.add_argument("--result", required=True, help="path or URI to write the outcome to (JSON)")
    parser.add_argument("--parent-pid", type=int, help="end this Spark application when this process ends")
    parser.add_argument("--staging-folder", help="folder to remove if that process ends without removing it")
    return parser.parse_args(arguments)


def log_progress(handler: logging.Handler) -> None:
    """Send the engine's log to a handler."""
    threading.current_thread().name = "Merge"  # each of several merges has its own thread
    handler.setFormatter(logging.Formatter("%(threadName)s: %(message)s"))
    package = logging.getLogger("airflow_delta_merge")
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    package.propagate = False


def _run(request: JobRequest, result: str) -> JobOutcome:
    spark = start_session()
    try:
        log.info("%s", describe_application(spark))
        outcome = Merges(spark, request).run()
        # Before the session ends: a commit must be known even if Spark fails to shut down.
        write_outcome(result, outcome)
    finally:
        stop_session(spark)
    return outcome


def merges_at_once(spark: SparkSession) -> int:
    """How many merges one Spark runs at the same time."""
    return min(_MAX_AT_ONCE, max(2, spark.sparkContext.defaultParallelism))


@dataclass(frozen=True)
class Merges:
    """The merges of one request.

    :param spark: the session that they use, or from which each creates a new one.
    :param request: what to do.
    """

    spark: SparkSession
    request: JobRequest

    def run(self) -> JobOutcome:
        """Run all merges. The error of a single merge is raised."""
        merges = self.request.merges
        if isinstance(merges, (MergeConfig, MergeStatement)):
            return JobOutcome(merges=(self._merge(self.spark, merges, self.request.identity),))
        return JobOutcome(merges=tuple(self._merge_all(merges)))

    def _merge(
        self, spark: SparkSession, config: MergeConfig | MergeStatement, identity: MergeIdentity | None
    ) -> MergeOutcome:
        """Merge or plan."""
        from airflow_delta_merge import engine

        target, request = config.target.to_sql(), self.request
        if request.dry_run:
            plan = engine.plan(spark, config, explain=request.explain, allowed_locations=request.allowed_locations)
            return MergeOutcome(target=target, plan=plan)
        lineages: list[ColumnLineage] = []
        result = engine.merge(
            spark,
            config,
            identity=identity,
            max_commit_attempts=request.max_commit_attempts,
            allowed_locations=request.allowed_locations,
            on_lineage=lineages.append if request.lineage else None,
        )
        return MergeOutcome(target=target, result=result, lineage=lineages[0] if lineages else None)

    def _merge_all(self, configs: Sequence[MergeConfig | MergeStatement]) -> list[MergeOutcome]:
        """Merge in parallel, but one after the other into the same target.

        When a merge fails, later merges into its target are not started. All others continue.
        """
        from pyspark import inheritable_thread_target

        by_target: dict[str, list[int]] = defaultdict(list)
        for number, config in enumerate(configs):
            by_target[config.target.to_sql()].append(number)
        outcomes: dict[int, MergeOutcome] = {}

        def merge_into(target: str, numbers: Sequence[int]) -> None:
            session = self.spark.newSession()  # settings of one merge don't reach the others
            failed = None
            for nth, number in enumerate(numbers, 1):
                threading.current_thread().name = f"Merge {number + 1} of {len(configs)}"
                if failed is None:
                    identity = self.request.identity and self.request.identity.of_one_of_several(target, nth)
                    outcomes[number] = self._merge_or_describe_error(session, configs[number], identity)
                    failed = None if outcomes[number].error is None else number
                else:
                    error = MergeExecutionError(f"Not started, because merge {failed + 1} into the same table failed.")
                    outcomes[number] = MergeOutcome(target=target, error=JobError.of(error))

        with ThreadPoolExecutor(merges_at_once(self.spark)) as pool:
            # Each thread inherits this thread's log and its job group, which Spark cancels by.
            started = [
                pool.submit(contextvars.copy_context().run, inheritable_thread_target(partial(merge_into, *each)))
                for each in by_target.items()
            ]
            for done in started:
                done.result()
        return [outcomes[number] for number in range(len(configs))]

    def _merge_or_describe_error(
        self, spark: SparkSession, config: MergeConfig | MergeStatement, identity: MergeIdentity | None
    ) -> MergeOutcome:
        target = config.target.to_sql()
        try:
            return self._merge(spark, config, identity)
        except Exception as error:
            if isinstance(error, EmptySourceError) and config.guards.on_empty_source == "skip":
                log.info("Skipped: %s", error)
                return MergeOutcome(target=target, skipped=str(error))
            described = JobError.of(error)
            exc_info = None if isinstance(error, EXPLAINED) else error
            log.error("The merge failed: %s", described.message, exc_info=exc_info)
            return MergeOutcome(target=target, error=described)


def write_outcome(result: str, outcome: JobOutcome) -> None:
    """Write the outcome to a path or a URI."""
    text = json.dumps(outcome.to_dict(), ensure_ascii=False)
    if "://" not in result:
        write_private_file(Path(result), text)
        return
    from airflow_delta_merge.engine.delta_jvm.shared_files import write_shared_file

    write_shared_file(result, text)


def write_private_file(path: Path, text: str) -> None:
    """Write a file atomically, with mode 0600."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


if __name__ == "__main__":
    log_progress(logging.StreamHandler())
    sys.exit(main())
