"""The command ``airflow-delta-merge``: shows a table's merges, runs a merge from a config file, prepares a machine.

Each sub-command imports its dependencies when it runs, so ``history`` of a local table starts without Airflow and
pyspark.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from airflow_delta_merge.command_line.output import add_output_options
from airflow_delta_merge.exceptions import DeltaMergeError

#: Exit code of a command that failed, with a sentence on stderr. Wrong usage is argparse's 2.
FAILED = 1
_PAGE = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sub-command. Returns 0 for success, 1 for a failure with a sentence on stderr, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except DeltaMergeError as error:
        print(f"airflow-delta-merge: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("airflow-delta-merge: interrupted", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader closed the pipe, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="airflow-delta-merge",
        description="Look at the merges of a Delta table, run a merge, prepare a machine for merges.",
        epilog="Exit codes: 0 done, 1 failed with a sentence on stderr, 2 wrong usage.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_history(commands)
    _add_show(commands)
    _add_merges(commands)
    _add_preparations(commands)
    return parser


def _add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    history = commands.add_parser("history", help="show a table's commits, newest first, and advice based on them")
    _add_table(history)
    history.add_argument(
        "--limit", type=_positive, default=_PAGE, help="maximum number of commits (default: %(default)s)"
    )
    history.add_argument("--before", type=_version, metavar="VERSION", help="only commits before this version")
    add_output_options(history, page=True)
    history.set_defaults(run=_history)


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    show = commands.add_parser("show", help="show one commit: its merge's whole result, and its files by partition")
    _add_table(show)
    show.add_argument("version", type=_version, help="the commit's version")
    add_output_options(show, page=True)
    show.set_defaults(run=_show)


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", help="the table's folder or URI")
    parser.add_argument(
        "--conn-id",
        help="for a table in an object store: an Airflow connection to the store (type aws, wasb, adls or "
        "google_cloud_platform), or one for merges (type delta_merge or spark) that names it",
    )
    parser.add_argument(
        "--storage-options", metavar="FILE", help="for a table in an object store: JSON file of deltalake's options"
    )


def _add_merges(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, text in (
        ("plan", "count what a merge would do, without committing"),
        ("run", "run a merge and commit it"),
    ):
        parser = commands.add_parser(name, help=text)
        parser.add_argument("config", help="the merge's config: a JSON or YAML file")
        parser.add_argument(
            "--conn-id", help="the Airflow connection that says where Spark runs (default: on this machine)"
        )
        add_output_options(parser, page=False)
        parser.set_defaults(run=_merges)


def _add_preparations(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from airflow_delta_merge.command_line.preparations import add_jars_options, print_class_archive, print_jars

    parser = commands.add_parser("jars", help="fetch the jars that merges need and print their paths")
    add_jars_options(parser)
    parser.set_defaults(run=print_jars)
    parser = commands.add_parser(
        "class-archive", help="make an archive of Java classes, with which a local Spark starts faster"
    )
    parser.set_defaults(run=print_class_archive)


def _history(options: argparse.Namespace) -> int:
    from airflow_delta_merge.command_line.histories import history

    return history(options)


def _show(options: argparse.Namespace) -> int:
    from airflow_delta_merge.command_line.histories import show

    return show(options)


def _merges(options: argparse.Namespace) -> int:
    from airflow_delta_merge.command_line.merges import merges

    return merges(options)


def _version(text: str) -> int:
    return _whole_number(text, least=0)


def _positive(text: str) -> int:
    return _whole_number(text, least=1)


def _whole_number(text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
    return int(text)
