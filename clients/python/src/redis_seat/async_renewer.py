"""The tasks of an asyncio pool: one sends heartbeats, one looks for losses meanwhile."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from redis_seat.line import AsyncLine
from redis_seat.renewal import Renewal
from redis_seat.results import Release
from redis_seat.seat import log
from redis_seat.steps import drive_async, sleep_until
from redis_seat.terms import Terms
from redis_seat.wire import Call

if TYPE_CHECKING:
    from redis_seat.async_pool import AsyncSeat

# What a task does at each turn; how many seconds until the next one.
Turn = Callable[["AsyncRenewer"], Awaitable[float]]


class _Worker:
    """A task that runs while its renewer has seats. It holds the renewer only while it works."""

    def __init__(
        self, name: str, make_turn: Callable[[], tuple[Turn, Callable[[], Awaitable[None]]]]
    ) -> None:
        self._name = name
        self._make_turn = make_turn
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def ensure(self, renewer: AsyncRenewer) -> None:
        """Have it running, and look at once."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(weakref.ref(renewer)), name=self._name)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        self._closed = True
        self._wake.set()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def _run(self, reference: weakref.ref[AsyncRenewer]) -> None:
        turn, cleanup = self._make_turn()
        try:
            while (pause := await self._turn(turn, reference)) is not None:
                await sleep_until(self._wake, pause)
                self._wake.clear()
        finally:
            await cleanup()

    async def _turn(self, turn: Turn, reference: weakref.ref[AsyncRenewer]) -> float | None:
        renewer = reference()
        if renewer is None or self._closed or renewer.renewal.is_idle():
            self._task = None
            return None
        return max(await turn(renewer), 0.0)


class AsyncRenewer:
    """Keeps the seats of one pool in one event loop."""

    def __init__(self, client: Any, terms: Terms) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.renewal: Renewal[AsyncSeat] = Renewal(terms)
        self.callbacks: set[asyncio.Future[Any]] = set()
        self._sender = _Worker("redis_seat heartbeats", lambda: _sending(client, terms))
        self._watcher = _Worker("redis_seat losses", lambda: (_watch, _nothing))
        for worker in (self._sender, self._watcher):
            weakref.finalize(self, _wake, self.loop, worker).atexit = False

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to another loop, or to another process."""
        return self.pid != os.getpid() or self.loop is not asyncio.get_running_loop()

    def add(self, seat: AsyncSeat) -> None:
        self.renewal.add(seat)
        self._sender.ensure(self)
        self._watcher.ensure(self)

    def remove(self, seat: AsyncSeat) -> None:
        self.renewal.remove(seat)

    def give_back(self, call: Call[Release]) -> None:
        self.renewal.give_back(call)
        self._sender.ensure(self)

    def look(self) -> None:
        """Have the watcher look for losses now."""
        self._watcher.wake()

    async def close(self) -> None:
        await self._sender.close()
        await self._watcher.close()


def _wake(loop: asyncio.AbstractEventLoop, worker: _Worker) -> None:
    # The collector may run in any thread, and after the loop was closed.
    if not loop.is_closed():
        loop.call_soon_threadsafe(worker.wake)


async def _nothing() -> None:
    pass


def _sending(client: Any, terms: Terms) -> tuple[Turn, Callable[[], Awaitable[None]]]:
    line = AsyncLine(client, terms.key)

    async def turn(renewer: AsyncRenewer) -> float:
        pause = await drive_async(renewer.renewal.turn(), line)
        renewer.look()
        return pause

    return turn, line.close


async def _watch(renewer: AsyncRenewer) -> float:
    for seat in renewer.renewal.take_lost():
        log.warning("the seat of %s is lost", seat.session)
        seat.announce()
        if seat.on_lost is not None:
            # In a task of its own, so that none holds up the next loss.
            callback = asyncio.ensure_future(_call(seat))
            renewer.callbacks.add(callback)
            callback.add_done_callback(renewer.callbacks.discard)
    return renewer.renewal.until_loss()


async def _call(seat: AsyncSeat) -> None:
    try:
        outcome = seat.on_lost(seat) if seat.on_lost is not None else None
        if asyncio.iscoroutine(outcome):
            await outcome
    except Exception:
        log.exception("on_lost of %s failed", seat.session)
