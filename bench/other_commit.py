"""The engine of another commit as a contestant, in one session on the same tables: what a change gains or costs."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from bench.contestants import Facts, Ours, Run

_PACKAGE = "airflow_delta_merge"
_ROOT = Path(__file__).parent.parent


def require_commit(revision: str) -> None:
    """:raises ValueError: when Git knows no commit by this name."""
    asked = subprocess.run(
        ["git", "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}"], cwd=_ROOT, check=False
    )
    if asked.returncode:
        raise ValueError(f"There is no commit {revision!r} whose engine could be measured.")


class OfOtherCommit(Ours):
    """Merges as :class:`~bench.contestants.Ours` does, with the package as it was at another commit.

    :param revision: whatever Git takes for a commit.
    :param folder: an existing one, to unpack that commit's package in.
    """

    def __init__(self, revision: str, folder: Path) -> None:
        self.name = f"ours at {revision}"
        self._folder = folder / "other_commit"
        self._modules: dict[str, ModuleType] = {}
        packed = subprocess.check_output(["git", "archive", "--format=tar", revision, _PACKAGE], cwd=_ROOT)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(self._folder, filter="data")

    def merge(self, run: Run) -> Facts:
        """Merge with that commit's modules in the place of this one's, as the engine imports some while it runs."""
        with self._in_place():
            importlib.import_module(f"{_PACKAGE}.engine")
            return super().merge(run)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        here = _taken_out()
        sys.modules.update(self._modules)
        sys.path.insert(0, str(self._folder))
        try:
            yield
        finally:
            sys.path.remove(str(self._folder))
            self._modules = _taken_out()
            sys.modules.update(here)


def _taken_out() -> dict[str, ModuleType]:
    """The package's modules, which nobody finds afterwards: the next import reads them from `sys.path`."""
    names = [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}
