"""Checks of the memory limits: the kernel knows them, and they end what exceeds them and nothing else."""

from __future__ import annotations

from tests.compose.composition import Composition
from tests.compose.machine import CheckError

_KILLED = "ended with 137"
#: The limit in control groups of version 2, else in those of version 1.
_READ_LIMIT = "cat /sys/fs/cgroup/memory.max 2> /dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
#: Takes memory without end, and is the first one to go.
_EXCEED = "echo 1000 > /proc/self/oom_score_adj && exec tail /dev/zero"


def check_limits(composition: Composition) -> str:
    """Each service has its limit, and a process that exceeds it is killed there alone.

    :raises CheckError: when not.
    """
    limits = {service: int(composition.services[service].get("mem_limit", 0)) for service in composition.running}
    started = _starts(composition)
    for service, limit in limits.items():
        known = int(composition.inspect(service)["HostConfig"]["Memory"])
        in_kernel = int(composition.run_inside(service, "sh", "-c", _READ_LIMIT))
        if not limit == known == in_kernel > 0:
            raise CheckError(f"{service} is to have {limit} bytes; Docker has {known}, and the kernel {in_kernel}.")
        _exceed(composition, service)
    if _starts(composition) != started:
        raise CheckError("A service was restarted when another process exceeded a limit.")
    composition.wait_until_healthy(*composition.running)
    return f"{len(limits)} services, {sum(limits.values()) / 2**30:.1f} GiB together"


def _exceed(composition: Composition, service: str) -> None:
    try:
        composition.run_inside(service, "sh", "-c", _EXCEED)
    except CheckError as error:
        if _KILLED not in str(error):
            raise
        return
    raise CheckError(f"A process in {service} exceeded the memory limit and ended well.")


def _starts(composition: Composition) -> dict[str, str]:
    return {service: composition.inspect(service)["State"]["StartedAt"] for service in composition.running}
