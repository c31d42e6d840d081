//! What each command answers.

mod bad_input;
mod every;
mod scan;
pub mod table;

use serde_json::{Value, json};

use crate::support::{Dialog, Server, busy_seconds};

/// The server's clock in seconds.
fn server_seconds(dialog: &mut Dialog) -> i64 {
    let reply = dialog.ask("TIME");
    let seconds = reply.split('"').nth(1).expect("seconds and microseconds");
    seconds.parse().expect("a number")
}

fn json_of(dialog: &mut Dialog, key: &str, session: &str) -> Value {
    let text = dialog.bytes(&["SEAT.GET", key, session]);
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {}", text.escape_ascii()))
}

#[test]
fn acquire_grants_until_full_and_answers_holders_already_active() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 2 {}", "[1, ACQUIRED, 1, 2]");
    dialog.expect("SEAT.ACQUIRE pool b 2", "[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.ACQUIRE pool c 2 {}", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    dialog.expect("SEAT.ACQUIRE pool a 2 {}", "[1, ALREADY_ACTIVE, 2]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.ACQUIRE pool c 2 {}", "[1, ACQUIRED, 2, 2]");
}

#[test]
fn each_acquire_states_its_own_limit() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 1 {}", "[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.ACQUIRE pool b 3 {}", "[1, ACQUIRED, 2, 3]");
    dialog.expect("SEAT.ACQUIRE pool c 1 {}", "[0, NO_SEATS_AVAILABLE, 2, 1]");
    dialog.expect("SEAT.ACQUIRE pool a 1 {}", "[1, ALREADY_ACTIVE, 2]");
    assert_eq!(
        dialog.pool_info("pool", "seats"),
        3,
        "answers do not set the limit"
    );
    for seats in ["0", "-1", "-9223372036854775808"] {
        dialog.expect(
            &format!("SEAT.ACQUIRE pool d {seats} {{}}"),
            &format!("[0, NO_SEATS_AVAILABLE, 2, {seats}]"),
        );
        dialog.expect(
            &format!("SEAT.ACQUIRE empty d {seats} {{}}"),
            &format!("[0, NO_SEATS_AVAILABLE, 0, {seats}]"),
        );
    }
    dialog.expect("EXISTS empty", "0");
    dialog.expect(
        "SEAT.ACQUIRE pool d 9223372036854775807 {}",
        "[1, ACQUIRED, 3, 9223372036854775807]",
    );
}

#[test]
fn metadata_is_looked_at_only_when_a_seat_is_granted() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 1 nonsense",
        "!ERR metadata must be a JSON object (RFC 8259, UTF-8)",
    );
    dialog.expect("SEAT.ACQUIRE pool a 1 {}", "[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.ACQUIRE pool a 1 nonsense", "[1, ALREADY_ACTIVE, 1]");
    dialog.expect(
        "SEAT.ACQUIRE pool b 1 nonsense",
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
}

