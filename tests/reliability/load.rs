//! Many clients, many pools, and clients that do not behave.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{figure, scale};
use crate::blocked_clients::crowd::allow_many_files;
use crate::support::{Dialog, Server, Traces, Wire, eventually, workload};

const CONNECTIONS: usize = 1_000;
const POOLS: usize = 10_000;
const SEATS: i64 = 2;
const THREADS: usize = 8;

/// Each thread's connections send a command each and then read their replies, so that all thousand
/// are under way at once. Every reply is judged by what its connection knows of its own sessions.
struct Share {
    wires: Vec<Wire>,
    random: Rng,
    /// By connection: the pools that it holds a seat of. Its session has its own name in all pools.
    held: Vec<Vec<usize>>,
    first: usize,
    sent: usize,
}

enum Sent {
    Acquire(usize),
    Release(usize),
}

impl Share {
    fn round(&mut self) {
        let mut sent = Vec::with_capacity(self.wires.len());
        for connection in 0..self.wires.len() {
            let session = format!("client-{}", self.first + connection);
            let held = &mut self.held[connection];
            if held.len() > 20 || (!held.is_empty() && self.random.u8(..3) == 0) {
                let pool = held.swap_remove(self.random.usize(..held.len()));
                self.wires[connection].send(&["SEAT.RELEASE", &format!("pool-{pool}"), &session]);
                sent.push(Sent::Release(pool));
            } else {
                // Some pools are wanted by many.
                let pools = if self.random.bool() {
                    POOLS
                } else {
                    POOLS / 100
                };
                let pool = self.random.usize(..pools);
                let seats = SEATS.to_string();
                self.wires[connection].send(&[
                    "SEAT.ACQUIRE",
                    &format!("pool-{pool}"),
                    &session,
                    &seats,
                    r#"{"machine":"workstation"}"#,
                    "EX",
                    "3600",
                ]);
                sent.push(Sent::Acquire(pool));
            }
        }
        for (connection, sent) in sent.into_iter().enumerate() {
            let reply = self.wires[connection].read();
            let holds = |word: &str| {
                reply
                    .windows(word.len())
                    .any(|part| part == word.as_bytes())
            };
            let held = &mut self.held[connection];
            match sent {
                Sent::Release(pool) => {
                    assert!(holds("RELEASED"), "pool-{pool}: {}", reply.escape_ascii());
                }
                Sent::Acquire(pool) if held.contains(&pool) => {
                    assert!(
                        holds("ALREADY_ACTIVE"),
                        "pool-{pool}: {}",
                        reply.escape_ascii()
                    );
                }
                Sent::Acquire(pool) if holds("ACQUIRED") => held.push(pool),
                Sent::Acquire(pool) => {
                    assert!(
                        holds("NO_SEATS_AVAILABLE"),
                        "pool-{pool}: {}",
                        reply.escape_ascii()
                    );
                }
            }
            self.sent += 1;
        }
    }
}

#[test]
fn a_thousand_connections_share_ten_thousand_pools() {
    allow_many_files();
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let server = Server::builder().config("maxclients 2000").start();
    let each = CONNECTIONS / THREADS;
    let mut shares: Vec<Share> = (0..THREADS)
        .map(|number| Share {
            wires: (0..each).map(|_| server.wire()).collect(),
            random: random.fork(),
            held: vec![Vec::new(); each],
            first: number * each,
            sent: 0,
        })
        .collect();
    let mut dialog = Dialog::with(&server);
    for _ in 0..scale(3, 20) {
        thread::scope(|scope| {
            for share in &mut shares {
                scope.spawn(move || (0..8).for_each(|_| share.round()));
            }
        });
        let mut holders: HashMap<usize, i64> = HashMap::new();
        for pool in shares.iter().flat_map(|share| share.held.iter().flatten()) {
            *holders.entry(*pool).or_default() += 1;
        }
        for chunk in (0..POOLS).collect::<Vec<_>>().chunks(500) {
            chunk
                .iter()
                .for_each(|pool| dialog.send(&format!("SEAT.COUNT pool-{pool}")));
            for pool in chunk {
                let held = holders.get(pool).copied().unwrap_or(0);
                assert!(
                    held <= SEATS,
                    "pool-{pool}: {held} were answered that they hold a seat"
                );
                assert_eq!(dialog.read(), held.to_string(), "pool-{pool}");
            }
        }
    }
    let sent: usize = shares.iter().map(|share| share.sent).sum();
    figure(&format!(
        "commands sent: {sent} ({CONNECTIONS} connections, {POOLS} pools)"
    ));
}

/// A server with a pool whose list of sessions takes some megabytes.
fn with_a_large_pool(server: &Server) -> usize {
    let mut dialog = Dialog::with(server);
    let x = "x".repeat(1000);
    let sessions = 4_000;
    for start in (0..sessions).step_by(500) {
        let numbers = start..start + 500;
        numbers.clone().for_each(|n| {
            dialog.send(&format!("SEAT.ACQUIRE large s{n} 100000 {{\"x\":\"{x}\"}}"));
        });
        for _ in numbers {
            assert!(dialog.read().starts_with("[1, ACQUIRED"));
        }
    }
    sessions
}

