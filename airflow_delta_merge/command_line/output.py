"""The output of a sub-command: to a terminal, as JSON, or into a page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_merge.exceptions import OutputError

if TYPE_CHECKING:
    from rich.console import Console


def add_output_options(parser: argparse.ArgumentParser, *, page: bool) -> None:
    """Add ``--json`` or, where there is a page, ``--output`` in its place."""
    outputs = parser.add_mutually_exclusive_group()
    outputs.add_argument(
        "--json", action="store_true", help="print JSON; this is the default if standard output is not a terminal"
    )
    if page:
        outputs.add_argument(
            "--output", metavar="FILE.html", type=_page, help="write an HTML page with charts, which needs no network"
        )


def console_for(options: argparse.Namespace) -> Console | None:
    """The terminal to print to; None when JSON is wanted, or standard output is no terminal."""
    from rich.console import Console

    if options.json or not sys.stdout.isatty():
        return None
    return Console(highlight=False, markup=False, emoji=False)


def print_json(data: Any) -> None:
    """Print JSON in lines that people can read, too."""
    print(json.dumps(data, ensure_ascii=False, indent=2))


def write_page(path: Path, html: str) -> None:
    """Write a page.

    :raises OutputError: when it can't be written.
    """
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}.") from error


def _page(text: str) -> Path:
    if not text.endswith((".html", ".htm")):
        raise argparse.ArgumentTypeError(f"must end with .html, got {text!r}")
    return Path(text)