#[test]
fn get_gives_the_metadata_as_sent_with_the_pools_own_appended() {
    let (_server, mut dialog) = Server::scene();
    let before = server_seconds(&mut dialog);
    let metadata = r#" { "n" : 12345678901234567890, "e": [], "x":{"y":"é\u00e9\/"},"n":1.50 } "#;
    dialog.acquire("pool", "a", 9, metadata);
    let text = dialog.bytes(&["SEAT.GET", "pool", "a"]);
    let after = server_seconds(&mut dialog);
    let text = String::from_utf8(text).expect("UTF-8");
    let read: Value = serde_json::from_str(&text).expect("JSON");
    let acquired_at = read["acquired_at"].as_i64().expect("seconds");
    assert!((before..=after).contains(&acquired_at), "{text}");
    let sent = metadata.trim().trim_end_matches('}').trim_end();
    let (kept, appended) = text.split_at(sent.len());
    assert_eq!(kept, sent);
    assert_eq!(
        appended.trim_start(),
        format!(r#","acquired_at":{acquired_at},"last_heartbeat":{acquired_at}}}"#)
    );
}

#[test]
fn metadata_left_out_are_an_empty_object() {
    let (_server, mut dialog) = Server::scene();
    for (session, command) in [
        ("a", "SEAT.ACQUIRE pool a 5"),
        ("b", "SEAT.ACQUIRE pool b 5 {}"),
        ("c", "SEAT.ACQUIRE pool c 5 {\"acquired_at\":1}"),
    ] {
        dialog.contains(command, "ACQUIRED");
        let read = json_of(&mut dialog, "pool", session);
        let names: Vec<_> = read.as_object().expect("an object").keys().collect();
        assert_eq!(names, ["acquired_at", "last_heartbeat"], "{read}");
        let text = dialog.bytes(&["SEAT.GET", "pool", session]);
        let at = &read["acquired_at"];
        assert_eq!(
            String::from_utf8_lossy(&text),
            format!(r#"{{"acquired_at":{at},"last_heartbeat":{at}}}"#)
        );
    }
}

#[test]
fn the_pools_own_names_cannot_be_forged_however_they_are_spelled() {
    let (_server, mut dialog) = Server::scene();
    let metadata = r#"{"acquired\u005fat":1,"k":2,"last_heartbeat":"never","heartbeat\u005fcount":40,"acquired_at":{}}"#;
    dialog.acquire("pool", "a", 9, metadata);
    let text = dialog.bytes(&["SEAT.GET", "pool", "a"]);
    let text = String::from_utf8(text).expect("UTF-8");
    assert_eq!(
        text.matches("at\":").count() + text.matches("at\" :").count(),
        2,
        "{text}"
    );
    let read: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&read["k"], &read["heartbeat_count"]),
        (&json!(2), &json!(40))
    );
    assert!(read["acquired_at"].as_i64() > Some(1_600_000_000), "{text}");
    assert_eq!(read["acquired_at"], read["last_heartbeat"]);
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 41]");
}

#[test]
fn release_takes_back_what_is_held_and_nothing_else() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]");
    dialog.acquire_all("pool", &["a", "b"], 5);
    dialog.expect("SEAT.RELEASE pool c", "[0, SESSION_NOT_FOUND]");
    dialog.expect("SEAT.RELEASE pool A", "[0, SESSION_NOT_FOUND]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]");
    dialog.expect("EXISTS pool", "1");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.expect("EXISTS pool", "0");
    dialog.expect("TYPE pool", "+none");
}

