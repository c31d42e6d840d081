//! SEAT.IMPORT and SEAT.EXPORT.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{ACQUIRE, HEARTBEAT, load};
use crate::support::{Dialog, Events, Server, Traces, Waiter, replicated, total};

/// A hash of JSON texts, parsed.
#[track_caller]
fn hash(dialog: &mut Dialog, key: &str) -> BTreeMap<String, Value> {
    let reply = dialog.raw(&["HGETALL", key]);
    let flat: Vec<String> =
        redis::from_redis_value(redis::parse_redis_value(&reply).expect("a reply")).expect("texts");
    flat.chunks(2)
        .map(|pair| {
            (
                pair[0].clone(),
                serde_json::from_str(&pair[1]).expect("JSON"),
            )
        })
        .collect()
}

#[track_caller]
fn set(dialog: &mut Dialog, key: &str) -> Vec<String> {
    let reply = dialog.raw(&["SMEMBERS", key]);
    let mut members: Vec<String> =
        redis::from_redis_value(redis::parse_redis_value(&reply).expect("a reply")).expect("texts");
    members.sort();
    members
}

#[test]
fn what_the_scripts_wrote_goes_there_and_back_the_same() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let (acquire, heartbeat) = (load(&mut dialog, ACQUIRE), load(&mut dialog, HEARTBEAT));
    let metadata = [
        r#"{"user_email":"a@example.com","deep":{"list":[1,2.5,null,true],"text":"\u00e9\/\ud83e\ude91"}}"#,
        r#"{}"#,
        r#"{"heartbeat_count":41}"#,
        r#"{"n":12345678901234567890,"empty":[]}"#,
    ];
    for (n, metadata) in metadata.iter().enumerate() {
        let session = format!("s{n}");
        let reply = dialog.ask_args(&["EVALSHA", &acquire, "1", "p", &session, "9", metadata]);
        assert!(reply.contains("ACQUIRED"), "{reply}");
    }
    for session in ["s0", "s2"] {
        dialog.ask(&format!("EVALSHA {heartbeat} 1 p {session}"));
    }
    dialog.expect(&format!("SADD {} bare", super::SESSIONS), "1");
    // Written by others than the scripts.
    for (session, json) in [
        ("x", r#"{"a":1}"#),
        ("y", r#"{"last_heartbeat":0,"b":[{}]}"#),
    ] {
        dialog.expect(&format!("SADD {} {session}", super::SESSIONS), "1");
        dialog.expect(&format!("HSET {} {session} {json}", super::METADATA), "1");
    }
    let before = (
        set(&mut dialog, super::SESSIONS),
        hash(&mut dialog, super::METADATA),
    );
    assert_eq!((before.0.len(), before.1.len()), (7, 6));

    let import = format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA);
    dialog.expect(&import, "7");
    dialog.expect(
        &format!("EXISTS {} {}", super::SESSIONS, super::METADATA),
        "0",
    );
    dialog.expect("SEAT.COUNT p", "7");
    assert_eq!(dialog.pool_info("p", "seats"), 7);
    dialog.expect("SEAT.HEARTBEAT p bare", "[0, METADATA_NOT_FOUND]");
    dialog.expect("SEAT.GET p bare", "nil");
    dialog.expect("SEAT.ACQUIRE p bare 1", "[1, ALREADY_ACTIVE, 7]");
    server.reloads_the_same("DEBUG RELOAD");

    dialog.expect("SEAT.EXPORT p set hash", "7");
    dialog.expect("EXISTS p", "0");
    assert_eq!((set(&mut dialog, "set"), hash(&mut dialog, "hash")), before);
    assert_eq!(
        (
            total(&server, "seat_imported"),
            total(&server, "seat_exported")
        ),
        (7, 7)
    );
}

#[test]
fn a_heartbeat_counts_on_from_what_was_imported() {
    let (_server, mut dialog) = Server::scene();
    super::fill(&mut dialog, &["a"]);
    dialog.expect(
        &format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA),
        "1",
    );
    dialog.expect(
        "SEAT.HEARTBEAT p a EX 60",
        "[1, HEARTBEAT_UPDATED, 2, 60000]",
    );
    dialog.contains("SEAT.GET p a", r#""acquired_at":1700000000,"#);
    assert!(dialog.number("SEAT.PTTL p a") > 0);
}

