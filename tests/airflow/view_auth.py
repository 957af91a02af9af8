"""An auth manager for tests of pages: Airflow's simple one, in which a user's role holds for some DAGs only."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

#: The DAGs of each user who may not read all, and what they may not read of these.
DAGS_OF_USER = {"seller": {"load"}, "auditor": {"load"}}
NOT_FOR_AUDITORS = {"XCOM", "TASK_INSTANCE"}


class AuthManagerByDag(SimpleAuthManager):
    """Users named in :data:`DAGS_OF_USER` may read only these DAGs."""

    def is_authorized_dag(self, *, user: SimpleAuthManagerUser, **asked: Any) -> bool:
        dag_ids, details, entity = DAGS_OF_USER.get(user.username), asked.get("details"), asked.get("access_entity")
        if dag_ids is not None and details is not None and details.id is not None and details.id not in dag_ids:
            return False
        if user.username == "auditor" and entity is not None and entity.name in NOT_FOR_AUDITORS:
            return False
        return super().is_authorized_dag(user=user, **asked)
