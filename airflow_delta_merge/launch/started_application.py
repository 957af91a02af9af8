"""A Spark application that goes on without the process that started it, whatever runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication


class StartedApplication(ABC):
    """Followed by a triggerer, and ended by it or by the task.

    :cvar kind: the name of the subclass in :meth:`to_dict`.
    :ivar application: the Spark application; None until Spark reports it.
    :ivar cluster_mode: how its driver runs on the cluster, from where the result is fetched; None when it runs here.
    """

    kind: ClassVar[str]
    application: SparkApplication | None
    cluster_mode: ClusterMode | None

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """How it is found again, in JSON types and without secrets."""

    @abstractmethod
    def look(self) -> tuple[list[str], ApplicationEnd | None]:
        """Look at it once.

        :return: new lines for the task's log, masked, and how it has ended once there are no more lines; None as long
            as it runs.
        """

    @abstractmethod
    def runs(self) -> bool:
        """Whether it still runs, as far as that is known."""

    @abstractmethod
    def kill(self) -> None:
        """End it, if it still runs, and leave nothing of it on this machine.

        :raises ResourceManagerError: when nobody could be asked to end it.
        """

    @abstractmethod
    def mask_secrets(self) -> None:
        """Let Airflow mask, in this process too, what it masked where the application was started."""

    @abstractmethod
    def __str__(self) -> str:
        """Where it runs, for the task's log."""
