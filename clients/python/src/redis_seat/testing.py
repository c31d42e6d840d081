"""A server with the module, for the tests of an application.

In ``conftest.py``::

    pytest_plugins = ["redis_seat.testing"]

and a test that takes ``seat_server`` has a server that lives as long as the test run::

    def test_it(seat_server):
        pool = SeatPool.from_url(seat_server.url, "license:acme", 5)

The server is ``REDIS_SERVER``, or a ``redis-server`` or ``valkey-server`` on the ``PATH``; the
module is ``REDIS_SEAT_MODULE``, or where its installation puts it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

_PLACES = (
    "/usr/lib/redis/modules/libredis_seat.so",
    "/usr/local/lib/redis/modules/libredis_seat.so",
)
_START_SECONDS = 20.0


class SeatServer:
    """A private server on a port of its own, with its files in a folder of its own.

    It starts at once, empty, and keeps nothing when it has been stopped; a context manager.

    :param module: the path of the module; an empty one is a server without it.
    :param server: the path of the server.
    :param options: settings of ``redis.conf``, such as ``{"appendonly": "yes"}``.
    :param module_arguments: settings of the module, such as ``"lease-grace 0"``.
    :raises FileNotFoundError: there is no server, or no module.
    """

    def __init__(
        self,
        *,
        module: str | None = None,
        server: str | None = None,
        options: Mapping[str, str] | None = None,
        module_arguments: str = "",
    ) -> None:
        self._server = server or _find_server()
        self._module = _find_module() if module is None else module
        self._options = dict(options or {})
        self._module_arguments = module_arguments.split()
        self._folder = tempfile.TemporaryDirectory(prefix="redis-seat-")
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start_first()
        except BaseException:
            self._folder.cleanup()
            raise

    @property
    def url(self) -> str:
        """Where it is, as ``from_url`` of a client takes it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, again after :meth:`kill`, with what it had kept by then."""
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": self._folder.name,
            "logfile": str(self._files / "log"),
            "save": "",
            **self._options,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        if self._module:
            words += ["--loadmodule", self._module, *self._module_arguments]
        with (self._files / "out").open("wb") as out:
            self._process = subprocess.Popen(
                [self._server, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a test run ends the tests first, and they end the server.
                start_new_session=True,
            )
        self._wait()

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it from answering, as a machine that hangs."""
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on."""
        self._running.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and remove its files."""
        if self._process is not None:
            self.thaw()
            self._end(signal.SIGTERM)
        self._folder.cleanup()

    def __enter__(self) -> SeatServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_first(self) -> None:
        """On another port if somebody has taken it since it was looked for."""
        for _ in range(5):
            try:
                self.start()
            except RuntimeError as error:
                if "Address already in use" not in str(error):
                    raise
                self.port = _free_port()
            else:
                return
        self.start()

    @property
    def _files(self) -> Path:
        return Path(self._folder.name)

    def _said(self) -> str:
        files = (self._files / name for name in ("out", "log"))
        return "".join(file.read_text() for file in files if file.exists())

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._running, None
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        options: dict[str, Any] = {"socket_timeout": 1, "retry": Retry(NoBackoff(), 0)}
        with redis.Redis(port=self.port, **options) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError as error:
                    if self._running.poll() is not None or time.monotonic() > end:
                        self._end(signal.SIGKILL)
                        message = f"{self._server} does not start: {self._said() or error}"
                        raise RuntimeError(message) from error
                time.sleep(0.01)


@pytest.fixture(scope="session")
def seat_server() -> Iterator[SeatServer]:
    """A server with the module, for the whole test run."""
    with SeatServer() as server:
        yield server


def _find_server() -> str:
    named = os.environ.get("REDIS_SERVER")
    found = named or shutil.which("redis-server") or shutil.which("valkey-server")
    if not found:
        raise FileNotFoundError("no redis-server on the PATH: name one in REDIS_SERVER")
    return found


def _find_module() -> str:
    named = os.environ.get("REDIS_SEAT_MODULE")
    found = named or next((place for place in _PLACES if os.path.exists(place)), None)
    if not found:
        raise FileNotFoundError(
            "no libredis_seat.so: name it in REDIS_SEAT_MODULE; the README of redis-seat says "
            "where to get it"
        )
    return found


def _free_port() -> int:
    """Below those that systems give to clients, so that it stays free while a server restarts. With
    that of the second port of a cluster's node, 10,000 above, it is the same."""
    while True:
        port = 10_000 + secrets.randbelow(10_000)
        if all(map(_is_free, (port, port + 10_000))):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
