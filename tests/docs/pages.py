"""The pages of the documentation and the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
}

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]*)\")?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
#: Of a block that can't be run by itself: its title, which readers see, begins so and says why.
NOT_RUN = "Not run: "


@dataclass(frozen=True)
class Block:
    """A block of code.

    :param page: the page that it is on.
    :param line: the line of its fence.
    :param language: what the fence names.
    :param title: the title that readers see, or nothing.
    :param code: what is in it.
    """

    page: str
    line: int
    language: str
    title: str
    code: str

    @property
    def is_run(self) -> bool:
        return not self.title.startswith(NOT_RUN)

    @property
    def padded(self) -> str:
        """The code with its lines where they are on the page, so that a traceback names them."""
        return "\n" * self.line + self.code

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, language: str = "") -> list[Block]:
    """The blocks on a page, all or those in one language."""
    text = PAGES[page]
    found = [
        Block(page, text[: match.start()].count("\n") + 1, match["language"], match["title"] or "", match["code"])
        for match in _FENCE.finditer(text)
    ]
    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(found), f'{page} has a fence of another form than ```language title="…"'
    return [block for block in found if language in ("", block.language)]


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", PAGES[page])
