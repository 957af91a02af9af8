"""What ``docs/how_to/terminal.md`` shows is what the command shows."""

from __future__ import annotations

import pytest

from tests.history.terminal_page import PAGE, output_of, outputs

OUTPUTS = outputs(PAGE.read_text(encoding="utf-8"))


def test_history_and_show_are_on_the_page() -> None:
    assert [arguments.split()[0] for arguments, _ in OUTPUTS] == ["history", "show"]


@pytest.mark.parametrize(("arguments", "output"), OUTPUTS, ids=[arguments for arguments, _ in OUTPUTS])
def test_the_page_shows_what_the_command_shows(arguments: str, output: str) -> None:
    assert output == output_of(arguments), "python -m tests.history.terminal_page write"
