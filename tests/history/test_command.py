"""The command as a process, on logs made without Spark: output, exit codes, and what it imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from airflow_delta_merge.command_line.histories import _of_file
from airflow_delta_merge.command_line.merges import read_config
from airflow_delta_merge.config import MergeConfig, MergeStatement, to_json, when_matched_update_all
from airflow_delta_merge.exceptions import ConfigFileError, MergeConfigError, StorageOptionsError
from airflow_delta_merge.history.figures import duration, size, sparkline
from airflow_delta_merge.runtime import jars
from tests.airflow.tables import create_table
from tests.history.command import COMMAND, on_a_terminal, run
from tests.history.test_table_history import RESULT, log_of, merge_commit

TABLE_NAME = "orders [bold]<b>&"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of five merges, whose name would be markup on a terminal or a page."""
    path = create_table(tmp_path / TABLE_NAME)
    for version in range(1, 6):
        merge_commit(path, version)
    return path


def test_history_is_json_when_piped(table: Path) -> None:
    done = run("history", table, "--limit", "2")
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert [commit["version"] for commit in printed["commits"]] == [5, 4]
    assert printed["commits"][0]["result"] == {**RESULT.to_dict(), "version": 5}
    assert printed["commits"][0]["task_instance"]["try_number"] == 2
    assert (printed["older"], printed["advice"], printed["table"]["version"]) == (4, [], 5)
    older = json.loads(run("history", table, "--before", "4").stdout)
    assert [commit["version"] for commit in older["commits"]] == [3, 2, 1, 0]


def test_history_is_a_table_on_a_terminal(table: Path) -> None:
    shown = on_a_terminal("history", table.name, cwd=table.parent)
    assert shown.startswith("orders [bold]<b>& (version 5, no partitions, deletion vectors off)\n")
    assert re.search(r"^rows changed +█████ up to 5$", shown, re.MULTILINE)
    assert re.search(r"^ +5 +3 +2 +0 +90 +0 / 5 / 0 +700 B +1\.2 s$", shown, re.MULTILINE)
    assert "MERGE 2026-01-01 00:00:00 by load.merge r1 try 2" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert json.loads(on_a_terminal("history", table, "--json"))["table"]["version"] == 5


def test_show_tells_one_commit(table: Path) -> None:
    printed = json.loads(run("show", table, "3").stdout)
    assert printed["commit"]["result"] == {**RESULT.to_dict(), "version": 3}
    shown = on_a_terminal("show", table, "3")
    assert re.search(r"^ ?predicate +\[\"\(id = id\)\"\]$", shown, re.MULTILINE)
    assert re.search(r"^ ?rows inserted +3$", shown, re.MULTILINE)


def test_nothing_in_a_log_steers_the_terminal(table: Path) -> None:
    said = {
        "operation": "WRITE\x1b[2J\x9b1m",
        "engineInfo": "\x1b]0;title\x07",
        "operationParameters": {"a": "\x1b[2J"},
    }
    log_of(table, 6).write_text(json.dumps({"commitInfo": said}) + "\n")
    for arguments in (["history", table], ["show", table, "6"]):
        shown = on_a_terminal(*arguments)
        assert "WRITE\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}1m" in shown
        assert not set(map(chr, [*range(10), *range(11, 32), *range(127, 160)])) & set(shown)


