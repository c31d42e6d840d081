"""A seat held by a block of code: asked for, kept, lost and given back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import redis

from redis_seat import NoSeats, OwnerLimit, SeatCommands, SeatLost, SeatPool, clock, renewal
from redis_seat.testing import SeatServer

from conftest import LIBRARIES, eventually, redis_seat_threads
from faces import Face, in_thread

pytestmark = pytest.mark.asyncio

# Seconds. What these tests wait for comes after a fraction of it.
LEASE = 3.0

MakePool = Callable[..., Any]


@pytest_asyncio.fixture
async def make_pool(face: Face, server: SeatServer, key: str) -> AsyncIterator[MakePool]:
    made = []

    def make(seats: int = 1, **options: Any) -> Any:
        made.append(face.pool_from_url(server.url, key, seats, **{"lease": LEASE, **options}))
        return made[-1]

    yield make
    for pool in made:
        await face.close_pool(pool)


async def sees(what: str, holds: Callable[[], Any], seconds: float = 10) -> Any:
    """`eventually`, while the event loop goes on."""
    return await in_thread(eventually, what, holds, seconds)


async def test_a_seat_is_held_by_the_block_and_free_after_it(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    pool = make_pool(2)
    async with pool.seat(metadata={"job": 7}) as seat:
        assert seat.grant.used == 1
        assert not seat.lost
        seat.raise_if_lost()
        holder = boss.holder(key, seat.session)
        assert holder is not None
        assert holder.metadata == {"job": 7}
        assert holder.lease == LEASE
        # Nobody else knows the session, so it needs no token.
        assert holder.token is None
    assert boss.count(key) == 0


async def test_each_seat_is_a_session_of_its_own(make_pool: MakePool, boss: Any, key: str) -> None:
    pool = make_pool(2)
    async with pool.seat() as one, pool.seat() as other:
        assert one.session != other.session
        assert boss.count(key) == 2


async def test_an_error_in_the_block_frees_the_seat_and_passes_through(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with make_pool().seat():
            raise ZeroDivisionError
    assert boss.count(key) == 0


async def test_a_full_pool_is_an_error_with_its_figures(make_pool: MakePool, key: str) -> None:
    pool = make_pool()
    async with pool.seat():
        with pytest.raises(NoSeats, match=r"1 of 1") as caught:
            await pool.seat().__aenter__()
    assert (caught.value.key, caught.value.used, caught.value.seats) == (key, 1, 1)


async def test_a_limit_of_the_owner_is_an_error(make_pool: MakePool, boss: Any, key: str) -> None:
    pool = make_pool(5)
    older = pool.seat(owner="ann", max_per_owner=1, weight=2)
    async with contextlib.AsyncExitStack() as stack:
        first = await older.__aenter__()
        stack.push_async_callback(raises_loss, older)
        assert first.grant.used == 2
        for wait in (0, 5):
            with pytest.raises(OwnerLimit) as caught:
                await pool.seat(owner="ann", max_per_owner=1, wait=wait).__aenter__()
            assert (caught.value.owner, caught.value.held, caught.value.max) == ("ann", 1, 1)
        async with pool.seat(owner="ann", max_per_owner=1, takeover=True) as second:
            assert second.grant.ended == first.session
            assert await first.wait_lost(5)
        assert boss.count(key) == 0
        with pytest.raises(SeatLost):
            first.raise_if_lost()


async def raises_loss(request: Any) -> None:
    with pytest.raises(SeatLost):
        await request.__aexit__(None, None, None)


async def test_a_limit_that_is_changed_holds_from_then_on(make_pool: MakePool) -> None:
    pool = make_pool(1)
    request = pool.seat()
    pool.seats = 2
    async with pool.seat(), request:
        pass


async def test_heartbeats_keep_the_seat_for_longer_than_the_lease(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    async with make_pool(lease=2, heartbeat_interval=0.3).seat() as seat:
        await asyncio.sleep(2.2)
        assert not seat.lost
        assert boss.sessions(key) == [seat.session]


async def test_a_named_session_is_guarded_by_a_token(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    pool = make_pool()
    old = pool.seat("host-1")
    seat = await old.__aenter__()
    async with pool.seat("host-1") as successor:
        assert successor.grant.already_active
        # The earlier process hears it from the server, and its release frees nothing.
        assert await seat.wait_lost(5)
        with pytest.raises(SeatLost, match="host-1"):
            await old.__aexit__(None, None, None)
        assert not successor.lost
        assert boss.count(key) == 1
    assert boss.count(key) == 0


async def test_a_revoked_seat_is_lost_and_said_so_once(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    told: list[Any] = []
    with pytest.raises(SeatLost):
        async with make_pool().seat(on_lost=told.append) as seat:
            boss.revoke(key, seat.session)
            assert await seat.wait_lost(5)
            await sees("on_lost", lambda: told)
            assert seat.lost
            # It stays lost, and is not taken again.
            assert boss.count(key) == 0
    assert [each.session for each in told] == [seat.session]


async def test_a_loss_does_not_hide_an_error_of_the_block(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with make_pool().seat() as seat:
            boss.revoke(key, seat.session)
            assert await seat.wait_lost(5)
            raise ZeroDivisionError


async def test_an_on_lost_that_fails_is_logged_and_the_next_is_called(
    make_pool: MakePool, boss: SeatCommands, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool(2)
    told: list[Any] = []

    def fails(seat: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(SeatLost):
        async with pool.seat(on_lost=fails) as one, pool.seat(on_lost=told.append) as other:
            boss.revoke(key, one.session)
            assert await one.wait_lost(5)
            boss.revoke(key, other.session)
            assert await other.wait_lost(5)
            await sees("the other's", lambda: told)
    assert "on_lost" in caplog.text


async def test_on_lost_may_be_a_coroutine_function(server: SeatServer, boss: Any, key: str) -> None:
    told = asyncio.Event()

    async def tell(seat: Any) -> None:
        told.set()

    async with Face("async").pool_from_url(server.url, key, 1, lease=LEASE) as pool:
        with pytest.raises(SeatLost):
            async with pool.seat(on_lost=tell) as seat:
                boss.revoke(key, seat.session)
                await asyncio.wait_for(told.wait(), 5)


async def test_waiting_for_a_loss_ends_in_time_or_with_the_release(make_pool: MakePool) -> None:
    async with make_pool().seat() as seat:
        start = time.monotonic()
        assert not await seat.wait_lost(0.1)
        assert 0.1 <= time.monotonic() - start < 1
        waits = asyncio.create_task(seat.wait_lost())
        await asyncio.sleep(0)
        await seat.release()
        assert not await asyncio.wait_for(waits, 5)


async def test_work_that_hangs_is_renewed_no_more(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    start = clock.now()
    with pytest.raises(SeatLost):
        async with make_pool(lease=1.5).seat(max_hold=0.8) as seat:
            assert await seat.wait_lost(5)
            # A lease after the last heartbeat, which came before the time was up.
            assert 1.5 <= clock.now() - start < 3
    await sees("the seat is free", lambda: boss.count(key) == 0)


async def test_a_release_that_finds_nothing_is_no_error(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    async with make_pool().seat() as seat:
        boss.revoke(key, seat.session)
        await seat.release()
        await seat.release()
        assert not seat.lost


async def test_a_released_seat_is_not_lost_later(make_pool: MakePool) -> None:
    async with make_pool(lease=1.5).seat() as seat:
        await seat.release()
        await asyncio.sleep(1.6)
        assert not seat.lost


async def test_a_seat_is_not_entered_twice_at_once(make_pool: MakePool) -> None:
    request = make_pool(2).seat()
    async with request:
        with pytest.raises(RuntimeError, match="held already"):
            await request.__aenter__()
    async with request:
        pass


async def test_a_decorated_function_has_a_seat_for_each_call(
    make_pool: MakePool, boss: SeatCommands, key: str, face: Face
) -> None:
    pool = make_pool(1)
    if face.is_async:

        @pool.seat(metadata={"job": "f"})
        async def f(number: int, *, by: int = 1) -> int:
            assert boss.count(key) == 1
            return number + by

        assert [await f(number, by=2) for number in range(3)] == [2, 3, 4]
    else:

        @pool.inner.seat(metadata={"job": "f"})
        def g(number: int, *, by: int = 1) -> int:
            assert boss.count(key) == 1
            return number + by

        assert [await in_thread(g, number, by=2) for number in range(3)] == [2, 3, 4]
        assert g.__name__ == "g"
    assert boss.count(key) == 0


async def test_only_functions_that_fit_are_decorated(server: SeatServer, key: str) -> None:
    async def coroutine() -> None:
        pass

    def generator() -> Any:
        yield

    with SeatPool.from_url(server.url, key, 1) as pool:
        for function in (coroutine, generator):
            with pytest.raises(TypeError):
                pool.seat()(function)
    async with Face("async").pool_from_url(server.url, key, 1) as pool:
        with pytest.raises(TypeError):
            pool.seat()(lambda: None)


@pytest.mark.parametrize(
    ("options", "lease", "why"),
    [
        ({"socket_timeout": None}, 360, "socket_timeout inf"),
        ({"socket_timeout": 5, "retries": 3}, 30, "20 s"),
        ({"socket_timeout": 0.5}, 1, "third of the lease"),
    ],
    ids=["no time-out", "many retries", "a short lease"],
)
async def test_a_client_that_would_notice_too_late_is_refused(
    face: Face, server: SeatServer, options: dict[str, Any], lease: float, why: str
) -> None:
    options = dict(options)
    client = face.client(server.url, retry=face.retries(options.pop("retries", 0)), **options)
    with pytest.raises(ValueError, match=why):
        face.pool(client, "k", 1, lease=lease)
    await face.close(client)


async def test_a_pool_from_a_url_survives_that_its_connections_were_cut(
    make_pool: MakePool, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    pool = make_pool(2)
    for _ in range(3):
        async with pool.seat():
            assert await pool.commands.count(key) == 1
            with redis.Redis.from_url(server.url) as admin:
                admin.client_kill_filter(_type="normal", skipme=True)
    assert boss.count(key) == 0


async def test_a_ticket_lasts_until_the_client_has_tried_all(
    face: Face, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    slow = importlib.import_module("redis.backoff").ConstantBackoff(7)
    client = face.client(server.url, socket_timeout=2, retry=type(face.retries(0))(slow, 2))
    pool = face.pool(client, key, 1)
    boss.acquire(key, "other", 1)
    waits = asyncio.create_task(pool.seat(wait=60).__aenter__())
    await sees("it waits", lambda: boss.queue(key))
    terms = getattr(pool, "inner", pool)._terms
    assert 0 < terms.slice < 2
    # Three attempts and two pauses of the client, one of the loop.
    assert terms.ticket == pytest.approx(terms.slice + 3 * 2 + 2 * 7 + 1)
    boss.release(key, "other")
    await (await asyncio.wait_for(waits, 10)).release()
    await face.close_pool(pool)
    await face.close(client)


@pytest.mark.parametrize("options", [{"lease": 0}, {"lease": 9, "heartbeat_interval": 9}])
async def test_times_that_do_not_go_together_are_refused(
    face: Face, client: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="lease"):
        face.pool(client, "k", 1, **options)


async def test_ten_waits_on_ten_connections_leave_heartbeats_theirs(
    face: Face, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    client = face.client(server.url, max_connections=10, socket_timeout=0.4)
    pool = face.pool(client, key, 1, lease=1.5)
    async with pool.seat() as seat:
        waits = [asyncio.create_task(pool.seat(wait=30).__aenter__()) for _ in range(10)]
        await sees("ten wait", lambda: len(boss.queue(key)) == 10)
        before = boss.holder(key, seat.session).heartbeats  # type: ignore[union-attr]
        await sees(
            "five heartbeats more",
            lambda: boss.holder(key, seat.session).heartbeats >= before + 5,  # type: ignore[union-attr]
        )
        assert not seat.lost
    # The release needs a connection, too, and gets one in time.
    first = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert len(first[0]) == 1
    pool.seats = 10
    for seat in await asyncio.gather(*waits):
        await seat.release()
    await sees("all are free", lambda: boss.count(key) == 0)
    await face.close_pool(pool)
    await face.close(client)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_pool_serves_each_library(
    face: Face, library: str, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    face = Face("async" if face.is_async else "sync", library)
    for protocol in (2, 3):
        client = face.client(server.url, protocol=protocol, decode_responses=protocol == 3)
        pool = face.pool(client, key, 1, lease=30, heartbeat_interval=0.1)
        async with pool.seat() as seat:
            waits = asyncio.create_task(pool.seat(wait=10).__aenter__())
            await sees("two heartbeats", lambda: boss.holder(key, seat.session).heartbeats >= 2)  # type: ignore[union-attr]
            await sees("one waits", lambda: len(boss.queue(key)) == 1)
        await (await asyncio.wait_for(waits, 10)).release()
        await face.close_pool(pool)
        await face.close(client)


async def test_without_seats_the_workers_end_by_themselves(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, face: Face
) -> None:
    monkeypatch.setattr(renewal, "LINGER", 0.1)
    pool = make_pool()
    async with pool.seat():
        assert len(workers(face)) == 2
    for _ in range(200):
        if not workers(face):
            break
        await asyncio.sleep(0.05)
    assert not workers(face)
    # And begin again.
    async with pool.seat():
        assert len(workers(face)) == 2


def workers(face: Face) -> list[str]:
    if face.is_async:
        names = [task.get_name() for task in asyncio.all_tasks()]
        return [name for name in names if "redis_seat" in name]
    return redis_seat_threads()


async def test_a_pool_that_is_dropped_leaves_no_worker(
    face: Face, server: SeatServer, boss: SeatCommands, key: str
) -> None:
    client = face.client(server.url)
    pool = face.pool(client, key, 1, lease=60)
    request = pool.seat()
    seat = await request.__aenter__()
    assert len(workers(face)) == 2
    session = seat.session
    del pool, request, seat
    gc.collect()
    for _ in range(100):
        if not workers(face):
            break
        await asyncio.sleep(0.05)
    assert not workers(face)
    # Nothing was said in its name.
    assert boss.holder(key, session) is not None
    boss.revoke(key, session)
    await face.close(client)


async def test_a_seat_that_is_dropped_is_renewed_no_more(
    make_pool: MakePool, boss: SeatCommands, key: str
) -> None:
    pool = make_pool(lease=1.5)
    await pool.seat().__aenter__()
    gc.collect()
    await sees("the lease ends it", lambda: boss.count(key) == 0)


async def test_what_it_says_goes_to_its_logger(
    make_pool: MakePool, boss: SeatCommands, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(SeatLost):
        async with make_pool().seat() as seat:
            boss.revoke(key, seat.session)
            assert await seat.wait_lost(5)
            await sees("a record", lambda: "is lost" in caplog.text)
    assert {record.name for record in caplog.records if "seat" in record.message} == {"redis_seat"}


async def test_an_on_lost_that_exits_ends_no_others(
    server: SeatServer, boss: SeatCommands, key: str
) -> None:
    face = Face("sync")
    pool = face.pool_from_url(server.url, key, 1, lease=LEASE)
    told: list[Any] = []

    def leaves(seat: Any) -> None:
        raise SystemExit

    for on_lost in (leaves, told.append):
        with pytest.raises(SeatLost):
            async with pool.seat(on_lost=on_lost) as seat:
                boss.revoke(key, seat.session)
                assert await seat.wait_lost(5)
                await asyncio.sleep(0.1)
    assert len(told) == 1
    await face.close_pool(pool)
