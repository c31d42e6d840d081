"""How a seat is asked for, and waited for."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from redis_seat import clock, wire
from redis_seat.driver import Driver
from redis_seat.errors import NoSeats, OwnerLimit
from redis_seat.results import Acquired, Denial, Grant, OwnerLimited, Queued
from redis_seat.steps import Steps
from redis_seat.terms import LONGEST_PAUSE, Terms
from redis_seat.wire import Call, Metadata

_FIRST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants. ``named`` says that the caller chose the session.

    ``limit`` says how many seats there are, at each call anew: while one waits it may change.
    """

    session: str
    named: bool
    limit: Callable[[], int]
    metadata: Metadata | None
    wait: float | None
    weight: int
    owner: str | None
    max_per_owner: int | None
    takeover: bool

    def begin(self) -> Request:
        """The same for a seat that is asked for now, by a session of its own unless it is named."""
        return self if self.named else replace(self, session=str(uuid.uuid4()))

    def call(
        self, terms: Terms, *, queue: float | None = None, block: float | None = None
    ) -> Call[Acquired]:
        return wire.acquire(
            terms.key,
            self.session,
            self.limit(),
            self.metadata,
            lease=terms.lease,
            weight=self.weight,
            owner=self.owner,
            max_per_owner=self.max_per_owner,
            takeover=self.takeover,
            queue=queue,
            block=block,
            # Nobody else knows a session that was made for this seat.
            with_token=self.named,
        )


def acquire(request: Request, terms: Terms, driver: Driver) -> Steps[tuple[Grant, float]]:
    """The grant, and when it was asked for by :func:`clock.now`.

    The port has ``ask(call)``, ``pause(seconds)`` and ``leave(call)``, which fails silently.
    """
    if request.wait == 0:
        sent = clock.now()
        try:
            answer = yield lambda port: port.ask(request.call(terms))
        except Exception:
            # The call may be carried out late. Then the lease ends the seat.
            raise
        except BaseException:
            yield from _leave(request, terms)
            raise
        return _granted(answer, request, terms), sent
    try:
        return (yield from _wait(request, terms, driver))
    except GeneratorExit:
        raise
    except BaseException as error:
        # A server that cannot be reached need not be told: the ticket ends.
        if not driver.is_transient(error):
            yield from _leave(request, terms)
        raise


def _wait(request: Request, terms: Terms, driver: Driver) -> Steps[tuple[Grant, float]]:
    """Ask again and again, by calls that are shorter than whatever gives up first.

    The session is the same throughout and has a ticket, so whatever becomes of a connection, the
    position is kept.
    """
    end = math.inf if request.wait is None else clock.now() + request.wait
    pause = _FIRST_PAUSE
    while True:
        sent = clock.now()
        block = max(min(terms.slice, end - sent), 0.001)
        call = request.call(terms, queue=terms.ticket, block=block)
        try:
            answer = yield lambda port, call=call: port.ask(call)  # type: ignore[misc]
        except Exception as error:
            left = end - clock.now()
            if left <= 0 or not driver.is_transient(error):
                raise
            length = min(left, pause * random.uniform(0.5, 1))
            yield lambda port, length=length: port.pause(length)  # type: ignore[misc]
            pause = min(pause * 2, LONGEST_PAUSE)
            continue
        pause = _FIRST_PAUSE
        if isinstance(answer, Denial | Queued) and clock.now() < end:
            continue
        return _granted(answer, request, terms), sent


def _granted(answer: Acquired, request: Request, terms: Terms) -> Grant:
    if isinstance(answer, Grant):
        return answer
    key = terms.shown_key
    if isinstance(answer, OwnerLimited):
        raise OwnerLimit(key, request.owner, answer.held, answer.max)
    raise NoSeats(key, answer.used, answer.seats)


def _leave(request: Request, terms: Terms) -> Steps[None]:
    """Take the waiter out of the queue, and back a grant that nobody has read.

    A session with a name may be held by somebody else by now, whose seat this would release. There
    the ticket's end, or the lease's, does it.
    """
    if not request.named:
        call = wire.release(terms.key, request.session)
        yield lambda port: port.leave(call)
