"""A pool of seats for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import redis.asyncio

from redis_seat import clock
from redis_seat.async_renewer import AsyncRenewer
from redis_seat.commands import AsyncClient, AsyncSeatCommands
from redis_seat.driver import Driver, Timeouts, client_options
from redis_seat.renewal import TICK
from redis_seat.results import Grant
from redis_seat.seat import BaseSeat, log
from redis_seat.steps import drive_async, sleep_until
from redis_seat.terms import Terms, agree, socket_timeout_for
from redis_seat.waiting import Request, acquire
from redis_seat.wire import Call, Metadata, Name

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSeat(BaseSeat):
    """A seat that is held, from :meth:`AsyncSeatPool.seat`."""

    def __init__(
        self,
        pool: AsyncSeatPool,
        session: str,
        grant: Grant,
        sent: float,
        *,
        on_lost: Callable[[AsyncSeat], object] | None,
        max_hold: float | None,
    ) -> None:
        super().__init__(pool._terms, session, grant, sent, on_lost=on_lost, max_hold=max_hold)
        self._pool = pool
        self._ended = asyncio.Event()

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Sleep until the seat is lost or released, at most ``timeout`` seconds.

        :returns: whether it is lost.
        """
        end = None if timeout is None else clock.now() + timeout
        while not (self.lost or self.is_released):
            now = clock.now()
            pause = min(TICK, self.deadline - now)
            if end is not None:
                if now >= end:
                    break
                pause = min(pause, end - now)
            await sleep_until(self._ended, max(pause, 0.0))
        return self.lost

    async def release(self) -> None:
        """Give the seat back. Does nothing if it is lost, released or another process's.

        If the server cannot be reached, the pool tries again in the background, until the lease has
        ended the seat.
        """
        await self._pool._end(self)

    def announce(self) -> None:
        """Wake those who wait for the end."""
        self._ended.set()


class AsyncSeatPool:
    """The same as :class:`SeatPool` for asyncio. A client, and so a pool, serves one event loop."""

    def __init__(
        self,
        client: AsyncClient,
        key: Name,
        seats: int,
        *,
        lease: float = 360.0,
        heartbeat_interval: float | None = None,
    ) -> None:
        self.commands = AsyncSeatCommands(client)
        self.seats = seats
        self._terms: Terms = agree(key, lease, heartbeat_interval, Timeouts(client))
        self._client = client
        self._owns_client = False
        self._driver = Driver(client)
        self._own_renewer: AsyncRenewer | None = None

    @classmethod
    def from_url(
        cls,
        url: str,
        key: Name,
        seats: int,
        *,
        lease: float = 360.0,
        heartbeat_interval: float | None = None,
        **options: Any,
    ) -> AsyncSeatPool:
        """A pool with a ``redis.asyncio.Redis`` of its own, whose time-outs fit the lease.

        :param options: more of what ``redis.asyncio.Redis.from_url`` takes.
        """
        timeouts = client_options(socket_timeout_for(lease), asynchronous=True)
        client = redis.asyncio.Redis.from_url(url, **{**timeouts, **options})
        pool = cls(client, key, seats, lease=lease, heartbeat_interval=heartbeat_interval)
        pool._owns_client = True
        return pool

    def seat(
        self,
        session: str | None = None,
        metadata: Metadata | None = None,
        *,
        wait: float | None = 0,
        weight: int = 1,
        owner: str | None = None,
        max_per_owner: int | None = None,
        takeover: bool = False,
        on_lost: Callable[[AsyncSeat], object] | None = None,
        max_hold: float | None = None,
    ) -> AsyncSeatRequest:
        """A seat for the body of an ``async with`` statement, or for each call of a decorated
        coroutine function: see :meth:`SeatPool.seat`.

        :param on_lost: called with the seat in the event loop; a coroutine function will do.
        """
        request = Request(
            session=session or "",
            named=session is not None,
            limit=lambda: self.seats,
            metadata=metadata,
            wait=wait,
            weight=weight,
            owner=owner,
            max_per_owner=max_per_owner,
            takeover=takeover,
        )
        return AsyncSeatRequest(self, request, on_lost, max_hold)

    async def aclose(self) -> None:
        """End the pool's tasks. Seats that are held are renewed no more."""
        renewer, self._own_renewer = self._own_renewer, None
        if renewer is not None and not renewer.is_foreign:
            await renewer.close()
        if self._owns_client:
            # Called so from 5.0.1 on, and close() is deprecated.
            await self._client.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> AsyncSeatPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _begin(
        self,
        request: Request,
        on_lost: Callable[[AsyncSeat], object] | None,
        max_hold: float | None,
    ) -> AsyncSeat:
        steps = acquire(request, self._terms, self._driver)
        grant, sent = await drive_async(steps, _Port(self.commands))
        seat = AsyncSeat(self, request.session, grant, sent, on_lost=on_lost, max_hold=max_hold)
        self._renewer().add(seat)
        return seat

    async def _end(self, seat: AsyncSeat) -> None:
        call = seat.end()
        if call is None:
            return
        renewer = self._renewer()
        renewer.remove(seat)
        seat.announce()
        try:
            await _to_the_end(self.commands.run(call))
        except Exception as error:
            if not self._driver.is_transient(error):
                raise
            log.warning("releasing %s failed and is tried again: %s", seat.session, error)
            renewer.give_back(call)

    def _renewer(self) -> AsyncRenewer:
        if self._own_renewer is None or self._own_renewer.is_foreign:
            self._own_renewer = AsyncRenewer(self._client, self._terms)
        return self._own_renewer


