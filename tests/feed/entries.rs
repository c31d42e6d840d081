//! Each event of a session's, field by field.

use super::{Reader, entries, node_of, nothing_failed, with_feed};
use crate::support::{Dialog, now_ms};

#[test]
fn an_entry_has_its_fields_in_a_fixed_order() {
    let (server, mut dialog) = with_feed().scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 '{\"k\":1}' EX 60 WEIGHT 2 OWNER ann",
        "[1, ACQUIRED, 2, 9, 60000]",
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    let deadline_ms: i64 = entries(&mut dialog)[0].number("deadline_ms");
    assert!((now_ms()..=now_ms() + 60_000).contains(&deadline_ms));
    let (deadline, node) = (deadline_ms.to_string(), node_of(&server));
    let [granted, freed] = &entries(&mut dialog)[..] else {
        panic!("two entries")
    };
    let expected: [&[(&str, &str)]; 2] = [
        &[
            ("event", "acquired"),
            ("pool", "pool"),
            ("session", "a"),
            ("node", &node),
            ("used", "2"),
            ("seats", "9"),
            ("owner", "ann"),
            ("weight", "2"),
            ("lease_ms", "60000"),
            ("deadline_ms", &deadline),
            ("user", "default"),
        ],
        &[
            ("event", "released"),
            ("pool", "pool"),
            ("session", "a"),
            ("node", &node),
            ("used", "0"),
            ("seats", "9"),
            ("owner", "ann"),
            ("weight", "2"),
            ("held_s", freed.field("held_s")),
            ("heartbeats", "0"),
            ("user", "default"),
        ],
    ];
    for (entry, expected) in [granted, freed].into_iter().zip(expected) {
        let fields = entry.fields.iter();
        let fields: Vec<_> = fields.map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(fields, expected);
    }
    nothing_failed(&server);
}

#[test]
fn a_grant_says_no_more_than_it_has() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    dialog.acquire("pool", "a", 9, r#"{"k":1}"#);
    dialog.ask("SEAT.ACQUIRE pool b 9 PX 60000");
    dialog.ask("SEAT.ACQUIRE pool c 9 OWNER ann");
    dialog.ask("SEAT.ACQUIRE pool d 9 WEIGHT 3 WITHTOKEN");
    dialog.ask("SEAT.ACQUIRE pool e 9 OWNER ann MAX 2 TAKEOVER");
    feed.hears(&[
        "acquired pool a 1/9 user=default",
        "acquired pool b 2/9 lease_ms=60000 deadline_ms=_ user=default",
        "acquired pool c 3/9 owner=ann user=default",
        "acquired pool d 6/9 weight=3 user=default",
        "acquired pool e 7/9 owner=ann user=default",
    ]);
}

