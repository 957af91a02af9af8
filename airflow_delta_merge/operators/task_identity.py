"""The identity of a running task's merge."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS

from airflow_delta_merge.contract.identity import (
    MergeIdentity,
    TaskInstanceIdentity,
    airflow_generation,
    application_id,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)


def is_of_no_scheduler(context: Context) -> bool:
    """Whether ``dag.test()`` or ``airflow tasks test`` made this run. Its start is its logical date."""
    dag_run = context.get("dag_run")
    if dag_run is None:
        return False
    start = dag_run.start_date
    return start is None or start in (dag_run.logical_date, getattr(dag_run, "run_after", None))  # Airflow 2 has none


def merge_identity(context: Context, namespace: str | None = None) -> MergeIdentity | None:
    """The identity of the current try; see :func:`~airflow_delta_merge.contract.identity.airflow_generation`.

    :param namespace: distinguishes deployments with DAGs of the same names; by default ``[delta_merge] namespace`` of
        Airflow's configuration.
    :return: None in a run that no scheduler started. It would be the same execution each time, but it should do its
        work each time.
    """
    ti, dag_run = context["ti"], context["dag_run"]
    start = dag_run.start_date
    if start is None or is_of_no_scheduler(context):
        log.info("This run was made by `dag.test()` or `airflow tasks test`, so it merges each time.")
        return None
    map_index = -1 if ti.map_index is None else ti.map_index
    identity = MergeIdentity(
        application_id=application_id(
            namespace=namespace or conf.get("delta_merge", "namespace", fallback=""),
            dag_id=ti.dag_id,
            task_id=ti.task_id,
            run_id=ti.run_id,
            map_index=map_index,
        ),
        generation=airflow_generation(
            started=start,
            clear_number=dag_run.clear_number if AIRFLOW_V_3_2_PLUS else None,
            max_tries=ti.max_tries,
        ),
        task_instance=TaskInstanceIdentity(
            dag_id=ti.dag_id,
            task_id=ti.task_id,
            run_id=ti.run_id,
            map_index=map_index,
            try_number=ti.try_number,
        ),
    )
    log.info("Merging once as %s, generation %s", identity.application_id, identity.generation)
    return identity
