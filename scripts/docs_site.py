"""What ``mkdocs.yml`` can't say by itself: how the pages of ``docs/`` become a site that needs nothing from elsewhere.

- A line that holds nothing but a link to a section of the README is replaced by that section, so that what the README
  says is said once; on GitHub the line is a link.
- Roles in docstrings (``:class:`~package.module.Name```) become links into the reference, names of pages
  (``docs/how_to/warm.md``) links to these, and what ``#:`` says of a module's constant its docstring.
- Pictures in Mermaid become SVG while the site is made: no script draws them, and none is fetched.

mkdocs takes this module for its hooks, mkdocstrings for an extension. Each warning here fails ``make docs``.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import griffe
from markdown.extensions.toc import slugify
from mermaid_render import mermaid_to_svg
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

README = Path(__file__).resolve().parents[1] / "README.md"
DOCS = README.parent / "docs"
PACKAGE = "airflow_delta_merge"

_SECTION_LINE = re.compile(r"^\[[^\]\n]*\]\((?:\.\./)+README\.md#([^)\n]+)\)$", re.MULTILINE)
_HEADING = re.compile(r"^##+ +(.*)$", re.MULTILINE)
_LINK_IN_README = re.compile(r"\]\((?:docs/(?P<page>[^)#]+)(?P<there>#[^)]*)?|#(?P<section>[^)]+))\)")
_FETCHES = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>", re.IGNORECASE
)
_ROLE = re.compile(r":(?P<role>[a-z]+):`(?:(?P<title>[^`<]*)\s<(?P<target>[^`>]+)>|(?P<name>[^`]+))`")
_DOCS_PAGE = re.compile(r"``docs/([\w/]+\.md)``")

log = logging.getLogger("mkdocs.hooks.docs_site")

# Which page shows a section of the README: the page and the heading above the section, if it has one.
_shown_on: dict[str, tuple[str, str]] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw the pictures here."""
    fence = {"name": "mermaid", "class": "mermaid", "format": _picture}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Learn which page shows which section of the README."""
    for file in files.documentation_pages():
        text = file.content_string
        for found in _SECTION_LINE.finditer(text):
            headings = _HEADING.findall(text[: found.start()])
            _shown_on[found[1]] = (file.src_uri, f"#{slugify(headings[-1], '-')}" if headings else "")
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the README's sections where pages link to them."""
    here = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        if found["page"]:
            return f"]({posixpath.relpath(found['page'], here)}{found['there'] or ''})"
        if found["section"] not in _shown_on:
            log.warning(
                "%s shows a link of the README to #%s, which no page shows.", page.file.src_uri, found["section"]
            )
            return found[0]
        uri, anchor = _shown_on[found["section"]]
        return f"]({posixpath.relpath(uri, here)}{anchor})"

    def section(found: re.Match[str]) -> str:
        if found[1] not in _readme():
            log.warning("%s shows the section #%s of the README, which has none.", page.file.src_uri, found[1])
            return found[0]
        return _LINK_IN_README.sub(link, _readme()[found[1]])

    return _SECTION_LINE.sub(section, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Look whether the page would fetch anything from elsewhere."""
    for found in _FETCHES.finditer(output):
        log.warning("%s fetches from elsewhere: %s", page.file.src_uri, found[0])
    return output


@cache
def _readme() -> dict[str, str]:
    """The README's sections by their anchors; the text before the first one by that of the title."""
    title, *sections = re.split(r"^##? +", README.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    parts = (part.partition("\n") for part in (title, *sections))
    return {slugify(heading, "-"): text.strip() for heading, _, text in parts}


def _picture(source: str, language: str, css_class: str, options: dict[str, Any], md: Any, **more: Any) -> str:
    try:
        svg = mermaid_to_svg(source).decode()
    except Exception as error:  # it would be shown as text
        log.warning("A picture can't be drawn: %s\n%s", error, source)
        return f"<pre>{escape(source)}</pre>"
    return f'<div class="picture">{svg}</div>'


class Docstrings(griffe.Extension):
    """Finds the docstrings of constants, and turns the roles in all docstrings into links."""

    def on_package(self, *, pkg: griffe.Module, **more: Any) -> None:
        if pkg.path != PACKAGE:
            return
        for each in _objects(pkg):
            if each.docstring is None and isinstance(each, griffe.Attribute):
                each.docstring = _comment_above(each)
            if each.docstring is not None:
                each.docstring.value = _with_links(each.docstring.value, each, pkg)


def _objects(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if isinstance(member, griffe.Object):
            yield from _objects(member)


def _comment_above(attribute: griffe.Attribute) -> griffe.Docstring | None:
    """What the ``#:`` comment right above a constant says."""
    lines: list[str] = []
    for line in reversed(attribute.lines_collection[attribute.filepath][: (attribute.lineno or 1) - 1]):
        if not line.startswith("#: "):
            break
        lines.insert(0, line.removeprefix("#: "))
    return griffe.Docstring("\n".join(lines), parent=attribute) if lines else None


def _with_links(text: str, where: griffe.Object, package: griffe.Module) -> str:
    def link(found: re.Match[str]) -> str:
        if found["role"] == "ref":
            return (found["title"] or found["name"]).strip()
        target = (found["target"] or found["name"]).strip()
        shown = found["title"] or (target.rpartition(".")[2] if target.startswith("~") else target)
        path = _path_of(target.lstrip("~"), where, package)
        code = f"<code>{escape(shown)}</code>"
        return code if path is None else f'<autoref optional identifier="{path}">{code}</autoref>'

    return _DOCS_PAGE.sub(lambda page: _link_to_page(page[1]), _ROLE.sub(link, text))


def _link_to_page(path: str) -> str:
    """A link to a page by its title, whose anchor autorefs finds."""
    title = (DOCS / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}][{slugify(title, '-')}]"


def _path_of(name: str, where: griffe.Object, package: griffe.Module) -> str | None:
    """The path of what a docstring names; None for what is not of this package."""
    first, _, rest = name.partition(".")
    path = name
    if first != PACKAGE:
        try:
            path = ".".join(filter(None, [where.resolve(first), rest]))
        except griffe.NameResolutionError:
            log.warning("The docstring of %s names %s, which is not known there.", where.path, name)
            return None
    if not path.startswith(f"{PACKAGE}."):
        return None
    try:
        package[path.removeprefix(f"{PACKAGE}.")]
    except KeyError:
        log.warning("The docstring of %s names %s, which does not exist.", where.path, path)
        return None
    return path
