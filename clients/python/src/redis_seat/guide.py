"""The client of the integration guide, by its names, on the pool's commands.

A program that was written by the guide changes the import alone::

    from redis_seat.guide import redis_client, RedisUnavailableError, RedisSeatAcquisitionError

Each method is one command. There is nothing to clean up and no script to load any more; the methods
for that are here so that their callers run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, TypeVar

import redis

from redis_seat.commands import SeatCommands, SyncClient
from redis_seat.driver import Driver, client_options
from redis_seat.wire import Call, Metadata

T = TypeVar("T")

DEFAULT_URL = "redis://localhost:6379/0"
_TIMEOUT = 5.0
_PING = Call(("PING",), bool)


class RedisUnavailableError(Exception):
    """The server cannot be reached, or does not serve now."""


class RedisSeatAcquisitionError(Exception):
    """No seat is free."""


class RedisSeatClient:
    """The guide's client.

    :param redis_url: where the server is. Unless given, Django's ``REDIS_URL``, the environment
        variable of this name, or ``redis://localhost:6379/0``, when it is first needed.
    :param client: a client to use instead.
    """

    def __init__(self, redis_url: str | None = None, *, client: SyncClient | None = None) -> None:
        self._redis_url = redis_url
        self._given_client = client

    def acquire_seat(
        self,
        license_id: str,
        session_id: str,
        max_seats: int,
        metadata: Metadata | None = None,
        ttl_seconds: float = 360,
    ) -> tuple[Literal["success"], int, int]:
        """Take a seat: ``("success", seats_used, seats_remaining)``.

        :raises RedisSeatAcquisitionError: all seats are taken.
        :raises RedisUnavailableError: the server cannot be reached.
        """
        answer = self._ask(
            lambda seats: seats.acquire(
                license_id, session_id, max_seats, metadata, lease=ttl_seconds
            )
        )
        if not answer:
            raise RedisSeatAcquisitionError(f"No seats available: all {max_seats} are taken")
        return "success", answer.used, max(max_seats - answer.used, 0)

    def refresh_heartbeat(
        self, license_id: str, session_id: str, ttl_seconds: int = 360
    ) -> tuple[Literal["success", "expired"], int]:
        """Renew the session: ``("success", ttl_seconds)``, or ``("expired", 0)``: it has no seat.

        :raises RedisUnavailableError: the server cannot be reached.
        """
        answer = self._ask(lambda seats: seats.heartbeat(license_id, session_id, lease=ttl_seconds))
        return ("success", ttl_seconds) if answer else ("expired", 0)

    def release_seat(
        self, license_id: str, session_id: str
    ) -> tuple[Literal["success", "not_found"], int]:
        """Give the seat back: ``("success", seats_used)``, or ``("not_found", seats_used)``.

        :raises RedisUnavailableError: the server cannot be reached.
        """
        answer = self._ask(lambda seats: seats.release(license_id, session_id))
        if answer.used is not None:
            return "success", answer.used
        return "not_found", self._ask(lambda seats: seats.count(license_id))

    def get_active_sessions(self, license_id: str) -> tuple[int, list[str]]:
        """``(seats_used, session_ids)``.

        :raises RedisUnavailableError: the server cannot be reached.
        """
        sessions = self._ask(lambda seats: seats.sessions(license_id))
        return len(sessions), sessions

    def cleanup_expired_sessions(self, license_id: str) -> tuple[int, int]:
        """``(cleaned, remaining)``. The server does it by itself, so mostly it has cleaned none.

        :raises RedisUnavailableError: the server cannot be reached.
        """
        answer = self._ask(lambda seats: seats.cleanup(license_id))
        return answer.cleaned, answer.remaining

    def is_available(self) -> bool:
        """Whether the server answers."""
        try:
            self._ping()
        except RedisUnavailableError:
            return False
        return True

    def health_check(self) -> dict[str, Any]:
        """``status``, ``healthy`` or ``unhealthy``, with ``latency_ms`` or ``error``."""
        start = time.perf_counter()
        try:
            self._ping()
        except RedisUnavailableError as error:
            return {"status": "unhealthy", "error": str(error)}
        return {"status": "healthy", "latency_ms": (time.perf_counter() - start) * 1000}

    def _load_scripts(self) -> None:
        """The guide says to call it after a NOSCRIPT error. There are no scripts to be lost."""
        self._ping()

    def _ping(self) -> None:
        self._ask(lambda seats: seats.run(_PING))

    @cached_property
    def _client(self) -> SyncClient:
        if self._given_client is not None:
            return self._given_client
        url = self._redis_url or _configured_url()
        return redis.Redis.from_url(url, **client_options(_TIMEOUT))

    @cached_property
    def _seats(self) -> SeatCommands:
        return SeatCommands(self._client)

    def _ask(self, ask: Callable[[SeatCommands], T]) -> T:
        try:
            return ask(self._seats)
        except Exception as error:
            if Driver(self._client).is_unavailable(error):
                raise RedisUnavailableError(str(error)) from error
            raise


def _configured_url() -> str:
    django = sys.modules.get("django.conf")
    if django is not None and django.settings.configured:
        url: str | None = getattr(django.settings, "REDIS_URL", None)
        if url is not None:
            return url
    return os.environ.get("REDIS_URL", DEFAULT_URL)


#: The one that the guide imports. It connects when it is first used.
redis_client = RedisSeatClient()
