"""The PySpark application: a merge config in, a merge result out, both as JSON files.

Runs wherever spark-submit puts the driver, so it needs nothing but the standard library, pyspark and the parts of this
package that travel as py-files. The result file is the only way back: ``{"result": {...}}`` after a merge, with
``"lineage": {...}`` beside it when it was asked for, ``{"plan": {...}}`` after a dry run, ``{"error": {...}}`` after a
failure. Several merges have ``{"merges": [...]}`` with one such object each, and in it its ``"target"``; one that was
skipped as its source was empty has ``"skipped"`` with a sentence. The file appears at once or not at all, readable by
its owner only. A driver on a cluster writes it, given a URI, to storage from which the worker fetches it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.config import MergeConfig, MergeStatement, from_json
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.exceptions import DeltaMergeError, EmptySourceError, MergeExecutionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta_merge.contract.lineage import ColumnLineage

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_SECONDS_BETWEEN_LOOKS = 1.0
_LOOKS_AT_THE_FOLDER = 50
#: Several merges at a time need the driver's memory and processors, whatever the executors have.
_MOST_AT_ONCE = 8

log = logging.getLogger("airflow_delta_merge.job.application")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the merge that the config file describes; 0 after success, 1 after a failure told on stderr."""
    options = _parse(arguments)
    if options.parent_pid:
        _end_with(options.parent_pid, options.staging_folder)
    try:
        outcome = _merge(options)
    except Exception as error:
        outcome = {"error": describe_error(error)}
        _tell(options.result, outcome)
        if not isinstance(error, (DeltaMergeError, NotImplementedError)):
            traceback.print_exc()
        print(f"The merge failed: {outcome['error']['message']}", file=sys.stderr)
        return 1
    return 1 if any("error" in each for each in outcome.get("merges", ())) else 0


def _tell_progress() -> None:
    """Let the engine say on stderr what it is at."""
    handler = logging.StreamHandler()
    threading.current_thread().name = "Merge"  # each of several merges has a thread of its own
    handler.setFormatter(logging.Formatter("%(threadName)s: %(message)s"))
    package = logging.getLogger("airflow_delta_merge")
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    package.propagate = False


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="airflow_delta_merge_job", description="Merge into a Delta table.")
    parser.add_argument("--config", required=True, help="file with the merge config as JSON")
    parser.add_argument("--result", required=True, help="file, or URI of one, to write the result to, as JSON")
    parser.add_argument("--identity", help="file with the merge identity as JSON, for a merge to be committed once")
    parser.add_argument("--allowed-locations", help="file with a JSON list of the locations to which it is held")
    parser.add_argument("--max-commit-attempts", type=int, default=1, help="attempts when other writers conflict")
    parser.add_argument("--dry-run", action="store_true", help="count what the merge would do and commit nothing")
    parser.add_argument("--explain", action="store_true", help="with --dry-run: Spark's plans too")
    parser.add_argument("--lineage", action="store_true", help="tell where the target's columns come from")
    parser.add_argument("--parent-pid", type=int, help="process without which this Spark application shall end")
    parser.add_argument("--staging-folder", help="folder to remove when that process is gone and cannot do it")
    return parser.parse_args(arguments)


def _merge(options: argparse.Namespace) -> dict[str, Any]:
    merges = from_json(Path(options.config).read_text(encoding="utf-8"))
    identity = None
    if options.identity:
        identity = MergeIdentity.from_json(Path(options.identity).read_text(encoding="utf-8"))
    allowed = None
    if options.allowed_locations:
        allowed = json.loads(Path(options.allowed_locations).read_text(encoding="utf-8"))
    spark = start_session()
    try:
        log.info("%s", describe_application(spark))
        run = _Run(options, identity, allowed)
        outcome = run.merge_all(spark, merges) if isinstance(merges, list) else run.merge(spark, merges, identity)
        # Before the session ends: what was committed must be told, however badly Spark shuts down.
        _tell(options.result, outcome)
    finally:
        spark.stop()
    return outcome


