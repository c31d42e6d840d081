"""A server that dies or hangs: when a seat is lost, and what is not sent any more."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from collections import defaultdict
from typing import Any

import pytest
import redis.asyncio.connection
import redis.connection

from redis_seat import NoSeats, SeatCommands, SeatLost, clock
from redis_seat.testing import SeatServer

from conftest import is_full
from faces import Face, in_thread

pytestmark = pytest.mark.asyncio

ROUNDS = 100 if is_full() else 4
LEASE = 0.9
LIMIT = 2
# What may pass, in seconds, between the decision to send and the sending, on a busy machine.
SLACK = 0.1

HEARTBEAT = re.compile(rb"SEAT\.HEARTBEAT\r\n\$\d+\r\n[^\r]+\r\n\$36\r\n([0-9a-f-]{36})")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """When a heartbeat of each session was handed to its socket."""
    times: dict[str, list[float]] = defaultdict(list)

    def note(packed: Any) -> None:
        for match in HEARTBEAT.finditer(b"".join(packed)):
            times[match[1].decode()].append(clock.now())

    sync_class = redis.connection.AbstractConnection
    async_class = redis.asyncio.connection.AbstractConnection
    send, send_async = sync_class.send_packed_command, async_class.send_packed_command

    def noting(self: Any, command: Any, *args: Any, **options: Any) -> Any:
        note(command)
        return send(self, command, *args, **options)

    async def noting_async(self: Any, command: Any, *args: Any, **options: Any) -> Any:
        note(command)
        return await send_async(self, command, *args, **options)

    monkeypatch.setattr(sync_class, "send_packed_command", noting)
    monkeypatch.setattr(async_class, "send_packed_command", noting_async)
    return times


class Holding:
    """One seat, from its grant to its end, and what was seen of it."""

    def __init__(self, seat: Any) -> None:
        self.seat = seat
        self.told_at: float | None = None
        self.lost_at: float | None = None

    def look(self) -> bool:
        """Whether its holder may go on."""
        before = clock.now()
        if self.lost_at is None and self.seat.lost:
            self.lost_at = clock.now()
        # By the deadline, however late this looks.
        assert self.lost_at is not None or before < self.seat.deadline
        return self.lost_at is None


async def trouble(server: SeatServer, *, is_long: bool) -> None:
    """The server dies, or hangs, for less than a lease or for more."""
    away = random.uniform(1.1, 2) * LEASE if is_long else random.uniform(0, LEASE)
    if random.random() < 0.5:
        server.freeze()
        await asyncio.sleep(away)
        server.thaw()
    else:
        server.kill()
        await asyncio.sleep(away)
        await in_thread(server.start)


async def test_a_server_that_is_away_makes_nobody_keep_what_others_get(
    face: Face, own_server: SeatServer, key: str, sent: dict[str, list[float]]
) -> None:
    pool = face.pool_from_url(own_server.url, key, LIMIT, lease=LEASE)
    held: list[Holding] = []
    all_held: list[Holding] = []
    ended = asyncio.Event()
    most = 0

    async def contend() -> None:
        while not ended.is_set():
            told: list[float] = []
            request = pool.seat(
                wait=LEASE, on_lost=lambda seat, told=told: told.append(clock.now())
            )
            try:
                seat = await request.__aenter__()
            except (NoSeats, redis.RedisError):
                continue
            holding = Holding(seat)
            all_held.append(holding)
            held.append(holding)
            end = clock.now() + random.uniform(1, 4) * LEASE
            while holding.look() and clock.now() < end and not ended.is_set():
                await asyncio.sleep(0.005)
            held.remove(holding)
            if holding.lost_at is not None:
                while not told:
                    assert clock.now() < holding.lost_at + 1, "on_lost was not called in time"
                    await asyncio.sleep(0.005)
                holding.told_at = told[0]
            try:
                await request.__aexit__(None, None, None)
            except SeatLost:
                assert holding.seat.lost
            else:
                assert holding.lost_at is None

    async def watch() -> None:
        nonlocal most
        while not ended.is_set():
            most = max(most, sum(not holding.seat.lost for holding in held))
            await asyncio.sleep(0.002)

    tasks = [asyncio.create_task(contend()) for _ in range(2 * LIMIT)]
    tasks.append(asyncio.create_task(watch()))
    for number in range(ROUNDS):
        # In between there is time to get seats and to keep them.
        await asyncio.sleep(random.uniform(1, 2.5) * LEASE)
        await trouble(own_server, is_long=number % 2 == 0)
    await asyncio.sleep(LEASE)
    ended.set()
    await asyncio.gather(*tasks)
    await face.close_pool(pool)

    assert 0 < most <= LIMIT
    assert sum(map(len, sent.values())) >= ROUNDS
    lost = [holding for holding in all_held if holding.lost_at is not None]
    assert len(lost) >= ROUNDS / 4
    for holding in lost:
        assert holding.lost_at is not None
        assert holding.told_at is not None
        assert holding.told_at <= holding.lost_at + 1
        after = [t for t in sent[holding.seat.session] if t > holding.lost_at + SLACK]
        assert not after, "a heartbeat was sent after the loss"
    print(
        f"trust: {face.module.__name__}: {ROUNDS} stops and SIGSTOPs, {len(all_held)} seats, "
        f"{len(lost)} lost, {sum(map(len, sent.values()))} heartbeats, "
        f"at most {most} of {LIMIT} held",
        file=sys.stderr,
    )


async def test_a_short_absence_loses_nothing(face: Face, own_server: SeatServer, key: str) -> None:
    pool = face.pool_from_url(own_server.url, key, 1, lease=30, heartbeat_interval=0.1)
    async with pool.seat() as seat:
        own_server.kill()
        own_server.start()
        with redis.Redis.from_url(own_server.url) as admin:
            boss = SeatCommands(admin)
            while boss.holder(key, seat.session).heartbeats < 3:  # type: ignore[union-attr]
                await asyncio.sleep(0.02)
        assert not seat.lost
    await face.close_pool(pool)


async def test_a_release_that_does_not_get_through_is_tried_again(
    face: Face, own_server: SeatServer, key: str
) -> None:
    pool = face.pool_from_url(own_server.url, key, 1, lease=30, heartbeat_interval=1)
    async with pool.seat():
        own_server.kill()
    own_server.start()
    start = time.monotonic()
    async with pool.seat(wait=20):
        assert time.monotonic() - start < 15
    await face.close_pool(pool)


async def test_a_machine_that_sleeps_finds_its_seat_lost(
    face: Face, server: SeatServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = face.pool_from_url(server.url, key, 1, lease=60)
    slept = 0.0
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + slept)
    told: list[Any] = []
    with pytest.raises(SeatLost):
        async with pool.seat(on_lost=told.append) as seat:
            assert not seat.lost
            slept = 61
            assert seat.lost
            await asyncio.sleep(1)
            assert len(told) == 1
    await face.close_pool(pool)


async def test_the_clock_counts_the_time_in_which_the_machine_sleeps() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(clock.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


async def test_a_release_that_is_refused_is_said_and_ended_by_the_lease(
    face: Face, own_server: SeatServer, key: str
) -> None:
    pool = face.pool_from_url(own_server.url, key, 1, lease=2)
    with redis.Redis.from_url(own_server.url) as admin:
        request = pool.seat()
        seat = await request.__aenter__()
        admin.execute_command("ACL", "SETUSER", "default", "-seat.release")
        with pytest.raises(redis.ResponseError, match="permissions"):
            await seat.release()
        await request.__aexit__(None, None, None)
        admin.execute_command("ACL", "SETUSER", "default", "+seat.release")
        while await pool.commands.count(key):
            await asyncio.sleep(0.02)
    await face.close_pool(pool)


async def test_a_call_that_was_given_up_and_is_carried_out_late_is_ended_by_its_lease(
    face: Face, own_server: SeatServer, key: str
) -> None:
    client = face.client(own_server.url, socket_timeout=0.3)
    pool = face.pool(client, key, 1, lease=2)
    with redis.Redis.from_url(own_server.url) as admin:
        boss = SeatCommands(admin)
        assert boss.count(key) == 0
        # A connection to give up, which the server has accepted.
        assert await pool.commands.count(key) == 0
        own_server.freeze()
        with pytest.raises(redis.TimeoutError):
            await pool.seat().__aenter__()
        own_server.thaw()
        # Perhaps there is a ghost. Whoever waits has the seat when it has gone.
        await (await pool.seat(wait=20).__aenter__()).release()
        assert boss.count(key) == 0
    await face.close_pool(pool)
    await face.close(client)
