//! All commands of the module, a row each. The checks that hold for every command run from here:
//! those in `every` next to this file, and those on rights, WATCH and tracking, and LRU and LFU.
//!
//! The calls are to be made on a pool `pool` in which `a` and `b` hold two of nine seats.

use Kind::{Internal, Read, ReadLegacyKey, Write};

/// What a command does with its keys.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Reads a pool.
    Read,
    /// Reads a key of the original scripts, which is of this type where no pool has adopted it.
    ReadLegacyKey(&'static str),
    /// May change a pool.
    Write,
    /// Belongs to the server: replicas and the append-only file send it, clients may not.
    Internal,
}

/// A command as the server and its users know it.
pub struct Row {
    /// A call with as few arguments as the command takes, and all that a fixed form has.
    pub call: &'static str,
    /// More calls, with options.
    pub variants: &'static [&'static str],
    pub kind: Kind,
    /// Whether it takes the same time whatever the size of the pool.
    pub is_fast: bool,
    /// The number of arguments, the name included; the least one as a negative number.
    pub arity: i64,
    /// What the server says that the command does with each of its keys, but for `access`, which
    /// writers may add.
    pub keys: &'static [&'static str],
    /// The reply to `call` where no key is. Empty for the internal one, which refuses clients.
    pub without_key: &'static str,
    /// What COMMAND DOCS names.
    pub documents: &'static str,
}

impl Row {
    /// The name as it is written in calls.
    pub fn name(&self) -> &'static str {
        self.call.split(' ').next().expect("a name")
    }

    /// `call` and all variants.
    pub fn calls(&self) -> impl Iterator<Item = &'static str> {
        [self.call].into_iter().chain(self.variants.iter().copied())
    }

    pub fn reads(&self) -> bool {
        matches!(self.kind, Read | ReadLegacyKey(_))
    }
}

/// All rows but that of the internal command.
pub fn public() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(|row| row.kind != Internal)
}

/// The commands that a read-only user may use.
pub fn readers() -> impl Iterator<Item = &'static Row> + Clone {
    TABLE.iter().filter(|row| row.reads())
}

/// The other public ones.
pub fn writers() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(|row| row.kind == Write)
}

const READER: Row = Row {
    call: "",
    variants: &[],
    kind: Read,
    is_fast: true,
    arity: 0,
    keys: &["RO access"],
    without_key: "",
    documents: "",
};

const SLOW_READER: Row = Row {
    is_fast: false,
    ..READER
};

const SET_READER: Row = Row {
    kind: ReadLegacyKey("set"),
    ..READER
};

const HASH_READER: Row = Row {
    kind: ReadLegacyKey("hash"),
    ..READER
};

const WRITER: Row = Row {
    kind: Write,
    ..READER
};