@dataclass(frozen=True)
class _Run:
    """How this application merges.

    :param options: its command line.
    :param identity: by what tables shall know its merges.
    :param allowed_locations: the locations to which they are held.
    """

    options: argparse.Namespace
    identity: MergeIdentity | None
    allowed_locations: list[str] | None

    def merge(
        self, spark: SparkSession, config: MergeConfig | MergeStatement, identity: MergeIdentity | None
    ) -> dict[str, Any]:
        """Merge, or only plan; what became of it, for the result file."""
        from airflow_delta_merge import engine

        if self.options.dry_run:
            plan = engine.plan(spark, config, explain=self.options.explain, allowed_locations=self.allowed_locations)
            return {"plan": plan.to_dict()}
        lineages: list[ColumnLineage] = []
        result = engine.merge(
            spark,
            config,
            identity=identity,
            max_commit_attempts=self.options.max_commit_attempts,
            allowed_locations=self.allowed_locations,
            on_lineage=lineages.append if self.options.lineage else None,
        )
        return {"result": result.to_dict(), **({"lineage": lineages[0].to_dict()} if lineages else {})}

    def merge_all(self, spark: SparkSession, configs: Sequence[MergeConfig | MergeStatement]) -> dict[str, Any]:
        """Merge side by side, but those into the same target one after the other.

        When one of them fails, the rest into its target is not begun; all others go on.
        """
        by_target: dict[str, list[int]] = defaultdict(list)
        for number, config in enumerate(configs):
            by_target[config.target.to_sql()].append(number)
        outcomes: list[dict[str, Any]] = [{} for _ in configs]

        def merge_into(target: str, numbers: Sequence[int]) -> None:
            session = spark.newSession()  # settings of one merge don't reach the others
            failed = None
            for nth, number in enumerate(numbers, 1):
                threading.current_thread().name = f"Merge {number + 1} of {len(configs)}"
                if failed is None:
                    identity = self.identity and self.identity.of_one_of_several(target, nth)
                    outcome = self._tried(session, configs[number], identity)
                    failed = number if "error" in outcome else None
                else:
                    message = f"It was not begun, as merge {failed + 1} into the same table failed."
                    outcome = {"error": describe_error(MergeExecutionError(message))}
                outcomes[number] = {"target": target, **outcome}

        at_once = min(_MOST_AT_ONCE, max(2, spark.sparkContext.defaultParallelism))
        with ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(merge_into, *each) for each in by_target.items()]:
                done.result()
        return {"merges": outcomes}

    def _tried(
        self, spark: SparkSession, config: MergeConfig | MergeStatement, identity: MergeIdentity | None
    ) -> dict[str, Any]:
        try:
            return self.merge(spark, config, identity)
        except Exception as error:
            if isinstance(error, EmptySourceError) and config.guards.on_empty_source == "skip":
                log.info("Skipped: %s", error)
                return {"skipped": str(error)}
            described = describe_error(error)
            exc_info = None if isinstance(error, (DeltaMergeError, NotImplementedError)) else error
            log.error("The merge failed: %s", described["message"], exc_info=exc_info)
            return {"error": described}


