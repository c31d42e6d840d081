//! `kill -9` and failovers amid a load: the feed and the pools agree afterwards, no entry is there
//! twice, and none is missing that belongs to an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use redis::{Client, Connection, RedisResult, Value, cmd};

use super::holders::Holders;
use super::{entries, nothing_failed, with_feed};
use crate::reliability::{figure, scale};
use crate::support::{Dialog, Server, eventually, total, workload};

const WORKERS: usize = 4;
const POOLS: [&str; 3] = ["one", "two", "three"];

/// A pool and a session, of which none is acquired a second time.
type Seat = (&'static str, String);

/// Who asks for seats, and what was answered.
struct Worker {
    number: usize,
    random: Rng,
    next: usize,
    /// Sessions that have no lease, and were not ended as far as it knows.
    held: Vec<Seat>,
    granted: BTreeSet<Seat>,
    refused: BTreeSet<Seat>,
    /// By which event they have ended.
    ended: BTreeMap<Seat, &'static str>,
    takeovers: usize,
}

/// How a worker reaches the server.
#[derive(Clone)]
struct Link {
    socket: PathBuf,
    /// Whether an answer counts only once a replica has what it was given for.
    waits: bool,
    calls: Arc<AtomicUsize>,
}

impl Link {
    fn connect(&self) -> Connection {
        let url = format!("unix://{}", self.socket.display());
        let client = Client::open(url).expect("a socket");
        client.get_connection().expect("a connection")
    }

    /// The reply, once it counts.
    fn ask(&self, connection: &mut Connection, words: &[&str]) -> RedisResult<Option<Vec<Value>>> {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        let reply = command.query(connection)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.waits {
            // 6.2 counts from before a grant by BLOCK unless something comes between.
            cmd("PING").exec(connection)?;
            let reached: usize = cmd("WAIT").arg(1).arg(1000).query(connection)?;
            if reached == 0 {
                return Ok(None);
            }
        }
        Ok(Some(reply))
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("no text: {other:?}"),
    }
}

impl Worker {
    fn new(number: usize, seed: u64) -> Worker {
        Worker {
            number,
            random: Rng::with_seed(seed.wrapping_add(number as u64)),
            next: 0,
            held: Vec::new(),
            granted: BTreeSet::new(),
            refused: BTreeSet::new(),
            ended: BTreeMap::new(),
            takeovers: 0,
        }
    }

    /// Works until the server is gone.
    fn work(mut self, link: &Link) -> Worker {
        let mut connection = link.connect();
        loop {
            if let Err(error) = self.step(&mut connection, link) {
                let is_gone = error.is_io_error() || error.is_connection_dropped();
                assert!(is_gone && !error.is_timeout(), "{error}");
                return self;
            }
        }
    }

    fn step(&mut self, connection: &mut Connection, link: &Link) -> RedisResult<()> {
        if self.held.len() > 3 || !self.held.is_empty() && self.random.u8(..3) == 0 {
            let seat = self.held.swap_remove(self.random.usize(..self.held.len()));
            let words = ["SEAT.RELEASE", seat.0, &seat.1];
            if let Some(reply) = link.ask(connection, &words)?
                && text(&reply[1]) == "RELEASED"
            {
                self.ended.insert(seat, "released");
            }
            return Ok(());
        }
        let pool = POOLS[self.random.usize(..POOLS.len())];
        self.next += 1;
        let session = format!("w{}-{}", self.number, self.next);
        let seats = self.random.u8(4..9).to_string();
        let owner = format!("o{}", self.number);
        let mut words = vec!["SEAT.ACQUIRE", pool, &session, &seats];
        let is_brief = self.random.u8(..4) == 0;
        if is_brief {
            words.extend(["PX", "20"]);
        }
        let takes_over = self.random.u8(..3) == 0;
        if takes_over {
            words.extend(["OWNER", &owner, "MAX", "2", "TAKEOVER"]);
        } else if self.random.bool() {
            words.extend(["WEIGHT", "2"]);
        }
        if self.random.u8(..3) == 0 {
            words.extend(["BLOCK", "15"]);
        }
        let Some(reply) = link.ask(connection, &words)? else {
            return Ok(());
        };
        let seat = (pool, session);
        if reply[0] == Value::Int(0) {
            self.refused.insert(seat);
            return Ok(());
        }
        assert_eq!(text(&reply[1]), "ACQUIRED");
        if let Some(Value::BulkString(old)) = reply.last()
            && takes_over
        {
            let old = (pool, String::from_utf8_lossy(old).into_owned());
            self.held.retain(|held| *held != old);
            self.ended.insert(old, "replaced");
            self.takeovers += 1;
        }
        if !is_brief {
            self.held.push(seat.clone());
        }
        self.granted.insert(seat);
        Ok(())
    }
}

/// Workers that run until their server is gone.
struct Load {
    threads: Vec<thread::JoinHandle<Worker>>,
    calls: Arc<AtomicUsize>,
}

impl Load {
    fn start(workers: Vec<Worker>, server: &Server, waits: bool) -> Load {
        let link = Link {
            socket: server.socket(),
            waits,
            calls: Arc::default(),
        };
        let calls = Arc::clone(&link.calls);
        let start = |worker: Worker| {
            let link = link.clone();
            thread::spawn(move || worker.work(&link))
        };
        Load {
            threads: workers.into_iter().map(start).collect(),
            calls,
        }
    }

    #[track_caller]
    fn answers(&self, calls: usize) {
        let start = self.calls.load(Ordering::Relaxed);
        eventually("the load goes on", || {
            let stopped = self.threads.iter().any(thread::JoinHandle::is_finished);
            assert!(!stopped, "a worker has stopped before its server");
            self.calls.load(Ordering::Relaxed) >= start + calls
        });
    }

    fn join(self) -> (Vec<Worker>, usize) {
        let threads = self.threads.into_iter();
        let workers = threads.map(|thread| thread.join().expect("a worker that is content"));
        (workers.collect(), self.calls.load(Ordering::Relaxed))
    }
}

/// The whole feed against the pools, and against all that was answered.
#[track_caller]
fn judge(server: &Server, workers: &[Worker], context: &str) -> usize {
    let mut dialog = Dialog::with(server);
    let mut holders = Holders::default();
    holders.agree(&mut dialog, &POOLS.map(str::to_owned), context);
    let mut seen: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for entry in entries(&mut dialog) {
        let field = |name| entry.field(name).to_owned();
        match entry.field("event") {
            "queued" | "left" => {}
            event => {
                let events = seen.entry((field("pool"), field("session"))).or_default();
                events.push(event.to_owned());
            }
        }
    }
    for (seat, events) in &seen {
        let is_well = events[0] == "acquired"
            && events.len() <= 2
            && events.get(1).is_none_or(|end| end != "acquired");
        assert!(is_well, "{context}: {seat:?} has {events:?}");
    }
    let events = |(pool, session): &Seat| {
        let seat = ((*pool).to_owned(), session.clone());
        seen.get(&seat).map(Vec::as_slice).unwrap_or_default()
    };
    for worker in workers {
        for seat in &worker.granted {
            assert!(!events(seat).is_empty(), "{context}: {seat:?} is missing");
        }
        for seat in &worker.refused {
            assert!(events(seat).is_empty(), "{context}: {seat:?} was refused");
        }
        for (seat, end) in &worker.ended {
            let last = events(seat).get(1).map(String::as_str);
            assert_eq!(last, Some(*end), "{context}: {seat:?}");
        }
        for seat in &worker.held {
            let has_ended = events(seat).len() > 1;
            // A takeover whose answer was lost may have ended it.
            let may_have = events(seat).get(1).is_some_and(|end| end == "replaced");
            assert!(!has_ended || may_have, "{context}: {seat:?} has ended");
        }
    }
    nothing_failed(server);
    assert_eq!(total(server, "seat_ignored_effects"), 0, "{context}");
    holders.entries()
}

fn workers(seed: u64) -> Vec<Worker> {
    (0..WORKERS)
        .map(|number| Worker::new(number, seed))
        .collect()
}

#[track_caller]
fn prove_something(workers: &[Worker], context: &str) -> (usize, usize) {
    let granted = workers.iter().map(|worker| worker.granted.len()).sum();
    let takeovers = workers.iter().map(|worker| worker.takeovers).sum();
    assert!(
        granted > 50 && takeovers > 0,
        "{context}: {granted} grants, {takeovers} takeovers"
    );
    (granted, takeovers)
}

#[test]
fn after_each_kill_the_feed_has_every_change_once() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let mut server = with_feed().recording().start();
    let mut workers = workers(seed);
    let kills = scale(4, 40);
    let (mut calls, mut read) = (0, 0);
    for kill in 0..kills {
        let context = format!("SEAT_TEST_SEED={seed}, kill {kill}");
        let load = Load::start(workers, &server, false);
        load.answers(random.usize(100..400));
        thread::sleep(Duration::from_micros(random.u64(..10_000)));
        server.kill9();
        let (stopped, answered) = load.join();
        workers = stopped;
        calls += answered;
        server.restart();
        read = judge(&server, &workers, &context);
    }
    let context = format!("SEAT_TEST_SEED={seed}");
    let (granted, takeovers) = prove_something(&workers, &context);
    figure(&format!(
        "kills after which the feed had every change once: {kills} ({calls} calls, {granted} grants, {takeovers} takeovers, {read} entries)"
    ));
}

