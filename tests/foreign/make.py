"""Makes the corpus of foreign tables anew: each by its writer, in an environment of its own below ``.cache/foreign``.

usage: python -m tests.foreign.make [WORD ...]: the tables whose names have one of the words; without, all.

Wanted are PyPI and Maven Central. Files get other names and times each time; a table that is made anew is another one.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from airflow_delta_merge.runtime.jars import MAVEN_CENTRAL
from tests.differential.delta_log import DeltaTableLog
from tests.foreign.corpus import MANIFEST, TABLES, Column, ForeignTable, foreign_tables, pack, write_manifest
from tests.foreign.recipes import RECIPES, Recipe
from tests.foreign.rows import ROWS_A_FILE

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".cache" / "foreign"
WRITERS = Path(__file__).parent / "writers"


def main(words: list[str]) -> None:
    chosen = [recipe for recipe in RECIPES if not words or any(word in recipe.name for word in words)]
    for _, recipes in itertools.groupby(chosen, lambda recipe: (recipe.script, recipe.requirements, recipe.jars)):
        _write_down(_made([*recipes]))


def _write_down(made: dict[str, ForeignTable]) -> None:
    """Add tables to the manifest, and drop those that have no recipe any more."""
    foreign_tables.cache_clear()
    tables = dict(foreign_tables()) if MANIFEST.exists() else {}
    known = {recipe.name for recipe in RECIPES}
    tables = {name: table for name, table in (tables | made).items() if name in known}
    for path in TABLES.glob("*.tar.xz"):
        if path.name.removesuffix(".tar.xz") not in tables:
            path.unlink()
    write_manifest(tables)
    (TABLES.parent / "README.md").write_text(_readme(tables), "utf-8")


def _made(recipes: list[Recipe]) -> dict[str, ForeignTable]:
    """Tables of one script in one environment."""
    first = recipes[0]
    tables = {}
    with tempfile.TemporaryDirectory() as home:
        script = WRITERS / first.script
        command = [str(_python(first.requirements)), str(script), home, *(recipe.table for recipe in recipes)]
        jars = ",".join(str(_jar(name)) for name in first.jars)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC", "JARS": jars, "SPARK_SUBMIT_OPTS": ""}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{first.name}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        for recipe in recipes:
            folder = Path(home) / recipe.table
            if not folder.exists():
                print(f"{recipe.name} can't be made: {done.stdout[-2000:]}", flush=True)
                continue
            tables[recipe.name] = _described(recipe, DeltaTableLog.read(folder))
            size = pack(folder, recipe.name)
            print(f"{recipe.name}: {size} bytes, {len(tables[recipe.name].columns)} columns", flush=True)
    return tables


def _jar(name: str) -> Path:
    """A jar of Maven Central by its name, e.g. ``io.delta:delta-core_2.12:2.3.0``, fetched when it is missing."""
    group, artifact, version = name.split(":")
    path = ENVIRONMENTS / "jars" / f"{artifact}-{version}.jar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        url = "/".join([MAVEN_CENTRAL, *group.split("."), artifact, version, path.name])
        part = path.with_suffix(".part")
        urllib.request.urlretrieve(url, part)
        part.rename(path)
    return path


def _described(recipe: Recipe, log: DeltaTableLog) -> ForeignTable:
    columns = [
        Column(field["name"], _sql_type(field["type"]), recipe.values_of(field["name"]))
        for field in log.schema["fields"]
        if isinstance(field["type"], str)
    ]
    return ForeignTable(
        recipe.name,
        recipe.writer,
        recipe.odd,
        tuple(columns),
        tuple(log.metadata["partitionColumns"]),
        tuple(file * ROWS_A_FILE + row for file in recipe.files for row in range(ROWS_A_FILE)),
        recipe.fails,
    )


def _sql_type(name: str) -> str:
    names = {"integer": "INT", "long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}
    return names.get(name, name.upper())


def _python(requirements: tuple[str, ...]) -> Path:
    """The Python of an environment with these packages, made when it is missing; the project's own for none."""
    if not requirements:
        return ROOT / ".venv" / "bin" / "python"
    folder = ENVIRONMENTS / requirements[0].replace("==", "-")
    python = folder / "bin" / "python"
    installed = folder / ".installed"
    if not installed.exists():
        uv = str(ROOT / "scripts" / "uv.sh")
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", "3.11", str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *requirements], check=True)
        installed.touch()
    return python


def _readme(tables: dict[str, ForeignTable]) -> str:
    size = sum(path.stat().st_size for path in TABLES.glob("*.tar.xz"))
    lines = [
        "# Tables that other writers made",
        "",
        "`make foreign` makes them anew and writes this page. `corpus.py` unpacks them, `rows.py` has the rows that",
        "all hold: six files, two rows a file, with keys that rise from file to file.",
        "",
        f"{len(tables)} tables, {size // 1024} KiB.",
        "",
        "| table | writer | what is odd about it | columns |",
        "|---|---|---|---|",
    ]
    for table in (tables[name] for name in sorted(tables)):
        columns = ", ".join(f"`{c.name}` {c.type}" for c in table.columns if c.values)
        lines.append(f"| {table.name} | {table.writer} | {table.odd} | {columns} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
