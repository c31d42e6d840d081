"""The integration guide's client: its own tests, and what they leave open."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import redis

from redis_seat import SeatCommands
from redis_seat.guide import (
    RedisSeatAcquisitionError,
    RedisSeatClient,
    RedisUnavailableError,
    redis_client,
)
from redis_seat.testing import SeatServer

from processes import run

TESTS = Path(__file__).parent


def test_the_guides_own_tests_pass(server: SeatServer) -> None:
    program = f"""
import sys, unittest
sys.path.insert(0, {str(TESTS)!r})
import integration_guide
suite = unittest.defaultTestLoader.loadTestsFromModule(integration_guide)
result = unittest.TextTestRunner(stream=sys.stdout).run(suite)
assert result.wasSuccessful() and result.testsRun == 4 and not result.skipped
integration_guide.concurrent_acquire_test()
"""
    said = run(program, server.url, python_options="-W default")
    assert "3 seats acquired, 7 denied" in said


# The guide's sections "Troubleshooting" and "Health Check Endpoint".
EXAMPLES = """
from redis_seat.guide import redis_client

if redis_client.is_available():
    print("✓ Redis is available")
else:
    print("✗ Redis is unavailable - falling back to PostgreSQL")

redis_client._load_scripts()

license_id = "acme"
seats_used, session_ids = redis_client.get_active_sessions(license_id)
print(f"Active sessions: {seats_used}, IDs: {session_ids}")

cleaned, remaining = redis_client.cleanup_expired_sessions(license_id)
print(f"Cleaned {cleaned} expired sessions, {remaining} remaining")

health = redis_client.health_check()
print(health["status"])
"""


def test_the_guides_examples_run(server: SeatServer, boss: SeatCommands) -> None:
    boss.acquire("acme", "s", 1)
    said = run(EXAMPLES, server.url, PYTHONIOENCODING="utf-8").splitlines()
    assert said == [
        "✓ Redis is available",
        "Active sessions: 1, IDs: ['s']",
        "Cleaned 0 expired sessions, 1 remaining",
        "healthy",
    ]
    boss.release("acme", "s")


@pytest.fixture
def guide(server: SeatServer) -> RedisSeatClient:
    return RedisSeatClient(server.url)


def test_each_answer_is_a_tuple_of_the_guides(guide: RedisSeatClient, key: str) -> None:
    assert guide.acquire_seat(key, "a", 2, {"machine_id": "m"}) == ("success", 1, 1)
    # Asked again after a lost reply.
    assert guide.acquire_seat(key, "a", 2) == ("success", 1, 1)
    assert guide.acquire_seat(key, "b", 2, ttl_seconds=60) == ("success", 2, 0)
    with pytest.raises(RedisSeatAcquisitionError):
        guide.acquire_seat(key, "c", 2)
    assert guide.refresh_heartbeat(key, "a", ttl_seconds=60) == ("success", 60)
    assert guide.refresh_heartbeat(key, "c") == ("expired", 0)
    assert guide.release_seat(key, "c") == ("not_found", 2)
    assert guide.release_seat(key, "a") == ("success", 1)
    assert guide.get_active_sessions(key) == (1, ["b"])
    assert guide.cleanup_expired_sessions(key) == (0, 1)
    assert guide.acquire_seat(key, "d", 1 + 1)[0] == "success"
    # A limit that has shrunk leaves no negative number.
    assert guide.acquire_seat(key, "d", 1) == ("success", 2, 0)


def test_the_seat_ends_with_its_time_to_live(guide: RedisSeatClient, key: str) -> None:
    guide.acquire_seat(key, "a", 1, ttl_seconds=360)
    assert guide._seats.holder(key, "a").lease == 360  # type: ignore[union-attr]
    guide.release_seat(key, "a")


def test_a_server_that_is_away_is_unavailable() -> None:
    guide = RedisSeatClient("redis://127.0.0.1:1")
    assert not guide.is_available()
    assert guide.health_check()["status"] == "unhealthy"
    with pytest.raises(RedisUnavailableError):
        guide.acquire_seat("k", "a", 1)


def test_an_error_of_the_caller_is_not_called_unavailability(
    guide: RedisSeatClient, key: str
) -> None:
    with pytest.raises(redis.ResponseError):
        guide.acquire_seat(key, "", 1)


def test_the_url_is_djangos_or_that_of_the_environment(
    server: SeatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    assert RedisSeatClient().is_available()
    settings = types.SimpleNamespace(configured=True, REDIS_URL="redis://127.0.0.1:1")
    django = types.ModuleType("django.conf")
    django.settings = settings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "django.conf", django)
    assert not RedisSeatClient().is_available()
    settings.configured = False
    assert RedisSeatClient().is_available()


def test_a_client_of_ones_own_will_do(server: SeatServer, key: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        assert RedisSeatClient(client=client).acquire_seat(key, "a", 1) == ("success", 1, 0)


def test_the_guides_client_does_not_connect_when_it_is_imported() -> None:
    assert isinstance(redis_client, RedisSeatClient)
    assert "_client" not in vars(redis_client)
