"""A Spark application that outlives the process that started it, wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from airflow_delta_merge.launch.cluster_mode import ClusterMode
from airflow_delta_merge.launch.spark_application import ApplicationEnd, SparkApplication


class StartedApplication(ABC):
    """A Spark application that a triggerer follows, and that the triggerer or the task ends.

    :cvar kind: the name of the subclass in :meth:`to_dict`.
    :ivar application: the Spark application; None until Spark reports it.
    :ivar cluster_mode: how its driver runs on the cluster, from where the result is fetched; None if it runs here.
    """

    kind: ClassVar[str]
    application: SparkApplication | None
    cluster_mode: ClusterMode | None

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The data to find it again, in JSON types and without secrets."""

    @abstractmethod
    def poll(self) -> tuple[list[str], ApplicationEnd | None]:
        """Check it once.

        :return: new lines for the task's log, masked, and how it ended, once there are no more lines; None while it
            runs.
        """

    @abstractmethod
    def runs(self) -> bool:
        """Whether it still runs, as far as known."""

    @abstractmethod
    def kill(self) -> None:
        """End it, if it still runs, and remove its files from this machine.

        :raises DeltaMergeError: when it can't be ended from here.
        """

    @abstractmethod
    def mask_secrets(self) -> None:
        """Make Airflow mask the same secrets in this process as in the process that started the application."""

    @abstractmethod
    def __str__(self) -> str:
        """Where it runs, for the task's log."""
