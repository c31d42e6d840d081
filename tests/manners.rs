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
mod uses;

/// All commands, the internal one last.
const NAMES: [&str; 25] = [
    "seat.acquire",
    "seat.release",
    "seat.heartbeat",
    "seat.revoke",
    "seat.cleanup",
    "seat.resize",
    "seat.count",
    "seat.sessions",
    "seat.scan",
    "seat.get",
    "seat.info",
    "seat.pttl",
    "seat.queue",
    "seat.position",
    "seat.import",
    "seat.export",
    "seat.sismember",
    "seat.smembers",
    "seat.scard",
    "seat.hget",
    "seat.hgetall",
    "seat.hexists",
    "seat.hlen",
    "seat.hkeys",
    "seat.effect",
];

/// The commands that a read-only user may use.
const READING: [&str; 16] = [
    "SEAT.COUNT pool",
    "SEAT.SESSIONS pool",
    "SEAT.SCAN pool 0",
    "SEAT.GET pool a",
    "SEAT.INFO pool",
    "SEAT.PTTL pool a",
    "SEAT.QUEUE pool",
    "SEAT.POSITION pool a",
    "SEAT.SISMEMBER pool:set a",
    "SEAT.SMEMBERS pool:set",
    "SEAT.SCARD pool:set",
    "SEAT.HGET pool:hash a",
    "SEAT.HGETALL pool:hash",
    "SEAT.HEXISTS pool:hash a",
    "SEAT.HLEN pool:hash",
    "SEAT.HKEYS pool:hash",
];

/// The others.
const WRITING: [&str; 8] = [
    "SEAT.ACQUIRE pool c 9 {}",
    "SEAT.HEARTBEAT pool a",
    "SEAT.RELEASE pool a",
    "SEAT.REVOKE pool b",
    "SEAT.CLEANUP pool",
    "SEAT.RESIZE pool 8",
    "SEAT.IMPORT pool pool:set pool:hash",
    "SEAT.EXPORT pool pool:set pool:hash",
];
