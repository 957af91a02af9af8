"""The identity of a merge: application id and generation. From them a table knows whether it was already committed.

This module is shipped to Spark as a py-file, so it imports neither Airflow nor pyspark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow_delta_merge.config.checks import check_fields
from airflow_delta_merge.contract.result import is_whole_number
from airflow_delta_merge.exceptions import MergeConfigError

#: Longest application id, in characters (all ASCII): each table keeps one for every task instance that merged into it.
APPLICATION_ID_LENGTH = 250

#: Default number of attempts to compute and commit a merge before conflicts with other writers make it fail.
MAX_COMMIT_ATTEMPTS = 5
_HASH_DIGITS = 32
_THOUSAND, _MILLION = 1_000, 1_000_000
_UNCOUNTED = _THOUSAND - 1


def check_commit_attempts(attempts: Any) -> None:
    """Check ``max_commit_attempts``.

    :raises MergeConfigError: when it is no whole number, or less than 1.
    """
    if not is_whole_number(attempts) or attempts < 1:
        raise MergeConfigError(f"max_commit_attempts must be a whole number ≥ 1, got {attempts!r}.")


def application_id(*, dag_id: str, task_id: str, run_id: str, map_index: int = -1, namespace: str = "") -> str:
    """The application id of a task instance: ``airflow:<namespace>/<DAG>/<task>/<run>/<map index>``.

    Each part is percent-encoded except for letters, digits and a few harmless characters, so no two task instances have
    the same id. An id longer than :data:`APPLICATION_ID_LENGTH` is truncated and gets a SHA-256 after ``#``.

    :param namespace: distinguishes deployments with DAGs of the same name that write to the same table.
    """
    parts = [namespace, dag_id, task_id, run_id, str(map_index)]
    whole = "airflow:" + "/".join(quote(part, safe="-._~:+@") for part in parts)
    if len(whole) <= APPLICATION_ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{whole[: APPLICATION_ID_LENGTH - len(digest) - 1]}#{digest}"


def airflow_generation(*, started: datetime, clear_number: int | None, max_tries: int) -> int:
    """The generation of a try: one increasing number for the intended execution of its task instance.

    In decimal digits: milliseconds of the DAG run's start, three digits of its clear number, three of ``max_tries``.
    Each part covers what the others miss (Airflow 3.3):

    - ``dag_run.start_date`` is renewed when an ended run is cleared, reprocessed by a backfill, or deleted and created
      again. Retries don't change it, nor do clears while the run continues.
    - ``dag_run.clear_number`` grows with every clear, even of a running task. But it belongs to the whole run, so
      clearing *another* task between two tries of a merge increases it, too. Before Airflow 3.2 it doesn't change while
      the run continues, so it is ignored there.
    - ``max_tries`` belongs to the task instance and grows when it is cleared, not when it is retried. But it may not
      grow if the DAG's ``retries`` were lowered meanwhile, or if the task was cleared while it ran.

    So generations are ordered by start and clear number, and :meth:`MergeIdentity.is_same_execution` compares
    ``max_tries`` if only the clear number differs.

    :param started: ``dag_run.start_date``, with a time zone.
    :param clear_number: ``dag_run.clear_number``; values above 999 count as 999, and so does None, for versions in
        which it doesn't grow with every clear.
    :param max_tries: ``ti.max_tries``; its last three digits count.
    """
    milliseconds = int(started.timestamp() * _THOUSAND)
    clears = _UNCOUNTED if clear_number is None else min(clear_number, _UNCOUNTED)
    return milliseconds * _MILLION + clears * _THOUSAND + max_tries % _THOUSAND


@dataclass(frozen=True, kw_only=True)
class TaskInstanceIdentity:
    """The Airflow task instance and try that merges."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1
    try_number: int = 1


@dataclass(frozen=True, kw_only=True)
class MergeIdentity:
    """Identifies a merge in a table.

    :param application_id: Delta's ``appId``. Its only user also controls its generations.
    :param generation: Delta's ``version`` of that application: the same in each try of one intended execution, higher
        in each later execution; 0 or more.
    :param task_instance: the Airflow task that merges, if any; then ``generation`` comes from
        :func:`airflow_generation`.
    :raises MergeConfigError: when a value is invalid.
    """

    application_id: str
    generation: int
    task_instance: TaskInstanceIdentity | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.application_id, str) or not 0 < len(self.application_id) <= 4 * APPLICATION_ID_LENGTH:
            raise MergeConfigError(f"An application id must have 1 to {4 * APPLICATION_ID_LENGTH} characters.")
        if not is_whole_number(self.generation) or self.generation < 0:
            raise MergeConfigError(
                f"A generation must be a whole number from 0 to 2^63-1, got {self.generation!r:.80}."
            )

    def is_same_execution(self, generation: int) -> bool:
        """Whether a merge of this application with ``generation`` was another try of the same intended execution."""
        if generation == self.generation or self.task_instance is None:
            return generation == self.generation
        start, (clear_number, max_tries) = _parts(self.generation)
        other_start, (other_clear_number, other_max_tries) = _parts(generation)
        if start != other_start:
            return False
        counted = clear_number < _UNCOUNTED
        return (counted and clear_number == other_clear_number) or max_tries == other_max_tries

    def of_one_of_several(self, target: str, number: int) -> MergeIdentity:
        """The identity of one of several merges of the same execution.

        It doesn't depend on the other merges' targets or their order.

        :param target: its target's name in its statement.
        :param number: its number among the merges into that target, from 1.
        """
        digest = hashlib.sha256(target.encode()).hexdigest()[:_HASH_DIGITS]
        return replace(self, application_id=f"{self.application_id}/{digest}/{number}")

    def to_dict(self) -> dict[str, Any]:
        """A dict of JSON types; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MergeIdentity:
        """Restore it from :meth:`to_dict`.

        :raises MergeConfigError: when the data is not an identity.
        """
        _check_keys(cls, data)
        task_instance = data.get("task_instance")
        if task_instance is not None:
            task_instance = _task_instance(task_instance)
        return cls(application_id=data["application_id"], generation=data["generation"], task_instance=task_instance)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> MergeIdentity:
        """Restore it from :meth:`to_json`.

        :raises MergeConfigError: when the text is not JSON or not an identity.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise MergeConfigError(f"The merge identity is not JSON: {error}.") from error
        return cls.from_dict(data)


def _task_instance(data: Any) -> TaskInstanceIdentity:
    _check_keys(TaskInstanceIdentity, data)
    for name, value in data.items():
        if not (is_whole_number(value) if name in ("map_index", "try_number") else isinstance(value, str)):
            raise MergeConfigError(f"The merge identity has a wrong value for {name}: {value!r:.80}.")
    return TaskInstanceIdentity(**data)


def _check_keys(cls: type[Any], data: Any) -> None:
    if not isinstance(data, Mapping):
        raise MergeConfigError(f"A merge identity must be a JSON object, got {data!r:.80}.")
    check_fields(cls, data, "identity")


def _parts(generation: int) -> tuple[int, tuple[int, int]]:
    start, rest = divmod(generation, _MILLION)
    return start, divmod(rest, _THOUSAND)
