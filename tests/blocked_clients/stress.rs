//! Everything at once, at random.
//!
//! `SEAT_TEST_SEED` repeats a failing run's choices; how the server interleaves them is its own.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redis::{Connection, RedisError, Value};

use crate::support::{Dialog, Server, eventually, nobody_is_blocked, workload};

const CLIENTS: usize = 40;
const POOLS: [&str; 4] = ["p0", "p1", "p2", "p3"];
const MOST_SEATS: i64 = 6;

/// The number of no client. To 6.2, 0 means all.
const NOBODY: i64 = i64::MAX;

const LENGTH: Duration = Duration::from_secs(3);

/// One of the clients: what it knows of its sessions.
struct Client<'a> {
    server: &'a Server,
    ids: &'a [AtomicI64],
    number: usize,
    random: Rng,
    connection: Connection,
    sessions: u64,
    /// Sessions whose reply was a grant, and where.
    granted: Vec<(usize, String)>,
    /// Sessions whose last reply was that they have none and no ticket, or that ended without a
    /// reply.
    without: HashSet<String>,
}

impl Client<'_> {
    fn run(mut self) -> HashSet<String> {
        let start = Instant::now();
        while start.elapsed() < LENGTH {
            if let Err(error) = self.act() {
                self.survive(&error);
            }
        }
        self.without
    }

    /// A killed client connects again; a server that lets its client wait beyond all limits is a
    /// failure.
    fn survive(&mut self, error: &RedisError) {
        assert!(
            !error.is_timeout(),
            "client {} was left hanging: {error}",
            self.number
        );
        if error.is_io_error() || error.is_connection_dropped() {
            self.connection = self.server.client();
            self.send_id();
        }
    }

    fn send_id(&mut self) {
        let id = redis::cmd("CLIENT").arg("ID").query(&mut self.connection);
        self.ids[self.number].store(id.unwrap_or(NOBODY), Relaxed);
    }

    fn act(&mut self) -> Result<(), RedisError> {
        let pool = self.random.usize(..POOLS.len());
        match self.random.u32(..100) {
            0..45 => self.acquire(pool),
            45..75 => self.release(),
            75..80 => {
                let seats = self.seats().to_string();
                self.ask(&["SEAT.RESIZE", POOLS[pool], &seats])
            }
            80..85 => self.ask(&["DEL", POOLS[pool]]),
            85..90 => {
                let other = POOLS[self.random.usize(..POOLS.len())];
                self.ask(&["RENAME", POOLS[pool], other])
            }
            90..93 => self.ask(&["SEAT.CLEANUP", POOLS[pool]]),
            93..96 => {
                let id = self.id_of_someone();
                self.ask(&["CLIENT", "UNBLOCK", &id, "TIMEOUT"])
            }
            96..98 => {
                let id = self.id_of_someone();
                self.ask(&["CLIENT", "KILL", "ID", &id])
            }
            98 => self.ask(&["FLUSHDB"]),
            _ => self.ask(&["SEAT.QUEUE", POOLS[pool]]),
        }
    }

    fn seats(&mut self) -> i64 {
        self.random.i64(1..=MOST_SEATS)
    }

    fn id_of_someone(&mut self) -> String {
        self.ids[self.random.usize(..CLIENTS)]
            .load(Relaxed)
            .to_string()
    }

    fn ask(&mut self, command: &[&str]) -> Result<(), RedisError> {
        let reply: Result<Value, _> = redis::cmd(command[0])
            .arg(&command[1..])
            .query(&mut self.connection);
        reply.map(drop)
    }

    fn acquire(&mut self, pool: usize) -> Result<(), RedisError> {
        self.sessions += 1;
        let session = format!("{}-{}", self.number, self.sessions);
        let seats = self.seats();
        let mut command = redis::cmd("SEAT.ACQUIRE");
        command.arg(POOLS[pool]).arg(&session).arg(seats);
        if self.random.bool() {
            command.arg("PX").arg(self.random.u32(5..200));
        }
        let has_ticket = self.random.u32(..4) == 0;
        if has_ticket {
            command.arg("QUEUE").arg(self.random.u32(1..100));
        }
        if self.random.u32(..5) > 0 {
            command.arg("BLOCK").arg(self.random.u32(1..150));
        }
        let reply: Result<Value, _> = command.query(&mut self.connection);
        let elements = match reply {
            Ok(Value::Array(elements)) => elements,
            Ok(other) => panic!("no array: {other:?}"),
            Err(error) => {
                if !has_ticket {
                    self.without.insert(session);
                }
                return Err(error);
            }
        };
        let status: String = redis::from_redis_value(elements[1].clone()).expect("a word");
        match status.as_str() {
            "ACQUIRED" => {
                let counts = elements[2..4]
                    .iter()
                    .map(|count| redis::from_redis_value(count.clone()));
                let counts: Vec<i64> = counts.map(|count| count.expect("a count")).collect();
                assert!(
                    counts[0] <= counts[1],
                    "granted with used above seats: {elements:?}"
                );
                assert!(
                    counts[1] <= MOST_SEATS,
                    "nobody stated this limit: {elements:?}"
                );
                self.granted.push((pool, session));
            }
            "NO_SEATS_AVAILABLE" => drop(self.without.insert(session)),
            "QUEUED" => assert!(has_ticket, "{elements:?}"),
            other => panic!("{other}: {elements:?}"),
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), RedisError> {
        let Some((pool, session)) = self.granted.pop() else {
            return Ok(());
        };
        self.ask(&["SEAT.RELEASE", POOLS[pool], &session])
    }
}

