//! The module as a citizen of the server.

mod acl;
mod configs;
mod described;
mod effects_by_hand;
mod events;
mod full_memory;
mod totals;
mod transactions;
mod undisturbed;

/// All commands, the internal one last.
const NAMES: [&str; 10] = [
    "seat.acquire",
    "seat.release",
    "seat.heartbeat",
    "seat.revoke",
    "seat.count",
    "seat.sessions",
    "seat.scan",
    "seat.get",
    "seat.info",
    "seat.effect",
];

/// The commands that a read-only user may use.
const READING: [&str; 5] = [
    "SEAT.COUNT pool",
    "SEAT.SESSIONS pool",
    "SEAT.SCAN pool 0",
    "SEAT.GET pool a",
    "SEAT.INFO pool",
];

/// The others, in an order in which each changes a pool that holds `a` and `b`.
const WRITING: [&str; 4] = [
    "SEAT.ACQUIRE pool c 9 {}",
    "SEAT.HEARTBEAT pool a",
    "SEAT.RELEASE pool a",
    "SEAT.REVOKE pool b",
];