#[test]
fn what_changes_no_hold_is_not_written() {
    let (server, mut dialog) = with_feed().scene();
    dialog.acquire("pool", "a", 1, "{}");
    let mut feed = Reader::of(&server, "feed");
    for command in [
        "SEAT.ACQUIRE pool a 1",
        "SEAT.ACQUIRE pool a 1 EX 60",
        "SEAT.ACQUIRE pool a 1 WITHTOKEN",
        "SEAT.ACQUIRE pool b 1",
        "SEAT.ACQUIRE pool b 1 OWNER ann MAX 1",
        "SEAT.ACQUIRE pool b 2 nonsense",
        "SEAT.HEARTBEAT pool a",
        "SEAT.HEARTBEAT pool b",
        "SEAT.RELEASE pool b",
        "SEAT.RELEASE pool a TOKEN 5",
        "SEAT.REVOKE pool b",
        "SEAT.REVOKEOWNER pool ann",
        "SEAT.CLEANUP pool",
        "SEAT.UNQUEUE pool",
        "SEAT.RESIZE missing 5",
        "SEAT.RELEASE missing a",
        "SEAT.COUNT pool",
        "EXPIRE pool 1000",
        "PERSIST pool",
        "OBJECT ENCODING pool",
    ] {
        dialog.ask(command);
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    feed.hears(&["released pool a 0/1 held_s=_ heartbeats=1 user=default"]);
}

#[test]
fn metadata_of_grants_goes_with_them_if_switched_on() {
    let builder = with_feed().module_args("feed feed feed-metadata yes");
    let (server, mut dialog) = builder.scene();
    let mut feed = Reader::of(&server, "feed");
    dialog.acquire("pool", "a", 1, r#"{"k":"é"}"#);
    dialog.ask("SEAT.ACQUIRE pool b 2");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    feed.hears(&[
        r#"acquired pool a 1/1 metadata={"k":"é"} user=default"#,
        "acquired pool b 2/2 metadata={} user=default",
        "released pool a 1/2 held_s=_ heartbeats=0 user=default",
    ]);
}

#[test]
fn an_end_says_how_long_the_hold_was_and_how_often_it_was_heard_of() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    let acquired_at = now_ms() / 1000 - 1000;
    for session in ["a", "b", "c"] {
        dialog.expect(
            &format!(
                "SEAT.EFFECT pool GRANT {session} '9 {acquired_at} {acquired_at} - 0 0 2 -' {{}} ann"
            ),
            "1",
        );
    }
    // Without times, as from the legacy keys.
    dialog.expect("SEAT.EFFECT pool IMPORT d '9 - - - 0 0' -", "1");
    for _ in 0..3 {
        dialog.succeeds("SEAT.HEARTBEAT pool a");
    }
    dialog.succeeds("SEAT.RELEASE pool a");
    dialog.expect("SEAT.REVOKE pool b x", "1");
    dialog.expect("SEAT.REVOKEOWNER pool ann", "1");
    dialog.succeeds("SEAT.RELEASE pool d");
    let ends = feed.hears(&[
        "released pool a 5/9 owner=ann weight=2 held_s=_ heartbeats=3 user=default",
        "revoked pool b 3/9 owner=ann weight=2 held_s=_ heartbeats=0 user=default",
        "revoked pool c 1/9 owner=ann weight=2 held_s=_ heartbeats=0 user=default",
        "released pool d 0/9 heartbeats=0 user=default",
    ]);
    for end in &ends[..3] {
        assert!((1000..1100).contains(&end.number("held_s")), "{end:?}");
    }
}

#[test]
fn a_lease_that_ends_has_its_deadline_and_nobody_for_a_user() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    dialog.ask("SEAT.ACQUIRE pool a 9 PX 30 OWNER ann WEIGHT 2");
    let seen = feed.hears(&[
        "acquired pool a 2/9 owner=ann weight=2 lease_ms=30 deadline_ms=_ user=default",
        "expired pool a 0/9 owner=ann weight=2 held_s=_ heartbeats=0 deadline_ms=_",
    ]);
    let deadline_ms = seen[0].number("deadline_ms");
    assert_eq!(seen[1].number("deadline_ms"), deadline_ms);
    assert!(seen[1].id().0 >= u64::try_from(deadline_ms).expect("after 1970"));
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn a_renewed_lease_ends_at_its_last_deadline() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    dialog.ask("SEAT.ACQUIRE pool a 9 EX 600");
    dialog.expect(
        "SEAT.HEARTBEAT pool a PX 40",
        "[1, HEARTBEAT_UPDATED, 1, 40]",
    );
    let deadline_ms = now_ms() + 40;
    let seen = feed.hears(&[
        "acquired pool a 1/9 lease_ms=600000 deadline_ms=_ user=default",
        "expired pool a 0/9 held_s=_ heartbeats=1 deadline_ms=_",
    ]);
    assert!(seen[1].number("deadline_ms") <= deadline_ms);
}

/// Commands that run before the timer can, after sessions have expired.
fn after_expiry(dialog: &mut Dialog, commands: &[&str]) -> Vec<String> {
    let mut all = vec![
        "SEAT.EFFECT pool GRANT x '2 1 1 - 1000 2000 1 -' {} ann",
        "SEAT.EFFECT pool GRANT y '2 1 1 - 1000 2001' {}",
    ];
    all.extend(commands);
    dialog.at_once(&all).split_off(2)
}

