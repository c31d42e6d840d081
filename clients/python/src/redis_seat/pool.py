"""A pool of seats for threads."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import redis

from redis_seat import clock
from redis_seat.commands import SeatCommands, SyncClient
from redis_seat.driver import Driver, Timeouts, client_options
from redis_seat.renewal import TICK
from redis_seat.renewer import Renewer
from redis_seat.results import Grant
from redis_seat.seat import BaseSeat, log
from redis_seat.steps import drive
from redis_seat.terms import Terms, agree, socket_timeout_for
from redis_seat.waiting import Request, acquire
from redis_seat.wire import Call, Metadata, Name

P = ParamSpec("P")
T = TypeVar("T")


class Seat(BaseSeat):
    """A seat that is held, from :meth:`SeatPool.seat`."""

    def __init__(
        self,
        pool: SeatPool,
        session: str,
        grant: Grant,
        sent: float,
        *,
        on_lost: Callable[[Seat], object] | None,
        max_hold: float | None,
    ) -> None:
        super().__init__(pool._terms, session, grant, sent, on_lost=on_lost, max_hold=max_hold)
        self._pool = pool
        self._ended = threading.Event()

    def wait_lost(self, timeout: float | None = None) -> bool:
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
            self._ended.wait(max(pause, 0.0))
        return self.lost

    def release(self) -> None:
        """Give the seat back. Does nothing if it is lost, released or another process's.

        If the server cannot be reached, the pool tries again in the background, until the lease has
        ended the seat.
        """
        self._pool._end(self)

    def announce(self) -> None:
        """Wake those who wait for the end."""
        self._ended.set()


class SeatPool:
    """The seats of a pool, for the threads of a process and its children.

    :param client: its ``socket_timeout`` times its attempts must be at most a third of the lease.
    :param seats: how many there are: the limit that each request states. It can be changed.
    :param lease: seconds after which the server frees the seat of a process that is silent.
    :param heartbeat_interval: seconds between heartbeats, a third of the lease unless given.
    :raises ValueError: the times do not go together.
    """

    def __init__(
        self,
        client: SyncClient,
        key: Name,
        seats: int,
        *,
        lease: float = 360.0,
        heartbeat_interval: float | None = None,
    ) -> None:
        self.commands = SeatCommands(client)
        self.seats = seats
        self._terms: Terms = agree(key, lease, heartbeat_interval, Timeouts(client))
        self._client = client
        self._owns_client = False
        self._driver = Driver(client)
        # After a fork the child has none, and what was locked in the parent is not touched.
        self._renewers: dict[int, Renewer] = {}

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
    ) -> SeatPool:
        """A pool with a ``redis.Redis`` of its own, whose time-outs fit the lease.

        :param options: more of what ``redis.Redis.from_url`` takes.
        """
        timeouts = client_options(socket_timeout_for(lease))
        client = redis.Redis.from_url(url, **{**timeouts, **options})
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
        on_lost: Callable[[Seat], object] | None = None,
        max_hold: float | None = None,
    ) -> SeatRequest:
        """A seat for the body of a ``with`` statement, or for each call of a decorated function.

        :param session: a new UUID unless given. One that is given is guarded by a token: who asks
            with it again has the seat, and whoever had it loses it.
        :param metadata: a JSON object, shown with the session.
        :param wait: seconds to wait for a seat; ``None`` is for ever.
        :param weight: how many seats it takes.
        :param owner: whose session it is.
        :param max_per_owner: at most so many live sessions of this owner.
        :param takeover: end the owner's session that was silent for longest rather than be refused.
        :param on_lost: called with the seat, in a thread of the pool's, within a second of a loss.
        :param max_hold: seconds after which the seat is renewed no more.

        Entering it raises :class:`~redis_seat.NoSeats`, :class:`~redis_seat.OwnerLimit` or
        :class:`~redis_seat.QueueFull`, or an error of the client. Leaving it raises
        :class:`~redis_seat.SeatLost` if the seat was lost and the body has raised nothing.
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
        return SeatRequest(self, request, on_lost, max_hold)

    def close(self) -> None:
        """End the pool's threads in this process. Seats that are held are renewed no more."""
        renewer = self._renewers.pop(os.getpid(), None)
        if renewer is not None:
            renewer.close()
        if self._owns_client:
            self._client.close()  # type: ignore[attr-defined]

    def __enter__(self) -> SeatPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self,
        request: Request,
        on_lost: Callable[[Seat], object] | None,
        max_hold: float | None,
    ) -> Seat:
        grant, sent = drive(acquire(request, self._terms, self._driver), _Port(self.commands))
        seat = Seat(self, request.session, grant, sent, on_lost=on_lost, max_hold=max_hold)
        try:
            self._renewer().add(seat)
        except BaseException:
            # At the end of the interpreter no thread can be started.
            self._end(seat)
            raise
        return seat

    def _end(self, seat: Seat) -> None:
        call = seat.end()
        if call is None:
            return
        renewer = self._renewer()
        renewer.remove(seat)
        seat.announce()
        try:
            self.commands.run(call)
        except Exception as error:
            if not self._driver.is_transient(error):
                raise
            log.warning("releasing %s failed and is tried again: %s", seat.session, error)
            renewer.give_back(call)

    def _renewer(self) -> Renewer:
        pid = os.getpid()
        renewer = self._renewers.get(pid)
        if renewer is None:
            renewer = self._renewers.setdefault(pid, Renewer(self._client, self._terms))
        return renewer


class _Port:
    """Carries out the steps of ``waiting.acquire``."""

    def __init__(self, commands: SeatCommands) -> None:
        self._commands = commands

    def ask(self, call: Call[T]) -> T:
        return self._commands.run(call)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def leave(self, call: Call[Any]) -> None:
        try:
            self._commands.run(call)
        except Exception as error:
            log.warning("leaving the queue failed, so the ticket ends it: %s", error)


class SeatRequest:
    """What :meth:`SeatPool.seat` returns: a context manager, and a decorator of functions."""

    def __init__(
        self,
        pool: SeatPool,
        request: Request,
        on_lost: Callable[[Seat], object] | None,
        max_hold: float | None,
    ) -> None:
        self._pool = pool
        self._request = request
        self._on_lost = on_lost
        self._max_hold = max_hold
        self._seat: Seat | None = None

    def __enter__(self) -> Seat:
        if self._seat is not None:
            raise RuntimeError("this seat is held already; ask for another with pool.seat()")
        request = self._request.begin()
        self._seat = self._pool._begin(request, self._on_lost, self._max_hold)
        return self._seat

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        seat, self._seat = self._seat, None
        if seat is None or seat.is_foreign:
            return
        try:
            seat.release()
        except Exception as failure:
            log.warning("releasing %s failed; the lease ends the seat: %s", seat.session, failure)
        if kind is None:
            seat.raise_if_lost()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError("a seat of a SeatPool is for a function that is done when it returns")

        @functools.wraps(function)
        def with_seat(*args: P.args, **options: P.kwargs) -> T:
            with SeatRequest(self._pool, self._request, self._on_lost, self._max_hold):
                return function(*args, **options)

        return with_seat
