"""Statistics of text columns made of what a Parquet footer tells."""

from __future__ import annotations

import json

from airflow_delta_merge.engine.footer_statistics import TextsOfFile, of_all, with_texts


def _with(statistics: str, texts: dict[str, TextsOfFile], columns: tuple[str, ...] = ("id", "v", "w")) -> str:
    return with_texts(statistics, texts, columns, prefix_length=3, cut_above=lambda text: text[:3] + "~")


OTHERS = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":3},"nullCount":{"id":0},"tightBounds":true}'


def test_texts_stand_where_the_column_does() -> None:
    stats = _with(OTHERS, {"w": TextsOfFile(0, b"a", b"b"), "v": TextsOfFile(1, b"cdefg", b"x")})
    assert stats == (
        '{"numRecords":3,"minValues":{"id":1,"v":"cde","w":"a"},"maxValues":{"id":3,"v":"x~","w":"b~"},'
        '"nullCount":{"id":0,"v":1,"w":0},"tightBounds":true}'
    )


def test_numbers_stay_as_they_were_written() -> None:
    digits = "12345678901234567890.123456789012345678"
    others = f'{{"numRecords":3,"minValues":{{"id":{digits},"w":1.0E10}},"maxValues":{{"id":0.10}},"nullCount":{{}}}}'
    stats = _with(others, {"v": TextsOfFile(0, b"a", b"a")})
    assert f'"minValues":{{"id":{digits},"v":"a","w":1.0E10}}' in stats
    assert '"maxValues":{"id":0.10,"v":"a~"}' in stats


def test_only_texts_have_statistics() -> None:
    stats = json.loads(_with('{"numRecords":3}', {"v": TextsOfFile(0, b"a", b"b")}))
    assert stats == {"numRecords": 3, "minValues": {"v": "a"}, "maxValues": {"v": "b~"}, "nullCount": {"v": 0}}


def test_all_are_null() -> None:
    stats = json.loads(_with(OTHERS, {"v": TextsOfFile(3, None, None)}))
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"id": 1}, {"id": 3}, {"id": 0, "v": 3})


def test_no_bounds_of_what_is_no_utf_8() -> None:
    stats = json.loads(_with(OTHERS, {"v": TextsOfFile(1, b"a", b"\xff")}))
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"id": 1}, {"id": 3}, {"id": 0, "v": 1})


def test_a_text_that_cannot_be_cut_above_has_no_upper_bound() -> None:
    stats = with_texts(
        OTHERS, {"v": TextsOfFile(0, b"a", b"b")}, ("id", "v"), prefix_length=3, cut_above=lambda _: None
    )
    assert json.loads(stats)["minValues"] == {"id": 1, "v": "a"}
    assert json.loads(stats)["maxValues"] == {"id": 3}


def test_names_and_texts_that_json_escapes() -> None:
    name = 'a"b\\'
    stats = json.loads(_with(OTHERS, {name: TextsOfFile(0, b'"', "\n\u20ac".encode())}, ("id", name)))
    assert (stats["minValues"][name], stats["maxValues"][name]) == ('"', "\n\u20ac~")


def test_row_groups_together() -> None:
    groups = [TextsOfFile(1, b"b", "\u00e4".encode()), TextsOfFile(2, None, None), TextsOfFile(0, b"a", b"z")]
    assert of_all(groups) == TextsOfFile(3, b"a", "\u00e4".encode())
