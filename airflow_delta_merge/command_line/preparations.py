"""The sub-commands ``jars`` and ``class-archive``, which prepare a machine for merges."""

from __future__ import annotations

import argparse
import logging
import sys

from airflow_delta_merge.runtime.class_archive import make_archive
from airflow_delta_merge.runtime.jars import delta_jars
from airflow_delta_merge.runtime.store_drivers import ABFS, GCS, S3A


def add_jars_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`print_jars`."""
    parser.add_argument("--s3a", action="append_const", dest="stores", const=S3A, help="also fetch the jars for S3")
    parser.add_argument(
        "--azure", action="append_const", dest="stores", const=ABFS, help="also fetch the jars for Azure"
    )
    parser.add_argument(
        "--gcs", action="append_const", dest="stores", const=GCS, help="also fetch the jars for Google Cloud Storage"
    )
    parser.add_argument("--spark", help="the version of Spark (default: the installed one)")


def print_jars(options: argparse.Namespace) -> int:
    """Fetch the jars that merges need, and print their paths, separated by commas."""
    _log_to_stderr()
    found = delta_jars(options.spark)
    for driver in options.stores or ():
        found += driver.fetched()
    print(",".join(found))
    return 0


def print_class_archive(_: argparse.Namespace) -> int:
    """Make the archive of Java classes, and print its path."""
    _log_to_stderr()
    print(make_archive())
    return 0


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
