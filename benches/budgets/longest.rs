//! The longest that a single command takes while a pool grows to a million sessions, at that size,
//! and while it shrinks again: by the server's SLOWLOG.
//!
//! A server that is interrupted by other processes shows that as a long command. What a command
//! itself takes recurs at the same call when the same calls are made again. So there are several
//! passes, all alike, and a call counts with the least that it took in any of them. The longest of
//! a pass, interruptions included, is reported next to that.

use std::collections::HashMap;

use fastrand::Rng;
use redis::Value;

use crate::client::Calls;
use crate::scale::Scale;
use crate::sides::{Host, Operation, Side, Work, session};
use crate::statistics::median;

pub const SESSIONS: u64 = 1_000_000;

/// Calls of those kinds that leave the pool as it is.
const CALLS: u64 = 200_000;

const POOL: &str = "pool";

/// Shorter ones are not logged.
pub const LOGGED_MICROS: f64 = 50.0;

/// One kind of command.
pub struct Kind {
    pub name: &'static str,
    pub count: u64,
    passes: Vec<Logged>,
}

/// The logged calls of a pass, in microseconds: each by what tells it from the others, its session
/// or its cursor.
type Logged = HashMap<String, f64>;

impl Kind {
    /// The longest that a call took in every pass; [`LOGGED_MICROS`] stands for less.
    pub fn longest_micros(&self) -> f64 {
        let [first, others @ ..] = &self.passes[..] else {
            panic!("at least one pass")
        };
        let in_all = first.iter().filter_map(|(call, &micros)| {
            others.iter().try_fold(micros, |least, pass| {
                pass.get(call).map(|&micros| least.min(micros))
            })
        });
        in_all.fold(LOGGED_MICROS, f64::max)
    }

    /// The longest of a pass, the median of the passes.
    pub fn longest_of_a_pass(&self) -> f64 {
        let longest = |pass: &Logged| pass.values().copied().fold(LOGGED_MICROS, f64::max);
        median(self.passes.iter().map(longest))
    }
}

pub struct Longest {
    pub kinds: Vec<Kind>,
}

impl Longest {
    pub fn measure(scale: &Scale) -> Longest {
        let mut kinds: Vec<Kind> = Vec::new();
        for pass in 0..scale.passes {
            eprintln!("longest command: pass {} of {}", pass + 1, scale.passes);
            let host = Host::start(
                Host::builder(Side::Module)
                    .config(&format!("slowlog-log-slower-than {LOGGED_MICROS}"))
                    .config("slowlog-max-len 100000"),
            );
            for (index, (name, count, logged)) in one_pass(&host).into_iter().enumerate() {
                if pass == 0 {
                    kinds.push(Kind {
                        name,
                        count,
                        passes: Vec::new(),
                    });
                }
                kinds[index].passes.push(logged);
            }
        }
        Longest { kinds }
    }

    /// The longest of all kinds.
    pub fn worst(&self) -> f64 {
        let kinds = self.kinds.iter().map(Kind::longest_micros);
        kinds.fold(0.0, f64::max)
    }
}

/// The same calls in the same order each time.
fn one_pass(host: &Host) -> Vec<(&'static str, u64, Logged)> {
    let mut random = Rng::with_seed(0);
    let work = |operation| Work {
        side: Side::Module,
        operation,
        pool: POOL,
        seats: match operation {
            Operation::Denied => SESSIONS,
            _ => 2 * SESSIONS,
        },
        leased: true,
    };
    let of =
        |operation| move |numbers: &[u64]| host.calls(&work(operation), numbers.iter().copied());
    let simple = |name: &'static str| {
        move |numbers: &[u64]| {
            let mut calls = Calls::new("", 1);
            for &number in numbers {
                calls.command(&[name, POOL, &session(number)]);
                calls.end_call();
            }
            calls
        }
    };
    let all: Vec<u64> = (0..SESSIONS).collect();
    let mut shuffled = || {
        let mut shuffled = all.clone();
        random.shuffle(&mut shuffled);
        shuffled
    };
    // Each session once at most, so that a session tells a call.
    let mut some = || {
        let mut some = shuffled();
        some.truncate(CALLS as usize);
        some
    };
    let mut client = host.client();
    let mut run = |name, numbers: Vec<u64>, calls: &dyn Fn(&[u64]) -> Calls| {
        slowlog_reset(host);
        for numbers in numbers.chunks(10_000) {
            client.send(&calls(numbers), 100);
        }
        (name, numbers.len() as u64, slowlog(host))
    };
    let mut kinds = vec![
        run(
            "SEAT.ACQUIRE with EX, from the first session on",
            all.clone(),
            &of(Operation::Acquire),
        ),
        run(
            "SEAT.ACQUIRE with EX, already active",
            some(),
            &of(Operation::Active),
        ),
        run(
            "SEAT.ACQUIRE, denied",
            (SESSIONS..SESSIONS + CALLS).collect(),
            &of(Operation::Denied),
        ),
        run(
            "SEAT.HEARTBEAT, renewing a lease",
            some(),
            &of(Operation::Heartbeat),
        ),
        run("SEAT.GET", some(), &simple("SEAT.GET")),
        run("SEAT.PTTL", some(), &simple("SEAT.PTTL")),
    ];
    slowlog_reset(host);
    let steps = scan(host);
    kinds.push((
        "SEAT.SCAN, a step of the default COUNT",
        steps,
        slowlog(host),
    ));
    kinds.push(run(
        "SEAT.RELEASE, to the last session",
        shuffled(),
        &of(Operation::Release),
    ));
    kinds
}

/// Goes through the whole pool and returns the number of steps.
fn scan(host: &Host) -> u64 {
    let mut wire = host.server.wire();
    let mut cursor = "0".to_owned();
    for step in 1.. {
        let Value::Array(reply) = wire.value(&["SEAT.SCAN", POOL, &cursor]) else {
            panic!("SEAT.SCAN answers an array")
        };
        let [Value::BulkString(next), Value::Array(_)] = &reply[..] else {
            panic!("SEAT.SCAN answers a cursor and sessions")
        };
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            return step;
        }
    }
    unreachable!("the steps end with the cursor 0")
}

fn slowlog_reset(host: &Host) {
    redis::cmd("SLOWLOG")
        .arg("RESET")
        .exec(&mut host.server.client())
        .expect("SLOWLOG RESET");
}

/// The commands that were logged: the second argument behind the name tells one from the other.
fn slowlog(host: &Host) -> Logged {
    let entries: Vec<Vec<Value>> = redis::cmd("SLOWLOG")
        .arg(&["GET", "100000"])
        .query(&mut host.server.client())
        .expect("SLOWLOG GET");
    let mut logged = Logged::new();
    for entry in entries {
        let micros: f64 = redis::from_redis_value_ref(&entry[2]).expect("a duration");
        let command: Vec<String> = redis::from_redis_value_ref(&entry[3]).expect("a command");
        if let [_, _, call, ..] = &command[..] {
            logged.insert(call.clone(), micros);
        }
    }
    logged
}
