"""What a pool of the client's holds to: the pool's key and the times that follow from the lease."""

from __future__ import annotations

import math
from dataclasses import dataclass

from redis_seat.driver import Timeouts
from redis_seat.wire import Name

#: The longest pause, in seconds, between two tries of one that waits.
LONGEST_PAUSE = 1.0

# A server may be so late, in seconds, to end a wait: it looks ten times a second.
_LATENESS = 0.2


@dataclass(frozen=True, slots=True)
class Terms:
    """All in seconds.

    ``slice`` is how long one call waits, less than the client's ``socket_timeout``. ``ticket`` is
    how long the position outlives a call: for as long as it can take to ask again.
    """

    key: Name
    lease: float
    heartbeat_interval: float
    slice: float
    ticket: float

    @property
    def shown_key(self) -> str:
        """The key for messages."""
        return self.key if isinstance(self.key, str) else self.key.decode("utf-8", "replace")


def socket_timeout_for(lease: float) -> float:
    """A client's ``socket_timeout`` that leaves room for one retry."""
    return min(5.0, lease / 6)


def agree(key: Name, lease: float, heartbeat_interval: float | None, timeouts: Timeouts) -> Terms:
    """The terms for a client with these time-outs.

    :raises ValueError: they do not go together.
    """
    if not (math.isfinite(lease) and lease >= 0.001):
        raise ValueError(f"a pool needs a lease, in seconds, not {lease!r}")
    interval = lease / 3 if heartbeat_interval is None else heartbeat_interval
    if not 0 < interval < lease:
        raise ValueError(f"heartbeat_interval must be above 0 and below the lease, not {interval}")
    socket_timeout, budget = timeouts.socket_timeout, timeouts.budget
    if not budget <= lease / 3:
        raise ValueError(
            f"the client may take {budget:g} s to give a call up (socket_timeout "
            f"{socket_timeout:g} s, {timeouts.attempts:g} attempts), more than a third of the "
            f"lease of {lease:g} s: a seat could be lost before anybody noticed. Give the client "
            "a shorter socket_timeout and fewer retries, or let SeatPool.from_url make one"
        )
    shorter = max(socket_timeout - max(socket_timeout / 4, _LATENESS), socket_timeout / 4)
    one_slice = max(min(shorter, interval), 0.001)
    ticket = one_slice + budget + timeouts.pauses + LONGEST_PAUSE
    return Terms(key, lease, interval, one_slice, ticket)
