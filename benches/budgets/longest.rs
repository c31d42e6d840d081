//! The longest that a single command takes while a pool grows to a million sessions, at that size, and while it shrinks again: by the
//! server's SLOWLOG.
//!
//! A server that is interrupted by other processes shows that as a long command. So each figure is the median of several passes,
//! and beside them stands the longest of a million PINGs.

use redis::Value;

use crate::Scale;
use crate::client::Calls;
use crate::sides::{Host, Operation, Side, Work, session};
use crate::statistics::median;

pub const SESSIONS: u64 = 1_000_000;

/// Calls of those kinds that leave the pool as it is.
const CALLS: u64 = 200_000;

const POOL: &str = "pool";

/// Shorter ones are not logged.
pub const LOGGED_MICROS: f64 = 50.0;

/// One kind of command with the longest of each pass, in microseconds.
pub struct Kind {
    pub name: &'static str,
    pub count: u64,
    passes: Vec<f64>,
}

impl Kind {
    /// The median of the passes; [`LOGGED_MICROS`] stands for less.
    pub fn longest_micros(&self) -> f64 {
        median(self.passes.iter().copied())
    }
}

pub struct Longest {
    pub kinds: Vec<Kind>,
    pub ping: Kind,
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
            for (index, (name, count, micros)) in one_pass(&host).into_iter().enumerate() {
                if pass == 0 {
                    kinds.push(Kind {
                        name,
                        count,
                        passes: Vec::new(),
                    });
                }
                kinds[index].passes.push(micros);
            }
        }
        let ping = kinds.remove(0);
        Longest { kinds, ping }
    }

    /// The longest of all kinds.
    pub fn worst(&self) -> f64 {
        let kinds = self.kinds.iter().map(Kind::longest_micros);
        kinds.fold(0.0, f64::max)
    }
}

fn one_pass(host: &Host) -> Vec<(&'static str, u64, f64)> {
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
                match name {
                    "PING" => calls.command(&["PING"]),
                    _ => calls.command(&[name, POOL, &session(number)]),
                }
                calls.end_call();
            }
            calls
        }
    };
    let all = || (0..SESSIONS).collect::<Vec<_>>();
    let shuffled = || {
        let mut all = all();
        fastrand::shuffle(&mut all);
        all
    };
    let some = || {
        (0..CALLS)
            .map(|_| fastrand::u64(..SESSIONS))
            .collect::<Vec<_>>()
    };
    let mut client = host.client();
    let mut run = |name, numbers: Vec<u64>, calls: &dyn Fn(&[u64]) -> Calls| {
        slowlog_reset(host);
        for numbers in numbers.chunks(10_000) {
            client.send(&calls(numbers), 16);
        }
        (name, numbers.len() as u64, slowlog_longest(host))
    };
    let mut kinds = vec![
        run("PING", all(), &simple("PING")),
        run(
            "SEAT.ACQUIRE with EX, from the first session on",
            all(),
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
        slowlog_longest(host),
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

/// The longest command that was logged.
fn slowlog_longest(host: &Host) -> f64 {
    let entries: Vec<Vec<Value>> = redis::cmd("SLOWLOG")
        .arg(&["GET", "100000"])
        .query(&mut host.server.client())
        .expect("SLOWLOG GET");
    let micros = entries.iter().map(|entry| match entry[2] {
        Value::Int(micros) => micros as f64,
        ref other => panic!("a duration and not {other:?}"),
    });
    micros.fold(LOGGED_MICROS, f64::max)
}
