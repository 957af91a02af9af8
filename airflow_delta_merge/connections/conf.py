"""Checks the Spark properties that people give: as ``conf`` of an operator or a hook, or in a connection."""

from __future__ import annotations

from typing import Any

from airflow_delta_merge.exceptions import DeltaMergeError, MergeConfigError

_DEPLOY_MODE = "spark.submit.deployMode"


def check_conf(
    conf: dict[Any, Any],
    *,
    where: str = "",
    deploy_mode: str | None = None,
    error: type[DeltaMergeError] = MergeConfigError,
) -> None:
    """Check Spark properties. No error quotes a value, which may be a secret.

    :param where: where they stand, for messages.
    :param deploy_mode: the deploy mode that they may repeat.
    :param error: what is raised.
    """
    for name, value in conf.items():
        if not isinstance(name, str) or not name.startswith("spark."):
            raise error(
                f"conf{where} has the name {name!r:.80}, which Spark ignores. Start it with spark. or, for Hadoop's "
                "properties, with spark.hadoop."
            )
        if not isinstance(value, (str, int, float)):
            got = "None" if value is None else f"a value of type {type(value).__name__}"
            raise error(f"conf[{name!r}]{where} must be a string, a number or a bool, got {got}. Set it or remove it.")
    if conf.get(_DEPLOY_MODE, deploy_mode) != deploy_mode:
        raise error(f"conf{where} can't set {_DEPLOY_MODE}. Set deploy-mode in the extra of the Spark connection.")
