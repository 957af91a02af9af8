"""One Spark session for the whole run (one for each worker of pytest-xdist), and the options of the suite.

Tests that ask for the ``spark`` fixture get the ``spark`` marker, so ``-m "not spark"`` runs without Java.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases_run import CasesRun
from tests.groups import place_of, scheduling
from tests.session import SESSION_SETTINGS
from tests.turns import TURNS, InTurn, commits_so_far, one_in_turn, seed_of_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.differential.harness import Harness

#: A case makes 400 MB of garbage, of which next to nothing lives on; by default Java collects it after each 170 MB.
JVM_OPTIONS = ["-XX:+UseSerialGC", "-Xmn768m"]
#: From so many tests on, a worker's Spark lives long enough for Java's second compiler, whatever the Makefile chooses
#: for the Sparks that tests start. By default it compiles so much that after 300 cases it has taken a quarter of the
#: processor's time; called for only what is run four times as often, it takes two fifths less and does as much good.
_MANY_TESTS = 1000
_FOR_MANY_TESTS = [
    "-XX:TieredStopAtLevel=4",
    "-XX:ReservedCodeCacheSize=400m",
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
]
CASES_RUN = pytest.StashKey[CasesRun]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("delta merge")
    group.addoption("--slow", action="store_true", help="run the slow tests, too")
    group.addoption(
        "--all-ways", action="store_true", help="run each differential case by every way of the engine, by default one"
    )
    group.addoption("--way", action="append", help="run each differential case by this way of the engine")
    group.addoption(
        "--fresh-oracle",
        action="store_true",
        help="run the built-in MERGE in each differential case, in place of reading what was recorded of it",
    )
    group.addoption(
        "--record-oracle",
        action="store_true",
        help="run the built-in MERGE alone where no recording of a case holds, and keep what it does (make oracle)",
    )
    group.addoption(
        "--screenshots", action="store_true", help="let the browser tests make the pictures of the docs anew"
    )
    group.addoption("--fuzz-examples", type=int, default=None, help="how many statements the fuzz tests make up")
    group.addoption("--fuzz-seed", type=int, default=None, help="the seed of a fuzz run, to repeat a failure")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs a SparkSession, hence Java")
    config.addinivalue_line("markers", "slow: takes a minute or more, and runs with --slow or when it is named")
    config.addinivalue_line("markers", "in_turns: a tenth of these runs, another one at each commit; all with --slow")
    config.stash[CASES_RUN] = CasesRun(config)
    config.pluginmanager.register(config.stash[CASES_RUN])
    with suppress(ImportError):  # not there in every environment that runs tests
        from hypothesis import HealthCheck, settings

        # A machine that is busy must not make a test fail.
        settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("any machine")


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--record-oracle") and not hasattr(session.config, "workerinput"):
        from tests.differential.recordings import Recordings

        Recordings().forget_new()


def pytest_report_header(config: pytest.Config) -> str:
    return f"differential cases: turn {commits_so_far()}, {_ways(config)}; fuzz: seed {seed_of_commit()}"


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    if config.getoption("--record-oracle"):
        items[:] = [item for item in items if "engines" in getattr(item, "fixturenames", ())]
    config.stash[CASES_RUN].note_all(items)
    # Somebody who names a test, or asks for some by a word, gets them all.
    chosen = config.option.keyword or any("::" in argument or ".py" in argument for argument in config.args)
    if not (chosen or config.getoption("--slow") or config.getoption("--record-oracle")):
        without = left_out(items, turn=commits_so_far())
        config.hook.pytest_deselected(items=[*without])
        items[:] = [item for item in items if item not in without]
    items.sort(key=lambda item: place_of(item.nodeid))


def left_out(items: list[pytest.Item], *, turn: int) -> set[pytest.Item]:
    """The slow tests, and those that take turns and don't run in this one."""
    slow = {item for item in items if item.get_closest_marker("slow")}
    in_turns = [item for item in items if item.get_closest_marker("in_turns")]
    return slow | ({*in_turns} - {*in_turns[turn % TURNS :: TURNS]})


