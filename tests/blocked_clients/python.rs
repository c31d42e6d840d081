//! redis-py, sync and asyncio, with time-outs of its own.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Dialog, Server, nobody_is_blocked};

const SCRIPT: &str = r#"
import asyncio, os, redis, redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

url = os.environ["REDIS_URL"]
options = {"decode_responses": True, "protocol": int(os.environ["PROTOCOL"]), "retry": Retry(NoBackoff(), 0)}
denied = [0, "NO_SEATS_AVAILABLE", 1, 1]

def ask(client, *words):
    return client.execute_command(*" ".join(words).split(" "))

def connect(timeout):
    return redis.Redis.from_url(url, socket_timeout=timeout, **options)

boss = connect(30)

def joined():
    return boss.info("seat")["seat_queued"]

# The client of a busy machine may give up before the server has read its call. It asks again then.
def gives_up(client, words):
    before = joined()
    for attempt in range(20):
        try:
            ask(client, words)
        except redis.TimeoutError:
            if joined() > before:
                return
        else:
            raise AssertionError("the client was to give up")
    raise AssertionError("the server was never quick enough to read the call")

async def gives_up_asynchronously(client, words):
    before = joined()
    for attempt in range(20):
        try:
            await ask(client, words)
        except redis.TimeoutError:
            if joined() > before:
                return
        else:
            raise AssertionError("the client was to give up")
    raise AssertionError("the server was never quick enough to read the call")

assert ask(boss, "SEAT.ACQUIRE pool a 1") == [1, "ACQUIRED", 1, 1]

# Longer than BLOCK: the server answers.
with connect(30) as client:
    assert ask(client, "SEAT.ACQUIRE pool b 1 BLOCK 20") == denied
    assert ask(client, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 20") == [0, "QUEUED", 1, 1, 1]
    assert ask(client, "SEAT.RELEASE pool b") == [0, "SESSION_NOT_FOUND"]

# Shorter than BLOCK: the client gives up and closes, and its position is gone, unless it has a ticket.
with connect(0.5) as client:
    gives_up(client, "SEAT.ACQUIRE pool b 1 BLOCK 30000")
    gives_up(client, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 30000")
while ask(boss, "SEAT.POSITION pool b") is not None:
    pass
assert ask(boss, "SEAT.POSITION pool c") == 1
assert ask(boss, "SEAT.RELEASE pool a") == [1, "RELEASED", 0]
assert ask(boss, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 30000") == [1, "ACQUIRED", 1, 1]

async def asynchronous():
    def connect(timeout):
        return redis.asyncio.Redis.from_url(url, socket_timeout=timeout, **options)

    async def blocked(session):
        while await ask(boss, f"SEAT.POSITION pool {session}") is None:
            pass

    async with connect(30) as boss, connect(30) as client, connect(0.5) as hasty:
        assert await ask(client, "SEAT.ACQUIRE pool d 1 BLOCK 20") == denied
        for words in ("SEAT.ACQUIRE pool d 1 BLOCK 30000", "SEAT.ACQUIRE pool e 1 QUEUE 60000 BLOCK 30000"):
            await gives_up_asynchronously(hasty, words)
        while await ask(boss, "SEAT.POSITION pool d") is not None:
            pass
        # A task that is cancelled while it waits.
        cancelled = asyncio.create_task(ask(client, "SEAT.ACQUIRE pool f 1 BLOCK 0"))
        await blocked("f")
        cancelled.cancel()
        try:
            await cancelled
        except asyncio.CancelledError:
            pass
        while await ask(boss, "SEAT.POSITION pool f") is not None:
            pass
        # The same client waits twice at once, each time on a connection of its pool.
        first = asyncio.create_task(ask(client, "SEAT.ACQUIRE pool e 1 QUEUE 60000 BLOCK 0"))
        await blocked("e")
        second = asyncio.create_task(ask(client, "SEAT.ACQUIRE pool g 1 BLOCK 0"))
        await blocked("g")
        assert await ask(boss, "SEAT.RELEASE pool c") == [1, "RELEASED", 1]
        assert await first == [1, "ACQUIRED", 1, 1]
        assert await ask(boss, "SEAT.RELEASE pool e") == [1, "RELEASED", 1]
        assert await second == [1, "ACQUIRED", 1, 1]
        assert await ask(boss, "SEAT.RELEASE pool g") == [1, "RELEASED", 0]

asyncio.run(asynchronous())
"#;

/// The Python with redis-py: `REDIS_SEAT_PYTHON`, or the one that `make setup` prepares.
pub fn python() -> PathBuf {
    let prepared = || {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"));
        target.join("venv/bin/python")
    };
    env::var_os("REDIS_SEAT_PYTHON").map_or_else(prepared, PathBuf::from)
}

/// Runs a program on a server; `variables` are added to its environment.
#[track_caller]
fn run(server: &Server, program: &str, variables: &[(&str, &str)]) {
    let output = Command::new(python())
        .args(["-W", "error", "-c", program])
        .env("REDIS_URL", format!("unix://{}", server.socket().display()))
        .envs(variables.iter().copied())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error} (run `make setup`)", python().display()));
    assert!(
        output.status.success(),
        "{variables:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Follows the worker of docs/queue.md.
const CANCELLATIONS: &str = r#"

async def cancel():
    boss = redis.Redis.from_url(url, decode_responses=True)
    async with redis.asyncio.from_url(url, decode_responses=True, socket_timeout=None) as server:
        for number in range(30):
            assert boss.execute_command("SEAT.ACQUIRE", "gpus", "boss", 1) == [1, "ACQUIRED", 1, 1]
            job = asyncio.create_task(work(server, f"job-{number}"))
            await waits(server, f"job-{number}")
            # Nothing else runs meanwhile, so the task has not read its grant when it is cancelled.
            assert boss.execute_command("SEAT.RELEASE", "gpus", "boss") == [1, "RELEASED", 1]
            job.cancel()
            try:
                await job
            except asyncio.CancelledError:
                pass
            left = boss.execute_command("SEAT.SESSIONS", "gpus")
            assert left == [], left
    boss.close()

asyncio.run(cancel())
"#;

#[test]
fn the_documented_worker_keeps_no_seat_when_it_is_cancelled() {
    let page = include_str!("../../docs/queue.md");
    let blocks = page.split("```python\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let worker = blocks.find(|block| block.contains("async def work("));
    let worker = worker.expect("a worker in docs/queue.md");
    let (definitions, _) = worker
        .rsplit_once("asyncio.run(main())")
        .expect("the call of main");
    run(
        &Server::start(),
        &[definitions, CANCELLATIONS].concat(),
        &[],
    );
}

#[test]
fn redis_py_waits_with_time_outs_longer_and_shorter_than_block() {
    for protocol in ["2", "3"] {
        let server = Server::start();
        run(&server, SCRIPT, &[("PROTOCOL", protocol)]);
        nobody_is_blocked(&server);
        Dialog::with(&server).one_seat_is_free("pool");
    }
}
