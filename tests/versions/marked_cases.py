"""The differential cases that each combination of Spark and Delta runs, by our engine and by Delta's own ``MERGE``.

They are the cases marked ``every_version`` in :mod:`tests.differential`: one for each of Delta's internals that the
engine depends on. Their recordings are of one version only, so the expected outcome is what the built-in ``MERGE`` of
the same Spark and Delta does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from tests.differential.cases import Case

DIFFERENTIAL = Path(__file__).parents[1] / "differential"
MARK = "every_version=True"

#: Lists the table's files from its log, which is otherwise done for large tables only.
LISTED = {"spark.deltaMerge.smallMergeBytes": "0", "spark.deltaMerge.useChecksum.enabled": "false"}
#: Marked cases that run a second time with these settings.
ALSO_LISTED = (
    "layouts: many files: keys in one file",
    "classic_merge_executor: deletion vectors: extended by updates, deletes and by-source clauses",
)


def cases_of(delta: tuple[int, int]) -> dict[str, Case]:
    """The cases that a minor version of Delta runs, by their names in the version run."""
    marked = dict(_marked_cases())
    listed = {f"{name}, listed from the log": replace(marked[name], confs=LISTED) for name in ALSO_LISTED}
    return {name: case for name, case in (marked | listed).items() if delta >= case.since}


def _marked_cases() -> Iterator[tuple[str, Case]]:
    """The marked cases with their modules' names, as names are unique within a module only.

    Only modules that have the mark are imported, as the environments of other versions lack packages that some others
    need.
    """
    for path in sorted(DIFFERENTIAL.glob("test_*.py")):
        if MARK not in path.read_text("utf-8"):
            continue
        module = import_module(f"tests.differential.{path.stem}")
        for cases in vars(module).values():
            for case in cases if isinstance(cases, list) else ():
                if isinstance(case, Case) and case.every_version:
                    yield f"{path.stem.removeprefix('test_')}: {case.name}", case
