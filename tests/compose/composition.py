"""The services of the compose file as processes, started, looked at and stopped as the file says."""

from __future__ import annotations

import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.compose.compose_file import ROOT, Dockerfile, Service
from tests.compose.container import Container, make_base

#: How often a service is asked; how long it may be ill says the file.
_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_TO_STOP = 60.0  # on a busy machine; Docker kills after 10
#: The one setting that the file doesn't have: all live some minutes, before Java's second compiler pays off.
_FOR_A_SHORT_LIFE = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
POSTGRES = Path(__file__).with_name("postgres.sh")
POSTGRES_PROGRAMS = Path("/usr/lib/postgresql")


class CompositionError(Exception):
    """The services don't do what they should; the message says which one and why."""


class Composition:
    """The services of a compose file.

    :param services: by their names.
    :param images: the folder of the images, by the names of the Dockerfiles' folders.
    :param folder: for volumes, containers and logs.
    :param say: gets a line for each thing that happens.
    """

    def __init__(self, services: Mapping[str, Service], images: Path, folder: Path, say: Callable[[str], None]) -> None:
        self.services = services
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._images = images
        self._say = say
        self._containers: dict[str, Container] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._healthy: set[str] = set()
        self._started: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def volume(self, name: str) -> Path:
        return self.folder / "volumes" / name

    def root(self, service: str) -> Path:
        return self.folder / "containers" / service

    def start(self) -> None:
        """Start all services, each when those that it depends on are as the file wants them; all are well then.

        :raises CompositionError: when one isn't.
        """
        waiting = dict(self.services)
        while waiting or not all(map(self._is_settled, self.services.values())):
            for service in [each for each in waiting.values() if self._may_start(each)]:
                self.start_service(service.name)
                del waiting[service.name]
            self._look()
            time.sleep(0.5)

    def start_service(self, name: str) -> None:
        service = self.services[name]
        if name not in self._containers:
            self._containers[name] = self._make(service)
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = self._containers[name].start(self._command(service), log)
        self._started[name] = time.monotonic()
        self._failures[name] = 0

    def wait_for(self, name: str) -> None:
        """Wait until a service that was started is well."""
        while not self._is_settled(self.services[name]):
            self._look()
            time.sleep(0.5)

    def check(self) -> None:
        """Look whether all services still run.

        :raises CompositionError: when one has ended that should not have.
        """
        for name, process in self._processes.items():
            if process.poll() not in (None, 0) or (process.poll() == 0 and self.services[name].health):
                raise CompositionError(f"{name} ended with exit code {process.returncode}:\n{self._tail(name)}")

    def stop_service(self, name: str) -> None:
        """End a service as Docker does; it must end by itself.

        :raises CompositionError: when it must be killed.
        """
        process = self._processes.pop(name)
        self._healthy.discard(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CompositionError(f"{name} doesn't end by SIGTERM within {_SECONDS_TO_STOP:.0f} s.") from None

    def stop(self) -> None:
        """End all services, those that others depend on last."""
        for name in reversed(list(self._processes)):
            self.stop_service(name)

    def _may_start(self, service: Service) -> bool:
        return all(self._is(other, condition) for other, condition in service.depends_on.items())

    def _is(self, name: str, condition: str) -> bool:
        process = self._processes.get(name)
        if process is None:
            return False
        if condition == "service_completed_successfully":
            return process.poll() == 0
        return condition == "service_started" or name in self._healthy

    def _is_settled(self, service: Service) -> bool:
        return self._is(service.name, "service_healthy" if service.health else "service_completed_successfully")

    def _look(self) -> None:
        self.check()
        for name in list(self._processes):
            if self.services[name].health and name not in self._healthy:
                self._ask(name)

    def _ask(self, name: str) -> None:
        health = self.services[name].health
        assert health is not None
        since = time.monotonic() - self._started[name]
        if since < _SECONDS_BETWEEN_LOOKS * (self._failures[name] + 1):
            return
        path = self.logs / f"{name}.health"
        with path.open("wb") as output:
            asking = self._containers[name].start(health.test, output)
            try:
                is_well = asking.wait(health.timeout) == 0
            except subprocess.TimeoutExpired:
                asking.kill()
                is_well = False
        if is_well:
            self._healthy.add(name)
            self._say(f"{name} is healthy, {since:.0f} s after its start")
            return
        self._failures[name] += 1
        if since > health.start_period + health.interval * health.retries:
            raise CompositionError(f"{name} is unhealthy: {path.read_text()[-1000:]}\n{self._tail(name)}")

    def _tail(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return (self.logs / f"{name}.log").read_text(errors="replace")[-3000:]
        return ""

    def _make(self, service: Service) -> Container:
        """Make a service's container: the image's files, its volumes, its hosts, its user."""
        root = self.root(service.name)
        root.mkdir(parents=True)
        if service.dockerfile is None:
            container = self._make_postgres(service, root)
        else:
            image = self._images / Path(service.dockerfile).parent.name
            told = Dockerfile.read(ROOT / service.dockerfile)
            for path in image.iterdir():
                if path.name != "opt":  # which is large, and nobody's to change
                    subprocess.run(["/bin/cp", "-a", path, root], check=True)
            container = Container(
                root=root,
                mounts=[(image / "opt", "/opt"), *self._mounts(service, image)],
                environment={"HOME": "/home/lake", **told.environment, **_FOR_A_SHORT_LIFE, **service.environment},
                user=told.user,
                folder=told.folder,
                hostname=service.hostname,
            )
        hosts = ["127.0.0.1 localhost", *(f"127.0.0.1 {name}" for name in self.services)]
        (root / "etc/hosts").write_text("\n".join(hosts) + "\n")
        return container

    def _mounts(self, service: Service, image: Path | None) -> list[tuple[Path, str]]:
        mounts = []
        for source, target in service.volumes:
            if source.startswith("."):
                mounts.append((ROOT / source, target))
                continue
            volume = self.volume(source)
            if not volume.exists():
                volume.parent.mkdir(exist_ok=True)
                at_first = (image or Path("/nowhere")) / target.lstrip("/")
                if at_first.is_dir():  # a new volume takes what the image has there, and its owner
                    subprocess.run(["/bin/cp", "-a", at_first, volume], check=True)
                else:
                    volume.mkdir()
            mounts.append((volume, target))
        return mounts

    def _make_postgres(self, service: Service, root: Path) -> Container:
        """The container of an image that isn't made here but Postgres' own, for which Debian's stands."""
        name, _, tag = service.image.partition(":")
        programs = POSTGRES_PROGRAMS / tag.split(".")[0] / "bin"
        if name != "postgres" or not programs.is_dir():
            raise CompositionError(f"{service.image} can't be had here, nor does {programs} stand for it.")
        make_base(root)
        shutil.copy(POSTGRES, root / "postgres.sh")
        user = pwd.getpwnam("postgres")
        container = Container(
            root=root,
            mounts=self._mounts(service, None),
            environment={"PATH": f"{programs}:/usr/bin:/bin", **service.environment},
            user=(user.pw_uid, user.pw_gid),
            hostname=service.hostname,
        )
        for volume, _ in container.mounts:
            shutil.chown(volume, user.pw_uid, user.pw_gid)
        return container

    def _command(self, service: Service) -> list[str]:
        return service.command if service.dockerfile else ["/postgres.sh"]
