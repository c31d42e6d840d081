//! Random histories, replayed from the feed alone.

use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::holders::Holders;
use super::{nothing_failed, with_feed};
use crate::reliability::{figure, scale};
use crate::support::{Dialog, Server, eventually, total, workload};

/// Few, so that they meet often.
const POOLS: usize = 4;
const SESSIONS: usize = 12;
const OWNERS: usize = 3;

/// Clients that are blocked at a time.
const MOST_BLOCKED: usize = 4;

const STEPS: usize = 60;

fn pools() -> Vec<String> {
    (0..POOLS).map(|n| format!("p{n}")).collect()
}

/// What is done to the pools of one server.
struct History<'a> {
    server: &'a Server,
    dialog: Dialog,
    observer: Dialog,
    random: Rng,
    blocked: Vec<(Dialog, i64)>,
    imports: usize,
}

impl History<'_> {
    fn pool(&mut self) -> String {
        format!("p{}", self.random.usize(..POOLS))
    }

    fn session(&mut self) -> String {
        format!("s{}", self.random.usize(..SESSIONS))
    }

    fn one_in(&mut self, cases: u32) -> bool {
        self.random.u32(..cases) == 0
    }

    /// An ACQUIRE with some of its options, but for BLOCK.
    fn acquire(&mut self) -> String {
        let (pool, session, seats) = (self.pool(), self.session(), self.random.u8(..9));
        let mut command = format!("SEAT.ACQUIRE {pool} {session} {seats}");
        match self.random.u8(..8) {
            0 => command += &format!(" PX {}", self.random.u8(1..30)),
            1 | 2 => command += " EX 600",
            _ => {}
        }
        if self.one_in(3) {
            command += &format!(" WEIGHT {}", self.random.u8(1..4));
        }
        if self.one_in(2) {
            command += &format!(" OWNER o{}", self.random.usize(..OWNERS));
            if self.one_in(2) {
                command += &format!(" MAX {}", self.random.u8(1..4));
                command += if self.one_in(2) { " TAKEOVER" } else { "" };
            }
        }
        command += if self.one_in(8) { " WITHTOKEN" } else { "" };
        if self.one_in(4) {
            let ms = if self.one_in(3) { 15 } else { 60_000 };
            command += &format!(" QUEUE {ms}");
        }
        command
    }

    fn command(&mut self) -> String {
        let (pool, session) = (self.pool(), self.session());
        match self.random.u8(..20) {
            0..10 => self.acquire(),
            10 | 11 => format!("SEAT.RELEASE {pool} {session}"),
            12 => format!("SEAT.HEARTBEAT {pool} {session}"),
            13 => format!(
                "SEAT.HEARTBEAT {pool} {session} PX {}",
                self.random.u8(1..30)
            ),
            14 => {
                let (second, third) = (self.session(), self.session());
                format!("SEAT.REVOKE {pool} {session} {second} {third}")
            }
            15 => format!("SEAT.REVOKEOWNER {pool} o{}", self.random.usize(..OWNERS)),
            16 => format!("SEAT.RESIZE {pool} {}", self.random.u8(..9)),
            17 => format!("SEAT.CLEANUP {pool}"),
            _ => {
                let other = self.pool();
                match self.random.u8(..8) {
                    0 => format!("DEL {pool}"),
                    1 => format!("UNLINK {pool} {other}"),
                    2 => format!("PEXPIRE {pool} {}", self.random.u8(..5)),
                    3 | 4 => format!("RENAME {pool} {other}"),
                    5 => format!("RENAMENX {pool} {other}"),
                    6 => format!("COPY {pool} {other}"),
                    _ => format!("COPY {pool} {other} REPLACE"),
                }
            }
        }
    }

    #[track_caller]
    fn step(&mut self) {
        match self.random.u8(..24) {
            0 => {
                let commands = [(); 4].map(|()| self.command());
                let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
                self.dialog.transaction(&commands);
            }
            1 => {
                let calls = [(); 3].map(|()| {
                    let words = self.command().replace(' ', "','");
                    format!("redis.pcall('{words}')")
                });
                let script = calls.join(" ");
                let reply = self.dialog.eval(&script, &["p0", "p1", "p2", "p3"]);
                assert_eq!(reply, "nil", "{script}");
            }
            2..5 => self.block(),
            5 => self.unblock(),
            6 => thread::sleep(Duration::from_millis(self.random.u64(..8))),
            7 => self.import_or_export(),
            8 => {
                let pool = self.pool();
                self.dialog
                    .at_once(&[&format!("SET {pool} x"), &format!("DEL {pool}")]);
            }
            _ => {
                let command = self.command();
                let reply = self.dialog.ask(&command);
                let may_fail = command.starts_with("RENAME") || command.starts_with("COPY");
                assert!(may_fail || !reply.starts_with('!'), "{command}: {reply}");
            }
        }
    }

    /// One more client waits, or is answered at once.
    #[track_caller]
    fn block(&mut self) {
        if self.blocked.len() == MOST_BLOCKED {
            return self.unblock();
        }
        let acquire = self.acquire();
        let block_ms = if self.one_in(3) {
            self.random.u8(1..20)
        } else {
            0
        };
        let mut dialog = Dialog::with(self.server);
        let id = dialog.number("CLIENT ID");
        dialog.send(&format!("{acquire} BLOCK {block_ms}"));
        // Its order among the other commands is to be the same each time.
        eventually("the server has the call", || {
            let client = self.observer.ask(&format!("CLIENT LIST ID {id}"));
            client.contains("cmd=seat.acquire")
        });
        self.blocked.push((dialog, id));
    }

    /// One of those who were blocked goes.
    #[track_caller]
    fn unblock(&mut self) {
        if self.blocked.is_empty() {
            return;
        }
        let index = self.random.usize(..self.blocked.len());
        let (dialog, id) = self.blocked.swap_remove(index);
        match self.random.u8(..3) {
            0 => drop(dialog),
            1 => drop(self.dialog.ask(&format!("CLIENT KILL ID {id}"))),
            _ => drop(self.dialog.ask(&format!("CLIENT UNBLOCK {id}"))),
        }
    }

    #[track_caller]
    fn import_or_export(&mut self) {
        let pool = self.pool();
        if self.one_in(3) {
            self.dialog
                .ask(&format!("SEAT.EXPORT {pool} out-set out-hash"));
            self.dialog.succeeds("DEL out-set out-hash");
            return;
        }
        // Never the same twice, and never one that is there.
        self.imports += 1;
        let session = format!("i{}", self.imports);
        self.dialog.expect(&format!("SADD set {session}"), "1");
        self.dialog
            .expect(&format!("HSET hash {session} {{}}"), "1");
        self.dialog
            .succeeds(&format!("SEAT.IMPORT {pool} set hash"));
        self.dialog.succeeds("DEL set hash");
    }
}

