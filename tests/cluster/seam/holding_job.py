"""The job, which waits with the source materialized and no file searched, until ``$DELTA_MERGE_HOLD`` is gone."""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from airflow_delta_merge.engine import merge_into

original = merge_into.facts_after
hold = Path(os.environ["DELTA_MERGE_HOLD"])


def facts_after(*arguments: Any) -> Any:
    hold.with_name("held").touch()
    while hold.exists():
        time.sleep(0.1)
    return original(*arguments)


merge_into.facts_after = facts_after  # type: ignore[attr-defined]
sys.argv[0] = os.environ["DELTA_MERGE_JOB"]
runpy.run_path(sys.argv[0], run_name="__main__")
