"""The three scripts of the architecture decision record, for servers that load no modules.

They count the sessions in two keys of their own, ``license:<key>:active_sessions`` and
``license:<key>:session_metadata``. They know no lease: a session that is not released stays. On a
server with the module and the settings of its ``redis.conf``, the same calls count in the pool at
``key``, so whoever moves later changes the server alone. **Never use them beside the commands on a
server without these settings**: two counts of the same seats overbook. In a cluster they do not
work, since a script may only use the keys that it names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, Generic, TypeVar

from redis_seat import wire
from redis_seat.commands import AsyncClient, SyncClient
from redis_seat.driver import Driver
from redis_seat.results import Acquired, Heartbeat, Release
from redis_seat.steps import Steps, drive, drive_async
from redis_seat.wire import Argument, Metadata, Name

T = TypeVar("T")


class _Script:
    def __init__(self, name: str) -> None:
        lua = resources.files("redis_seat").joinpath("lua").joinpath(f"{name}.lua")
        self.text = lua.read_text(encoding="utf-8")
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_ACQUIRE = _Script("acquire_seat")
_HEARTBEAT = _Script("update_heartbeat")
_RELEASE = _Script("release_seat")


@dataclass(frozen=True, slots=True)
class _Run(Generic[T]):
    script: _Script
    args: tuple[Argument, ...]
    decode: Callable[[Any], T]


def _acquire(
    key: Name, session: Name, seats: int, metadata: Metadata | None = None
) -> _Run[Acquired]:
    call = wire.acquire(key, session, seats, metadata or {})
    return _Run(_ACQUIRE, call.args[1:], call.decode)


def _heartbeat(key: Name, session: Name) -> _Run[Heartbeat]:
    call = wire.heartbeat(key, session)
    # What the script takes here it does not look at.
    return _Run(_HEARTBEAT, (*call.args[1:], "{}"), call.decode)


def _release(key: Name, session: Name) -> _Run[Release]:
    call = wire.release(key, session)
    return _Run(_RELEASE, call.args[1:], call.decode)


def _steps(run: _Run[T], driver: Driver) -> Steps[T]:
    """The port is a client."""
    key, *args = run.args
    try:
        reply = yield lambda client: client.execute_command(
            "EVALSHA", run.script.sha, 1, key, *args
        )
    except driver.no_script_error:
        reply = yield lambda client: client.execute_command("EVAL", run.script.text, 1, key, *args)
    return run.decode(reply)


class ScriptSeats:
    """``acquire``, ``heartbeat`` and ``release`` by the scripts, with the results of the commands'
    methods of these names."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._driver = Driver(client)

    def acquire(
        self, key: Name, session: Name, seats: int, metadata: Metadata | None = None
    ) -> Acquired:
        return self._run(_acquire(key, session, seats, metadata))

    def heartbeat(self, key: Name, session: Name) -> Heartbeat:
        return self._run(_heartbeat(key, session))

    def release(self, key: Name, session: Name) -> Release:
        return self._run(_release(key, session))

    def _run(self, run: _Run[T]) -> T:
        return drive(_steps(run, self._driver), self._client)


class AsyncScriptSeats:
    """The same for an asyncio client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._driver = Driver(client)

    async def acquire(
        self, key: Name, session: Name, seats: int, metadata: Metadata | None = None
    ) -> Acquired:
        return await self._run(_acquire(key, session, seats, metadata))

    async def heartbeat(self, key: Name, session: Name) -> Heartbeat:
        return await self._run(_heartbeat(key, session))

    async def release(self, key: Name, session: Name) -> Release:
        return await self._run(_release(key, session))

    async def _run(self, run: _Run[T]) -> T:
        return await drive_async(_steps(run, self._driver), self._client)