pub const TABLE: [Row; 27] = [
    Row {
        call: "SEAT.ACQUIRE pool c 9",
        variants: &[
            "SEAT.ACQUIRE pool a 9 {}",
            "SEAT.ACQUIRE pool c 0 {}",
            "SEAT.ACQUIRE pool c 9 {} EX 60",
            "SEAT.ACQUIRE pool c 9 QUEUE 9",
            "SEAT.ACQUIRE pool c 9 {} BLOCK 9",
            "SEAT.ACQUIRE pool c 9 WEIGHT 7",
            "SEAT.ACQUIRE pool c 9 {} OWNER ann",
            "SEAT.ACQUIRE pool c 9 OWNER ann MAX 1 TAKEOVER WITHTOKEN",
        ],
        arity: -4,
        keys: &["RW insert"],
        without_key: "[1, ACQUIRED, 1, 9]",
        documents: "key session seats metadata EX PX WEIGHT OWNER MAX TAKEOVER WITHTOKEN QUEUE BLOCK optional",
        ..WRITER
    },
    Row {
        call: "SEAT.HEARTBEAT pool a",
        variants: &[
            "SEAT.HEARTBEAT pool a {} EX 60",
            "SEAT.HEARTBEAT pool x",
            "SEAT.HEARTBEAT pool a TOKEN 1",
        ],
        arity: -3,
        keys: &["RW update"],
        without_key: "[0, SESSION_NOT_ACTIVE]",
        documents: "key session metadata EX PX TOKEN optional",
        ..WRITER
    },
    Row {
        call: "SEAT.RELEASE pool a",
        variants: &["SEAT.RELEASE pool x", "SEAT.RELEASE pool a TOKEN 1"],
        arity: -3,
        keys: &["RW delete"],
        without_key: "[0, SESSION_NOT_FOUND]",
        documents: "key session TOKEN optional",
        ..WRITER
    },
    Row {
        call: "SEAT.REVOKE pool b",
        variants: &["SEAT.REVOKE pool x y z"],
        is_fast: false,
        arity: -3,
        keys: &["RW delete"],
        without_key: "0",
        documents: "key session multiple",
        ..WRITER
    },
    Row {
        call: "SEAT.REVOKEOWNER pool ann",
        is_fast: false,
        arity: 3,
        keys: &["RW delete"],
        without_key: "0",
        documents: "key owner",
        ..WRITER
    },
    Row {
        call: "SEAT.CLEANUP pool",
        variants: &["SEAT.CLEANUP pool IDLE 1000"],
        is_fast: false,
        arity: -2,
        keys: &["RW delete"],
        without_key: "[0, 0]",
        documents: "key IDLE optional",
        ..WRITER
    },
    Row {
        call: "SEAT.RESIZE pool 8",
        is_fast: false,
        arity: 3,
        keys: &["RW update"],
        without_key: "0",
        documents: "key seats",
        ..WRITER
    },
    Row {
        call: "SEAT.IMPORT pool pool:set pool:hash",
        is_fast: false,
        arity: 4,
        keys: &["RW insert", "RW delete", "RW delete"],
        without_key: "0",
        documents: "key sessions-key metadata-key",
        ..WRITER
    },
    Row {
        call: "SEAT.EXPORT pool pool:set pool:hash",
        is_fast: false,
        arity: 4,
        keys: &["RW delete", "RW insert", "RW insert"],
        without_key: "0",
        documents: "key sessions-key metadata-key",
        ..WRITER
    },
    Row {
        call: "SEAT.COUNT pool",
        arity: 2,
        without_key: "0",
        documents: "key",
        ..READER
    },
    Row {
        call: "SEAT.SESSIONS pool",
        variants: &[
            "SEAT.SESSIONS pool WITHMETADATA",
            "SEAT.SESSIONS pool WITHDETAILS",
            "SEAT.SESSIONS pool OWNER ann",
        ],
        arity: -2,
        without_key: "[]",
        documents: "key OWNER WITHMETADATA WITHDETAILS optional",
        ..SLOW_READER
    },
    Row {
        call: "SEAT.SCAN pool 0",
        variants: &[
            "SEAT.SCAN pool 0 COUNT 5",
            "SEAT.SCAN pool 0 WITHMETADATA",
            "SEAT.SCAN pool 0 WITHDETAILS",
        ],
        arity: -3,
        without_key: r#"["0", []]"#,
        documents: "key cursor COUNT WITHMETADATA WITHDETAILS optional",
        ..SLOW_READER
    },
    Row {
        call: "SEAT.GET pool a",
        variants: &["SEAT.GET pool x", "SEAT.GET pool a DETAILS"],
        arity: -3,
        without_key: "nil",
        documents: "key session DETAILS optional",
        ..READER
    },
    Row {
        call: "SEAT.OWNERS pool",
        arity: 2,
        without_key: "[]",
        documents: "key",
        ..SLOW_READER
    },
    Row {
        call: "SEAT.INFO pool",
        arity: 2,
        without_key: "nil",
        documents: "key",
        ..SLOW_READER
    },
    Row {
        call: "SEAT.PTTL pool a",
        variants: &["SEAT.PTTL pool x"],
        arity: 3,
        without_key: "-2",
        documents: "key session",
        ..READER
    },
    Row {
        call: "SEAT.QUEUE pool",
        arity: 2,
        without_key: "[]",
        documents: "key",
        ..SLOW_READER
    },
    Row {
        call: "SEAT.POSITION pool a",
        variants: &["SEAT.POSITION pool x"],
        arity: 3,
        without_key: "nil",
        documents: "key session",
        ..READER
    },
    Row {
        call: "SEAT.SISMEMBER pool:set a",
        arity: 3,
        without_key: "0",
        documents: "key session",
        ..SET_READER
    },
    Row {
        call: "SEAT.SMEMBERS pool:set",
        is_fast: false,
        arity: 2,
        without_key: "[]",
        documents: "key",
        ..SET_READER
    },
    Row {
        call: "SEAT.SCARD pool:set",
        arity: 2,
        without_key: "0",
        documents: "key",
        ..SET_READER
    },
    Row {
        call: "SEAT.HGET pool:hash a",
        arity: 3,
        without_key: "nil",
        documents: "key session",
        ..HASH_READER
    },
    Row {
        call: "SEAT.HGETALL pool:hash",
        is_fast: false,
        arity: 2,
        without_key: "[]",
        documents: "key",
        ..HASH_READER
    },
    Row {
        call: "SEAT.HEXISTS pool:hash a",
        arity: 3,
        without_key: "0",
        documents: "key session",
        ..HASH_READER
    },
    Row {
        call: "SEAT.HLEN pool:hash",
        arity: 2,
        without_key: "0",
        documents: "key",
        ..HASH_READER
    },
    Row {
        call: "SEAT.HKEYS pool:hash",
        is_fast: false,
        arity: 2,
        without_key: "[]",
        documents: "key",
        ..HASH_READER
    },
    Row {
        call: "SEAT.EFFECT pool FREE released a",
        variants: &["SEAT.EFFECT pool SEATS 3"],
        kind: Internal,
        is_fast: true,
        arity: -3,
        keys: &["RW update"],
        without_key: "",
        documents: "key field multiple",
    },
];