@pytest.hookimpl(optionalhook=True)  # unknown where there is no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What ``--dist loadgroup`` means here."""
    return scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("--record-oracle") and not hasattr(config, "workerinput") and not config.option.collectonly:
        from tests.differential.recordings import Recordings, keep
        from tests.differential.tables import drop_archives_not_asked_for

        whole = not config.option.keyword and not any("::" in argument for argument in config.args)
        if whole and config.args == ["tests/differential"] and session.exitstatus == pytest.ExitCode.OK:
            drop_archives_not_asked_for()
        print(f"\noracle: {keep(Recordings(), whole_modules=whole)}")


# --- the engines ------------------------------------------------------------------------------------------------------


def _ways(config: pytest.Config) -> str:
    if config.getoption("--record-oracle"):
        return "the built-in alone, to record it"
    of = "run now" if config.getoption("--fresh-oracle") else "as recorded"
    ways = "all ways" if config.getoption("--all-ways") else ", ".join(config.getoption("--way") or ["one way each"])
    return f"{ways}, the built-in {of}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A local session with Delta; warehouse and metastore live in a folder of this run."""
    from pyspark.sql import SparkSession

    from airflow_delta_merge.runtime.jars import delta_jars

    os.environ["TZ"] = "UTC"  # collect() turns timestamps into local time
    time.tzset()
    home = tmp_path_factory.mktemp("spark")
    compilers = _FOR_MANY_TESTS if len(request.session.items) >= _MANY_TESTS else []
    java_options = [f"-Dderby.system.home={home}", *JVM_OPTIONS, *compilers, *_class_archive()]
    builder = SparkSession.builder.master("local[2]").appName("airflow_delta_merge tests")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    builder = (
        # The class path of a merge's own application, for which `make test` has an archive of classes: a session and
        # its first merge take 8 s of processor time instead of 15. Java also starts without the archive.
        builder.config("spark.driver.extraClassPath", os.pathsep.join(delta_jars()))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        # By default each task that sorts or aggregates takes 64 MB at once, for some rows here.
        .config("spark.buffer.pageSize", "2m")
        .config("spark.driver.extraJavaOptions", " ".join(java_options))
    )
    with pytest.MonkeyPatch.context() as environment:
        # Spark runs the cases' Python functions with this Python. Other tests must not inherit the variable.
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # failing statements are part of the tests
    yield session
    session.stop()


@pytest.fixture(scope="session")
def session_engines(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Harness:
    from tests.differential.harness import WAYS, Harness

    config = request.config
    return Harness(
        spark,
        tmp_path_factory.mktemp("tables"),
        ways=[*WAYS] if config.getoption("--all-ways") else config.getoption("--way"),
        turn=commits_so_far(),
        fresh=config.getoption("--fresh-oracle"),
        recording=config.getoption("--record-oracle"),
        ways_run=config.stash[CASES_RUN].ways,
    )


@pytest.fixture
def engines(session_engines: Harness, request: pytest.FixtureRequest) -> Harness:
    """``engines.check(case)`` compares what our engine leaves behind in a case with what the built-in MERGE does."""
    session_engines.module = request.path.stem
    return session_engines


@pytest.fixture
def in_turn(request: pytest.FixtureRequest) -> InTurn:
    """``in_turn(ways)`` is one of the ways that a test can go, another one at the next commit.

    Those that ``--way`` names, if there are any, and all with ``--all-ways``.
    """
    config = request.config

    def chosen(ways: Iterable[str]) -> list[str]:
        known = [*ways]
        if config.getoption("--all-ways"):
            return known
        asked_for = [way for way in known if way in (config.getoption("--way") or ())]
        return asked_for or [one_in_turn(known, request.node.nodeid, commits_so_far())]

    return chosen


def _class_archive() -> list[str]:
    from airflow_delta_merge.runtime.class_archive import archive_options
    from airflow_delta_merge.runtime.java import check_java

    return archive_options(check_java())