#[test]
fn a_grant_that_reclaims_writes_the_ends_before_itself() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    let replies = after_expiry(
        &mut dialog,
        &[
            "SEAT.ACQUIRE pool a 2",
            "SEAT.ACQUIRE pool y 2",
            "SEAT.CLEANUP pool",
        ],
    );
    assert_eq!(
        replies,
        ["[1, ACQUIRED, 1, 2]", "[1, ACQUIRED, 2, 2]", "[0, 2]"]
    );
    let seen = feed.until("four entries", |new| new.len() >= 4);
    let mut lines: Vec<String> = seen.iter().map(super::Entry::line).collect();
    assert_eq!(
        lines.pop().as_deref(),
        Some("acquired pool y 2/2 user=default")
    );
    // Which of them go for the first grant is the pool's decision.
    lines.retain(|line| !line.starts_with("acquired"));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains(" user=")));
    for (entry, deadline_ms) in [("x", 2000), ("y", 2001)] {
        let end = seen
            .iter()
            .find(|end| end.field("event") == "expired" && end.field("session") == entry);
        assert_eq!(end.expect("its end").number("deadline_ms"), deadline_ms);
    }
}

#[test]
fn a_grant_to_an_expired_session_writes_its_end_first() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    let replies = after_expiry(&mut dialog, &["SEAT.ACQUIRE pool x 2", "SEAT.CLEANUP pool"]);
    assert_eq!(replies, ["[1, ACQUIRED, 1, 2]", "[1, 1]"]);
    let lines = [
        "expired pool x 0/2 owner=ann held_s=_ heartbeats=0 deadline_ms=_",
        "acquired pool x 1/2 user=default",
        "expired pool y 1/2 held_s=_ heartbeats=0 deadline_ms=_",
    ];
    let seen = feed.hears(&lines);
    assert_eq!(seen[0].number("deadline_ms"), 2000);
}

#[test]
fn cleanup_writes_what_was_silent_for_too_long_as_expired() {
    let (server, mut dialog) = with_feed().scene();
    dialog.expect("SEAT.EFFECT pool GRANT a '2 1 1 - 0 0' {}", "1");
    let mut feed = Reader::of(&server, "feed");
    dialog.expect("SEAT.CLEANUP pool IDLE 60", "[1, 0]");
    // No lease, so no deadline.
    feed.hears(&["expired pool a 0/2 held_s=_ heartbeats=0"]);
}

#[test]
fn a_takeover_is_an_end_and_a_grant_that_name_each_other() {
    let (server, mut dialog) = with_feed().scene();
    dialog.ask("SEAT.ACQUIRE pool a 9 OWNER ann WEIGHT 3");
    dialog.ask("SEAT.ACQUIRE pool other 9");
    let mut feed = Reader::of(&server, "feed");
    dialog.expect(
        "SEAT.ACQUIRE pool b 9 WEIGHT 2 OWNER ann MAX 1 TAKEOVER",
        r#"[1, ACQUIRED, 3, 9, "a"]"#,
    );
    feed.hears(&[
        "replaced pool a 1/9 owner=ann weight=3 held_s=_ heartbeats=0 replaced_by=b user=default",
        "acquired pool b 3/9 owner=ann weight=2 user=default",
    ]);
}

#[test]
fn a_takeover_by_an_expired_session_writes_all_three() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    let replies = dialog.at_once(&[
        "SEAT.EFFECT pool GRANT a '9 1 1 - 0 0 1 -' {} ann",
        "SEAT.EFFECT pool GRANT b '9 1 1 - 1000 2000 4 -' {} bo",
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 TAKEOVER",
    ]);
    assert_eq!(replies[2], r#"[1, ACQUIRED, 1, 9, "a"]"#);
    feed.hears(&[
        "expired pool b 1/9 owner=bo weight=4 held_s=_ heartbeats=0 deadline_ms=_",
        "replaced pool a 0/9 owner=ann held_s=_ heartbeats=0 replaced_by=b user=default",
        "acquired pool b 1/9 owner=ann user=default",
    ]);
}

