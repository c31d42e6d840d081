//! A pool as a value: what the server's own commands do with it.

pub mod corrupt_payloads;
mod digest;
mod memory_usage;

use crate::support::{Dialog, Server, eventually, replicated};

/// A pool with a session of each shape: leased, counted, without metadata, with a binary id.
pub const SHAPES: [&[&[u8]]; 5] = [
    &[
        b"plain",
        b"9",
        b"1700000000",
        b"1700000001",
        b"-",
        b"0",
        b"0",
        b"{}",
    ],
    &[
        b"counted",
        b"9",
        b"1700000002",
        b"1700000003",
        b"-7",
        b"0",
        b"0",
        b"{\"machine\":\"b\xc3\xbcro\", \"n\":[1,2]}",
    ],
    &[
        b"leased",
        b"9",
        b"1700000004",
        b"1700000005",
        b"3",
        b"86400000",
        b"4000000000000",
        b"{\"k\":1}",
    ],
    &[
        b"bare",
        b"9",
        b"1700000006",
        b"1700000007",
        b"-",
        b"0",
        b"0",
        b"-",
    ],
    &[
        b"\0\xff\r\n",
        b"9",
        b"0",
        b"4294967294",
        b"9223372036854775807",
        b"86400001",
        b"4000000000001",
        b"{\"k\":null}",
    ],
];

/// A server that takes effects from clients.
pub fn open_server() -> Server {
    Server::builder().module_args("allow-effects yes").start()
}

/// Grants a session exactly as the fields say.
#[track_caller]
pub fn grant(dialog: &mut Dialog, key: &str, fields: &[&[u8]]) {
    let [session, numbers @ .., metadata] = fields else {
        panic!("a session, its numbers and its metadata");
    };
    let numbers = numbers.join(&b' ');
    let command = [
        b"SEAT.EFFECT",
        key.as_bytes(),
        b"GRANT",
        session,
        &numbers,
        metadata,
    ];
    assert_eq!(dialog.ask_args(&command), "1");
}

#[track_caller]
pub fn grant_shapes(dialog: &mut Dialog, key: &str) {
    for fields in SHAPES {
        grant(dialog, key, fields);
    }
}

/// Calls everything that reads and changes a pool, and empties it; panics if the pool is not sound.
#[track_caller]
pub fn exercise(dialog: &mut Dialog, key: &str, context: &str) {
    // Expired sessions would be reclaimed between the questions.
    dialog.ask(&format!("SEAT.CLEANUP {key}"));
    let count = dialog.number(&format!("SEAT.COUNT {key}"));
    let value = dialog.raw(&["SEAT.SESSIONS", key]);
    let value = redis::parse_redis_value(&value).expect("a reply");
    let ids: Vec<Vec<u8>> = redis::from_redis_value(value).expect("ids");
    assert_eq!(ids.len() as i64, count, "{context}");
    let mut distinct = ids.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "{context}: an id twice");
    assert_eq!(dialog.pool_info(key, "used"), count, "{context}");
    assert!(dialog.number(&format!("MEMORY USAGE {key}")) > 0);
    let seats = dialog.pool_info(key, "seats");
    assert_eq!(
        dialog.pool_info(key, "available"),
        seats.saturating_sub(count).max(0),
        "{context}"
    );
    dialog.succeeds(&format!("SEAT.SESSIONS {key} WITHMETADATA"));
    dialog.begins(&format!("SEAT.SCAN {key} 0 COUNT 100000"), "[\"0\", [");
    let payload = dialog.bytes(&["DUMP", key]);
    let restored = dialog.ask_args(&[b"RESTORE", b"again".as_slice(), b"0", &payload, b"REPLACE"]);
    assert_eq!(restored, "+OK", "{context}");
    assert_eq!(
        dialog.digest_of("again"),
        dialog.digest_of(key),
        "{context}"
    );
    // A heartbeat renews a lease by its own length, which may be next to nothing: it does in the
    // copy.
    for id in &ids {
        let json = dialog.ask_args(&[b"SEAT.GET", key.as_bytes(), id]);
        let beat = dialog.ask_args(&[b"SEAT.HEARTBEAT", b"again".as_slice(), id]);
        if json == "nil" {
            assert_eq!(beat, "[0, METADATA_NOT_FOUND]", "{context}");
        } else {
            let text = dialog.bytes(&[b"SEAT.GET", key.as_bytes(), id]);
            let read: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            assert!(read["acquired_at"].is_u64(), "{context}: {read}");
            assert!(
                beat.starts_with("[1, HEARTBEAT_UPDATED"),
                "{context}: {beat}"
            );
        }
        let active = dialog.ask_args(&[b"SEAT.ACQUIRE", key.as_bytes(), id, b"1"]);
        assert_eq!(active, format!("[1, ALREADY_ACTIVE, {count}]"), "{context}");
    }
    dialog.ask("DEL again");
    let full = dialog.ask(&format!("SEAT.ACQUIRE {key} newcomer {count}"));
    assert_eq!(
        full,
        format!("[0, NO_SEATS_AVAILABLE, {count}, {count}]"),
        "{context}"
    );
    let granted = dialog.ask(&format!("SEAT.ACQUIRE {key} newcomer {}", count + 1));
    assert_eq!(
        granted,
        format!("[1, ACQUIRED, {}, {}]", count + 1, count + 1),
        "{context}"
    );
    for id in ids
        .iter()
        .map(Vec::as_slice)
        .chain([b"newcomer".as_slice()])
    {
        let released = dialog.ask_args(&[b"SEAT.RELEASE", key.as_bytes(), id]);
        assert!(
            released.starts_with("[1, RELEASED"),
            "{context}: {released}"
        );
    }
}

