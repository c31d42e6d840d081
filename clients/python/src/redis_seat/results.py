"""What the commands answer. Durations are seconds, moments seconds of unix time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grant:
    """The session holds a seat.

    ``seats`` is ``None`` where ``already_active``: that reply does not state it. ``lease``,
    ``token`` and ``ended`` are ``None`` unless the call asked for them. ``ended`` is the session
    of the same owner whose place this one has taken.
    """

    used: int
    seats: int | None = None
    already_active: bool = False
    lease: float | None = None
    token: int | None = None
    ended: str | None = None

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class Denial:
    """No seat is free for the session."""

    used: int
    seats: int

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class Queued:
    """No seat is free, and the session waits at ``position``; 1 is the first."""

    used: int
    seats: int
    position: int

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, slots=True)
class OwnerLimited:
    """The owner has ``held`` live sessions, as many as ``max`` or more."""

    held: int
    max: int

    def __bool__(self) -> Literal[False]:
        return False


Acquired = Grant | Denial | Queued | OwnerLimited


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer to a heartbeat, true if it was counted.

    ``active`` says whether the session holds a seat (with a token: by this token). ``count`` is
    how many heartbeats were counted, ``None`` if this one was not. ``lease`` is the lease's length
    if the call stated one.
    """

    active: bool
    count: int | None = None
    lease: float | None = None

    def __bool__(self) -> bool:
        return self.count is not None


@dataclass(frozen=True, slots=True)
class Release:
    """The answer to a release, true if the session held a seat.

    ``used`` is how many seats are taken now, ``None`` if it held none.
    """

    used: int | None = None

    def __bool__(self) -> bool:
        return self.used is not None


@dataclass(frozen=True, slots=True)
class Cleanup:
    """How many sessions were removed, and how many hold a seat now."""

    cleaned: int
    remaining: int


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool's figures, as ``SEAT.INFO`` gives them.

    ``next_deadline`` is when the first lease expires, ``None`` if there is none. ``kept`` of the
    ``available`` seats are kept for those who wait.
    """

    seats: int
    used: int
    available: int
    kept: int
    waiting: int
    leased: int
    next_deadline: float | None
    memory_bytes: int
    sessions: int
    owners: int
    denied: int
    peak_used: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that holds a seat, and all that the pool knows of it.

    ``metadata`` is the caller's object alone. It and the two timestamps are ``None`` where a
    session was adopted from the scripts' keys without them; ``lease`` and ``expires_in`` are
    ``None`` without a lease.
    """

    session: str
    owner: str | None
    weight: int
    acquired_at: int | None
    last_heartbeat: int | None
    heartbeats: int
    lease: float | None
    expires_in: float | None
    token: int | None
    metadata: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Waiter:
    """A session in the queue, and for how long it has waited."""

    session: str
    waited: float


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """How many live sessions an owner has, and how many seats these take."""

    sessions: int
    used: int


@dataclass(frozen=True, slots=True)
class ScanPage(Generic[T]):
    """What one step of a scan found. ``cursor`` leads to the next one; 0 is the end."""

    cursor: int
    items: T
