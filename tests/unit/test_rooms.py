"""The directions of imports between the package's rooms, which are the folders of ``airflow_delta_merge``."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from airflow_delta_merge.launch.staging import TRAVELLING_FOLDERS, TRAVELLING_MODULES

PACKAGE = Path(__file__).parents[2] / "airflow_delta_merge"

#: Each room, the rooms that it may import and the packages that it may import beside the standard library. A room
#: imports only rooms above it, so no two import each other. The modules beside the rooms may be imported everywhere.
ROOMS = {
    # what travels to Spark, where there is no Airflow
    "config": ("", ""),
    "contract": ("config", ""),
    "engine": ("config contract", "pyspark py4j pyarrow"),
    "job": ("config contract engine", "pyspark"),
    # on the worker
    "patterns": ("config", ""),
    "runtime": ("", ""),
    "connections": ("config runtime", "airflow"),
    "launch": ("config contract runtime connections task_exceptions", "airflow kubernetes urllib3"),
    "hooks": ("config contract runtime connections launch", "airflow"),
    "history": ("contract connections", "airflow deltalake"),
    "command_line": ("config contract runtime connections hooks history", "airflow rich yaml"),
    "assets": ("config", "airflow"),
    "lineage": ("config contract connections assets", "airflow openlineage openlineage_sql"),
    "links": ("contract launch", "airflow"),
    "triggers": ("config connections launch history links", "airflow asgiref"),
    "operators": (
        "config contract patterns connections launch hooks assets lineage links triggers task_exceptions",
        "airflow jinja2 pendulum",
    ),
    "sensors": ("config contract connections history triggers operators", "airflow jinja2 sqlalchemy"),
    "view": ("contract connections history assets operators", "airflow fastapi jinja2 markupsafe sqlalchemy starlette"),
    "decorators": ("config connections operators task_exceptions", "airflow"),
}
#: The modules beside the rooms that travel to Spark, too. ``exceptions`` imports Airflow's exceptions from
#: ``task_exceptions``, but only when they are asked for.
MODULES = ("exceptions", "identifiers")
#: The module beside the rooms that stays on the worker.
TASK_EXCEPTIONS = "task_exceptions"


def _imports(tree: ast.AST) -> Iterator[str]:
    """What is imported, ``package.module.name``, also inside functions and only for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _rooms_and_packages(room: str) -> tuple[set[str], set[str]]:
    """The rooms and the packages that a room imports."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (PACKAGE / room).rglob("*.py")]
    names = [name.split(".") for tree in trees for name in _imports(tree)]
    rooms = {name[1] for name in names if name[0] == PACKAGE.name and len(name) > 1}
    packages = {name[0] for name in names} - sys.stdlib_module_names - {PACKAGE.name}
    return rooms - {room, *MODULES}, packages


def _imports_of_modules() -> dict[str, set[str]]:
    """The modules of the package, and those of it that each imports."""
    paths = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    names = {module: set(_imports(ast.parse(path.read_text(encoding="utf-8")))) for module, path in paths.items()}
    return {
        module: {name if name in paths else name.rpartition(".")[0] for name in imported} & paths.keys()
        for module, imported in names.items()
    }


def test_each_room_is_in_the_table() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_table_allows(room: str) -> None:
    rooms, packages = _rooms_and_packages(room)
    allowed_rooms, allowed_packages = (set(names.split()) for names in ROOMS[room])
    assert (rooms - allowed_rooms, packages - allowed_packages) == (set(), set())


def test_no_two_rooms_import_each_other() -> None:
    order = [TASK_EXCEPTIONS, *ROOMS]
    upward = {
        room: [name for name in rooms.split() if order.index(name) >= order.index(room)]
        for room, (rooms, _) in ROOMS.items()
    }
    assert {room: rooms for room, rooms in upward.items() if rooms} == {}


def test_what_travels_to_spark_needs_nothing_that_stays() -> None:
    for room in TRAVELLING_FOLDERS:
        rooms, packages = (set(names.split()) for names in ROOMS[room])
        assert rooms <= set(TRAVELLING_FOLDERS), room
        assert packages <= {"pyspark", "py4j", "pyarrow"}, room
    assert set(TRAVELLING_MODULES) == {"__init__.py", *(f"{module}.py" for module in MODULES)}


def test_the_modules_beside_the_rooms_import_only_the_standard_library_at_once() -> None:
    for module in MODULES:
        body = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")).body
        top = [name for node in body if isinstance(node, ast.Import | ast.ImportFrom) for name in _imports(node)]
        others = {name.split(".")[0] for name in top} - sys.stdlib_module_names
        assert others <= {PACKAGE.name}, module
        own = {name.rpartition(".")[0] for name in top if name.startswith(PACKAGE.name)}
        assert own <= {f"{PACKAGE.name}.exceptions"}, module


def _check_that_there_is_no_circle(counted_as: Callable[[str], str | None]) -> None:
    """Check the imports between groups of modules.

    :param counted_as: the group of a module; None to leave it out.
    :raises CycleError: with a circle.
    """
    imports: dict[str, set[str]] = {}
    for module, imported in _imports_of_modules().items():
        if (group := counted_as(module)) is not None:
            others = set(filter(None, map(counted_as, imported)))
            imports.setdefault(group, set()).update(others - {group})
    TopologicalSorter(imports).prepare()


def test_no_modules_import_each_other_in_a_circle() -> None:
    """The modules of ``operators`` count as one: each takes the operator itself."""
    operators = f"{PACKAGE.name}.operators."
    _check_that_there_is_no_circle(lambda module: operators if module.startswith(operators) else module)


def test_no_folders_of_the_engine_import_each_other_in_a_circle() -> None:
    """A module beside the folders counts as a folder."""

    def folder(module: str) -> str | None:
        return ".".join(module.split(".")[:3]) if module.startswith(f"{PACKAGE.name}.engine") else None

    _check_that_there_is_no_circle(folder)