def start_session() -> SparkSession:
    """A session as spark-submit configured it, with Delta's extension and catalog where they are lacking."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from airflow_delta_merge.engine.delta_jvm.versions import require_fitting_jars

    # Without a running JVM a SparkConf knows nothing of what was given to spark-submit.
    SparkContext._ensure_initialized()
    require_fitting_jars(SparkContext._jvm)
    conf = SparkConf()
    extensions = [name for name in (conf.get("spark.sql.extensions", "") or "").split(",") if name]
    if DELTA_EXTENSION not in extensions:
        conf.set("spark.sql.extensions", ",".join([*extensions, DELTA_EXTENSION]))
    conf.setIfMissing("spark.sql.catalog.spark_catalog", DELTA_CATALOG)
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        reason = describe_error(error)
        master = conf.get("spark.master", "") or "no master"
        raise MergeExecutionError(
            f"Spark did not start on {master}: {reason['message']} Check the master in the Spark connection, that it "
            "can be reached from here, and that it runs the same version of Spark.",
            condition=reason["condition"],
            sql_state=reason["sql_state"],
        ) from error
    return spark


def describe_application(spark: SparkSession) -> str:
    """The application's id and where a person can look at it; Airflow's side finds its links in this text."""
    context = spark.sparkContext
    text = f"Spark application {context.applicationId}"
    if context.uiWebUrl:
        text += f", UI at {context.uiWebUrl}"
    if str(context.getConf().get("spark.eventLog.enabled", "false")).lower() == "true":
        text += ", event log on"
    return text


def describe_error(error: BaseException) -> dict[str, str | None]:
    """What is worth telling of an error: type, Delta's or Spark's error condition, SQLSTATE and a message."""
    described: dict[str, str | None] = {
        "type": type(error).__name__,
        "condition": getattr(error, "condition", None),
        "sql_state": getattr(error, "sql_state", None),
        "message": str(error) or type(error).__name__,
    }
    if callable(getattr(error, "getErrorClass", None)):  # pyspark's own exceptions
        # What Spark 4 calls a condition, 3.5 calls a class.
        described["condition"] = _quietly(error, "getCondition") or _quietly(error, "getErrorClass")
        described["sql_state"] = _quietly(error, "getSqlState")
    java = getattr(error, "java_exception", None)  # py4j's: str(error) would be the whole Java stack
    if java is not None:
        described["message"] = _quietly(java, "toString") or described["message"]
    return described


def _quietly(obj: Any, method: str) -> str | None:
    """Call a method that may itself fail, e.g. because the JVM is gone."""
    try:
        value = getattr(obj, method)()
    except Exception:
        return None
    return None if value is None else str(value)


def _tell(result: str, outcome: dict[str, Any]) -> None:
    if "://" not in result:
        write_outcome(Path(result), outcome)
        return
    from airflow_delta_merge.engine.delta_jvm import write_shared_file

    write_shared_file(result, json.dumps(outcome, ensure_ascii=False))


def write_outcome(path: Path, outcome: dict[str, Any]) -> None:
    """Write JSON so that a reader finds all of it or no file, with mode 0600."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(outcome, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _end_with(pid: int, staging_folder: str | None = None) -> None:
    """End this whole Spark application (our process group: the JVM and this process) once process ``pid`` is gone.

    Whoever started us kills us when asked to, and removes what they staged for us; this is for the day they are
    killed themselves and can't.
    """

    def watch() -> None:
        while _is_alive(pid):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        with suppress(OSError):  # they held the other end
            print(f"Process {pid}, which started this merge, is gone: ending.", file=sys.stderr, flush=True)
        _end_group(staging_folder)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def _end_group(staging_folder: str | None) -> None:
    """Kill our process group and then remove the folder; a child outside the group does both.

    Were the folder removed first, the JVM would go on to write into it.
    """
    group = os.getpgid(0)
    try:
        is_parent = os.fork() > 0
    except OSError:  # no memory for another process: the folder has to stay
        os.killpg(group, signal.SIGKILL)
        return
    if is_parent:
        return
    try:
        os.setsid()
        os.killpg(group, signal.SIGKILL)
        for _ in range(_LOOKS_AT_THE_FOLDER):
            if not staging_folder or not Path(staging_folder).exists():
                break
            shutil.rmtree(staging_folder, ignore_errors=True)
            time.sleep(0.1)  # a killed process may not have ended yet
    finally:
        os._exit(0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


if __name__ == "__main__":
    _tell_progress()
    sys.exit(main())
