"""The fixture for the tests of an application."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from redis_seat import SeatCommands
from redis_seat.testing import SeatServer

from processes import environment

USERS_TEST = """
from redis_seat import SeatPool


def test_it(seat_server):
    pool = SeatPool.from_url(seat_server.url, "license:acme", 5)
    with pool.seat() as seat:
        assert seat.grant.used == 1
    pool.close()
"""


def test_an_applications_test_has_a_server_by_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["redis_seat.testing"]\n')
    (tmp_path / "test_user.py").write_text(USERS_TEST)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment(""),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_a_server_can_die_hang_and_come_back(own_server: SeatServer) -> None:
    with redis.Redis.from_url(own_server.url, socket_timeout=0.5) as client:
        seats = SeatCommands(client)
        assert seats.acquire("k", "a", 1)
        own_server.freeze()
        with pytest.raises(redis.TimeoutError):
            seats.count("k")
        own_server.thaw()
        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            seats.count("k")
        own_server.start()
        assert seats.count("k") == 1


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_SEAT_MODULE")
    monkeypatch.setattr("redis_seat.testing._PLACES", ())
    with pytest.raises(FileNotFoundError, match="REDIS_SEAT_MODULE"):
        SeatServer()
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="REDIS_SERVER"):
        SeatServer()


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="no-such-setting"):
        SeatServer(options={"no-such-setting": "1"})
