from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis

from redis_seat import SeatCommands
from redis_seat.testing import SeatServer

from faces import Face

CLIENT = Path(__file__).parent.parent
ROOT = CLIENT.parent.parent
MODULE = os.environ.get(
    "REDIS_SEAT_MODULE",
    str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/libredis_seat.so"),
)
# For what the tests start, too.
os.environ["REDIS_SEAT_MODULE"] = MODULE

LIBRARIES = ["redis", "valkey"]
FACES = ["sync", "async"]


def is_full() -> bool:
    """Whether `make trust` asks, which sets this for all its tests."""
    return os.environ.get("SEAT_TRUST") == "full"


def eventually(what: str, holds: Callable[[], Any], seconds: float = 10) -> Any:
    """Look until it holds, and give what it returned."""
    end = time.monotonic() + seconds
    while not (result := holds()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)
    return result


def redis_seat_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "redis_seat" in thread.name]


@pytest.fixture(scope="session")
def server() -> Iterator[SeatServer]:
    """One for all tests that only use keys of their own. Leases end in time, without grace."""
    with SeatServer(module_arguments="lease-grace 0") as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[SeatServer]:
    """One that the test may stop."""
    with SeatServer(
        options={"appendonly": "yes", "appendfsync": "always"}, module_arguments="lease-grace 0"
    ) as server:
        yield server


@pytest.fixture
def key() -> str:
    return f"license:{uuid.uuid4()}"


@pytest.fixture
def boss(server: SeatServer) -> Iterator[SeatCommands]:
    """Looks at pools and changes them, at the test's side."""
    with redis.Redis.from_url(server.url, socket_timeout=10) as client:
        yield SeatCommands(client)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    return Face(request.param)


@pytest_asyncio.fixture
async def client(face: Face, server: SeatServer) -> AsyncIterator[Any]:
    client = face.client(server.url)
    yield client
    await face.close(client)


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(1)