#[test]
fn heartbeats_are_counted_and_their_metadata_not_kept() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]");
    dialog.acquire("pool", "a", 5, r#"{"k":1}"#);
    dialog.acquire("pool", "b", 5, r#"{"heartbeat_count":-2}"#);
    dialog.expect("SEAT.HEARTBEAT pool c {}", "[0, SESSION_NOT_ACTIVE]");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect(
        "SEAT.HEARTBEAT pool a {\"k\":2}",
        "[1, HEARTBEAT_UPDATED, 2]",
    );
    dialog.expect(
        "SEAT.HEARTBEAT pool a nonsense",
        "[1, HEARTBEAT_UPDATED, 3]",
    );
    dialog.expect("SEAT.HEARTBEAT pool b", "[1, HEARTBEAT_UPDATED, -1]");
    dialog.expect("SEAT.HEARTBEAT pool b", "[1, HEARTBEAT_UPDATED, 0]");
    let read = json_of(&mut dialog, "pool", "a");
    assert_eq!(
        (&read["k"], &read["heartbeat_count"]),
        (&json!(1), &json!(3))
    );
    dialog.expect("SEAT.COUNT pool", "2");
}

#[test]
fn a_heartbeat_sets_its_own_time_and_not_that_of_the_grant() {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    dialog.expect(
        "SEAT.EFFECT pool GRANT a '5 1000000000 1000000001 - 0 0' {}",
        "1",
    );
    let read = json_of(&mut dialog, "pool", "a");
    assert_eq!(
        read,
        json!({"acquired_at": 1_000_000_000, "last_heartbeat": 1_000_000_001})
    );
    let before = server_seconds(&mut dialog);
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    let after = server_seconds(&mut dialog);
    let read = json_of(&mut dialog, "pool", "a");
    assert_eq!(read["acquired_at"], 1_000_000_000);
    let last = read["last_heartbeat"].as_i64().expect("seconds");
    assert!((before..=after).contains(&last), "{read}");
}

#[test]
fn a_session_without_metadata_has_no_heartbeats() {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    dialog.expect(
        "SEAT.EFFECT pool GRANT a '5 1000000000 1000000000 - 0 0' -",
        "1",
    );
    dialog.expect("SEAT.HEARTBEAT pool a", "[0, METADATA_NOT_FOUND]");
    dialog.expect("SEAT.GET pool a", "nil");
    dialog.expect("SEAT.COUNT pool", "1");
    dialog.expect("SEAT.ACQUIRE pool a 5 {}", "[1, ALREADY_ACTIVE, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
}

#[test]
fn sessions_lists_ids_or_pairs_or_a_map_where_the_server_can() {
    let (server, mut dialog) = Server::scene();
    let mut modern = Dialog::in_resp3(&server);
    dialog.expect("SEAT.SESSIONS pool", "[]");
    dialog.expect("SEAT.SESSIONS pool WITHMETADATA", "[]");
    dialog.acquire("pool", "a", 5, r#"{"k":1}"#);
    dialog.expect("SEAT.SESSIONS pool", r#"["a"]"#);
    modern.expect("SEAT.SESSIONS pool", r#"["a"]"#);
    let json = dialog.ask("SEAT.GET pool a");
    dialog.expect(
        "SEAT.SESSIONS pool WithMetaData",
        &format!(r#"["a", {json}]"#),
    );
    // Modules cannot reply with a map before 7.0.
    let (pairs, none) = if server.version() >= (7, 0, 0) {
        (format!(r#"{{"a": {json}}}"#), "{}")
    } else {
        (format!(r#"["a", {json}]"#), "[]")
    };
    modern.expect("SEAT.SESSIONS pool withmetadata", &pairs);
    modern.expect("SEAT.SESSIONS none WITHMETADATA", none);
    for n in 0..300 {
        dialog.acquire("many", &format!("s{n:03}"), 300, "{}");
    }
    let all: Vec<_> = (0..300).map(|n| format!("s{n:03}")).collect();
    assert_eq!(dialog.sessions("many"), all);
}

#[test]
fn info_describes_the_pool() {
    let (server, mut dialog) = Server::scene();
    let mut modern = Dialog::in_resp3(&server);
    dialog.expect("SEAT.INFO pool", "nil");
    modern.expect("SEAT.INFO pool", "null");
    dialog.acquire("pool", "a", 2, "{}");
    dialog.acquire("pool", "b", 7, "{}");
    dialog.expect("SEAT.ACQUIRE pool c 2", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    let memory = dialog.pool_info("pool", "memory_bytes");
    assert!(memory > 0);
    let fields = [
        ("seats", 7),
        ("used", 2),
        ("available", 5),
        ("kept", 0),
        ("waiting", 0),
        ("leased", 0),
        ("next_deadline_ms", -1),
        ("memory_bytes", memory),
        ("sessions", 2),
        ("owners", 0),
        ("denied", 1),
        ("peak_used", 2),
    ];
    let written = |between: &str| {
        let pairs = fields.map(|(name, value)| format!("\"{name}\"{between}{value}"));
        pairs.join(", ")
    };
    dialog.expect("SEAT.INFO pool", &format!("[{}]", written(", ")));
    if server.version() >= (7, 0, 0) {
        modern.expect("SEAT.INFO pool", &format!("{{{}}}", written(": ")));
    } else {
        modern.expect("SEAT.INFO pool", &format!("[{}]", written(", ")));
    }
}

#[test]
fn nothing_is_available_in_a_pool_above_its_limit() {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    for session in ["a", "b", "c"] {
        dialog.expect(
            &format!("SEAT.EFFECT pool GRANT {session} '2 9 9 - 0 0' {{}}"),
            "1",
        );
    }
    assert_eq!(dialog.pool_info("pool", "used"), 3);
    assert_eq!(dialog.pool_info("pool", "available"), 0);
    dialog.expect("SEAT.ACQUIRE pool d 3 {}", "[0, NO_SEATS_AVAILABLE, 3, 3]");
}

#[test]
fn get_knows_only_who_holds_a_seat() {
    let (server, mut dialog) = Server::scene();
    let mut modern = Dialog::in_resp3(&server);
    dialog.expect("SEAT.GET pool a", "nil");
    modern.expect("SEAT.GET pool a", "null");
    dialog.acquire("pool", "a", 2, "{}");
    dialog.expect("SEAT.GET pool b", "nil");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.GET pool a", "nil");
}

#[test]
fn revoke_removes_each_named_holder_once() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.REVOKE pool a b", "0");
    dialog.acquire_all("pool", &["a", "b", "c", "d"], 4);
    dialog.expect("SEAT.REVOKE pool x y", "0");
    dialog.expect("SEAT.REVOKE pool a x a b a", "2");
    assert_eq!(dialog.sessions("pool"), ["c", "d"]);
    // The pool empties before the last name is reached.
    dialog.expect("SEAT.REVOKE pool c d c x", "2");
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn a_released_session_starts_afresh() {
    let (_server, mut dialog) = Server::scene();
    dialog.acquire("pool", "a", 4, r#"{"old":1}"#);
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.acquire("pool", "a", 4, r#"{"new":1}"#);
    let read = json_of(&mut dialog, "pool", "a");
    assert!(
        read.get("old").is_none() && read.get("heartbeat_count").is_none(),
        "{read}"
    );
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
}

#[test]
fn keys_and_ids_are_bytes() {
    let (_server, mut dialog) = Server::scene();
    let ids: [&[u8]; 6] = [
        b"\0",
        b"\xff\xfe",
        b"a b",
        b"a\r\nb",
        "sesión".as_bytes(),
        &[7; 1024],
    ];
    for (n, id) in ids.iter().enumerate() {
        let reply = dialog.ask_args(&[b"SEAT.ACQUIRE", b"po\0ol".as_slice(), id, b"9", b"{}"]);
        assert_eq!(reply, format!("[1, ACQUIRED, {}, 9]", n + 1));
    }
    for id in ids {
        let reply = dialog.ask_args(&[b"SEAT.HEARTBEAT", b"po\0ol".as_slice(), id]);
        assert_eq!(reply, "[1, HEARTBEAT_UPDATED, 1]");
        let listed = dialog.ask_args(&[b"SEAT.SESSIONS".as_slice(), b"po\0ol"]);
        assert!(
            listed.contains(&format!("\"{}\"", id.escape_ascii())),
            "{listed}"
        );
        let reply = dialog.ask_args(&[b"SEAT.RELEASE", b"po\0ol".as_slice(), id]);
        assert!(reply.starts_with("[1, RELEASED"), "{reply}");
    }
    dialog.expect("DBSIZE", "0");
}

#[test]
fn commands_are_named_in_any_case() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("seat.acquire pool a 1 {}", "[1, ACQUIRED, 1, 1]");
    dialog.expect("Seat.Count pool", "1");
    dialog.expect("sEAT.rELEASE pool a", "[1, RELEASED, 0]");
}

#[test]
fn pools_of_one_name_in_two_databases_are_two() {
    let (_server, mut dialog) = Server::full_pool();
    dialog.expect("SELECT 1", "+OK");
    dialog.expect("SEAT.COUNT pool", "0");
    dialog.acquire("pool", "b", 1, "{}");
    dialog.expect("SELECT 0", "+OK");
    assert_eq!(dialog.sessions("pool"), ["a"]);
}

#[test]
fn revoking_takes_time_linear_in_the_sessions() {
    let (server, mut dialog) = Server::scene();
    let mut revoke = |sessions: usize| -> u64 {
        let names: Vec<String> = (0..sessions).map(|n| format!("s{n}")).collect();
        for chunk in names.chunks(500) {
            for name in chunk {
                dialog.send(&format!("SEAT.ACQUIRE pool {name} {sessions}"));
            }
            for name in chunk {
                let reply = dialog.read();
                assert!(reply.starts_with("[1, ACQUIRED"), "{name}: {reply}");
            }
        }
        let all = format!("SEAT.REVOKE pool {}", names.join(" "));
        let before = busy_seconds(&server);
        dialog.expect(&all, &sessions.to_string());
        ((busy_seconds(&server) - before) * 1e6) as u64
    };
    // The shortest of several, which nothing else on the machine has disturbed.
    let mut shortest = |sessions| (0..5).map(|_| revoke(sessions)).min().expect("some");
    let (few, many) = (shortest(10_000), shortest(40_000));
    // To search all arguments for each session would take sixteen times as long.
    assert!(many < 8 * few, "{many} against {few} microseconds");
}
