"""What ten thousand seats leave behind."""

from __future__ import annotations

import gc
import sys

import pytest

from redis_seat import SeatCommands
from redis_seat.testing import SeatServer

from conftest import redis_seat_threads
from faces import Face

pytestmark = pytest.mark.asyncio

SEATS = 10_000


async def test_ten_thousand_seats_leave_neither_memory_nor_threads(
    face: Face, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    client = face.client(server.url)
    raw = face.pool(client, key, 5)
    pool = raw if face.is_async else raw.inner

    async def take(times: int) -> None:
        for _ in range(times):
            if face.is_async:
                async with pool.seat():
                    pass
            else:
                with pool.seat():
                    pass

    await take(200)
    gc.collect()
    before = sys.getallocatedblocks()
    await take(SEATS)
    gc.collect()
    grown = sys.getallocatedblocks() - before
    print(f"{face.module.__name__}: {SEATS} seats, {grown} blocks of memory more")
    # Less than one for ten seats: what stays is caches of the interpreter.
    assert grown < SEATS / 10
    assert boss.count(key) == 0
    await face.close_pool(raw)
    assert redis_seat_threads() == []
    await face.close(client)