#[test]
fn a_session_of_the_pool_stays_and_is_not_counted() {
    let (_server, mut dialog) = Server::scene();
    dialog.acquire("p", "a", 3, r#"{"mine":1}"#);
    super::fill(&mut dialog, &["a", "b"]);
    dialog.expect(
        &format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA),
        "1",
    );
    dialog.contains("SEAT.GET p a", "mine");
    assert_eq!(dialog.pool_info("p", "seats"), 3);
    assert_eq!(dialog.sessions("p"), ["a", "b"]);
}

#[test]
fn a_set_alone_is_enough_and_a_hash_alone_has_nobody() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SADD set a b", "2");
    dialog.expect("SEAT.IMPORT p set none", "2");
    dialog.expect("HSET hash c {}", "1");
    dialog.expect("SEAT.IMPORT p none hash", "0");
    dialog.expect("EXISTS set hash", "0");
    dialog.expect("SEAT.IMPORT p none none", "0");
    dialog.expect("SEAT.IMPORT new none none", "0");
    dialog.expect("EXISTS new", "0");
    assert_eq!(dialog.sessions("p"), ["a", "b"]);
}

#[test]
fn one_invalid_entry_is_named_and_nothing_changes() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.acquire("p", "held", 9, "{}");
    super::fill(&mut dialog, &["a", "b"]);
    let import = format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA);
    for bad in [
        "nonsense",
        "[]",
        r#"{"heartbeat_count":"x"}"#,
        r#"{"acquired_at":"yesterday"}"#,
        r#"{"a":1e999}"#,
    ] {
        dialog.ask_args(&["HSET", super::METADATA, "b", bad]);
        let before = Traces::of(&server);
        dialog.begins(&import, "!ERR session b cannot be imported: ");
        assert_eq!(Traces::of(&server), before, "{bad}");
    }
    // A session's name comes back readable whatever it is.
    dialog.ask_args(&[&b"SADD"[..], super::SESSIONS.as_bytes(), b"\r\n\xff"]);
    dialog.ask_args(&[&b"HSET"[..], super::METADATA.as_bytes(), b"\r\n\xff", b"x"]);
    dialog.expect(&format!("HSET {} b {{}}", super::METADATA), "0");
    dialog.begins(&import, r"!ERR session \\r\\n\\xff cannot");
    dialog.ask_args(&["SADD", super::SESSIONS, ""]);
    dialog.ask_args(&[&b"SREM"[..], super::SESSIONS.as_bytes(), b"\r\n\xff"]);
    dialog.contains(&import, "must not be empty");
    dialog.ask_args(&["SREM", super::SESSIONS, ""]);
    dialog.expect(&import, "2");
}

#[test]
fn keys_of_other_types_are_refused_and_left_alone() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.acquire("p", "a", 9, "{}");
    dialog.expect("SET text x", "+OK");
    dialog.expect("SADD set b", "1");
    dialog.expect("HSET hash b {}", "1");
    let before = Traces::of(&server);
    for command in [
        "SEAT.IMPORT text set hash",
        "SEAT.IMPORT p text hash",
        "SEAT.IMPORT p set text",
        "SEAT.IMPORT p hash set",
        "SEAT.IMPORT p p hash",
        "SEAT.IMPORT set set hash",
        "SEAT.IMPORT p set set",
        "SEAT.EXPORT text set hash",
        "SEAT.EXPORT p text hash",
        "SEAT.EXPORT p set text",
        "SEAT.EXPORT p hash set",
    ] {
        dialog.begins(command, "!WRONGTYPE ");
        assert_eq!(Traces::of(&server), before, "{command}");
    }
    for command in [
        "SEAT.EXPORT p p hash",
        "SEAT.EXPORT p set p",
        "SEAT.EXPORT p new new",
    ] {
        dialog.begins(command, "!ERR the pool and the keys");
        assert_eq!(Traces::of(&server), before, "{command}");
    }
    for command in [
        "SEAT.IMPORT p set",
        "SEAT.EXPORT p",
        "SEAT.IMPORT p set hash more",
    ] {
        dialog.begins(command, "!ERR wrong number");
    }
    dialog.expect("SEAT.EXPORT none set hash", "0");
    assert_eq!(Traces::of(&server), before);
}

