"""Names are split and quoted as Spark SQL does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier, quote_multipart, quote_text
from tests.readable_ids import readable

NAME_PARTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", ("orders",)),
        ("shop.orders", ("shop", "orders")),
        ("main.shop.orders", ("main", "shop", "orders")),
        ("order id", ("order id",)),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b`", ("a", "b")),
        ("`a``b`", ("a`b",)),
        ("`` ` ``".replace(" ", ""), None),
        ("````", ("`",)),
        ("`a`.`b``.``c`", ("a", "b`.`c")),
        ("ü.数", ("ü", "数")),
        ("1a", ("1a",)),
    ],
    ids=readable,
)
def test_a_name_is_split_at_its_dots_outside_of_backticks(name: str, parts: tuple[str, ...] | None) -> None:
    if parts is None:
        with pytest.raises(MergeConfigError):
            parse_multipart(name)
    else:
        assert parse_multipart(name) == parts


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "a part is empty"),
        ("   ", "a part is empty"),
        (".a", "a part is empty"),
        ("a.", "a part is empty"),
        ("a..b", "a part is empty"),
        ("``", "a part is empty"),
        ("` `", "a part is empty"),
        ("`a", "never closed"),
        ("`a``", "never closed"),
        ("`a`b", "a closing backtick must be followed"),
        ("a`b`", "must enclose a whole part"),
        ("a.b`", "must enclose a whole part"),
    ],
)
def test_what_is_no_name_is_refused(name: str, words: str) -> None:
    with pytest.raises(MergeConfigError, match=words):
        parse_multipart(name)


@pytest.mark.parametrize(("part", "quoted"), [("a", "`a`"), ("a`b", "`a``b`"), ("`", "````"), ("a.b", "`a.b`")])
def test_quoting_doubles_backticks(part: str, quoted: str) -> None:
    assert quote_identifier(part) == quoted


@given(st.lists(NAME_PARTS, min_size=1, max_size=4).map(tuple))
def test_what_is_quoted_is_read_back(parts: tuple[str, ...]) -> None:
    assert parse_multipart(quote_multipart(parts)) == parts


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("", "''"),
        ('say "a"', "'say \"a\"'"),
        ("it's", "('it' || chr(39) || 's')"),
        ("'", "chr(39)"),
        ("a\\'", "('a' || chr(92) || chr(39))"),
    ],
    ids=readable,
)
def test_a_text_needs_no_escapes(text: str, sql: str) -> None:
    assert quote_text(text) == sql
