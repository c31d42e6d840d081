//! What the module is trusted with: crashes, failovers, moves between nodes and versions, hostile
//! input, full memory, many clients, users with few rights.
//!
//! Each test has a short form for the suite and a full one, for `SEAT_TRUST=full`, and reports on
//! standard error how much it tried.

mod cluster;
mod crash;
mod disk;
mod eviction;
mod failover;
mod known_limits;
mod ledger;
mod load;
mod random_commands;
mod random_streams;
mod regressions;
mod security;
mod sizing;
mod soak;
mod versions;

use std::env;
use std::io::{self, Write};

/// The amount to try: `short` in the suite, `full` where `SEAT_TRUST` says so.
pub fn scale<T>(short: T, full: T) -> T {
    match env::var("SEAT_TRUST").as_deref() {
        Ok("full") => full,
        Ok(other) => panic!("SEAT_TRUST is {other:?}, but can only be \"full\""),
        Err(_) => short,
    }
}

/// Reports how much was tried. `scripts/trust` collects these lines, so they go past the test
/// harness.
pub fn figure(what: &str) {
    writeln!(io::stderr(), "trust: {what}").expect("stderr");
}
