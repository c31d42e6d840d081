"""What a user does first, by the installed package alone: run with REDIS_URL or CLUSTER_PORT."""

import asyncio
import importlib.metadata
import importlib.resources
import os

import redis
import redis.asyncio

import redis_seat
from redis_seat import AsyncSeatPool, NoSeats, ScriptSeats, SeatCommands, SeatPool, guide


def smoke(client, async_client, key):
    commands = SeatCommands(client)
    pool = SeatPool(client, key, 1, lease=600)
    with pool.seat(metadata={"by": "smoke"}) as seat:
        assert commands.holder(key, seat.session).metadata == {"by": "smoke"}
        try:
            with pool.seat():
                raise AssertionError("two seats of one")
        except NoSeats:
            pass
    pool.close()

    async def main():
        async with async_client() as client:
            pool = AsyncSeatPool(client, key, 1, lease=600)
            async with pool.seat(wait=5) as seat:
                assert not seat.lost
            await pool.aclose()

    asyncio.run(main())
    assert commands.count(key) == 0


assert importlib.resources.files(redis_seat).joinpath("py.typed").is_file()
assert "src" not in redis_seat.__file__, redis_seat.__file__
if "CLUSTER_PORT" in os.environ:
    where = {"host": "127.0.0.1", "port": int(os.environ["CLUSTER_PORT"]), "socket_timeout": 2}
    with redis.RedisCluster(**where) as client:
        for number in range(9):
            smoke(client, lambda: redis.asyncio.RedisCluster(**where), f"smoke:{number}")
else:
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url, socket_timeout=2) as client:
        smoke(client, lambda: redis.asyncio.Redis.from_url(url, socket_timeout=2), "smoke")
        assert ScriptSeats(client).acquire("scripts", "s", 1)
    assert guide.redis_client.is_available()
print(importlib.metadata.version("redis-seat"))
