"""The sub-commands ``history`` and ``show``: a table's log, read and shown."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from airflow_delta_merge.command_line.output import console_for, print_json, write_page
from airflow_delta_merge.exceptions import StorageOptionsError
from airflow_delta_merge.history.advice import advise
from airflow_delta_merge.history.table_history import read_details, read_history


def history(options: argparse.Namespace) -> int:
    """Show a page of a table's commits, and advice from them."""
    page = read_history(options.table, _storage_options(options), limit=options.limit, before=options.before)
    advice = advise(page.table, page.commits)
    if options.output:
        from airflow_delta_merge.command_line.page import history_page

        write_page(options.output, history_page(page, advice))
    elif console := console_for(options):
        from airflow_delta_merge.command_line.terminal import print_history

        print_history(console, page, advice)
    else:
        print_json(
            {
                "table": page.table.to_dict(),
                "commits": [commit.to_dict() for commit in page.commits],
                "older": page.older,
                "cleaned_before": page.cleaned_before,
                "advice": [each.to_dict() for each in advice],
            }
        )
    return 0


def show(options: argparse.Namespace) -> int:
    """Show one commit."""
    details = read_details(options.table, options.version, _storage_options(options))
    if options.output:
        from airflow_delta_merge.command_line.page import commit_page

        write_page(options.output, commit_page(details))
    elif console := console_for(options):
        from airflow_delta_merge.command_line.terminal import print_commit

        print_commit(console, details)
    else:
        print_json(
            {
                "table": details.table.to_dict(),
                "commit": details.commit.to_dict(),
                "partitions": [asdict(each) for each in details.partitions],
            }
        )
    return 0


def _storage_options(options: argparse.Namespace) -> dict[str, str]:
    """What gives access to the table's storage; what the file says goes before what the connection says."""
    found: dict[str, str] = {}
    if options.conn_id:
        from airflow_delta_merge.command_line.connections import storage_options_of

        found = storage_options_of(options.conn_id)
    return found | _of_file(options.storage_options) if options.storage_options else found


def _of_file(path: str) -> dict[str, str]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StorageOptionsError(f"The storage options in {path} can't be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise StorageOptionsError(f"The storage options in {path} are not valid JSON. Correct the file.") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise StorageOptionsError(f"The storage options in {path} must be a JSON object of strings.")
    return found
