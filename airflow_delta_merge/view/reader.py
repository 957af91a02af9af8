"""What the signed-in user may read, by Airflow's auth manager."""

from __future__ import annotations

from functools import cached_property

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel


class Reader:
    """A signed-in user, for one request.

    :param user: the user, as Airflow knows them.
    """

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._answers: dict[tuple[str, DagAccessEntity], bool] = {}

    @cached_property
    def dag_ids(self) -> frozenset[str]:
        """The DAGs that the user may read."""
        return frozenset(get_auth_manager().get_authorized_dag_ids(user=self._user, method="GET"))

    @cached_property
    def may_read_assets(self) -> bool:
        return bool(get_auth_manager().is_authorized_asset(method="GET", user=self._user))

    def may_read(self, dag_id: str, what: DagAccessEntity) -> bool:
        """Whether the user may read, of a DAG, for example its task instances."""
        if dag_id not in self.dag_ids:
            return False
        if (dag_id, what) not in self._answers:
            self._answers[dag_id, what] = bool(
                get_auth_manager().is_authorized_dag(
                    method="GET", access_entity=what, details=_details(dag_id), user=self._user
                )
            )
        return self._answers[dag_id, what]


def _details(dag_id: str) -> DagDetails:
    if not hasattr(DagModel, "get_team_name"):  # Airflow 3.1 has no teams
        return DagDetails(id=dag_id)
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
