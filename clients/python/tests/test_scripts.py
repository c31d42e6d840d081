"""The scripts for servers without modules, and the move to the module."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis

from redis_seat import Denial, Grant, Heartbeat, Release, SeatCommands, scripts
from redis_seat.testing import SeatServer

from conftest import ROOT
from faces import Face

pytestmark = pytest.mark.asyncio


def shipped_arguments() -> str:
    """The module's settings in the shipped redis.conf."""
    [words] = re.findall(r"^loadmodule \S+ (.*)$", (ROOT / "redis.conf").read_text(), re.MULTILINE)
    return str(words)


async def life(seats: Any, key: str) -> None:
    assert await seats.acquire(key, "a", 1, {"machine": "m"}) == Grant(1, 1)
    assert await seats.acquire(key, "a", 1) == Grant(1, already_active=True)
    assert await seats.acquire(key, "b", 1) == Denial(1, 1)
    assert await seats.heartbeat(key, "a") == Heartbeat(True, 1)
    assert await seats.heartbeat(key, "b") == Heartbeat(False)
    assert await seats.release(key, "a") == Release(0)
    assert not await seats.release(key, "a")


async def test_the_scripts_run_on_a_server_without_modules(face: Face) -> None:
    with SeatServer(module="") as server:
        client = face.client(server.url)
        seats = face.scripts(client)
        await life(seats, "acme")
        await seats.acquire("acme", "a", 1, {"machine": "m"})
        with redis.Redis.from_url(server.url, decode_responses=True) as admin:
            assert admin.smembers("license:acme:active_sessions") == {"a"}
            assert "machine" in admin.hget("license:acme:session_metadata", "a")
            admin.script_flush()
        assert await seats.release("acme", "a")
        await face.close(client)


async def test_on_a_server_with_the_module_they_count_in_the_pool(face: Face) -> None:
    with SeatServer(module_arguments=shipped_arguments()) as server:
        client = face.client(server.url)
        seats = face.scripts(client)
        await life(seats, "acme")
        assert await seats.acquire("acme", "a", 1)
        with redis.Redis.from_url(server.url) as admin:
            assert SeatCommands(admin).sessions("acme") == ["a"]
            assert SeatCommands(admin).acquire("acme", "b", 1) == Denial(1, 1)
        await face.close(client)


async def test_they_are_the_scripts_byte_for_byte() -> None:
    for script, name in (
        (scripts._ACQUIRE, "acquire_seat"),
        (scripts._HEARTBEAT, "update_heartbeat"),
        (scripts._RELEASE, "release_seat"),
    ):
        assert script.text.encode() == (ROOT / f"tests/lua/{name}.lua").read_bytes()
        assert script.sha in shipped_arguments()