#[test]
fn what_wait_confirmed_is_in_the_feed_of_the_promoted_node() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let mut nodes = vec![with_feed().tcp().start()];
    nodes.push(with_feed().replica_of(&nodes[0]).start());
    nodes[0].wait_for_offset(&nodes[1]);
    let mut workers = workers(seed);
    let failovers = scale(2, 20);
    let (mut calls, mut read) = (0, 0);
    for failover in 0..failovers {
        let context = format!("SEAT_TEST_SEED={seed}, failover {failover}");
        let (old, new) = (failover % 2, (failover + 1) % 2);
        let load = Load::start(workers, &nodes[old], true);
        load.answers(random.usize(150..400));
        nodes[old].kill9();
        let (stopped, answered) = load.join();
        workers = stopped;
        calls += answered;
        Dialog::with(&nodes[new]).expect("REPLICAOF NO ONE", "+OK");
        read = judge(&nodes[new], &workers, &context);
        nodes[old].restart();
        let follow = format!("REPLICAOF 127.0.0.1 {}", nodes[new].port());
        Dialog::with(&nodes[old]).begins(&follow, "+OK");
        eventually(&format!("both hold the same, {context}"), || {
            let replication = nodes[old].info("replication");
            replication
                .get("master_link_status")
                .is_some_and(|link| link == "up")
                && {
                    nodes[new].wait_for_offset(&nodes[old]);
                    nodes[new].digest() == nodes[old].digest()
                }
        });
        nothing_failed(&nodes[old]);
    }
    let context = format!("SEAT_TEST_SEED={seed}");
    let (granted, takeovers) = prove_something(&workers, &context);
    figure(&format!(
        "failovers after which the feed had what WAIT confirmed: {failovers} ({calls} calls, {granted} grants, {takeovers} takeovers, {read} entries)"
    ));
}
