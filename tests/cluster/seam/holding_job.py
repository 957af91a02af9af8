"""The job, which waits with the source materialized and no file searched, until ``$DELTA_MERGE_HOLD`` is gone."""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from airflow_delta_merge.engine.classic_merge import ClassicMergeExecutor

original = ClassicMergeExecutor.write_at_once
hold = Path(os.environ["DELTA_MERGE_HOLD"])


def write_at_once(executor: ClassicMergeExecutor) -> Any:
    hold.with_name("held").touch()
    while hold.exists():
        time.sleep(0.1)
    return original(executor)


ClassicMergeExecutor.write_at_once = write_at_once  # type: ignore[method-assign]
sys.argv[0] = os.environ["DELTA_MERGE_JOB"]
runpy.run_path(sys.argv[0], run_name="__main__")
