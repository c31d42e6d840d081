//! A pool as a value: what the server's own commands do with it.

pub mod corrupt_payloads;
mod digest;
mod memory_usage;

use crate::support::{Dialog, Server, eventually, replicated};

/// A pool with a session of each shape: leased, counted, without metadata, with a binary id.
pub const SHAPES: [&[u8]; 5] = [
    b"plain 9 1700000000 1700000001 - 0 0 {}",
    b"counted 9 1700000002 1700000003 -7 0 0 {\"machine\":\"b\xc3\xbcro\", \"n\":[1,2]}",
    b"leased 9 1700000004 1700000005 3 86400000 4000000000000 {\"k\":1}",
    b"bare 9 1700000006 1700000007 - 0 0 -",
    b"\0\xff\r\n 9 0 4294967294 9223372036854775807 86400001 4000000000001 {\"k\":null}",
];

/// A server that takes effects from clients.
pub fn open_server() -> (Server, Dialog) {
    Server::builder().module_args("allow-effects yes").scene()
}

/// Grants a session exactly as the eight fields say, of which the last, the metadata, may have
/// spaces in it.
#[track_caller]
pub fn grant(dialog: &mut Dialog, key: &str, fields: &[u8]) {
    let fields: Vec<&[u8]> = fields.splitn(8, |&byte| byte == b' ').collect();
    let [session, numbers @ .., metadata] = &fields[..] else {
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
    assert_eq!(
        dialog.restore("again", &payload, &["REPLACE"]),
        "+OK",
        "{context}"
    );
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
    let (_server, mut dialog) = open_server();
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
    let (_server, mut dialog) = open_server();
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
    let ((_one, mut from), (_two, mut to)) = (open_server(), Server::scene());
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
        assert_eq!(to.restore(key, &payload, &[]), "+OK");
        assert_eq!(to.digest_of(key), from.digest_of(key));
        let busy = to.restore(key, &payload, &[]);
        assert!(busy.starts_with("!BUSYKEY"), "{busy}");
        exercise(&mut to, key, "restored");
    }
}

#[test]
fn it_keeps_its_contents_wherever_it_goes() {
    let (_server, mut dialog) = open_server();
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
    let (_server, mut dialog) = open_server();
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