#[test]
fn a_slow_reader_holds_up_nobody_and_gets_it_all() {
    let server = Server::builder()
        .config("client-output-buffer-limit normal 0 0 0")
        .start();
    let sessions = with_a_large_pool(&server);
    let mut slow = server.wire();
    for _ in 0..5 {
        slow.send(&["SEAT.SESSIONS", "large", "WITHMETADATA"]);
    }
    let mut dialog = Dialog::with(&server);
    eventually("the replies wait in the server", || {
        waiting_output(&mut dialog) > 10_000_000
    });
    let start = Instant::now();
    for n in 0..500 {
        dialog.acquire("other", &format!("s{n}"), 1000, "{}");
    }
    let others = start.elapsed();
    assert!(
        others < Duration::from_secs(5),
        "the others waited for {others:?}"
    );
    assert!(
        waiting_output(&mut dialog) > 10_000_000,
        "nobody has read yet"
    );
    for _ in 0..5 {
        let redis::Value::Array(pairs) = redis::parse_redis_value(&slow.read()).expect("a reply")
        else {
            panic!("no array");
        };
        assert_eq!(pairs.len(), 2 * sessions);
    }
}

/// The bytes that wait in the output buffers of all clients.
fn waiting_output(dialog: &mut Dialog) -> u64 {
    let clients = dialog.ask("CLIENT LIST");
    let buffers = clients
        .split(' ')
        .filter_map(|field| field.strip_prefix("omem="));
    buffers
        .map(|bytes| bytes.parse::<u64>().expect("a number of bytes"))
        .sum()
}

#[test]
fn a_client_above_the_output_limit_is_cut_and_no_other() {
    let server = Server::builder()
        .recording()
        .config("appendfsync no")
        .config("client-output-buffer-limit normal 2mb 0 0")
        .start();
    with_a_large_pool(&server);
    let before = Traces::of(&server);
    // The kernel's own buffer of a socket holds less than the reply.
    let mut greedy = UnixStream::connect(server.socket()).expect("a connection");
    for command in [
        "SEAT.SESSIONS large WITHMETADATA\r\n",
        "SEAT.SCAN large 0 COUNT 100000 WITHMETADATA\r\n",
    ] {
        greedy
            .write_all(command.as_bytes())
            .expect("the server takes it");
        eventually("the client is cut", || {
            server.log().matches("scheduled to be closed ASAP").count() > 0
        });
        eventually("its connection is closed", || {
            server.info("clients")["connected_clients"] == "1"
        });
        greedy = UnixStream::connect(server.socket()).expect("a connection");
    }
    drop(greedy);
    assert_eq!(Traces::of(&server), before);
    // Whoever reads it in pieces is served.
    let mut dialog = Dialog::with(&server);
    let reply = dialog.ask("SEAT.SCAN large 0 COUNT 100");
    let is_a_step = reply.starts_with("[\"") && !reply.starts_with("[\"0\"");
    assert!(is_a_step, "{}", &reply[..40]);
    dialog.acquire("large", "new", 100_000, "{}");
}

#[test]
fn a_waiter_cut_off_by_its_unread_output_leaves_no_seat() {
    let server = Server::builder()
        .config("client-output-buffer-limit normal 2mb 0 0")
        .start();
    with_a_large_pool(&server);
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 1, "{}");
    // Behind the wait stands what will exceed the limit as soon as the wait is over.
    let mut greedy = UnixStream::connect(server.socket()).expect("a connection");
    greedy
        .write_all(b"SEAT.ACQUIRE pool b 1 PX 200 BLOCK 0\r\nSEAT.SESSIONS large WITHMETADATA\r\n")
        .expect("the server takes it");
    dialog.queue_becomes("pool", &["b"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    eventually("the client is cut", || {
        server.log().contains("scheduled to be closed ASAP")
    });
    drop(greedy);
    // Whether its reply had left before the cut is the server's affair; its lease ends it in any
    // case.
    eventually("the seat is free", || dialog.ask("SEAT.COUNT pool") == "0");
    eventually("the pool is gone", || dialog.ask("EXISTS pool") == "0");
    dialog.one_seat_is_free("pool");
}

#[test]
fn half_a_command_is_no_command_wherever_it_is_cut() {
    let (server, mut dialog) = Server::builder()
        .recording()
        .config("appendfsync no")
        .scene();
    dialog.acquire("pool", "a", 9, "{}");
    let commands: [&[&str]; 3] = [
        &[
            "SEAT.ACQUIRE",
            "pool",
            "b",
            "9",
            r#"{"machine":"m"}"#,
            "EX",
            "60",
        ],
        &["SEAT.REVOKE", "pool", "a"],
        &["SEAT.ACQUIRE", "full", "b", "0", "BLOCK", "0"],
    ];
    let before = Traces::of(&server);
    for command in commands {
        let mut whole = format!("*{}\r\n", command.len());
        for word in command {
            whole.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        for cut in 0..whole.len() {
            let mut half = UnixStream::connect(server.socket()).expect("a connection");
            half.write_all(&whole.as_bytes()[..cut])
                .expect("the server takes it");
        }
    }
    eventually("all halves are gone", || {
        server.info("clients")["connected_clients"] == "2"
    });
    assert_eq!(Traces::of(&server), before);

    // A whole command before the half one is carried out, once.
    let whole = b"*4\r\n$12\r\nSEAT.ACQUIRE\r\n$4\r\npool\r\n$1\r\nb\r\n$1\r\n9\r\n*3\r\n$12\r\nSEAT.RELEASE\r\n$4\r\npo";
    UnixStream::connect(server.socket())
        .expect("a connection")
        .write_all(whole)
        .expect("the server takes it");
    eventually("the first is carried out", || {
        dialog.sessions("pool") == ["a", "b"]
    });
}
