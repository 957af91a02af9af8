"""A Spark application that a keeper runs on this machine, from Airflow's side: starts, finds, follows and ends it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import mask_secret, redact

from airflow_delta_merge.connections.secrets import masked_parts
from airflow_delta_merge.contract.identity import MergeIdentity
from airflow_delta_merge.contract.outcome import JobOutcome
from airflow_delta_merge.exceptions import DeltaMergeError, KeeperError, MergeResultError
from airflow_delta_merge.launch import keeper as application_keeper
from airflow_delta_merge.launch import waiter
from airflow_delta_merge.launch.keeper import (
    END,
    EXIT,
    FOLLOWED,
    LOCK,
    OUTPUT,
    SILENCE_SECONDS,
    is_locked,
    remove_folder,
    works_in,
)
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication
from airflow_delta_merge.launch.spark_log import SparkLog
from airflow_delta_merge.launch.spark_output import SparkOutput
from airflow_delta_merge.launch.staging import Staging, own_folders
from airflow_delta_merge.launch.started_application import StartedApplication

#: Longest column lineage, in characters of JSON, in the event that resumes a deferred task.
LONGEST_LINEAGE = 64 * 1024

_SECRETS = "secrets.json"
_STARTED_AS = "started_as"
_SPARK_LOG = "spark_log.json"
_SECONDS_TO_START = 30.0
_SECONDS_TO_END = 8.0
_MAX_BYTES_PER_READ = 1 << 20


@dataclass
class LocalApplication(StartedApplication):
    """A Spark application that :mod:`~airflow_delta_merge.launch.keeper` runs: a deferred task's, or a kept Spark.

    :param folder: the merge's staging folder.
    :param host: the machine that started it.
    """

    folder: Path
    host: str = field(default_factory=socket.gethostname)
    output: SparkOutput = field(default_factory=SparkOutput, repr=False)
    _offset: int | None = field(default=None, repr=False)
    _log: SparkLog | None = field(default=None, repr=False)
    _verbose: bool = field(default=False, repr=False)

    kind = "local"
    cluster_mode = None

    @property
    def application(self) -> SparkApplication | None:  # type: ignore[override]
        return self.output.application

    @classmethod
    def start(
        cls,
        staging: Staging,
        command: Sequence[str],
        environment: Mapping[str, str],
        secrets_in: Sequence[Any],
        spark_log: SparkLog,
        *,
        verbose: bool = False,
        started_as: str = "",
        stdin: socket.socket | None = None,
    ) -> LocalApplication:
        """Start spark-submit, or a process that waits for a kept Spark, under a keeper that outlives this process.

        :param staging: the merge's files. The keeper removes their folder at the end.
        :param command: the process and its arguments.
        :param secrets_in: all values passed to Spark; those that Airflow masks here are also masked in the triggerer.
        :param spark_log: gets Spark's complete output from the process that follows the application.
        :param verbose: whether the task's log also gets the complete output.
        :param started_as: the merge's :func:`fingerprint`, by which its next try finds this application.
        :param stdin: the command's standard input; None for an empty one.
        :raises KeeperError: when the keeper does not start.
        """
        started = cls(staging.folder)
        started.log_to(spark_log, verbose=verbose)
        staging.write(_STARTED_AS, started_as)
        staging.write(_SECRETS, json.dumps(sorted(set(masked_parts(secrets_in)))))
        started.start_keeper(command, environment, stdin=stdin)
        return started

    def log_to(self, spark_log: SparkLog, *, verbose: bool) -> None:
        """Set where the process that follows it writes its output.

        :param spark_log: as for :meth:`start`.
        :param verbose: as for :meth:`start`.
        """
        path = spark_log.path and str(spark_log.path)
        Staging(self.folder).write(_SPARK_LOG, json.dumps({"path": path, "verbose": verbose}))

    def start_keeper(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *options: str,
        stdin: socket.socket | None = None,
    ) -> None:
        """Start the process that runs a command and outlives this process.

        :param options: further options of :mod:`~airflow_delta_merge.launch.keeper`.
        :param stdin: the command's standard input; None for an empty one.
        :raises KeeperError: when it does not start.
        """
        keeper = [*isolated(application_keeper.__file__), "--folder", str(self.folder), *options, "--"]
        process = subprocess.Popen(
            [*keeper, *command],
            env=dict(environment),
            cwd=os.getcwd(),
            stdin=subprocess.DEVNULL if stdin is None else stdin.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # A keeper that detaches itself goes on in another process, and the first one ends.
        exit_codes_of_start = (None, 0) if "--detach" in options else (None,)
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self.is_kept():
            if process.poll() not in exit_codes_of_start or time.monotonic() > deadline:
                raise KeeperError(
                    f"The keeper process of the merge's Spark application did not start ({keeper[0]}, exit code "
                    f"{process.poll()}). Check for a full disk or lack of memory."
                )
            time.sleep(0.05)

    @classmethod
    def find(cls, identity: MergeIdentity) -> Iterator[tuple[LocalApplication, MergeIdentity]]:
        """This user's applications on this machine that merge under this application id."""
        for folder in own_folders():
            with suppress(OSError, DeltaMergeError):  # removed meanwhile
                if not (folder / LOCK).exists():
                    continue
                theirs = Staging(folder).read_request().identity
                if theirs is not None and theirs.application_id == identity.application_id:
                    yield cls(folder), theirs

    def to_dict(self) -> dict[str, Any]:
        """The data to find it again, in JSON types."""
        return {"kind": self.kind, "folder": str(self.folder), "host": self.host}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LocalApplication:
        """Restore it from :meth:`to_dict`."""
        return cls(Path(data["folder"]), data["host"])

    def __str__(self) -> str:
        return f"Spark runs on {self.host}; a triggerer there follows it ({self.folder})."

    def is_started_as(self, fingerprint: str) -> bool:
        """Whether it was started for a merge with this :func:`fingerprint`."""
        with suppress(OSError):
            return (self.folder / _STARTED_AS).read_text(encoding="utf-8") == fingerprint
        return False

    def is_kept(self) -> bool:
        """Whether the keeper process is alive."""
        with suppress(OSError):
            return is_locked(self.folder / LOCK)
        return False

    def runs(self) -> bool:
        return self.is_kept() and not (self.folder / EXIT).exists()

    def can_still_succeed(self) -> bool:
        """Whether it runs, or has ended successfully."""
        if not (self.folder / EXIT).exists():
            return self.is_kept()
        with suppress(MergeResultError):
            outcome = Staging(self.folder).read_outcome()
            return outcome is not None and not outcome.errors
        return False

    def mask_secrets(self) -> None:
        with suppress(OSError, ValueError):
            for secret in json.loads((self.folder / _SECRETS).read_text(encoding="utf-8")):
                mask_secret(secret)

    def follow(self) -> list[str]:
        """Tell the keeper that the application is followed, and read its new output, masked.

        :return: the lines for the task's log; empty if there is no more output.
        """
        if self._offset is None:
            self._recall()
        shown: list[str] = []
        while not shown and (lines := self._new_lines()):
            if self._log is not None:
                self._log.write(lines)
            shown = [line for line in lines if self.output.read(line) or self._verbose]
        self._remember()
        return shown

    def poll(self) -> tuple[list[str], ApplicationEnd | None]:
        runs = self.runs()  # before its last lines are read
        lines = self.follow()
        return lines, None if runs or lines else self.ended()

    def ended(self) -> ApplicationEnd | None:
        """How it ended; None while it runs."""
        exit_code = None
        try:
            exit_code = json.loads((self.folder / EXIT).read_text(encoding="utf-8"))["exit_code"]
        except OSError:
            if self.is_kept():
                return None
        known: dict[str, Any] = {"reason": self.output.reason, "application": self.application}
        try:
            outcome = Staging(self.folder).read_outcome()
        except PermissionError:
            return self._lost()
        except MergeResultError as error:
            return ApplicationEnd(error=str(error), exit_code=exit_code, **known)
        if outcome is None and exit_code is None:
            return self._lost()
        if exit_code == waiter.SPARK_ENDED:
            return ApplicationEnd(error=waiter.WHY_SPARK_ENDED, exit_code=exit_code, application=self.application)
        return ApplicationEnd(outcome=outcome and _for_event(outcome), exit_code=exit_code, **known)

    def _lost(self) -> ApplicationEnd:
        here, host = socket.gethostname(), self.host
        if here != host:
            return ApplicationEnd(
                error=f"Spark was started on {host}, but the triggerer runs on {here} and cannot follow it from there. "
                f"Run a triggerer on {host} (with several such machines, use triggerer queues), or set "
                f"deferrable=False. The Spark application ends by itself within {SILENCE_SECONDS / 60:.0f} minutes "
                "after its start.",
                another_try_helps=False,
            )
        if self._is_foreign():
            return ApplicationEnd(error=self._why_foreign, another_try_helps=False)
        return ApplicationEnd(
            error=f"Its Spark application on {host} disappeared: its keeper process was killed, the machine was "
            f"restarted, or no triggerer followed it for {SILENCE_SECONDS / 60:.0f} minutes. Check that a triggerer "
            "is always running.",
            application=self.application,
        )

    def _is_foreign(self) -> bool:
        """Whether it belongs to another user, who alone may follow and end it."""
        try:
            return self.folder.exists() and not os.access(self.folder, os.R_OK | os.X_OK)
        except PermissionError:  # nor may this user read the folder above it
            return True

    @property
    def _why_foreign(self) -> str:
        return (
            f"The triggerer runs as another user than the task and may not read {self.folder}. Run both as one user, "
            f"or set deferrable=False. The Spark application ends by itself within {SILENCE_SECONDS / 60:.0f} minutes "
            "after its start."
        )

    def kill(self) -> None:
        if self._is_foreign():
            raise KeeperError(self._why_foreign)
        with suppress(OSError, ValueError):
            if self.is_kept():
                (self.folder / END).touch()
                deadline = time.monotonic() + _SECONDS_TO_END
                while self.is_kept():
                    if time.monotonic() > deadline:
                        if works_in(keeper := int((self.folder / LOCK).read_text()), self.folder):
                            # The job notices within a second and ends Spark.
                            os.kill(keeper, signal.SIGKILL)
                        break
                    time.sleep(0.05)
        remove_folder(self.folder)

    def _new_lines(self) -> list[str]:
        offset = self._offset or 0
        try:
            with (self.folder / OUTPUT).open("rb") as output:
                output.seek(offset)
                text = output.read(_MAX_BYTES_PER_READ)
        except (FileNotFoundError, PermissionError):
            return []
        whole_lines = text.rfind(b"\n") + 1
        is_full = len(text) == _MAX_BYTES_PER_READ
        if (is_full and whole_lines) or not (is_full or (self.folder / EXIT).exists()):
            text = text[:whole_lines]  # the rest of the last line, maybe of a secret, is yet to be read or written
        self._offset = offset + len(text)
        return [str(redact(line)) for line in text.decode(errors="replace").splitlines()]

    def _recall(self) -> None:
        """Continue where another follower stopped reading."""
        self._offset = 0
        with suppress(OSError, ValueError):
            spark_log = json.loads((self.folder / _SPARK_LOG).read_text(encoding="utf-8"))
            self._log = SparkLog(spark_log["path"] and Path(spark_log["path"]))
            self._verbose = spark_log["verbose"]
        with suppress(OSError, ValueError):
            followed = json.loads((self.folder / FOLLOWED).read_text(encoding="utf-8"))
            self._offset, self.output = followed["offset"], SparkOutput.from_dict(followed["output"])

    def _remember(self) -> None:
        state = {"offset": self._offset, "output": self.output.to_dict()}
        temporary = self.folder / f".{FOLLOWED}"
        try:
            temporary.write_text(json.dumps(state), encoding="utf-8")
            temporary.replace(self.folder / FOLLOWED)
        except OSError:  # a full disk must not end the application
            with suppress(OSError):
                os.utime(self.folder / FOLLOWED)


def _for_event(outcome: JobOutcome) -> JobOutcome:
    """An outcome for Airflow's database: masked, and without a lineage that is too long."""
    masked = outcome.with_messages(lambda message: str(redact(message)))
    length = sum(len(json.dumps(merge.lineage.to_dict())) for merge in masked.merges if merge.lineage is not None)
    return masked.without_lineage() if length > LONGEST_LINEAGE else masked


def isolated(script: str) -> list[str]:
    """The command that runs a script of this package without site-packages."""
    # Isolated mode: modules beside the script must not shadow Python's own.
    return [sys.executable, "-I", "-S", script]


def fingerprint(staging: Staging, arguments: Sequence[str]) -> str:
    """A hash of spark-submit's arguments and a merge's request and properties, without its folder and identity."""
    request = replace(staging.read_request(), identity=None).to_json()
    parts = [*arguments, request, staging.properties.read_text(encoding="utf-8")]
    text = "\0".join(parts).replace(str(staging.folder), "")
    return hashlib.sha256(text.encode()).hexdigest()
