"""A YARN of this machine's own, of one node: a ResourceManager and a NodeManager as processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil
import pyspark

from airflow_delta_merge.runtime.jars import MAVEN_CENTRAL, MAVEN_VARIABLE
from scripts.real_airflow import free_port
from tests.cluster.processes import stop
from tests.cluster.standalone import SECONDS_TO_START
from tests.waiting import wait_until

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
JARS = Path(__file__).parents[2] / ".cache" / "yarn"
# The servers of the Hadoop that PySpark brings the clients of, and what the ResourceManager makes certificates with.
SHA256_OF_JAR = {
    "org/apache/hadoop/hadoop-client-minicluster/3.5.0/hadoop-client-minicluster-3.5.0.jar": (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
    "org/bouncycastle/bcprov-jdk18on/1.82/bcprov-jdk18on-1.82.jar": (
        "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce"
    ),
    "org/bouncycastle/bcpkix-jdk18on/1.82/bcpkix-jdk18on-1.82.jar": (
        "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63"
    ),
    "org/bouncycastle/bcutil-jdk18on/1.82/bcutil-jdk18on-1.82.jar": (
        "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d"
    ),
}
_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_STATE_STORE = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
_JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Yarn:
    """A YARN whose containers run as this user, without limits but those of memory as a whole.

    :param folder: for its settings, logs and containers; also the home of those who submit (``staging``).
    :ivar conf_folder: what ``HADOOP_CONF_DIR`` shall be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf_folder = folder / "conf"
        self._web_port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._resource_manager: subprocess.Popen[bytes] | None = None

    @property
    def web_address(self) -> str:
        return f"http://127.0.0.1:{self._web_port}"

    def start(self) -> None:
        self._write_conf()
        self.start_resource_manager()
        self._run(_NODE_MANAGER)
        wait_until(lambda: (self.ask("metrics") or {})["clusterMetrics"]["activeNodes"] == 1, SECONDS_TO_START)

    def start_resource_manager(self) -> None:
        self._resource_manager = self._run(_RESOURCE_MANAGER)
        wait_until(lambda: self.ask("metrics") is not None, SECONDS_TO_START)

    def kill_resource_manager(self) -> None:
        """Kill it; another one recovers what it knew of applications, which go on."""
        assert self._resource_manager is not None
        self._resource_manager.kill()
        self._resource_manager.wait()

    def ask(self, what: str) -> dict[str, Any] | None:
        """What the ResourceManager's REST API answers; None when it doesn't."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(OSError), opener.open(f"{self.web_address}/ws/v1/cluster/{what}", timeout=10) as answer:
            return dict(json.load(answer))
        return None

    def applications(self, name: str) -> list[dict[str, Any]]:
        """All applications of that name that ever were, the first one first."""
        reported = (self.ask("apps") or {}).get("apps") or {}
        found = [app for app in reported.get("app", ()) if app["name"] == name]
        return sorted(found, key=lambda app: int(app["startedTime"]))

    def containers(self) -> list[psutil.Process]:
        """The processes in containers."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(f"{self.folder}/containers"):
                    found.append(process)
        return found

    def logs(self, application: str) -> str:
        """What the containers of an application have printed."""
        return "".join(path.read_text() for path in sorted(self.folder.glob(f"logs/{application}/*/std*")))

    def stop(self) -> None:
        stop(self.processes)
        for container in self.containers():
            container.kill()

    def _run(self, main_class: str) -> subprocess.Popen[bytes]:
        class_path = ":".join([str(self.conf_folder), *map(str, jars()), f"{SPARK_JARS}/*"])
        log_settings = f"-Dlog4j2.configurationFile={self.conf_folder / 'log4j2.properties'}"
        with (self.folder / "cluster.log").open("ab") as log:
            command = ["java", *_JAVA_OPTIONS, log_settings, "-cp", class_path, main_class]
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def _write_conf(self) -> None:
        for name in ("conf", "containers", "logs", "staging", "state"):
            (self.folder / name).mkdir()
        _write(self.conf_folder / "yarn-site.xml", self._yarn_site())
        _write(self.conf_folder / "core-site.xml", {"fs.defaultFS": "file:///"})
        queues = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 1.0,  # else drivers have a tenth of a small node
        }
        _write(self.conf_folder / "capacity-scheduler.xml", queues)
        (self.conf_folder / "log4j2.properties").write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.console.ref = console\nappender.console.type = Console\n"
            "appender.console.name = console\nappender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
        )

    def _yarn_site(self) -> dict[str, object]:
        resource_manager = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        node_manager = ("address", "localizer.address", "webapp.address")
        return {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.bind-host": "127.0.0.1",
            **{f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port()}" for name in resource_manager},
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{self._web_port}",
            "yarn.resourcemanager.recovery.enabled": True,
            "yarn.resourcemanager.store.class": _STATE_STORE,
            "yarn.resourcemanager.fs.state-store.uri": (self.folder / "state").as_uri(),
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.bind-host": "127.0.0.1",
            **{f"yarn.nodemanager.{name}": f"127.0.0.1:{free_port()}" for name in node_manager},
            "yarn.nodemanager.resource.memory-mb": 6144,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.scheduler.minimum-allocation-mb": 256,
            "yarn.nodemanager.vmem-check-enabled": False,
            "yarn.nodemanager.pmem-check-enabled": False,
            "yarn.nodemanager.local-dirs": self.folder / "containers",
            "yarn.nodemanager.log-dirs": self.folder / "logs",
            "yarn.nodemanager.delete.debug-delay-sec": 600,  # so that logs can be read after an application's end
            # A nearly full disk of a developer's is no reason to run nothing.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
        }


def _write(path: Path, properties: Mapping[str, object]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{escape(_text(value))}</value></property>"
        for name, value in properties.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def jars() -> list[Path]:
    """The jars that PySpark lacks for YARN's servers, fetched and checked where they are missing."""
    JARS.mkdir(parents=True, exist_ok=True)
    return [_fetched(artifact, sha256) for artifact, sha256 in SHA256_OF_JAR.items()]


def _fetched(artifact: str, sha256: str) -> Path:
    path = JARS / artifact.rpartition("/")[2]
    if not path.exists():
        base = os.environ.get(MAVEN_VARIABLE, "").strip() or MAVEN_CENTRAL
        temporary = path.with_suffix(f".{os.getpid()}")
        with urllib.request.urlopen(f"{base.rstrip('/')}/{artifact}", timeout=60) as response:
            temporary.write_bytes(response.read())
        temporary.replace(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == sha256, f"{path} is not the jar it should be: its SHA-256 is {found}"
    return path


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """A YARN that runs."""
    cluster = Yarn(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
