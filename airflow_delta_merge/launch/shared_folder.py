"""Takes a result from a folder that the worker and the cluster share, without Spark."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

from airflow_delta_merge.contract.outcome import MAX_BYTES
from airflow_delta_merge.exceptions import StagingError
from airflow_delta_merge.launch.staging import Staging

# Hadoop takes what follows as it is: a percent sign is no escape.
_LOCAL_URI = re.compile(r"file:(?://)?(?P<path>/(?!/).*)", re.DOTALL)

log = logging.getLogger(__name__)


def local_path(uri: str) -> Path | None:
    """The path on this machine that a URI names; None for a URI of another file system."""
    found = _LOCAL_URI.fullmatch(uri)
    return Path(found["path"]) if found else None


def fetch(result: Path, staging: Staging) -> str | None:
    """Copy a result, if there is one, to where the merge's own Spark would write it, and remove its folder.

    :return: why that failed; None if it didn't, or there is no result.
    """
    try:
        with result.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            return f"It has more than {MAX_BYTES >> 20} MB."
        staging.write(staging.result.name, text)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, StagingError) as error:
        return str(error)
    try:
        shutil.rmtree(result.parent)
    except FileNotFoundError:
        pass
    except OSError as error:  # must not fail the merge, since the result was fetched
        log.warning("The folder %s could not be removed: %s", result.parent, error)
    return None
