"""The log store that is shipped with each merge. With it, S3 itself refuses the second writer of a commit.

Delta's log stores can't be written in Python, so this folder has two Java classes and the jar that ``make log-store``
builds from them. A test rebuilds the jar and compares the bytes.
"""

from __future__ import annotations

from pathlib import Path

LOG_STORE = "airflow_delta_merge.log_store.S3ConditionalLogStore"

#: Delta's own properties that set the log store of a scheme.
LOG_STORE_PROPERTIES = {"spark.delta.logStore.s3a.impl": LOG_STORE, "spark.delta.logStore.s3.impl": LOG_STORE}
#: If a log store for all schemes is set, Delta refuses the properties above.
LOG_STORE_OF_ALL_SCHEMES = "spark.delta.logStore.class"


def log_store_jar() -> str:
    """The absolute path of the jar."""
    return str(Path(__file__).parent / "log_store.jar")