/// No pool ever has more holders than the highest limit that anybody states.
fn watch(server: &Server, until: Instant) {
    let mut dialog = Dialog::with(server);
    while Instant::now() < until {
        for pool in POOLS {
            let info = dialog.ask(&format!("SEAT.INFO {pool}"));
            let mut words = info.split(", ");
            let used = words
                .by_ref()
                .skip_while(|word| !word.contains("\"used\""))
                .nth(1);
            let used: i64 = used.map_or(0, |used| used.parse().expect("a count"));
            assert!(used <= MOST_SEATS, "{pool}: {info}");
        }
    }
}

#[test]
fn forty_random_clients_never_overbook_and_leave_nothing() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let server = Server::builder()
        .recording()
        .config("appendfsync no")
        .start();
    let ids: Vec<AtomicI64> = (0..CLIENTS).map(|_| AtomicI64::new(NOBODY)).collect();
    let without: HashSet<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = Client {
                    server: &server,
                    ids: &ids,
                    number,
                    random: random.fork(),
                    connection: server.client(),
                    sessions: 0,
                    granted: Vec::new(),
                    without: HashSet::new(),
                };
                client.send_id();
                scope.spawn(move || client.run())
            })
            .collect();
        watch(&server, Instant::now() + LENGTH);
        let results = clients
            .into_iter()
            .map(|client| client.join().expect("a client that lives"));
        results.flatten().collect()
    });
    nobody_is_blocked(&server);
    let mut dialog = Dialog::with(&server);
    for pool in POOLS {
        eventually("what is to be taken back is taken back", || {
            let holders = dialog.sessions(pool);
            !holders.iter().any(|holder| without.contains(holder))
        });
    }
    // A pool whose tickets are lost is let go by the timer.
    for pool in POOLS {
        eventually(&format!("{pool} is drained"), || {
            for session in dialog.sessions(pool) {
                dialog.ask(&format!("SEAT.REVOKE {pool} {session}"));
            }
            dialog.ask(&format!("EXISTS {pool}")) == "0"
        });
    }
    let copy = Server::builder().recording().data_of(&server).start();
    assert_eq!(copy.digest(), server.digest());
    assert_eq!(copy.info("seat")["seat_ignored_effects"], "0");
}
