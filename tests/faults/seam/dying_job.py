"""The job, in which a process dies right before or after Delta's commit. Started by this folder's spark_submit."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from typing import Any

from airflow_delta_merge.engine.delta_jvm.transaction import MergeTransaction

original = MergeTransaction.commit
victim, moment, submit = os.environ["DELTA_MERGE_KILL"].split()
# The JVM is the parent of this process.
pid = {"job": os.getpid(), "jvm": os.getppid(), "submit": int(submit)}[victim]


def commit(transaction: MergeTransaction, *arguments: Any, **named: Any) -> int | None:
    version = original(transaction, *arguments, **named) if moment == "after-commit" else None
    os.kill(pid, signal.SIGKILL)
    if victim != "submit":
        time.sleep(60)  # whoever is to end this process does so
    elif moment == "before-commit":
        time.sleep(1)
        return original(transaction, *arguments, **named)  # nothing has asked this process to end
    return version


MergeTransaction.commit = commit  # type: ignore[method-assign]
sys.argv[0] = os.environ["DELTA_MERGE_JOB"]
runpy.run_path(sys.argv[0], run_name="__main__")