#[test]
fn whoever_reads_nothing_but_the_feed_knows_who_holds_which_seats() {
    let seed = workload::seed();
    let server = with_feed().recording().tcp().start();
    let replica = Server::builder().replica_of(&server).start();
    server.wait_for_offset(&replica);
    let mut history = History {
        server: &server,
        dialog: Dialog::with(&server),
        observer: Dialog::with(&server),
        random: Rng::with_seed(seed),
        blocked: Vec::new(),
        imports: 0,
    };
    let mut holders = Holders::default();
    let mut reader = Dialog::with(&server);
    let pools = pools();
    let histories = scale(50, 1000);
    for number in 0..histories {
        let context = format!("SEAT_TEST_SEED={seed}, history {number}");
        for step in 0..STEPS {
            history.step();
            if step % 20 == 10 {
                holders.agree(&mut reader, &pools, &context);
            }
        }
        history.blocked.clear();
        holders.agree(&mut reader, &pools, &context);
        if number % 10 == 9 {
            are_alike(&server, &replica, &context);
            history.dialog.expect("FLUSHALL", "+OK");
            holders.forget();
        }
    }
    are_alike(&server, &replica, "at the end");
    for node in [&server, &replica] {
        nothing_failed(node);
        assert_eq!(total(node, "seat_ignored_effects"), 0);
    }
    // Time changes nothing any more once no lease is brief.
    eventually("the log gives the same", || {
        let digest = server.digest();
        reader.expect("DEBUG LOADAOF", "+OK");
        server.digest() == digest
    });
    figure(&format!(
        "histories replayed from the feed alone: {histories} ({} entries)",
        holders.entries()
    ));
}

/// The replica holds the same, the feed included, once it has all.
#[track_caller]
fn are_alike(server: &Server, replica: &Server, context: &str) {
    eventually(&format!("the replica holds the same, {context}"), || {
        server.wait_for_offset(replica);
        server.digest() == replica.digest()
    });
}