#[test]
fn a_large_pool_goes_in_batches_and_expired_sessions_stay_behind() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let sessions: Vec<String> = (0..1203).map(|n| format!("session-{n}")).collect();
    for session in &sessions {
        dialog.acquire("p", session, 5000, r#"{"n":1}"#);
    }
    dialog.expect(
        "SEAT.ACQUIRE p brief 5000 PX 1",
        "[1, ACQUIRED, 1204, 5000, 1]",
    );
    while dialog.number("SEAT.PTTL p brief") != -2 {}
    // What is there already stays.
    dialog.expect("SADD set earlier session-0", "2");
    dialog.expect("HSET hash earlier kept session-0 {}", "2");
    dialog.expect("SEAT.EXPORT p set hash", "1203");
    dialog.expect("SCARD set", "1204");
    dialog.expect("HLEN hash", "1204");
    dialog.expect("HGET hash earlier", "\"kept\"");
    dialog.contains("HGET hash session-0", r#""n":1"#);
    let digest = server.digest();
    let mut server = server;
    server.restart();
    assert_eq!(server.digest(), digest);
}

#[test]
fn both_reach_the_aof_and_the_replicas_as_what_they_did() {
    let server = Server::builder().recording().tcp().start();
    let replica = Server::builder().replica_of(&server).start();
    let mut dialog = Dialog::with(&server);
    super::fill(&mut dialog, &["a"]);
    let import = format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA);
    let sent = replicated(&server, || dialog.expect(&import, "1"));
    assert_eq!(
        sent,
        [
            "MULTI",
            "UNLINK license:p:active_sessions",
            "UNLINK license:p:session_metadata",
            "SEAT.EFFECT p IMPORT a 1 1700000000 1700000060 1 0 0 {}",
            "EXEC",
        ]
    );
    server.replica_agrees(&replica);
    let sent = replicated(&server, || dialog.expect("SEAT.EXPORT p set hash", "1"));
    assert_eq!(
        sent,
        [
            "MULTI",
            "UNLINK p",
            "SADD set a",
            r#"HSET hash a {"acquired_at":1700000000,"last_heartbeat":1700000060,"heartbeat_count":1}"#,
            "EXEC",
        ]
    );
    server.replica_agrees(&replica);
    for command in [import.as_str(), "SEAT.EXPORT p set hash"] {
        let reply = Dialog::with(&replica).ask(command);
        assert!(reply.starts_with("!READONLY"), "{command}: {reply}");
    }
}

#[test]
fn watchers_and_listeners_hear_of_all_three_keys() {
    let (server, mut dialog) = Server::scene();
    super::fill(&mut dialog, &["a", "b"]);
    let mut events = Events::matching(&server, "KA", "__keyspace@0__:*");
    let import = format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA);
    for (watched, command) in [
        ("p", import.as_str()),
        ("p", "SEAT.EXPORT p set hash"),
        ("set", "SEAT.IMPORT p set hash"),
        ("hash", "SEAT.EXPORT p set hash"),
    ] {
        let mut other = Dialog::with(&server);
        other.expect(&format!("WATCH {watched}"), "+OK");
        dialog.expect(command, "2");
        assert_eq!(other.transaction(&["PING"]), "nil array");
    }
    let expected = [
        "seat.imported p",
        "del license:p:active_sessions",
        "del license:p:session_metadata",
        "del p",
        "sadd set",
        "hset hash",
        "seat.imported p",
        "del set",
        "del hash",
        "del p",
        "sadd set",
        "hset hash",
    ];
    assert_eq!(events.take(expected.len()), expected);
}

#[test]
fn those_who_wait_at_an_exported_pool_hear_to_retry() {
    let (server, mut dialog) = Server::scene();
    dialog.acquire("p", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p b 1 BLOCK 0");
    dialog.expect("SEAT.EXPORT p set hash", "1");
    waiter.hears("!TRYAGAIN This node no longer serves this pool; retry");
    dialog.expect("EXISTS p", "0");
}

#[test]
fn a_full_memory_lets_sessions_in_and_not_out() {
    let (_server, mut dialog) = Server::scene();
    super::fill(&mut dialog, &["a", "b"]);
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    let import = format!("SEAT.IMPORT p {} {}", super::SESSIONS, super::METADATA);
    dialog.expect(&import, "2");
    dialog.begins("SEAT.EXPORT p set hash", "!OOM ");
    dialog.expect("SEAT.COUNT p", "2");
    dialog.expect("CONFIG SET maxmemory 0", "+OK");
    dialog.expect("SEAT.EXPORT p set hash", "2");
}
