"""The sub-commands ``plan`` and ``run``: a merge from a config file, through the same hook as tasks."""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_merge.command_line.output import console_for, print_json
from airflow_delta_merge.config import MergeConfig, MergeStatement, from_json
from airflow_delta_merge.contract.identity import APPLICATION_ID_LENGTH, MergeIdentity
from airflow_delta_merge.exceptions import ConfigFileError, MergeExecutionError
from airflow_delta_merge.runtime.user import user_name

if TYPE_CHECKING:
    from airflow_delta_merge.contract.result import MergeResult
    from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook

log = logging.getLogger(__name__)

#: A connection that exists only in this process: Spark on this machine, without Airflow's database.
_THIS_MACHINE = "delta_merge_of_this_command"


def merges(options: argparse.Namespace) -> int:
    """Plan or run what the config file describes, and show what it would do or did."""
    configs = read_config(Path(options.config))
    with redirect_stdout(sys.stderr):  # Airflow's log goes to standard output
        hook = _hook(options.conn_id)
        found = _planned(hook, configs) if options.command == "plan" else _run(hook, configs)
    console = console_for(options)
    if console is None:
        print_json(found if len(configs) > 1 else found[0])
        return 0
    from airflow_delta_merge.command_line.terminal import print_counts

    for each in found:
        print_counts(console, each or {"skipped": "the source has no rows"})
    return 0


def read_config(path: Path) -> Sequence[MergeConfig | MergeStatement]:
    """The merges that a file describes, as :func:`~airflow_delta_merge.config.from_json` reads them.

    :raises ConfigFileError: when there is no such file, or it is neither JSON nor YAML.
    :raises MergeConfigError: when it describes no merge.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFileError(f"The merge config {path} can't be read: {error}.") from error
    if path.suffix.lower() in (".yaml", ".yml"):
        text = _json_of_yaml(path, text)
    found = from_json(text)
    return found if isinstance(found, list) else [found]


def _json_of_yaml(path: Path, text: str) -> str:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Leaves ``on``, which is a key of ours, and 2026-01-31 as texts, like YAML 1.2."""

        yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {
            first: [each for each in resolvers if not _is_yaml_1_1(first, each[0])]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return json.dumps(yaml.load(text, Loader))  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        (what, *_) = str(error).splitlines()
        raise ConfigFileError(f"The merge config {path} is not YAML: {what}.") from error
    except (TypeError, ValueError, RecursionError) as error:  # bytes, a set, or what contains itself
        raise ConfigFileError(f"The merge config {path} has a value that JSON doesn't have: {error}.") from error


def _is_yaml_1_1(first: str, tag: str) -> bool:
    kind = tag.rpartition(":")[2]
    return kind == "timestamp" or (kind == "bool" and first not in "tTfF")


def _hook(conn_id: str | None) -> DeltaMergeHook:
    if conn_id is None:
        conn_id = _THIS_MACHINE
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps({"conn_type": "spark", "host": "local[*]"})
    from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    return DeltaMergeHook(conn_id=conn_id)


def _planned(hook: DeltaMergeHook, configs: Sequence[MergeConfig | MergeStatement]) -> list[dict[str, Any]]:
    return [_with_our_errors(hook.plan, config).to_dict() for config in configs]


def _run(hook: DeltaMergeHook, configs: Sequence[MergeConfig | MergeStatement]) -> list[dict[str, Any] | None]:
    if len(configs) == 1:
        return [_run_alone(hook, configs[0])]
    results = _with_our_errors(hook.merge_all, configs, identity=_identity())
    return [None if result is None else result.to_dict() for result in results]


def _run_alone(hook: DeltaMergeHook, config: MergeConfig | MergeStatement) -> dict[str, Any] | None:
    try:
        result: MergeResult = _with_our_errors(hook.merge, config, identity=_identity())
    except MergeExecutionError as error:
        from airflow_delta_merge.exceptions import EmptySourceException

        if config.guards.on_empty_source == "skip" and isinstance(error.__cause__, EmptySourceException):
            log.info("Skipped: %s", error)
            return None
        raise
    return result.to_dict()


def _with_our_errors(call: Any, *arguments: Any, **named: Any) -> Any:
    """Call the hook, whose errors are Airflow's, and raise ours."""
    from airflow.providers.common.compat.sdk import AirflowException

    try:
        return call(*arguments, **named)
    except AirflowException as error:
        raise MergeExecutionError(str(error)) from error


def _identity() -> MergeIdentity:
    """A unique identity for this run, so that the commit records the merge's result."""
    now = datetime.now(UTC)
    who = f"terminal:{user_name()}@{socket.gethostname()}/{now.isoformat()}/{os.getpid()}"
    return MergeIdentity(application_id=who[-APPLICATION_ID_LENGTH:], generation=int(now.timestamp() * 1000))
