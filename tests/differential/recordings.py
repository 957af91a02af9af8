"""The recordings that the repository keeps: a file for each test module, an entry for each case.

``make oracle`` runs the built-in for each case whose recording is missing or stale, and nothing else writes here.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential.cases import Case
from tests.differential.recording import Recording

KEPT = Path(__file__).parent / "oracle"
COMMAND = "make oracle"


class NoRecordingError(Exception):
    """The case has no recording that holds for it; the text says how to make one."""


@dataclass
class Recordings:
    """The recordings of the cases, by test module.

    :param kept: the folder with a JSON file for each module.
    :param new: a folder to which each worker writes what it recorded; :func:`keep` puts it in place.
    """

    kept: Path = KEPT
    new: Path = KEPT.parents[2] / ".cache" / "oracle"
    _modules: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def find(self, module: str, case: Case, key: str) -> Recording:
        """The recording of a case.

        :param key: what :func:`~tests.differential.recording.key_of` gives.
        :raises NoRecordingError: when there is none, or one of another key.
        """
        if module not in self._modules:
            path = self.kept / f"{module}.json"
            self._modules[module] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        entries = self._modules[module]
        if entry := entries.get(_entry(case, key)):
            return Recording.from_json(entry)
        is_stale = any(name.rpartition(" #")[0] == case.name for name in entries)
        raise NoRecordingError(
            f"{case}: the recording of what the built-in MERGE does is {'stale' if is_stale else 'missing'}. "
            f'Run `{COMMAND}` (ARGS="tests/differential/{module}.py" for this module), look at the diff, and commit it.'
        )

    def add(self, module: str, case: Case, key: str, recording: Recording | None) -> None:
        """Note that a case has this recording; None if the one that is kept holds."""
        self.new.mkdir(parents=True, exist_ok=True)
        piece = {"module": module, "entry": _entry(case, key), "recording": recording and recording.as_json()}
        (self.new / f"{uuid.uuid4()}.json").write_text(json.dumps(piece), "utf-8")

    def forget_new(self) -> None:
        """Remove what workers noted before."""
        shutil.rmtree(self.new, ignore_errors=True)


def keep(recordings: Recordings, *, whole_modules: bool) -> str:
    """Put what the workers recorded into place; a sentence of how much that was.

    :param whole_modules: whether all cases of each module ran, so that an entry that none of them asked for can go.
    """
    pieces = [json.loads(path.read_text("utf-8")) for path in recordings.new.glob("*.json")]
    recordings.kept.mkdir(exist_ok=True)
    by_module: dict[str, dict[str, Any]] = defaultdict(dict)
    for piece in pieces:
        by_module[piece["module"]][piece["entry"]] = piece["recording"]
    for module, asked in by_module.items():
        path = recordings.kept / f"{module}.json"
        old: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        names = {name.rpartition(" #")[0] for name in asked}
        left = {} if whole_modules else {k: v for k, v in old.items() if k.rpartition(" #")[0] not in names}
        entries = left | {name: recording or old[name] for name, recording in asked.items()}
        path.write_text(_readable(entries), "utf-8")
    recordings.forget_new()
    return f"{sum(piece['recording'] is not None for piece in pieces)} of {len(pieces)} cases recorded anew"


def _entry(case: Case, key: str) -> str:
    return f"{case.name} #{key}"


def _readable(entries: dict[str, Any]) -> str:
    """JSON with a line for each action and each row, so that a diff shows what changed."""
    return "{\n" + ",\n".join(f"{_text(name)}: {_object(entries[name])}" for name in sorted(entries)) + "\n}\n"


def _object(recording: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f" {_text(name)}: {_lines(recording[name])}" for name in recording) + "\n}"


def _lines(value: Any, indent: int = 2) -> str:
    """A list of lists or objects, a line for each of the innermost; anything else on one line."""
    if not isinstance(value, list) or not value or not isinstance(value[0], list | dict | str):
        return _text(value)
    space = "\n" + " " * indent
    return f"[{space}" + f",{space}".join(_lines(each, indent + 1) for each in value) + "]"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
