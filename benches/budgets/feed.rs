//! What the feeds cost: the throughput of what is written to them, with them and without.

use std::collections::HashMap;

use crate::scale::Scale;
use crate::sides::{Host, Operation, POOL, Side, Work, shipped_settings};
use crate::speed::{CONNECTIONS, DEPTHS};
use crate::statistics::median;

/// What is written to the feed, and what to the denial feed.
pub const WRITTEN: [Operation; 2] = [Operation::Acquire, Operation::Denied];

/// With both feeds. They are short, so that nearly every entry removes another, as in a stream that
/// has been full for long.
const SETTINGS: &str = "feed seat:feed feed-maxlen 1000 denial-feed seat:denied \
                        denial-feed-maxlen 1000";

pub struct Feed {
    /// Calls a second by round: without the feeds, and with them.
    calls_per_second: HashMap<Operation, Vec<[f64; 2]>>,
}

impl Feed {
    pub fn measure(scale: &Scale) -> Feed {
        let settings = format!("{} {SETTINGS}", shipped_settings());
        let with = Host::builder(Side::Module).module_args(&settings);
        let hosts = [Host::of(Side::Module), Host::start(with)];
        let mut calls_per_second: HashMap<Operation, Vec<[f64; 2]>> = HashMap::new();
        for round in 0..scale.rounds {
            eprintln!("feed: round {} of {}", round + 1, scale.rounds);
            let mut seen = [[0.0; 2]; WRITTEN.len()];
            for turn in 0..hosts.len() {
                let side = (turn + round) % hosts.len();
                let host = &hosts[side];
                host.flush();
                let mut crowd = host.crowd(CONNECTIONS);
                let count = scale.pipelined_calls;
                // The first take all seats, and the others are denied.
                for (number, operation) in WRITTEN.into_iter().enumerate() {
                    let work = Work {
                        side: Side::Module,
                        operation,
                        pool: POOL,
                        seats: count,
                        leased: false,
                    };
                    let first = count * number as u64;
                    let calls = host.calls(&work, first..first + count);
                    let elapsed = crowd.send(&calls, DEPTHS[1]);
                    seen[number][side] = count as f64 / elapsed.as_secs_f64();
                }
            }
            for (operation, seen) in WRITTEN.into_iter().zip(seen) {
                calls_per_second.entry(operation).or_default().push(seen);
            }
        }
        Feed { calls_per_second }
    }

    /// Without the feeds, and with them.
    pub fn calls_per_second(&self, operation: Operation) -> [f64; 2] {
        let rounds = &self.calls_per_second[&operation];
        [0, 1].map(|side| median(rounds.iter().map(|seen| seen[side])))
    }

    /// The throughput with the feeds in units of that without: the median of the rounds' ratios.
    pub fn ratio(&self, operation: Operation) -> f64 {
        let rounds = self.calls_per_second[&operation].iter();
        median(rounds.map(|[without, with]| with / without))
    }
}
