"""A cluster of three, and a primary behind a Sentinel."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_seat import Denial, Grant, SeatCommands, SeatLost
from redis_seat.testing import SeatServer, _find_server, _free_port

from cluster import three_masters
from conftest import LIBRARIES, eventually
from faces import Face, in_thread

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[SeatServer]]:
    with three_masters() as nodes:
        yield nodes


def cluster_of(face: Face, nodes: list[SeatServer], **options: Any) -> Any:
    # From the oldest to the newest they agree on this one.
    options = {"socket_timeout": 1, "cluster_error_retry_attempts": 1, **options}
    return face.cluster_class(host="127.0.0.1", port=nodes[0].port, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
async def test_commands_reach_the_node_of_their_pool(
    face: Face, library: str, nodes: list[SeatServer]
) -> None:
    face = Face("async" if face.is_async else "sync", library)
    client = cluster_of(face, nodes)
    seats = face.commands(client)
    for number in range(20):
        key = f"{library}:{face.is_async}:{number}"
        assert await seats.acquire(key, "a", 1, lease=60) == Grant(1, 1, lease=60.0)
        assert await seats.acquire(key, "b", 1) == Denial(1, 1)
        assert (await seats.info(key)).used == 1
        assert await seats.release(key, "a")
    await face.close(client)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_pool_in_a_cluster_waits_and_is_kept(
    face: Face, library: str, nodes: list[SeatServer]
) -> None:
    face = Face("async" if face.is_async else "sync", library)
    for number in range(3):
        client = cluster_of(face, nodes)
        key = f"kept:{library}:{face.is_async}:{number}"
        pool = face.pool(client, key, 1, lease=60, heartbeat_interval=0.1)
        async with pool.seat() as seat:
            waits = asyncio.create_task(pool.seat(wait=20).__aenter__())
            while (await pool.commands.holder(key, seat.session)).heartbeats < 3:
                await asyncio.sleep(0.02)
            while not await pool.commands.queue(key):
                await asyncio.sleep(0.02)
        await (await asyncio.wait_for(waits, 20)).release()
        await face.close_pool(pool)
        await face.close(client)


def move(nodes: list[SeatServer], key: str) -> None:
    """Move the key's slot to the next node."""
    clients = [redis.Redis(port=node.port, decode_responses=True) for node in nodes]
    slot = clients[0].execute_command("CLUSTER", "KEYSLOT", key)
    ids = [client.execute_command("CLUSTER", "MYID") for client in clients]
    here = slot * 3 // 16384
    there = (here + 1) % 3
    clients[there].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[here])
    clients[here].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[there])
    words = "MIGRATE", "127.0.0.1", nodes[there].port, key, 0, 5000
    assert clients[here].execute_command(*words) == "OK"
    for client in (clients[there], clients[here]):
        client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[there])
    for client in clients:
        client.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_heartbeats_follow_a_pool_to_another_node(
    face: Face, nodes: list[SeatServer]
) -> None:
    client = cluster_of(face, nodes)
    key = f"moved:{face.is_async}"
    pool = face.pool(client, key, 1, lease=60, heartbeat_interval=0.1)
    async with pool.seat() as seat:
        await in_thread(move, nodes, key)
        before = (await pool.commands.holder(key, seat.session)).heartbeats
        while (await pool.commands.holder(key, seat.session)).heartbeats < before + 3:
            await asyncio.sleep(0.02)
        assert not seat.lost
    assert await pool.commands.count(key) == 0
    await face.close_pool(pool)
    await face.close(client)


async def test_a_pool_finds_the_new_primary_by_a_sentinel(face: Face, tmp_path: Path) -> None:
    with SeatServer() as primary, SeatServer() as replica:
        ends = [redis.Redis(port=each.port, socket_timeout=5) for each in (primary, replica)]
        ends[1].execute_command("REPLICAOF", "127.0.0.1", primary.port)
        await in_thread(
            eventually, "in sync", lambda: ends[1].info("replication")["master_link_status"] == "up"
        )
        port = _free_port()
        configuration = tmp_path / "sentinel.conf"
        configuration.write_text(
            f"port {port}\nbind 127.0.0.1\nlogfile {tmp_path}/log\n"
            f"sentinel monitor seats 127.0.0.1 {primary.port} 1\n"
        )
        # As one binary goes, so it does for all.
        sentinel = subprocess.Popen(
            [shutil.which(_find_server()), str(configuration), "--sentinel"],
            stdout=subprocess.DEVNULL,
        )
        try:
            watcher = redis.Redis(port=port, socket_timeout=5, decode_responses=True)
            await in_thread(eventually, "the sentinel sees the replica", lambda: sees(watcher))
            found = face.module.sentinel.Sentinel([("127.0.0.1", port)], socket_timeout=1)
            client = found.master_for("seats", socket_timeout=1, retry=face.retries(1))
            pool = face.pool(client, "k", 1, lease=9, heartbeat_interval=0.1)
            async with pool.seat() as seat:
                boss = SeatCommands(ends[1])
                await in_thread(
                    eventually, "the replica knows it", lambda: boss.holder("k", seat.session)
                )
                await in_thread(eventually, "a failover begins", lambda: fails_over(watcher), 30)
                words = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "seats"
                await in_thread(
                    eventually,
                    "the replica is promoted",
                    lambda: int(watcher.execute_command(*words)[1]) == replica.port,
                    30,
                )
                # The sentinel would let it serve for some seconds more.
                primary.kill()
                before = boss.holder("k", seat.session)
                assert before is not None
                await in_thread(
                    eventually,
                    "heartbeats reach it",
                    lambda: boss.holder("k", seat.session).heartbeats > before.heartbeats + 2,  # type: ignore[union-attr]
                )
                assert not seat.lost
            assert boss.count("k") == 0
            await face.close_pool(pool)
            await face.close(client)
            for each in found.sentinels:
                await (each.aclose() if face.is_async else in_thread(each.close))
            watcher.close()
        finally:
            sentinel.terminate()
            sentinel.wait(10)
        for each in ends:
            each.close()


def sees(watcher: redis.Redis) -> bool:
    try:
        return bool(watcher.execute_command("SENTINEL", "REPLICAS", "seats"))
    except redis.RedisError:
        return False


def fails_over(watcher: redis.Redis) -> bool:
    """Refused until the sentinel knows enough of the replica."""
    try:
        return bool(watcher.execute_command("SENTINEL", "FAILOVER", "seats"))
    except redis.ResponseError:
        return False


async def test_a_server_that_is_demoted_costs_no_seat_that_others_have(
    face: Face, own_server: SeatServer, key: str
) -> None:
    """READONLY is transient: if it stays so, the lease decides."""
    pool = face.pool_from_url(own_server.url, key, 1, lease=1.2)
    with redis.Redis.from_url(own_server.url) as admin, pytest.raises(SeatLost):
        async with pool.seat() as seat:
            admin.execute_command("REPLICAOF", "127.0.0.1", 1)
            start = time.monotonic()
            assert await seat.wait_lost(5)
            assert time.monotonic() - start > 0.5
    await face.close_pool(pool)
