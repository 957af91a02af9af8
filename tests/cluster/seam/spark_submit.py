"""A spark-submit whose job is ``holding_job.py``, which then runs the real one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

arguments = sys.argv[1:]
at = next(index for index, text in enumerate(arguments) if text.endswith("airflow_delta_merge_job.py"))
os.environ["DELTA_MERGE_JOB"] = arguments[at]
arguments[at] = str(Path(__file__).parent / "holding_job.py")
submit = str(Path(sys.executable).parent / "spark-submit")
os.execv(submit, [submit, *arguments])
