"""What a user writes, as their type checker sees it."""

from __future__ import annotations

import asyncio

import redis
import redis.asyncio
from typing_extensions import assert_type

from redis_seat import (
    AsyncSeat,
    AsyncSeatCommands,
    AsyncSeatPool,
    Denial,
    Grant,
    Holder,
    OwnerLimited,
    PoolInfo,
    Queued,
    Seat,
    SeatCommands,
    SeatPool,
)


def commands(client: redis.Redis) -> int:
    seats = SeatCommands(client)
    answer = seats.acquire("license:acme", "alice", 5, {"machine": "m"}, lease=360, queue=90)
    assert_type(answer, Grant | Denial | Queued | OwnerLimited)
    if answer:
        assert_type(answer, Grant)
        return answer.used
    assert_type(answer, Denial | Queued | OwnerLimited)
    assert_type(seats.info("license:acme"), PoolInfo | None)
    assert_type(seats.holders("license:acme"), list[Holder])
    seats.acquire("license:acme", "alice")  # type: ignore[call-arg]
    seats.acquire("license:acme", "alice", 5, ttl=3)  # type: ignore[call-arg]
    seats.acquire("license:acme", "alice", "5")  # type: ignore[arg-type]
    return 0


async def async_commands(client: redis.asyncio.Redis) -> None:
    seats = AsyncSeatCommands(client)
    assert_type(await seats.count("license:acme"), int)
    assert_type(await asyncio.create_task(seats.count("license:acme")), int)
    assert_type(await seats.position("license:acme", "alice"), int | None)


def lost(seat: Seat) -> None:
    seat.raise_if_lost()


def pool(client: redis.Redis) -> None:
    seats = SeatPool(client, "license:acme", 5, lease=60)
    with seats.seat(wait=None, on_lost=lost) as seat:
        assert_type(seat, Seat)
        assert_type(seat.lost, bool)
        assert_type(seat.grant, Grant)

    @seats.seat(metadata={"job": 1})
    def work(number: int, *, name: str = "") -> str:
        return name * number

    assert_type(work(1, name="a"), str)
    work("1")  # type: ignore[arg-type]


async def async_pool(client: redis.asyncio.Redis) -> None:
    seats = AsyncSeatPool(client, "license:acme", 5, lease=60)
    async with seats.seat(wait=None) as seat:
        assert_type(seat, AsyncSeat)
        assert_type(await seat.wait_lost(1), bool)

    @seats.seat()
    async def work(number: int) -> str:
        return str(number)

    assert_type(await asyncio.create_task(work(1)), str)
