"""``make test-of-tests``: puts each fault into a copy of the package and sees whether the suite finds it.

The working tree is never edited: package and tests are copied into a folder, and pytest runs there. First the same
tests run on a copy without a fault, where all must pass: else a failure would tell nothing. A fault is caught by a test
that finds another outcome than it asks for; errors of imports, fixtures or the code itself don't count.

A push runs each case by one way of the engine, the next push by another one. A fault that shows in some ways only is
looked for in these, so that such a fault is found within four pushes, if not by the first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.of_tests.faults import FAULTS, Fault
from tests.of_tests.witness import LOOKED_FOR, SEEN, Seen

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "airflow_delta_merge"
#: What the tests need of the project, beside the package.
BESIDE = ("tests", "pyproject.toml")
#: Below the project, so that whoever asks git for the commit is answered.
WORK = PROJECT / ".cache"


@dataclass(frozen=True)
class Run:
    """One run of pytest.

    :param seen: what it was like.
    :param seconds: how long it took.
    :param output: what it wrote.
    """

    seen: Seen
    seconds: float
    output: str


@contextmanager
def copied_project() -> Iterator[Path]:
    """A folder with a copy of the package and of the tests, for the time being."""
    WORK.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=WORK, prefix="test-of-tests-") as name:
        folder = Path(name)
        for each in (PACKAGE, *BESIDE):
            copy = shutil.copy if (PROJECT / each).is_file() else _copy_folder
            copy(PROJECT / each, folder / each)
        yield folder


def _copy_folder(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def put_in(fault: Fault, folder: Path) -> None:
    """Edit the copy of the package.

    :raises ValueError: when the text is not in the file exactly once.
    """
    file = folder / fault.file
    text = file.read_text()
    if (times := text.count(fault.before)) != 1:
        raise ValueError(f"{fault}: its text stands in {fault.file} {times} times instead of once")
    file.write_text(text.replace(fault.before, fault.after))


def run_tests(folder: Path, faults: Sequence[Fault], *options: str) -> Run:
    """Run the tests of a copied project that look for some faults, up to the first one that fails.

    :param options: of pytest.

    :raises RuntimeError: when the package was not imported from the folder.
    """
    seen = folder / "seen.json"
    environment = {**os.environ, "PYTHONPATH": str(folder), SEEN: str(seen), LOOKED_FOR: ",".join(map(str, faults))}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.of_tests.witness", "-p", "no:cacheprovider"]
    files = dict.fromkeys(f"tests/{test.partition('::')[0]}" for fault in faults for test in fault.tests)
    start = time.monotonic()
    done = subprocess.run(
        [*command, *options, *files],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    run = Run(Seen.read(seen), time.monotonic() - start, done.stdout)
    if run.seen.package not in ("", str(folder / PACKAGE)):
        raise RuntimeError(f"pytest imported the package from {run.seen.package} instead of from {folder}")
    return run


def passes_without_faults(faults: Sequence[Fault]) -> bool:
    """Whether the tests that look for the faults pass where there is none; says so in a line."""
    with copied_project() as folder:
        run = run_tests(folder, faults, "--all-ways")
    stopped_by = [*run.seen.failed, *run.seen.broken]
    if stopped_by or not run.seen.passed:
        print(run.output)
        print(f"without a fault: {', '.join(stopped_by) or 'no test'} does not pass", flush=True)
        return False
    print(f"without a fault: {run.seen.passed} tests pass, {run.seconds:.0f} s", flush=True)
    return True


def is_caught(fault: Fault) -> bool:
    """Whether a test finds the fault; says so in a line."""
    with copied_project() as folder:
        put_in(fault, folder)
        run = run_tests(folder, [fault], *(f"--way={way}" for way in fault.ways))
    caught_by = run.seen.failed[:1]
    if not caught_by:
        print(run.output)
    verdict = f"caught by {caught_by[0]}" if caught_by else f"NOT CAUGHT by {run.seen.passed} tests"
    verdict += "".join(f", broken: {each}" for each in run.seen.broken)
    print(f"{fault}: {verdict}, {run.seconds:.0f} s", flush=True)
    return bool(caught_by)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-of-tests", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help="names of faults; by default all")
    names = parser.parse_args().names
    if unknown := set(names) - set(map(str, FAULTS)):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}. There are: {', '.join(map(str, FAULTS))}")
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    if not passes_without_faults(faults):
        return 1
    caught = sum([is_caught(fault) for fault in faults])
    print(f"{caught} of {len(faults)} faults caught")
    return int(caught < len(faults))


if __name__ == "__main__":
    sys.exit(main())
