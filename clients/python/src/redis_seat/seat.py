"""A seat that is held, as far as the sync and the async one are alike."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from typing import Any

from redis_seat import clock, wire
from redis_seat.errors import SeatLost
from redis_seat.results import Grant, Heartbeat, Release
from redis_seat.terms import Terms
from redis_seat.wire import Call

log = logging.getLogger("redis_seat")


class BaseSeat:
    """A seat that is held, and whether it still is.

    The seat is lost when the server says that the session is not active, or when the lease has
    passed since the last heartbeat that was answered well was *sent*. A seat that was lost stays
    so. In another process than the one that was granted it, such as a child after ``fork``, the
    seat counts as lost, and nothing that is done with it there has an effect.
    """

    def __init__(
        self,
        terms: Terms,
        session: str,
        grant: Grant,
        sent: float,
        *,
        on_lost: Callable[[Any], Any] | None,
        max_hold: float | None,
    ) -> None:
        self.session = session
        self.grant = grant
        self.on_lost = on_lost
        self._terms = terms
        self._pid = os.getpid()
        self._deadline = sent + terms.lease
        self._next_heartbeat = sent + terms.heartbeat_interval
        self._hold_until = math.inf if max_hold is None else clock.now() + max_hold
        self._lost = False
        self._released = False

    @property
    def lost(self) -> bool:
        """Whether the seat is lost; judged anew at each reading, without asking the server."""
        if self.is_foreign:
            return True
        if not (self._lost or self._released) and clock.now() >= self._deadline:
            self._lost = True
        return self._lost

    def raise_if_lost(self) -> None:
        """:raises SeatLost: the seat is lost."""
        if self.lost:
            raise self.error()

    def error(self) -> SeatLost:
        return SeatLost(self._terms.shown_key, self.session)

    # What follows is for the modules that keep the seat.

    @property
    def is_foreign(self) -> bool:
        """Whether another process was granted it."""
        return self._pid != os.getpid()

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def deadline(self) -> float:
        """When it is lost unless another heartbeat is answered, by :func:`clock.now`."""
        return self._deadline

    @property
    def next_heartbeat(self) -> float:
        """When the next heartbeat is due, by :func:`clock.now`; ``math.inf`` if none is."""
        is_over = max(self._next_heartbeat, clock.now()) >= self._hold_until
        return math.inf if self._released or self.lost or is_over else self._next_heartbeat

    def heartbeat(self) -> Call[Heartbeat]:
        terms = self._terms
        return wire.heartbeat(terms.key, self.session, lease=terms.lease, token=self.grant.token)

    def heard(self, answer: Heartbeat, sent: float) -> None:
        """A heartbeat that was sent then has been answered."""
        if not answer.active:
            # A release on its way overtakes a heartbeat.
            self._lost = self._lost or not self._released
        elif answer and not self.lost:
            # A lease that was over by this clock stays so, whatever a late answer says.
            self._deadline = sent + self._terms.lease
            self._next_heartbeat = sent + self._terms.heartbeat_interval
        elif not answer:
            log.warning("%s has no metadata in the pool, so it is not renewed", self.session)
            self._next_heartbeat = sent + self._terms.heartbeat_interval

    def end(self) -> Call[Release] | None:
        """Mark the seat as released: the call for that, if there is something to release."""
        if self.is_foreign or self._released or self.lost:
            return None
        self._released = True
        return wire.release(self._terms.key, self.session, token=self.grant.token)
