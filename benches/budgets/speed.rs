//! What a call costs: the server's time, throughput and latency, on each side of the comparison.

use std::collections::HashMap;
use std::time::Duration;

use crate::scale::Scale;
use crate::sides::{Host, Operation, POOL, Side, Work};
use crate::statistics::{median, quantile_micros};

/// Calls in a pipeline. One at a time come from one connection; pipelines from many, so that the
/// server never waits for the next.
pub const DEPTHS: [usize; 2] = [1, 16];
pub const CONNECTIONS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    pub aof: bool,
    pub side: Side,
    pub operation: Operation,
    pub depth: usize,
}

/// One round of a case.
struct Sample {
    /// The server's own time for a call.
    server_micros: f64,
    calls_per_second: f64,
}

pub struct Speed {
    pub sides: Vec<Side>,
    samples: HashMap<Case, Vec<Sample>>,
    round_trips: HashMap<Case, Vec<Duration>>,
}

impl Speed {
    pub fn measure(scale: &Scale, sides: &[Side]) -> Speed {
        let [module, other, noop] = [Side::Module, Side::Script, Side::Noop].map(|side| {
            let aof = Host::builder(side)
                .config("appendonly yes")
                .config("appendfsync everysec")
                .config("auto-aof-rewrite-percentage 0");
            [Host::of(side), Host::start(aof)]
        });
        let mut speed = Speed {
            sides: sides.to_vec(),
            samples: HashMap::new(),
            round_trips: HashMap::new(),
        };
        for round in 0..scale.rounds {
            eprintln!("calls: round {} of {}", round + 1, scale.rounds);
            for aof in [false, true] {
                for turn in 0..sides.len() {
                    let side = sides[(turn + round) % sides.len()];
                    let hosts = match side {
                        Side::Module => &module,
                        Side::Noop => &noop,
                        _ => &other,
                    };
                    speed.round(&hosts[usize::from(aof)], side, aof, scale);
                }
            }
        }
        speed
    }

    fn round(&mut self, host: &Host, side: Side, aof: bool, scale: &Scale) {
        host.flush();
        let all = scale.single_calls + scale.pipelined_calls;
        let (mut client, mut crowd) = (host.client(), host.crowd(CONNECTIONS));
        for operation in Operation::ALL {
            if !side.offers(operation) {
                continue;
            }
            let mut sessions: Vec<u64> = match operation {
                Operation::Denied => (all..2 * all).collect(),
                _ => (0..all).collect(),
            };
            if operation != Operation::Acquire {
                fastrand::shuffle(&mut sessions);
            }
            let (single, pipelined) = sessions.split_at(scale.single_calls as usize);
            for (depth, sessions) in DEPTHS.into_iter().zip([single, pipelined]) {
                let work = Work {
                    side,
                    operation,
                    pool: POOL,
                    seats: all,
                    leased: false,
                };
                let calls = host.calls(&work, sessions.iter().copied());
                host.reset_stats();
                let (elapsed, round_trips) = if depth == 1 {
                    let seen = client.send(&calls, depth);
                    (seen.elapsed, seen.round_trips)
                } else {
                    (crowd.send(&calls, depth), Vec::new())
                };
                let server_micros = host.server_micros(side.commands(operation));
                let count = calls.len() as f64;
                let case = Case {
                    aof,
                    side,
                    operation,
                    depth,
                };
                self.samples.entry(case).or_default().push(Sample {
                    server_micros: server_micros / count,
                    calls_per_second: count / elapsed.as_secs_f64(),
                });
                self.round_trips
                    .entry(case)
                    .or_default()
                    .extend(round_trips);
            }
        }
    }

    fn samples(&self, case: Case) -> &[Sample] {
        &self.samples[&case]
    }

    pub fn server_micros(&self, case: Case) -> f64 {
        median(self.samples(case).iter().map(|sample| sample.server_micros))
    }

    pub fn calls_per_second(&self, case: Case) -> f64 {
        median(
            self.samples(case)
                .iter()
                .map(|sample| sample.calls_per_second),
        )
    }

    /// How often the server's time of `case` fits into that of `other`: the median of the rounds'
    /// ratios.
    pub fn times_less(&self, case: Case, other: Case) -> f64 {
        let pairs = self.samples(case).iter().zip(self.samples(other));
        median(pairs.map(|(one, other)| other.server_micros / one.server_micros))
    }

    /// The throughput of `case` in units of that of `other`: the median of the rounds' ratios.
    pub fn throughput_ratio(&self, case: Case, other: Case) -> f64 {
        let pairs = self.samples(case).iter().zip(self.samples(other));
        median(pairs.map(|(one, other)| one.calls_per_second / other.calls_per_second))
    }

    /// Round trips of all rounds, in microseconds.
    pub fn latency_micros(&mut self, case: Case, part: f64) -> f64 {
        quantile_micros(self.round_trips.get_mut(&case).expect("a case"), part)
    }
}
