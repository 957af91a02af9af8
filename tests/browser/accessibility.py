"""Looks at a page by axe's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator


def check_accessible(view: FrameLocator) -> None:
    """Look at the frame; nothing that axe calls serious or worse."""
    from axe_playwright_python.sync_playwright import Axe

    frame = view.locator("html").element_handle().owner_frame()
    found = Axe().run(frame, options={"resultTypes": ["violations"], "preload": False})  # it loads nothing
    serious = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
    assert serious == [], found.generate_report()
