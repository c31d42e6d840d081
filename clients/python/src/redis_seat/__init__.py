"""A typed client of redis-seat: seat pools with leases and a fair queue, in Redis.

:class:`SeatPool` and :class:`AsyncSeatPool` hold seats for as long as a block of code runs.
:class:`SeatCommands` and :class:`AsyncSeatCommands` are the commands themselves.
"""

from redis_seat.async_pool import AsyncSeat, AsyncSeatPool
from redis_seat.commands import AsyncSeatCommands, SeatCommands
from redis_seat.errors import ModuleMissing, NoSeats, OwnerLimit, QueueFull, SeatError, SeatLost
from redis_seat.pool import Seat, SeatPool
from redis_seat.results import (
    Cleanup,
    Denial,
    Grant,
    Heartbeat,
    Holder,
    OwnerLimited,
    OwnerUse,
    PoolInfo,
    Queued,
    Release,
    ScanPage,
    Waiter,
)
from redis_seat.scripts import AsyncScriptSeats, ScriptSeats

__all__ = [
    "AsyncScriptSeats",
    "AsyncSeat",
    "AsyncSeatCommands",
    "AsyncSeatPool",
    "Cleanup",
    "Denial",
    "Grant",
    "Heartbeat",
    "Holder",
    "ModuleMissing",
    "NoSeats",
    "OwnerLimit",
    "OwnerLimited",
    "OwnerUse",
    "PoolInfo",
    "QueueFull",
    "Queued",
    "Release",
    "ScanPage",
    "ScriptSeats",
    "Seat",
    "SeatCommands",
    "SeatError",
    "SeatLost",
    "SeatPool",
    "Waiter",
]
