"""Processes: fork, their end, and the ways in which Celery and gevent run code."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from redis_seat import SeatCommands
from redis_seat.testing import SeatServer

from conftest import eventually
from processes import PREAMBLE, environment, run

# From 3.12 on Python warns of every fork with threads.
FORKS = "-W error -W ignore::DeprecationWarning"

KEPT = """
def is_kept(seat):
    before = boss.holder(KEY, seat.session).heartbeats
    end = time.monotonic() + 20
    while boss.holder(KEY, seat.session).heartbeats < before + 2:
        assert time.monotonic() < end, "no heartbeat"
        time.sleep(0.02)
    return not seat.lost

pool = SeatPool.from_url(URL, KEY, 2, lease=30, heartbeat_interval=0.1)
"""


def test_a_child_owns_nothing_of_its_parents(server: SeatServer, key: str) -> None:
    program = """
with pool.seat() as seat:
    assert is_kept(seat)
    pid = os.fork()
    if pid == 0:
        # In the child: leaving the block, releasing and looking do nothing to the parent's seat.
        assert seat.lost
        seat.release()
        assert seat.wait_lost(5)
        # It has seats of its own, and heartbeats for them.
        with pool.seat() as own:
            assert is_kept(own)
            assert boss.count(KEY) == 2
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert boss.sessions(KEY) == [seat.session]
    assert is_kept(seat)
assert boss.count(KEY) == 0
print("done")
"""
    assert run(PREAMBLE + KEPT + program, server.url, key, python_options=FORKS) == "done\n"


def test_children_of_multiprocessing_share_the_seats(server: SeatServer, key: str) -> None:
    program = """
import multiprocessing

@pool.seat(wait=30)
def work(number):
    assert boss.info(KEY).used <= 2
    time.sleep(0.1)
    return number

if __name__ == "__main__":
    with pool.seat(), multiprocessing.get_context("fork").Pool(4) as workers:
        assert workers.map(work, range(8)) == list(range(8))
    assert boss.count(KEY) == 0
    print("done")
"""
    assert run(PREAMBLE + KEPT + program, server.url, key, python_options=FORKS) == "done\n"


@pytest.mark.parametrize("end", ["sys.exit(0)", "pass"])
def test_a_process_that_ends_waits_for_no_thread(
    server: SeatServer, boss: SeatCommands, key: str, end: str
) -> None:
    program = (
        PREAMBLE
        + f"""
pool = SeatPool.from_url(URL, KEY, 2)
with pool.seat():
    {end}
kept = pool.seat()
kept.__enter__()
"""
    )
    start = time.monotonic()
    run(program, server.url, key)
    assert time.monotonic() - start < 10
    # What was not released is ended by its lease.
    assert boss.count(key) == (0 if "exit" in end else 1)


def test_an_event_loop_that_ends_waits_for_no_task(server: SeatServer, key: str) -> None:
    program = (
        PREAMBLE
        + """
import asyncio
from redis_seat import AsyncSeatPool

async def main():
    pool = AsyncSeatPool.from_url(URL, KEY, 3)
    async with pool.seat():
        await asyncio.sleep(0)
    await pool.aclose()
    # One that is not closed, in a loop that ends.
    kept = AsyncSeatPool.from_url(URL, KEY, 3).seat()
    await kept.__aenter__()

asyncio.run(main())
print("done")
"""
    )
    assert run(program, server.url, key, python_options="-W ignore") == "done\n"


def test_a_pool_of_another_loop_begins_anew(server: SeatServer, key: str) -> None:
    program = (
        PREAMBLE
        + """
import asyncio
import redis.asyncio
from redis_seat import AsyncSeatPool

pools = []

async def main():
    client = redis.asyncio.Redis.from_url(URL, socket_timeout=5)
    async with client:
        pool = AsyncSeatPool(client, KEY, 1)
        async with pool.seat() as seat:
            await asyncio.sleep(0)
        await pool.aclose()

for _ in range(3):
    asyncio.run(main())
print("done")
"""
    )
    assert run(program, server.url, key) == "done\n"


def test_greenlets_of_gevent_wait_and_are_kept(server: SeatServer, key: str) -> None:
    program = (
        """
from gevent import monkey
monkey.patch_all()
"""
        + PREAMBLE
        + KEPT
        + """
import gevent

most = 0
def work():
    global most
    with pool.seat(wait=30) as seat:
        most = max(most, boss.info(KEY).used)
        assert is_kept(seat)

jobs = [gevent.spawn(work) for _ in range(6)]
gevent.joinall(jobs, raise_error=True)
assert most == 2, most
pool.close()
print("done")
"""
    )
    # gevent itself warns, depending on what was imported when.
    assert run(program, server.url, key, python_options="-W default") == "done\n"


CELERY = """
import os
import time

import redis
from celery import Celery

from redis_seat import SeatCommands, SeatPool

folder, url, key = os.environ["FOLDER"], os.environ["REDIS_URL"], os.environ["KEY"]
app = Celery("app", broker="filesystem://", backend=f"file://{folder}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{folder}/queue",
    "data_folder_out": f"{folder}/queue",
    "control_folder": f"{folder}/control",
}
# Made in the parent, before it forks.
pool = SeatPool.from_url(url, key, 2, lease=6, heartbeat_interval=0.2)
boss = SeatCommands(redis.Redis.from_url(url, socket_timeout=5))


@app.task
@pool.seat(wait=60)
def work(number):
    used = boss.info(key).used
    time.sleep(0.5)
    return number, used, os.getpid()


@app.task
def crash():
    with pool.seat(wait=60):
        os._exit(1)
"""

CELERY_CALLER = """
from app import crash, work

crash.delay()
jobs = [work.delay(number) for number in range(6)]
done = [job.get(timeout=60) for job in jobs]
assert [number for number, _, _ in done] == list(range(6))
assert max(used for _, used, _ in done) <= 2, done
assert len({pid for _, _, pid in done}) > 1, done
print("done")
"""


def test_tasks_of_celerys_prefork_workers_share_the_seats(
    server: SeatServer, boss: SeatCommands, key: str, tmp_path: Path
) -> None:
    for folder in ("results", "queue", "control"):
        (tmp_path / folder).mkdir()
    (tmp_path / "app.py").write_text(CELERY)
    variables = environment(server.url, key, FOLDER=str(tmp_path))
    variables["PYTHONPATH"] += f":{tmp_path}"
    celery = [sys.executable, "-m", "celery", "-A", "app", "worker", "--pool", "prefork"]
    celery += ["-c", "3", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(celery, cwd=tmp_path, env=variables, stdout=log, stderr=log)
        try:
            caller = subprocess.run(
                [sys.executable, "-c", CELERY_CALLER],
                env=variables,
                capture_output=True,
                text=True,
                timeout=90,
            )
            said = caller.stdout + caller.stderr + (tmp_path / "log").read_text()
            assert caller.stdout == "done\n", said
        finally:
            worker.terminate()
            worker.wait(30)
    # The task that died in its block has held its seat for no longer than the lease.
    eventually("all seats are free", lambda: boss.count(key) == 0)
