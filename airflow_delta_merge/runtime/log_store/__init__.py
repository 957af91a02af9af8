"""The log store that goes with each merge, by which S3 itself refuses the second writer of a commit.

What Delta asks of a log store cannot be Python, so this folder has two Java classes and, made from them by
``make log-store``, the jar. A test builds the jar anew and compares the bytes.
"""

from __future__ import annotations

from pathlib import Path

LOG_STORE = "airflow_delta_merge.log_store.S3ConditionalLogStore"

#: Delta's own properties, by which it chooses a log store for a scheme.
LOG_STORE_PROPERTIES = {"spark.delta.logStore.s3a.impl": LOG_STORE, "spark.delta.logStore.s3.impl": LOG_STORE}
#: With one for all schemes, Delta refuses those above.
LOG_STORE_OF_ALL_SCHEMES = "spark.delta.logStore.class"

_FOLDER = Path(__file__).parent


def log_store_jar() -> str:
    """The absolute path of the jar."""
    return str(_FOLDER / "log_store.jar")


def log_store_sources() -> list[Path]:
    """What the jar is made from."""
    return sorted(_FOLDER.glob("*.java"))
