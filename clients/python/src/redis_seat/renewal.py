"""Which of a pool's seats want a heartbeat, and which are lost. Nothing here does I/O."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from redis_seat import clock
from redis_seat.results import Heartbeat, Release
from redis_seat.seat import BaseSeat, log
from redis_seat.steps import Steps
from redis_seat.terms import Terms
from redis_seat.wire import Call

S = TypeVar("S", bound=BaseSeat)

#: Seconds that the threads or tasks, and their connection, stay when no seat is held any more.
LINGER = 5.0

#: How many seconds may pass before a loss is looked for again: no clock wakes up a sleeper whose
#: machine has slept.
TICK = 0.5

# So many heartbeats are sent before their answers are read.
_BATCH = 500


class Renewal(Generic[S]):
    """The seats of one pool in one process, held by weak references."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._seats: weakref.WeakSet[S] = weakref.WeakSet()
        self._returns: list[tuple[Call[Release], float]] = []
        self._lock = threading.Lock()
        self._busy_at = clock.now()
        self._retry_at = -math.inf

    def add(self, seat: S) -> None:
        with self._lock:
            self._seats.add(seat)
            self._busy_at = clock.now()

    def remove(self, seat: S) -> None:
        with self._lock:
            self._seats.discard(seat)

    def give_back(self, call: Call[Release]) -> None:
        """A release that could not be sent: try again until the lease has ended the seat."""
        with self._lock:
            self._returns.append((call, clock.now() + self._terms.lease))

    def is_idle(self) -> bool:
        """Whether there has been nothing to do for a while."""
        with self._lock:
            if self._seats or self._returns:
                self._busy_at = clock.now()
            return clock.now() >= self._busy_at + LINGER

    def turn(self) -> Steps[float]:
        """Send what is due; how many seconds until the next is.

        The port is a connection of the pool's own: ``connect()`` and ``ask(calls)``.
        """
        if clock.now() >= self._retry_at and (self._due() or self._pending_returns()):
            try:
                yield from self._send()
            except Exception as error:
                log.warning("heartbeats of %r failed and are tried again: %s", self._key, error)
                self._fail()
        return self._pause()

    def take_lost(self) -> list[S]:
        """The seats that were lost since the last call."""
        with self._lock:
            lost = [seat for seat in self._seats if seat.lost]
            self._seats.difference_update(lost)
        return lost

    def until_loss(self) -> float:
        """Seconds until the next seat is lost unless it is renewed, at most a tick."""
        deadline = min((seat.deadline for seat in self._held()), default=math.inf)
        return min(max(deadline - clock.now(), 0.0), TICK)

    @property
    def _key(self) -> Any:
        return self._terms.key

    def _held(self) -> list[S]:
        with self._lock:
            return list(self._seats)

    def _due(self) -> list[S]:
        # Those that are due soon go along.
        horizon = clock.now() + self._terms.heartbeat_interval / 10
        return [seat for seat in self._held() if seat.next_heartbeat <= horizon]

    def _pending_returns(self) -> list[Call[Release]]:
        now = clock.now()
        with self._lock:
            self._returns = [(call, until) for call, until in self._returns if now < until]
            return [call for call, _ in self._returns]

    def _send(self) -> Steps[None]:
        for calls in _batches(self._pending_returns()):
            yield lambda line: line.connect()
            answers = yield lambda line, calls=calls: line.ask(calls)  # type: ignore[misc]
            done = {
                id(call)
                for call, answer in zip(calls, answers, strict=True)
                if not isinstance(answer, Exception)
            }
            with self._lock:
                self._returns = [item for item in self._returns if id(item[0]) not in done]
            if len(done) < len(calls):
                self._fail()
        for batch in _batches(self._due()):
            yield lambda line: line.connect()
            # That has taken time, and nothing may be sent after the loss.
            seats = [seat for seat in batch if seat.next_heartbeat < math.inf]
            heartbeats = [seat.heartbeat() for seat in seats]
            sent = clock.now()
            answers = yield lambda line, calls=heartbeats: line.ask(calls)  # type: ignore[misc]
            for seat, answer in zip(seats, answers, strict=True):
                self._heard(seat, answer, sent)

    def _heard(self, seat: S, answer: Heartbeat | Exception, sent: float) -> None:
        if isinstance(answer, Exception):
            log.warning("the heartbeat of %s was refused: %s", seat.session, answer)
            self._fail()
        else:
            seat.heard(answer, sent)

    def _fail(self) -> None:
        self._retry_at = clock.now() + min(self._terms.heartbeat_interval / 4, 1.0)

    def _pause(self) -> float:
        due = min((seat.next_heartbeat for seat in self._held()), default=math.inf)
        with self._lock:
            if self._returns:
                due = -math.inf
        return min(max(due, self._retry_at) - clock.now(), LINGER)


T = TypeVar("T")


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