#[test]
fn it_has_a_type_of_its_own() {
    let server = open_server();
    let mut dialog = Dialog::with(&server);
    grant_shapes(&mut dialog, "pool");
    dialog.expect("TYPE pool", "+seat-pool");
    dialog.expect("SET text x", "+OK");
    dialog.expect("SCAN 0 TYPE seat-pool", r#"["0", ["pool"]]"#);
    dialog.expect("SCAN 0 TYPE string", r#"["0", ["text"]]"#);
    for command in [
        "OBJECT ENCODING pool",
        "OBJECT REFCOUNT pool",
        "OBJECT IDLETIME pool",
        "DEBUG OBJECT pool",
    ] {
        dialog.succeeds(command);
    }
    dialog.expect("CONFIG SET maxmemory-policy volatile-lfu", "+OK");
    let frequency = dialog.number("OBJECT FREQ pool");
    assert!(frequency >= 0);
    exercise(&mut dialog, "pool", "at the end");
    // The expiry of one lease would be far in the future; all were released.
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn a_copy_is_equal_and_independent() {
    let server = open_server();
    let mut dialog = Dialog::with(&server);
    grant_shapes(&mut dialog, "pool");
    let digest = dialog.digest_of("pool");
    dialog.expect("COPY pool copy", "1");
    assert_eq!(dialog.digest_of("copy"), digest);
    dialog.expect("SEAT.RELEASE copy plain", "[1, RELEASED, 4]");
    assert_eq!(dialog.digest_of("pool"), digest);
    let of_copy = dialog.digest_of("copy");
    assert_ne!(of_copy, digest);
    dialog.expect("SEAT.HEARTBEAT pool leased", "[1, HEARTBEAT_UPDATED, 4]");
    assert_eq!(dialog.digest_of("copy"), of_copy);
    dialog.expect("COPY pool copy", "0");
    dialog.expect("COPY pool copy REPLACE", "1");
    assert_eq!(dialog.digest_of("copy"), dialog.digest_of("pool"));
    dialog.expect("COPY pool pool DB 2", "1");
    exercise(&mut dialog, "copy", "the copy");
    dialog.expect("DEL pool", "1");
    dialog.expect("SELECT 2", "+OK");
    exercise(&mut dialog, "pool", "the copy in another database");
}

#[test]
fn a_dump_is_restored_on_another_server() {
    let (one, two) = (open_server(), Server::start());
    let (mut from, mut to) = (Dialog::with(&one), Dialog::with(&two));
    grant_shapes(&mut from, "pool");
    for n in 0..3000 {
        from.send(&format!(
            "SEAT.ACQUIRE large session-{n} 3000 {{\"machine\":\"{}\"}}",
            "m".repeat(n % 200)
        ));
    }
    for _ in 0..3000 {
        assert!(from.read().contains("ACQUIRED"));
    }
    for key in ["pool", "large"] {
        let payload = from.bytes(&["DUMP", key]);
        let restored = to.ask_args(&[b"RESTORE", key.as_bytes(), b"0", &payload]);
        assert_eq!(restored, "+OK");
        assert_eq!(to.digest_of(key), from.digest_of(key));
        let busy = to.ask_args(&[b"RESTORE", key.as_bytes(), b"0", &payload]);
        assert!(busy.starts_with("!BUSYKEY"), "{busy}");
        exercise(&mut to, key, "restored");
    }
}

#[test]
fn it_keeps_its_contents_wherever_it_goes() {
    let server = open_server();
    let mut dialog = Dialog::with(&server);
    grant_shapes(&mut dialog, "pool");
    let digest = dialog.digest_of("pool");
    dialog.expect("RENAME pool renamed", "+OK");
    dialog.expect("SEAT.COUNT pool", "0");
    assert_eq!(dialog.digest_of("renamed"), digest);
    dialog.expect("MOVE renamed 1", "1");
    dialog.expect("SEAT.COUNT renamed", "0");
    dialog.expect("SWAPDB 0 1", "+OK");
    assert_eq!(dialog.digest_of("renamed"), digest);
    dialog.expect("DEBUG RELOAD", "+OK");
    assert_eq!(dialog.digest_of("renamed"), digest);
    exercise(&mut dialog, "renamed", "after the journey");
}

#[test]
fn it_expires_as_any_key() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    dialog.expect("EXPIRE pool 1000", "1");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    assert!(
        dialog.number("TTL pool") > 900,
        "a heartbeat keeps the key's TTL"
    );
    dialog.expect("PERSIST pool", "1");
    dialog.expect("TTL pool", "-1");
    // The key must be found expired by the command itself.
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    dialog.expect("PEXPIRE pool 1", "1");
    eventually("the key has expired", || {
        dialog.ask("SEAT.COUNT pool") == "0"
    });
    dialog.expect("SEAT.SESSIONS pool", "[]");
    dialog.expect("SEAT.GET pool a", "nil");
    dialog.expect("SEAT.INFO pool", "nil");
    dialog.expect("SEAT.ACQUIRE pool b 1 {}", "[1, ACQUIRED, 1, 1]");
    dialog.expect("TTL pool", "-1");
    assert_eq!(dialog.sessions("pool"), ["b"]);
    dialog.expect("PEXPIRE pool 1", "1");
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 1", "+OK");
    eventually("the key is gone", || dialog.ask("DBSIZE") == "0");
    let lines = replicated(&server, || {
        dialog.acquire("pool", "c", 1, "{}");
        dialog.expect("PEXPIREAT pool 1", "1");
        dialog.expect("SEAT.RELEASE pool c", "[0, SESSION_NOT_FOUND]");
    });
    assert!(!lines.iter().any(|line| line.contains("FREE")), "{lines:?}");
}

#[test]
fn deleting_and_overwriting_end_it() {
    let server = open_server();
    let mut dialog = Dialog::with(&server);
    for end in [
        "DEL pool",
        "UNLINK pool",
        "SET pool x",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "RENAME other pool",
    ] {
        dialog.expect("FLUSHALL", "+OK");
        dialog.expect("SET other x", "+OK");
        grant_shapes(&mut dialog, "pool");
        dialog.succeeds(end);
        dialog.ask("DEL pool");
        dialog.expect("SEAT.COUNT pool", "0");
        dialog.expect("SEAT.ACQUIRE pool plain 1 {}", "[1, ACQUIRED, 1, 1]");
    }
}
