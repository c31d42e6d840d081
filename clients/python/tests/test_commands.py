"""Each command on each client, and that none is missing."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import redis

import redis_seat
from redis_seat import (
    AsyncSeatCommands,
    Cleanup,
    Denial,
    Grant,
    Heartbeat,
    ModuleMissing,
    OwnerLimited,
    OwnerUse,
    Queued,
    QueueFull,
    Release,
    SeatCommands,
    wire,
)
from redis_seat.testing import SeatServer

from conftest import FACES, LIBRARIES
from faces import Face

pytestmark = pytest.mark.asyncio

# Those that the server runs in place of readers of the legacy keys, and the one for replication.
INTERNAL = {
    "sismember",
    "smembers",
    "scard",
    "hget",
    "hgetall",
    "hexists",
    "hlen",
    "hkeys",
    "effect",
}


@pytest_asyncio.fixture(
    params=[
        (face, library, protocol, decode)
        for face in FACES
        for library in LIBRARIES
        for protocol in (2, 3)
        for decode in (False, True)
    ],
    ids=lambda p: f"{p[0]}-{p[1]}-resp{p[2]}-{'str' if p[3] else 'bytes'}",
)
async def seats(request: pytest.FixtureRequest, server: SeatServer) -> AsyncIterator[Any]:
    name, library, protocol, decode = request.param
    face = Face(name, library)
    client = face.client(server.url, protocol=protocol, decode_responses=decode)
    yield face.commands(client)
    await face.close(client)


async def test_the_life_of_a_session(seats: Any, key: str) -> None:
    grant = await seats.acquire(key, "a", 1, {"machine": "m", "list": []}, lease=60)
    assert grant == Grant(used=1, seats=1, lease=60.0)
    again = await seats.acquire(key, "a", 1, lease=60)
    assert again == Grant(used=1, already_active=True, lease=60.0)
    assert await seats.acquire(key, "b", 1) == Denial(1, 1)
    assert await seats.acquire(key, "b", 1, queue=60) == Queued(1, 1, 1)
    assert await seats.position(key, "b") == 1
    [waiter] = await seats.queue(key)
    assert waiter.session == "b"
    assert 0 <= waiter.waited < 10
    assert await seats.heartbeat(key, "a") == Heartbeat(True, 1)
    assert await seats.heartbeat(key, "a", lease=30) == Heartbeat(True, 2, 30.0)
    assert await seats.heartbeat(key, "c") == Heartbeat(False)
    left = await seats.pttl(key, "a")
    assert 20 < left <= 30
    stored = await seats.get(key, "a")
    assert stored["machine"] == "m"
    assert stored["list"] == []
    assert stored["heartbeat_count"] == 2
    assert await seats.release(key, "a") == Release(0)
    assert not await seats.release(key, "a")
    assert await seats.position(key, "a") is None
    assert await seats.acquire(key, "b", 1, queue=60, block=5) == Grant(1, 1)
    assert await seats.release(key, "b")
    assert await seats.info(key) is None
    assert await seats.get(key, "a") is None
    assert await seats.holder(key, "a") is None


async def test_owners_weights_and_tokens(seats: Any, key: str) -> None:
    terms = {"owner": "ann", "max_per_owner": 1, "lease": 60, "with_token": True}
    first = await seats.acquire(key, "laptop", 8, weight=3, **terms)
    assert first.used == 3
    assert first.token > 0
    assert await seats.acquire(key, "desk", 8, **terms) == OwnerLimited(1, 1)
    second = await seats.acquire(key, "desk", 8, takeover=True, **terms)
    assert second.ended == "laptop"
    assert second.used == 1
    assert second.token > first.token
    assert not (await seats.heartbeat(key, "desk", token=first.token)).active
    assert await seats.heartbeat(key, "desk", token=second.token)
    assert not await seats.release(key, "desk", token=first.token)
    assert await seats.owners(key) == {"ann": OwnerUse(1, 1)}
    holder = await seats.holder(key, "desk")
    assert (holder.session, holder.owner, holder.weight) == ("desk", "ann", 1)
    assert (holder.lease, holder.token, holder.heartbeats) == (60.0, second.token, 1)
    assert holder.metadata == {}
    assert holder.acquired_at is not None
    assert 0 < holder.expires_in <= 60
    assert await seats.revoke_owner(key, "ann") == 1
    assert await seats.count(key) == 0


async def test_looking_at_a_pool(seats: Any, key: str) -> None:
    for number in range(5):
        await seats.acquire(key, f"s{number}", 9, {"n": number}, owner=f"o{number % 2}")
    names = {f"s{number}" for number in range(5)}
    assert set(await seats.sessions(key)) == names
    assert set(await seats.sessions(key, owner="o1")) == {"s1", "s3"}
    metadata = await seats.sessions_metadata(key)
    assert {session: each["n"] for session, each in metadata.items()} == {
        f"s{number}": number for number in range(5)
    }
    holders = await seats.holders(key, owner="o0")
    assert {holder.session: holder.metadata for holder in holders} == {
        f"s{number}": {"n": number} for number in (0, 2, 4)
    }
    for scan in (seats.scan, seats.scan_metadata, seats.scan_holders):
        found: list[str] = []
        cursor = None
        while cursor != 0:
            page = await scan(key, cursor or 0, count=2)
            found += [getattr(item, "session", item) for item in page.items]
            cursor = page.cursor
        assert sorted(found) == sorted(names)
    info = await seats.info(key)
    assert (info.seats, info.used, info.available, info.sessions) == (9, 5, 4, 5)
    assert (info.waiting, info.kept, info.leased, info.next_deadline) == (0, 0, 0, None)
    assert (info.owners, info.denied, info.peak_used) == (2, 0, 5)
    assert info.memory_bytes > 0
    assert await seats.pttl(key, "s0") == float("inf")
    assert await seats.pttl(key, "none") is None
    assert await seats.cleanup(key) == Cleanup(0, 5)
    assert await seats.cleanup(key, idle=3600) == Cleanup(0, 5)
    assert await seats.resize(key, 3) == 0
    assert (await seats.info(key)).seats == 3
    assert await seats.revoke(key, "s0", "s1", "none") == 2
    legacy = f"license:{{{key}}}:a", f"license:{{{key}}}:b"
    assert await seats.export_sessions(key, *legacy) == 3
    assert await seats.import_sessions(key, *legacy) == 3
    assert await seats.revoke(key, *names) == 3


async def test_a_lease_in_the_pools_figures(seats: Any, key: str) -> None:
    await seats.acquire(key, "a", 1, lease=60)
    info = await seats.info(key)
    assert info.leased == 1
    holder = await seats.holder(key, "a")
    assert abs(info.next_deadline - holder.acquired_at - 60) < 5
    await seats.release(key, "a")


async def test_bytes_are_names_too(seats: Any, key: str) -> None:
    assert await seats.acquire(key.encode(), b"a", 1, owner=b"o")
    assert await seats.sessions(key) == ["a"]
    assert (await seats.holder(key.encode(), b"a")).session == "a"
    assert await seats.release(key, "a")


async def test_errors_of_the_server_pass_through(seats: Any, key: str) -> None:
    with pytest.raises(Exception, match="seats must be") as caught:
        await seats.acquire(key, "a", "many")
    assert type(caught.value).__name__ == "ResponseError"


async def test_a_full_queue_has_a_class_of_its_own(face: Face, key: str) -> None:
    with SeatServer(module_arguments="max-queue-length 0") as small:
        client = face.client(small.url)
        seats = face.commands(client)
        await seats.acquire(key, "a", 1)
        with pytest.raises(QueueFull):
            await seats.acquire(key, "b", 1, queue=1)
        await face.close(client)


async def test_a_server_without_the_module_is_told_by_a_class_of_its_own(face: Face) -> None:
    with SeatServer(module="") as bare:
        client = face.client(bare.url)
        with pytest.raises(ModuleMissing):
            await face.commands(client).count("k")
        await face.close(client)


async def test_no_public_command_is_missing(server: SeatServer) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        commands = client.execute_command("COMMAND")
    words = {
        name.lower().removeprefix("seat.")
        for name in (commands if isinstance(commands, dict) else (each[0] for each in commands))
        if name.lower().startswith("seat.")
    }
    functions = [f for _, f in inspect.getmembers(wire, inspect.isfunction) if f.__doc__]
    described = {
        f.__doc__.split("``")[1].split()[0].lower().removeprefix("seat.")
        for f in functions
        if f.__doc__.startswith("``SEAT.")
    }
    assert described == words - INTERNAL
    for commands_class in (SeatCommands, AsyncSeatCommands):
        for function in functions:
            if function.__doc__.startswith("``SEAT."):
                method = getattr(commands_class, function.__name__)
                assert method.__doc__ == function.__doc__
                first, *rest = inspect.signature(method).parameters
                assert first == "self"
                assert rest == list(inspect.signature(function).parameters)


async def test_each_half_takes_its_own_kind_of_client(server: SeatServer) -> None:
    client = Face("async").client(server.url)
    with pytest.raises(TypeError, match="AsyncSeatCommands"):
        redis_seat.SeatCommands(client)
    await client.aclose()


async def test_a_call_goes_through_a_pipeline(server: SeatServer, key: str) -> None:
    calls = [wire.acquire(key, "a", 1, lease=60), wire.acquire(key, "b", 1), wire.release(key, "a")]
    with redis.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
        for call in calls:
            pipeline.execute_command(*call.args)
        replies = pipeline.execute()
    answers = [call.decode(reply) for call, reply in zip(calls, replies, strict=True)]
    assert answers == [Grant(1, 1, lease=60.0), Denial(1, 1), Release(0)]


async def test_nothing_is_registered_on_the_client(face: Face, server: SeatServer) -> None:
    client = face.client(server.url)
    before = dict(client.response_callbacks)
    face.commands(client)
    face.pool(client, "k", 1)
    assert client.response_callbacks == before
    await face.close(client)
