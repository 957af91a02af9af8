"""Starts a merge by the Spark operator instead of spark-submit."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_delta_merge.config.checks import option_text
from airflow_delta_merge.exceptions import DeltaMergeError, SparkConnectionError
from airflow_delta_merge.launch.kubernetes import APPLICATION, SUBMISSION
from airflow_delta_merge.launch.spark_operator import SparkOperatorNamespace, spark_application
from airflow_delta_merge.launch.spark_submit import SparkSubmit

if TYPE_CHECKING:
    from airflow_delta_merge.launch.cluster_mode import ClusterMode
    from airflow_delta_merge.launch.staging import Staging


class SparkOperatorSubmit(SparkSubmit):
    """Creates a ``SparkApplication`` with the options and properties of spark-submit.

    The merge's files are copied next to its result, where the driver's pod finds them under the same path.
    """

    _properties: Mapping[str, str]

    def set_properties(self, staging: Staging, properties: Mapping[str, Any]) -> None:
        super().set_properties(staging, properties)
        self._properties = {name: option_text(value) for name, value in properties.items()}

    def take_secret_jars(self) -> dict[str, str]:
        """None, unless a local copy runs spark-submit: the resource names jars, and local ones are copied for it."""
        return super().take_secret_jars() if self.cluster_mode is None else {}

    def send_to_cluster(self, staging: Staging, cluster_mode: ClusterMode) -> None:
        super().send_to_cluster(staging, cluster_mode)
        # The driver's working directory doesn't have it.
        self._files = None
        self._application_args = ["--request", str(staging.request), "--result", cluster_mode.result]

    def run(self, application: str) -> int:
        """Create the resource, and return 0; the merge itself is followed through Kubernetes' API."""
        if self.cluster_mode is None:  # a local copy, which fetches the result
            return super().run(application)
        if self.killed:
            return -signal.SIGTERM
        manager = self.cluster_mode.manager
        assert isinstance(manager, SparkOperatorNamespace)
        folder = _path_of(f"{self.cluster_mode.result_folder}/uploads/{self.cluster_mode.submission}")
        for_driver = partial(_for_driver, folder)
        option, request, *arguments = list(self._application_args or [])
        try:
            folder.mkdir(parents=True)
            resource = spark_application(
                self._build_spark_common_args(),
                self._properties,
                application=application,
                arguments=[option, str(_path_of(for_driver(request))), *arguments],
                for_driver=for_driver,
                spark_version=self.spark_home.version or "",
                labels={APPLICATION: self.cluster_mode.application, SUBMISSION: self.cluster_mode.submission},
            )
            manager.create(resource)
        except OSError as error:  # the API's errors have a class of their own
            shutil.rmtree(folder, ignore_errors=True)
            raise SparkConnectionError(
                f"The merge's files can't be copied to {folder}: {error}. Check that all of them exist, and that the "
                "worker can write to the result_path of the Spark connection."
            ) from error
        except BaseException as error:
            if not isinstance(error, DeltaMergeError):  # the task's execution_timeout: the resource may exist
                self.end_on_cluster()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.log.info("Created SparkApplication %s", resource["metadata"]["name"])
        if self.killed:  # before the resource existed
            self.end_on_cluster()
        return 0


def _for_driver(folder: Path, file: str) -> str:
    """The URI by which the driver reads a file; one of this machine is copied to the folder.

    The copy is as private as the file: the request may hold secrets, and other users' executors may need the package.
    """
    if urlsplit(file).scheme not in ("", "file"):
        return file
    source = _path_of(file) if file.startswith("file:") else Path(file)
    copied = folder / source.name
    mode = source.stat().st_mode & 0o777
    with source.open("rb") as original, open(copied, "xb", opener=partial(os.open, mode=mode)) as copy:
        shutil.copyfileobj(original, copy)
    return copied.as_uri().replace("file:", "local:", 1)


def _path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))
