"""A PySpark application that fetches the result of a driver on a cluster to the worker.

It runs on the worker without a Spark session, with the merge's properties and jars. So it can access the storage like
the driver, which wrote the result there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_delta_merge.contract.outcome import MAX_BYTES
from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.job.python_path import prefer_installed_pyspark


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy the result, if there is one, and remove its folder. Returns 0 unless the result can't be read."""
    parser = argparse.ArgumentParser(prog="airflow_delta_merge_fetch_result", description="Fetch a merge's result.")
    parser.add_argument("--uri", required=True, help="URI of the result file that the driver wrote")
    parser.add_argument("--folder", required=True, help="URI of its folder, which is removed")
    parser.add_argument("--result", required=True, type=Path, help="path to write the result to")
    options = parser.parse_args(arguments)
    prefer_installed_pyspark()
    from airflow_delta_merge.engine.delta_jvm.shared_files import read_shared_file, remove_shared_folder

    try:
        text = read_shared_file(options.uri, MAX_BYTES)
        if text is not None:
            options.result.touch(0o600, exist_ok=False)
            options.result.write_text(text, encoding="utf-8")
    except (DeltaMergeError, OSError) as error:
        print(f"The merge's result could not be fetched: {error}", file=sys.stderr)
        return 1
    try:
        remove_shared_folder(options.folder)
    except DeltaMergeError as error:  # must not fail the merge, since the result was fetched
        print(f"The folder {options.folder} could not be removed: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