class _Port:
    """Carries out the steps of ``waiting.acquire``."""

    def __init__(self, commands: AsyncSeatCommands) -> None:
        self._commands = commands

    async def ask(self, call: Call[T]) -> T:
        return await self._commands.run(call)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def leave(self, call: Call[Any]) -> None:
        try:
            await _to_the_end(self._commands.run(call))
        except Exception as error:
            log.warning("leaving the queue failed, so the ticket ends it: %s", error)


_pending: set[asyncio.Future[Any]] = set()


async def _to_the_end(work: Awaitable[T]) -> T:
    """Await it. A task that is cancelled meanwhile leaves at once, and the work goes on."""
    future = asyncio.ensure_future(work)
    _pending.add(future)
    future.add_done_callback(_pending.discard)
    return await asyncio.shield(future)


class AsyncSeatRequest:
    """What :meth:`AsyncSeatPool.seat` returns: a context manager, and a decorator of coroutine
    functions."""

    def __init__(
        self,
        pool: AsyncSeatPool,
        request: Request,
        on_lost: Callable[[AsyncSeat], object] | None,
        max_hold: float | None,
    ) -> None:
        self._pool = pool
        self._request = request
        self._on_lost = on_lost
        self._max_hold = max_hold
        self._seat: AsyncSeat | None = None

    async def __aenter__(self) -> AsyncSeat:
        if self._seat is not None:
            raise RuntimeError("this seat is held already; ask for another with pool.seat()")
        request = self._request.begin()
        self._seat = await self._pool._begin(request, self._on_lost, self._max_hold)
        return self._seat

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        seat, self._seat = self._seat, None
        if seat is None or seat.is_foreign:
            return
        try:
            await seat.release()
        except Exception as failure:
            log.warning("releasing %s failed; the lease ends the seat: %s", seat.session, failure)
        if kind is None:
            seat.raise_if_lost()

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError("a seat of an AsyncSeatPool is for a coroutine function")

        @functools.wraps(function)
        async def with_seat(*args: P.args, **options: P.kwargs) -> T:
            async with AsyncSeatRequest(self._pool, self._request, self._on_lost, self._max_hold):
                return await function(*args, **options)

        return with_seat
