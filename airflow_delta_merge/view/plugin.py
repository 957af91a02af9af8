"""Airflow's plugin with the pages. Each Airflow process loads it, so it imports the pages only where they're served."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS

from airflow_delta_merge.operators.task_links import TAB_OF_MERGES

#: Where the API server has the pages. Airflow's own addresses have no such prefix.
URL_PREFIX = "/delta_merge"
NAME = "Delta merges"
# Relative: Airflow may be served under a path.
_VIEWS = (
    {"href": "delta_merge/", "destination": "nav", "category": "browse", "url_route": "delta_merges"},
    {
        "href": "delta_merge/task_instance?dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}",
        "destination": "task_instance",
        "url_route": TAB_OF_MERGES,
    },
)


class DeltaMergePlugin(AirflowPlugin):
    """The pages, listed in the navigation and as a tab of each task instance; nothing before Airflow 3.1."""

    name = "delta_merge"

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """The pages. Only Airflow's API server reads it."""
        if not AIRFLOW_V_3_1_PLUS:
            return []
        from airflow_delta_merge.view.app import app

        return [{"app": app, "url_prefix": URL_PREFIX, "name": NAME}]

    @cached_property
    def external_views(self) -> list[Any]:  # type: ignore[override]
        """Links to the pages."""
        return [{"name": NAME, **view} for view in _VIEWS] if AIRFLOW_V_3_1_PLUS else []