#[test]
fn bytes_of_any_kind_go_as_they_are() {
    let (server, mut dialog) = with_feed().scene();
    let (pool, session, owner) = (b"p\0\xff 1:", b"5:\r\n\0s", b"\x80 o");
    let acquire: [&[u8]; 6] = [b"SEAT.ACQUIRE", pool, session, b"3", b"OWNER", owner];
    assert_eq!(dialog.ask_args(&acquire), "[1, ACQUIRED, 1, 3]");
    let raw = dialog.raw(&["XRANGE", "feed", "-", "+"]);
    let redis::Value::Array(found) = redis::parse_redis_value(&raw).expect("a reply") else {
        panic!("no array")
    };
    let (_, fields): (String, Vec<Vec<u8>>) =
        redis::from_redis_value(found[0].clone()).expect("an entry");
    for value in [&pool[..], session, owner] {
        assert!(fields.iter().any(|field| field == value), "{fields:?}");
    }
    nothing_failed(&server);
}

#[test]
fn the_user_is_the_one_who_calls_whatever_runs_the_command() {
    let (server, mut dialog) = with_feed().scene();
    let mut feed = Reader::of(&server, "feed");
    let mut worker = Dialog::as_worker(&server, "~pool +@all");
    worker.acquire("pool", "a", 9, "{}");
    let reply = worker.transaction(&["SEAT.ACQUIRE pool b 9"]);
    assert_eq!(reply, "[[1, ACQUIRED, 2, 9]]");
    let script = "return redis.call('SEAT.ACQUIRE', KEYS[1], 'c', 9)";
    assert_eq!(worker.eval(script, &["pool"]), "[1, ACQUIRED, 3, 9]");
    dialog.expect("SEAT.REVOKE pool a", "1");
    let seen = feed.until("four entries", |new| new.len() == 4);
    let users: Vec<_> = seen.iter().map(|entry| entry.get("user")).collect();
    // 6.2 does not tell a module for whom a script runs.
    let of_script = (server.version() >= (7, 0, 0)).then_some("worker");
    let worker = Some("worker");
    assert_eq!(users, [worker, worker, of_script, Some("default")]);
}

#[test]
fn a_transaction_and_a_script_write_in_the_order_in_which_they_change() {
    let (server, mut dialog) = with_feed().scene();
    dialog.acquire_all("pool", &["old", "other"], 5);
    let mut feed = Reader::of(&server, "feed");
    let commands = [
        "SEAT.ACQUIRE pool a 5",
        "DEL pool",
        "SEAT.ACQUIRE pool b 6",
        "SEAT.RELEASE pool b",
        "SEAT.ACQUIRE pool c 7",
        "RENAME pool moved",
        "SEAT.ACQUIRE pool d 8",
    ];
    let expected = [
        "acquired pool a 3/5 user=default",
        "dropped pool - 0/-",
        "acquired pool b 1/6 user=default",
        "released pool b 0/6 held_s=_ heartbeats=0 user=default",
        "acquired pool c 1/7 user=default",
        "renamed moved - 1/7 from=pool",
        "acquired pool d 1/8 user=default",
    ];
    dialog.at_once(&commands);
    feed.hears(&expected);
    dialog.expect("DEL pool moved", "2");
    feed.hears(&["dropped pool - 0/-", "dropped moved - 0/-"]);

    dialog.acquire_all("pool", &["old", "other"], 5);
    feed.now();
    let calls = commands.map(|command| format!("redis.call('{}')", command.replace(' ', "','")));
    dialog.eval(&calls.join(" "), &["pool", "moved"]);
    let seen = feed.until("all entries", |new| new.len() >= expected.len());
    // 6.2 does not tell a module for whom a script runs.
    let without_user = |line: &str| line.replace(" user=default", "");
    let lines: Vec<String> = seen
        .iter()
        .map(|entry| without_user(&entry.line()))
        .collect();
    assert_eq!(lines, expected.map(without_user));
    nothing_failed(&server);
}
