"""Makes the calls of PySpark and py4j to the JVM fewer and faster; a small merge makes thousands."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyspark.errors.utils as pyspark_errors
from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import Py4JError, Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


class _RememberingClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class that looks up each static method once; py4j would ask the JVM before every call."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


def remembering(java_class: Any) -> Any:
    """The class with cached method lookups; anything else unchanged."""
    if type(java_class) is not JavaClass:
        return java_class
    return _RememberingClass(java_class._fqn, java_class._gateway_client)


class _CallSites:
    """PySpark's switch for call sites, shared by all threads. It is restored when the last thread is done."""

    _setting = "_enable_debugging_cache"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: Any = None

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Build plans without sending the Python call site of each step to the JVM.

        PySpark sends call sites for error messages about a user's DataFrame code. Here they are the engine's own lines,
        and they made up four fifths of a small merge's calls to the JVM.
        """
        with self._lock:
            if not self._users:
                self._before = getattr(pyspark_errors, self._setting, None)  # Spark 3.5 sends no call sites
            self._users += 1
            setattr(pyspark_errors, self._setting, False)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    setattr(pyspark_errors, self._setting, self._before)


without_call_sites = _CallSites().left_out


class _Prompt(threading.local):
    """The JVMs whose sockets are already configured, per thread: each thread has its own connection."""

    def __init__(self) -> None:
        self.gateways: WeakSet[Any] = WeakSet()


_prompt = _Prompt()


def answer_promptly(spark: SparkSession) -> None:
    """Make the JVM send the end of a long answer immediately.

    Py4j sends more than 8 kB in pieces. TCP holds back the last piece until Python acknowledges the earlier ones, which
    Python delays by 40 ms because it has nothing to send (Nagle's algorithm and delayed acknowledgements). Py4j has no
    setting for this, so this function sets TCP_NODELAY on its sockets. If they are not found, long answers stay slow.
    """
    gateway: Any = spark.sparkContext._gateway
    if gateway in _prompt.gateways:
        return
    _prompt.gateways.add(gateway)
    server = gateway.java_gateway_server
    try:
        connections = server.getClass().getSuperclass().getDeclaredField("connections")
        connections.setAccessible(True)
        # Other threads open and close their own meanwhile.
        opened = connections.get(server).clone()
        # Iterating over the list itself would end in an exception, which PySpark inspects at length.
        for position in range(opened.size()):
            socket = opened.get(position).getSocket()
            if socket is not None:
                with suppress(Py4JJavaError):
                    socket.setTcpNoDelay(True)
    except Py4JError:
        _log.debug("Py4j's sockets were not found. Long answers of the JVM take 40 ms longer.", exc_info=True)
