"""Renders the pages: HTML from templates that escape every value, with one style and one script of their own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from airflow_delta_merge.history.charts import COLOURS, PATTERNS, STYLE
from airflow_delta_merge.history.merge_charts import Chart

_FOLDER = Path(__file__).parent / "templates"


def rendered(template: str, **values: Any) -> str:
    """A page as HTML.

    :param template: the name of its template.
    :param values: what the template shows.
    """
    return _environment().get_template(template).render(**values)


@cache
def security_policy() -> str:
    """The pages' Content-Security-Policy: nothing is loaded, and no script runs but their own."""
    script = base64.b64encode(hashlib.sha256(_text("view.js").encode()).digest()).decode()
    style = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    )


def table_address(location: str, before: int | None = None) -> str:
    """The address of a table's page, relative to the others.

    :param location: the table's folder or URI.
    :param before: only commits of lower versions; by default the newest.
    """
    return f"table?{urlencode({'location': location} | ({} if before is None else {'before': before}))}"


def merge_address(location: str, version: int) -> str:
    """The address of a commit's page, relative to the others."""
    return f"merge?{urlencode({'location': location, 'version': version})}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "drawn": _drawn,
        "merge_address": merge_address,
        "numbers": _numbers,
        "quoted": lambda text: quote(text, safe=""),
        "table_address": table_address,
    }
    # These are the package's own.
    environment.globals |= {
        "patterns": Markup(PATTERNS),  # noqa: S704
        "script": Markup(_text("view.js")),  # noqa: S704
        "style": Markup(_style()),  # noqa: S704
    }
    return environment


def _drawn(svg: str) -> Markup:
    """A chart, in which the values are escaped."""
    return Markup(svg)  # noqa: S704


def _numbers(chart: Chart) -> Iterator[list[str]]:
    """A chart's numbers, a row for each merge."""
    return ([str(version), *values] for version, values in chart.rows())


def _style() -> str:
    return f"{COLOURS}\n{STYLE}{_text('view.css')}"


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
