"""The commands on a client of the caller's: sync and async."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from redis_seat import wire
from redis_seat.driver import Driver, is_async
from redis_seat.errors import ModuleMissing, QueueFull
from redis_seat.wire import Call

P = ParamSpec("P")
T = TypeVar("T")


class SyncClient(Protocol):
    """``redis.Redis``, ``redis.RedisCluster``, one of a Sentinel's, or the same of valkey-py."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class AsyncClient(Protocol):
    """The asyncio twin of a :class:`SyncClient`."""

    def execute_command(self, *args: Any, **options: Any) -> Awaitable[Any]: ...


def _method(
    encode: Callable[P, Call[T]],
) -> Callable[Concatenate[SeatCommands, P], T]:
    @functools.wraps(encode)
    def method(self: SeatCommands, /, *args: P.args, **options: P.kwargs) -> T:
        return self.run(encode(*args, **options))

    return _with_self(method, encode)


def _async_method(
    encode: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncSeatCommands, P], Coroutine[Any, Any, T]]:
    @functools.wraps(encode)
    async def method(self: AsyncSeatCommands, /, *args: P.args, **options: P.kwargs) -> T:
        return await self.run(encode(*args, **options))

    return _with_self(method, encode)


M = TypeVar("M", bound=Callable[..., Any])


def _with_self(method: M, encode: Callable[..., Any]) -> M:
    """What help() shows of the method: the arguments of the function, with a self before them."""
    shown = inspect.signature(encode)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = shown.replace(
        parameters=[self, *shown.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


class SeatCommands:
    """One method for each public command; what they take and return is in :mod:`redis_seat.wire`.

    Errors of the client pass through, apart from :class:`~redis_seat.QueueFull` and
    :class:`~redis_seat.ModuleMissing`. Nothing is registered on the client.
    """

    def __init__(self, client: SyncClient) -> None:
        self._driver = Driver(client)
        if is_async(client):
            raise TypeError("SeatCommands needs a sync client; AsyncSeatCommands takes this one")
        self._client = client

    def run(self, call: Call[T]) -> T:
        """Carry out a call of :mod:`redis_seat.wire`."""
        with _translated(self._driver):
            reply = self._client.execute_command(*call.args)
        return call.decode(reply)

    acquire = _method(wire.acquire)
    heartbeat = _method(wire.heartbeat)
    release = _method(wire.release)
    count = _method(wire.count)
    sessions = _method(wire.sessions)
    sessions_metadata = _method(wire.sessions_metadata)
    holders = _method(wire.holders)
    scan = _method(wire.scan)
    scan_metadata = _method(wire.scan_metadata)
    scan_holders = _method(wire.scan_holders)
    get = _method(wire.get)
    holder = _method(wire.holder)
    owners = _method(wire.owners)
    info = _method(wire.info)
    pttl = _method(wire.pttl)
    cleanup = _method(wire.cleanup)
    revoke = _method(wire.revoke)
    revoke_owner = _method(wire.revoke_owner)
    resize = _method(wire.resize)
    queue = _method(wire.queue)
    position = _method(wire.position)
    import_sessions = _method(wire.import_sessions)
    export_sessions = _method(wire.export_sessions)


class AsyncSeatCommands:
    """The same as :class:`SeatCommands`, to be awaited."""

    def __init__(self, client: AsyncClient) -> None:
        self._driver = Driver(client)
        self._client = client

    async def run(self, call: Call[T]) -> T:
        """Carry out a call of :mod:`redis_seat.wire`."""
        with _translated(self._driver):
            reply = await self._client.execute_command(*call.args)
        return call.decode(reply)

    acquire = _async_method(wire.acquire)
    heartbeat = _async_method(wire.heartbeat)
    release = _async_method(wire.release)
    count = _async_method(wire.count)
    sessions = _async_method(wire.sessions)
    sessions_metadata = _async_method(wire.sessions_metadata)
    holders = _async_method(wire.holders)
    scan = _async_method(wire.scan)
    scan_metadata = _async_method(wire.scan_metadata)
    scan_holders = _async_method(wire.scan_holders)
    get = _async_method(wire.get)
    holder = _async_method(wire.holder)
    owners = _async_method(wire.owners)
    info = _async_method(wire.info)
    pttl = _async_method(wire.pttl)
    cleanup = _async_method(wire.cleanup)
    revoke = _async_method(wire.revoke)
    revoke_owner = _async_method(wire.revoke_owner)
    resize = _async_method(wire.resize)
    queue = _async_method(wire.queue)
    position = _async_method(wire.position)
    import_sessions = _async_method(wire.import_sessions)
    export_sessions = _async_method(wire.export_sessions)


@contextmanager
def _translated(driver: Driver) -> Iterator[None]:
    """Two errors that a caller can act on have a class of their own."""
    try:
        yield
    except driver.base_error as error:
        text = str(error).lower()
        # A client of a cluster looks the command up itself, in other words.
        if "unknown command" in text or "command doesn't exist" in text:
            raise ModuleMissing(
                "the server does not know the SEAT commands: load the module redis-seat"
            ) from error
        if "the queue of this pool is full" in text:
            raise QueueFull(str(error)) from error
        raise
