"""What can go wrong beyond the errors of the Redis client, which pass through unchanged."""

from __future__ import annotations


class SeatError(Exception):
    """The base of the errors below."""


class NoSeats(SeatError):
    """No seat was free, or none became free for as long as the caller waited.

    ``used`` and ``seats`` are the figures of the last denial, ``None`` if there was no reply.
    """

    def __init__(self, key: str, used: int | None, seats: int | None) -> None:
        super().__init__(f"no seat is free in {key}: {used} of {seats} are used")
        self.key = key
        self.used = used
        self.seats = seats


class OwnerLimit(SeatError):
    """The owner has ``held`` live sessions in the pool, and may have ``max``."""

    def __init__(self, key: str, owner: str | None, held: int, limit: int) -> None:
        super().__init__(f"{owner} has {held} sessions in {key}, and may have {limit}")
        self.key = key
        self.owner = owner
        self.held = held
        self.max = limit


class SeatLost(SeatError):
    """The seat was held and is so no longer: somebody else may have it by now."""

    def __init__(self, key: str, session: str) -> None:
        super().__init__(f"the session {session} has lost its seat in {key}")
        self.key = key
        self.session = session


class QueueFull(SeatError):
    """As many sessions wait for this pool as the server's ``seat.max-queue-length`` allows."""


class ModuleMissing(SeatError):
    """The server does not know the SEAT commands: it has not loaded the module redis-seat."""