class _Page(HTMLParser):
    """Looks whether each tag is closed, and keeps addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing stays open."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("arguments", [("history",), ("show", "3")], ids=["history", "show"])
def test_a_page_loads_nothing_and_holds_each_number_as_text(table: Path, tmp_path: Path, arguments: list[str]) -> None:
    command, *version = arguments
    page = tmp_path / "page.html"
    done = run(command, table, *version, "--output", page)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    html = page.read_text(encoding="utf-8")
    found = _Page()
    found.feed(html)
    assert (found.open, found.addresses) == ([], [])
    assert len(found.ids) == len(set(found.ids))
    assert not re.search(r"https?://|@import|<script|url\((?!#)", html)
    assert "color-scheme: light dark" in html
    assert TABLE_NAME in found.text
    assert "load.merge r1 try 2" in found.text
    if command == "history":
        # Each chart has its table, and each kind of value a pattern beside its colour.
        assert html.count('<svg role="img"') == html.count("<details>") == 6
        assert re.findall(r'class="s(\d)"', html) == re.findall(r'fill="url\(#p(\d)\)"', html)
        assert {f"p{number}" for number in re.findall(r"url\(#p(\d)\)", html)} <= set(found.ids)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["history", "{tmp}/none"], 1, r"There is no Delta table at .*/none: give the folder"),
        (["show", "{table}", "99"], 1, r"no commit of version 99: the newest is 5"),
        (["history", "{table}", "--output", "{tmp}/no/page.html"], 1, r"can't be written: No such file"),
        (["history", "{table}", "--storage-options", "{tmp}/no.json"], 1, r"no\.json can't be read: No such file"),
        (["plan", "{tmp}/no.yaml"], 1, r"The merge config .* can't be read"),
        (["history"], 2, r"required: table"),
        (["history", "{table}", "--limit", "0"], 2, r"must be at least 1, got 0"),
        (["history", "{table}", "--limit", "all"], 2, r"must be at least 1, got all"),
        (["history", "{table}", "--output", "page.png"], 2, r"must end with \.html"),
        (["history", "{table}", "--json", "--output", "{tmp}/page.html"], 2, r"not allowed with argument --json"),
        (["show", "{table}", "newest"], 2, r"must be at least 0, got newest"),
        (["show", "{table}", "-1"], 2, r"must be at least 0, got -1"),
        (["history", "{table}", "--before", "-1"], 2, r"must be at least 0, got -1"),
        (["forget", "{table}"], 2, r"invalid choice"),
        ([], 2, r"required: COMMAND"),
    ],
    ids=[
        "no table", "no such version", "no folder for the page", "no storage options", "no config",
        "no argument", "no commits", "a word for commits", "a picture", "two outputs", "no number",
        "a negative number", "before all", "no such command", "no command",
    ],
)  # fmt: skip
def test_what_goes_wrong_is_a_sentence(
    table: Path, tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    done = run(*(each.format(tmp=tmp_path, table=table) for each in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert re.search(sentence, done.stderr)
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_ends_it_quietly(table: Path) -> None:
    for version in range(6, 200):  # more than a pipe holds
        merge_commit(table, version)
    command = ["bash", "-c", '"$0" history "$1" --limit 1000 | head -c 1', COMMAND, table]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")


def test_a_local_history_starts_without_airflow_and_spark(table: Path) -> None:
    code = (
        "import sys; from airflow_delta_merge.command_line import main; "
        "code = main(sys.argv[1:]); "
        "heavy = {'airflow', 'pyspark', 'py4j', 'pandas'} & {name.split('.')[0] for name in sys.modules}; "
        "print(heavy, file=sys.stderr); "
        "sys.exit(code)"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, "history", table], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "set()\n")
    assert time.monotonic() - began < 60  # it doesn't hang; 0.4 s on an idle machine


def test_jars_prints_their_paths() -> None:
    assert run("jars").stdout == ",".join(jars.delta_jars()) + "\n"
    assert run("jars", "--spark", "1.0").returncode == 1


CONFIG = MergeConfig(target="/lake/t", source="/in/2026-01-31.parquet", on=["id"], clauses=[when_matched_update_all()])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("merge.json", to_json(CONFIG)),
        ("merge.yaml", to_json(CONFIG)),
        (
            "merge.yml",
            "target: /lake/t\nsource: {path: /in/2026-01-31.parquet}\non: [id]\n"
            "clauses:\n  - {kind: matched, action: update_all}\n",
        ),
    ],
    ids=["JSON", "JSON is YAML", "YAML, whose on is no truth value"],
)
def test_a_config_is_read_from_json_or_yaml(tmp_path: Path, name: str, text: str) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / name).write_text(text, encoding=encoding)
        assert read_config(tmp_path / name) == [CONFIG]


def test_a_config_of_several_merges_and_one_of_a_statement(tmp_path: Path) -> None:
    path = tmp_path / "merges.yaml"
    path.write_text("- sql: MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE\n- " + to_json(CONFIG))
    statement, config = read_config(path)
    assert isinstance(statement, MergeStatement)
    assert config == CONFIG


def test_a_config_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "merge.yaml"
    path.write_text("target: [")
    with pytest.raises(ConfigFileError, match="is not YAML"):
        read_config(path)
    for text in ("target: !!binary aGk=", "target: !!set {a}", "on: &keys [*keys]"):
        path.write_text(text)
        with pytest.raises(ConfigFileError, match="has a value that JSON doesn't have"):
            read_config(path)
    path.write_text("- " * 5000)
    with pytest.raises(ConfigFileError, match="has a value that JSON doesn't have: maximum recursion depth"):
        read_config(path)
    (tmp_path / "merge.json").write_text("[" * 5000)
    with pytest.raises(MergeConfigError, match="The merge config is not JSON: maximum recursion depth"):
        read_config(tmp_path / "merge.json")
    path.write_text("target: /lake/t\n")
    with pytest.raises(MergeConfigError, match="lacks: source, on, clauses"):
        read_config(path)


def test_storage_options_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    for text in ("{", "[" * 5000):
        path.write_text(text)
        with pytest.raises(StorageOptionsError, match="are not valid JSON"):
            _of_file(str(path))


def test_numbers_are_written_as_people_read_them() -> None:
    assert [size(number) for number in (0, 999, 1000, 99_949, 99_950, 999_499, 14_021_397, None)] == [
        "0 B", "999 B", "1.0 kB", "99.9 kB", "100 kB", "999 kB", "14.0 MB", "-"
    ]  # fmt: skip
    assert [duration(number) for number in (0, 999, 1234, 99_949, 100_000, 3_600_000)] == [
        "0 ms", "999 ms", "1.2 s", "99.9 s", "1 min 40 s", "60 min 0 s"
    ]  # fmt: skip
    assert [sparkline(values) for values in ([0, 1, 7, 8], [0, 0], [])] == ["▁▂██", "▁▁", ""]


def test_cleaned_commits_are_mentioned(table: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable(table).create_checkpoint()
    for version in range(3):
        log_of(table, version).unlink()
    assert "Commits before version 3 were cleaned up; the log no longer has them." in on_a_terminal("history", table)
