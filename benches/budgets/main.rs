//! The budgets of the module: what it may cost, against the scripts that it replaces.

#[path = "../../tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the benchmarks need the servers only"
)]
mod support;

mod client;
mod machine;
mod sides;
mod speed;
mod statistics;

use sides::{Operation, Side};
use speed::{Case, DEPTHS, Speed};

/// How much is measured.
pub struct Scale {
    pub rounds: usize,
    /// Calls of a round that are sent one at a time.
    pub single_calls: u64,
    /// Calls of a round that are sent in pipelines.
    pub pipelined_calls: u64,
}

fn main() {
    machine::pin_client();
    let scale = Scale {
        rounds: 25,
        single_calls: 1000,
        pipelined_calls: 4000,
    };
    let mut speed = Speed::measure(&scale);
    for aof in [false, true] {
        for depth in DEPTHS {
            println!(
                "\naof {aof}, depth {depth}: server µs | calls/s | p50 p99 p99.9 µs | ratios to the script"
            );
            for operation in Operation::ALL {
                for side in speed.sides.clone() {
                    if !side.offers(operation) {
                        continue;
                    }
                    let case = Case {
                        aof,
                        side,
                        operation,
                        depth,
                    };
                    let script = Case {
                        side: Side::Script,
                        ..case
                    };
                    println!(
                        "{:24} {:22} {:7.2} {:9.0} {:6.1} {:6.1} {:6.1} {:5.2} {:5.2}",
                        operation.name(),
                        side.name(),
                        speed.server_micros(case),
                        speed.calls_per_second(case),
                        speed.latency_micros(case, 0.5),
                        speed.latency_micros(case, 0.99),
                        speed.latency_micros(case, 0.999),
                        speed.times_less(case, script),
                        speed.throughput_ratio(case, script),
                    );
                }
            }
        }
    }
}
