"""Waiting for a seat: in order, whatever happens to connections, and no longer than wanted."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest
import redis

from redis_seat import NoSeats, SeatCommands
from redis_seat.testing import SeatServer

from conftest import eventually, is_full
from faces import Face, in_thread

pytestmark = pytest.mark.asyncio

KILLS = 200 if is_full() else 25


def blocked(client: redis.Redis) -> list[str]:
    """The ids of the connections on which somebody waits."""
    clients = client.client_list()
    return [
        each["id"] for each in clients if each["cmd"] == "seat.acquire" and "b" in each["flags"]
    ]


@pytest.mark.parametrize("retries", [0, 1])
async def test_five_waiters_keep_their_order_through_killed_connections(
    face: Face, server: SeatServer, boss: SeatCommands, key: str, retries: int
) -> None:
    client = face.client(server.url, retry=face.retries(retries))
    pool = face.pool(client, key, 1)
    order: list[int] = []

    async def wait(number: int) -> None:
        async with pool.seat(wait=120):
            order.append(number)

    with redis.Redis.from_url(server.url) as admin:
        async with pool.seat():
            waiters = []
            for number in range(5):
                waiters.append(asyncio.create_task(wait(number)))
                await in_thread(
                    eventually, "it waits", lambda n=number: len(boss.queue(key)) == n + 1
                )
            expected = [waiter.session for waiter in boss.queue(key)]
            killed = 0
            while killed < KILLS:
                connections = await in_thread(eventually, "one waits", lambda: blocked(admin))
                admin.client_kill_filter(_id=connections[killed % len(connections)])
                killed += 1
                assert [waiter.session for waiter in boss.queue(key)] == expected
        await asyncio.wait_for(asyncio.gather(*waiters), 30)
    assert order == list(range(5))
    print(
        f"trust: {face.module.__name__}, {retries} retries: five waiters kept their order through "
        f"{killed} killed connections",
        file=sys.stderr,
    )
    assert boss.count(key) == 0
    await face.close_pool(pool)
    await face.close(client)


async def test_a_wait_ends_in_time_and_leaves_the_queue(
    face: Face, client: Any, boss: SeatCommands, key: str
) -> None:
    pool = face.pool(client, key, 1)
    boss.acquire(key, "other", 1)
    start = time.monotonic()
    with pytest.raises(NoSeats):
        await pool.seat(wait=0.3).__aenter__()
    assert 0.3 <= time.monotonic() - start < 3
    assert boss.queue(key) == []
    assert boss.release(key, "other").used == 0


async def test_a_wait_longer_than_the_time_out_of_the_client_goes_on(
    face: Face, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    client = face.client(server.url, socket_timeout=0.4)
    pool = face.pool(client, key, 1)
    boss.acquire(key, "other", 1)
    waits = asyncio.create_task(pool.seat(wait=None).__aenter__())
    await asyncio.sleep(1)
    assert len(boss.queue(key)) == 1
    boss.release(key, "other")
    seat = await asyncio.wait_for(waits, 5)
    assert boss.sessions(key) == [seat.session]
    await seat.release()
    await face.close_pool(pool)
    await face.close(client)


async def test_a_wait_goes_on_through_the_death_of_the_server(
    face: Face, own_server: SeatServer, key: str
) -> None:
    with redis.Redis.from_url(own_server.url, socket_timeout=5) as boss_client:
        boss = SeatCommands(boss_client)
        client = face.client(own_server.url)
        pool = face.pool(client, key, 1, lease=60)
        boss.acquire(key, "other", 1)
        waits = asyncio.create_task(pool.seat(wait=60).__aenter__())
        await in_thread(eventually, "it waits", lambda: boss.queue(key))
        own_server.kill()
        own_server.start()
        assert boss.release(key, "other")
        seat = await asyncio.wait_for(waits, 30)
        assert boss.sessions(key) == [seat.session]
        await seat.release()
        await face.close_pool(pool)
        await face.close(client)


async def test_a_wait_that_cannot_succeed_ends_at_once(
    face: Face, client: Any, boss: SeatCommands, key: str, server: SeatServer
) -> None:
    pool = face.pool(client, key, 1)
    with redis.Redis.from_url(server.url) as admin:
        admin.set(key, "text")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            await pool.seat(wait=60).__aenter__()
        admin.delete(key)
        admin.execute_command("ACL", "SETUSER", "nobody", "on", ">pw", "~*", "-@all")
        refused = face.client(server.url, username="nobody", password="wrong")
        with pytest.raises(redis.AuthenticationError):
            await face.pool(refused, key, 1).seat(wait=60).__aenter__()
        await face.close(refused)
        admin.execute_command("ACL", "DELUSER", "nobody")


async def test_a_server_that_is_away_is_an_error_when_the_wait_is_over(face: Face) -> None:
    client = face.client("redis://127.0.0.1:1")
    start = time.monotonic()
    for wait in (0, 0.3):
        with pytest.raises(redis.ConnectionError):
            await face.pool(client, "k", 1).seat(wait=wait).__aenter__()
    assert 0.3 <= time.monotonic() - start < 5
    await face.close(client)


async def test_a_task_that_is_cancelled_leaves_the_queue(
    server: SeatServer, boss: SeatCommands, key: str
) -> None:
    face = Face("async")
    client = face.client(server.url)
    pool = face.pool(client, key, 1)
    boss.acquire(key, "other", 1)
    waits = asyncio.create_task(pool.seat(wait=None).__aenter__())
    await in_thread(eventually, "it waits", lambda: boss.queue(key))
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    await in_thread(eventually, "it has left", lambda: not boss.queue(key))
    await face.close(client)


async def test_a_task_that_is_cancelled_as_it_is_granted_keeps_no_seat(
    server: SeatServer, boss: SeatCommands, key: str
) -> None:
    face = Face("async")
    client = face.client(server.url)
    pool = face.pool(client, key, 1)
    for _ in range(30):
        boss.acquire(key, "other", 1)
        waits = asyncio.create_task(pool.seat(wait=None).__aenter__())
        await in_thread(eventually, "it waits", lambda: boss.queue(key))
        # Nothing else runs meanwhile, so the task has not read its grant when it is cancelled.
        boss.release(key, "other")
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await in_thread(eventually, "nobody has it", lambda: boss.count(key) == 0)
    await face.close_pool(pool)
    await face.close(client)


async def test_a_thread_that_is_interrupted_leaves_the_queue(
    server: SeatServer, boss: SeatCommands, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = Face("sync")
    client = face.client(server.url)
    pool = face.pool(client, key, 1)
    boss.acquire(key, "other", 1)
    ask = client.execute_command
    calls = []

    def interrupted(*words: Any) -> Any:
        calls.append(words[0])
        answer = ask(*words)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(client, "execute_command", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.inner.seat(wait=0.1).__enter__()
    assert calls == ["SEAT.ACQUIRE", "SEAT.RELEASE"]
    assert boss.queue(key) == []


async def test_a_named_session_leaves_by_the_end_of_its_ticket(
    face: Face, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    client = face.client(server.url, socket_timeout=0.5)
    pool = face.pool(client, key, 1)
    boss.acquire(key, "other", 1)
    with pytest.raises(NoSeats):
        await pool.seat("host-1", wait=0.1).__aenter__()
    # Released by name it might be the seat of a successor.
    assert boss.position(key, "host-1") == 1
    await in_thread(eventually, "the ticket ends", lambda: not boss.queue(key))
    await face.close(client)
