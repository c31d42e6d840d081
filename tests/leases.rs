//! Leases as their holders meet them: what is asked for, what is answered, and when a seat is gone.

mod bad_input;
mod expired_sessions;
mod grace;
mod grant_hold;
mod persistence;

use crate::support::{Dialog, Events, Server, effects_of, total};

#[test]
fn replies_are_exact_in_both_protocols() {
    let server = Server::start();
    for (key, mut dialog) in [
        ("two", Dialog::with(&server)),
        ("three", Dialog::in_resp3(&server)),
    ] {
        let expected: [(&str, &str); 14] = [
            (
                "SEAT.ACQUIRE pool a 2 EX 60",
                "*5|:1|$8|ACQUIRED|:1|:2|:60000|",
            ),
            (
                "SEAT.ACQUIRE pool b 2 {} PX 90000",
                "*5|:1|$8|ACQUIRED|:2|:2|:90000|",
            ),
            (
                "SEAT.ACQUIRE pool a 2 PX 70000",
                "*4|:1|$14|ALREADY_ACTIVE|:2|:70000|",
            ),
            ("SEAT.ACQUIRE pool a 2", "*3|:1|$14|ALREADY_ACTIVE|:2|"),
            (
                "SEAT.ACQUIRE pool c 2 EX 60",
                "*4|:0|$18|NO_SEATS_AVAILABLE|:2|:2|",
            ),
            (
                "SEAT.HEARTBEAT pool a EX 80",
                "*4|:1|$17|HEARTBEAT_UPDATED|:1|:80000|",
            ),
            ("SEAT.HEARTBEAT pool a", "*3|:1|$17|HEARTBEAT_UPDATED|:2|"),
            (
                "SEAT.HEARTBEAT pool c EX 80",
                "*2|:0|$18|SESSION_NOT_ACTIVE|",
            ),
            ("SEAT.ACQUIRE pool d 3", "*4|:1|$8|ACQUIRED|:3|:3|"),
            ("SEAT.PTTL pool d", ":-1|"),
            ("SEAT.PTTL pool c", ":-2|"),
            ("SEAT.PTTL missing a", ":-2|"),
            ("SEAT.CLEANUP pool", "*2|:0|:3|"),
            ("SEAT.CLEANUP missing IDLE 0", "*2|:0|:0|"),
        ];
        for (line, reply) in expected {
            let line = line.replace("pool", key);
            let raw = dialog.raw(&line.split(' ').collect::<Vec<_>>());
            let shown = String::from_utf8(raw).expect("text").replace("\r\n", "|");
            assert_eq!(shown, reply, "{line}");
        }
    }
}

#[test]
fn a_lease_lasts_for_as_long_as_was_asked_for() {
    let (_server, mut dialog) = Server::scene();
    for (line, length_ms) in [
        ("SEAT.ACQUIRE pool a 9 PX 60001", 60_001),
        ("SEAT.ACQUIRE pool b 9 EX 60", 60_000),
        ("SEAT.ACQUIRE pool b 9 EX 61", 61_000),
        ("SEAT.HEARTBEAT pool a EX 62", 62_000),
        ("SEAT.HEARTBEAT pool a", 62_000),
        ("SEAT.HEARTBEAT pool b ignored", 61_000),
        ("SEAT.HEARTBEAT pool b PX 59001", 59_001),
        ("SEAT.HEARTBEAT pool b", 59_001),
    ] {
        let session = line.split(' ').nth(2).expect("a session");
        let pttl = format!("SEAT.PTTL pool {session}");
        let (before_ms, replies) = (dialog.now_ms(), dialog.at_once(&[line, &pttl, "TIME"]));
        let left_ms: i64 = replies[1].parse().expect("milliseconds");
        let passed_ms = dialog.now_ms() - before_ms;
        assert!(
            (length_ms - passed_ms..=length_ms).contains(&left_ms),
            "{line}: {left_ms} ms left of {length_ms}, and {passed_ms} have passed"
        );
    }
}

/// The fields of the one effect that `line` has, and the span of time in which it was decided.
fn effect(
    server: &Server,
    dialog: &mut Dialog,
    line: &str,
) -> (Vec<String>, std::ops::RangeInclusive<i64>) {
    let before_ms = dialog.now_ms();
    let effects = effects_of(server, || drop(dialog.ask(line)));
    assert_eq!(effects.len(), 1, "{line}: {effects:?}");
    let fields = effects[0].split(' ').map(str::to_owned).collect();
    (fields, before_ms..=dialog.now_ms())
}

#[test]
fn the_stream_has_deadlines_and_not_the_options() {
    let (server, mut dialog) = Server::builder().recording().scene();
    for (line, kind, length) in [
        (r#"SEAT.ACQUIRE pool a 9 {"m":1} EX 60"#, "GRANT", "60000"),
        ("SEAT.ACQUIRE pool b 9", "GRANT", "0"),
        ("SEAT.ACQUIRE pool a 9 PX 70000", "RENEW", "70000"),
        ("SEAT.HEARTBEAT pool a", "BEAT", "70000"),
        ("SEAT.HEARTBEAT pool a EX 80", "BEAT", "80000"),
        ("SEAT.HEARTBEAT pool b", "BEAT", "0"),
        ("SEAT.HEARTBEAT pool b EX 90", "BEAT", "90000"),
    ] {
        let session = line.split(' ').nth(2).expect("a session");
        let (fields, span_ms) = effect(&server, &mut dialog, line);
        let lease_at = match kind {
            "GRANT" => 8,
            "BEAT" => 6,
            _ => 4,
        };
        assert_eq!(
            fields[..4],
            ["SEAT.EFFECT", "pool", kind, session],
            "{line}"
        );
        assert_eq!(fields[lease_at], length, "{line}");
        let deadline_ms: i64 = fields[lease_at + 1].parse().expect("a time");
        let length_ms: i64 = length.parse().expect("a length");
        if length_ms == 0 {
            assert_eq!(deadline_ms, 0, "{line}");
        } else {
            assert!(
                span_ms.contains(&(deadline_ms - length_ms)),
                "{line}: {deadline_ms}"
            );
        }
    }
    let silent = effects_of(&server, || {
        for line in [
            "SEAT.ACQUIRE pool a 9",
            "SEAT.ACQUIRE pool c 2 EX 60",
            "SEAT.HEARTBEAT pool c EX 60",
            "SEAT.PTTL pool a",
            "SEAT.CLEANUP pool",
            "SEAT.CLEANUP pool IDLE 1000",
        ] {
            dialog.ask(line);
        }
    });
    assert_eq!(silent, [""; 0]);
}

#[test]
fn an_acquire_without_a_lease_leaves_the_one_that_there_is() {
    let (_server, mut dialog) = Server::scene();
    dialog.ask("SEAT.ACQUIRE pool a 1 EX 60");
    let deadline_ms = dialog.pool_info("pool", "next_deadline_ms");
    wait_a_millisecond(&mut dialog);
    dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ALREADY_ACTIVE, 1]");
    assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
    dialog.ask("SEAT.HEARTBEAT pool a");
    assert!(dialog.pool_info("pool", "next_deadline_ms") > deadline_ms);
}

fn wait_a_millisecond(dialog: &mut Dialog) {
    let now_ms = dialog.now_ms();
    dialog.wait_until(now_ms + 2);
}

#[test]
fn a_renewal_is_published_and_counts_no_heartbeat() {
    let (server, mut dialog) = Server::scene();
    let mut events = Events::of(&server);
    dialog.ask("SEAT.ACQUIRE pool a 1 EX 60");
    dialog.ask("SEAT.ACQUIRE pool a 1 EX 60");
    dialog.ask("SEAT.ACQUIRE pool a 1");
    dialog.ask("SEAT.HEARTBEAT pool a");
    assert_eq!(
        events.until_now(),
        [
            "seat.acquired pool",
            "seat.renewed pool",
            "seat.heartbeat pool"
        ]
    );
    let stored = dialog.ask("SEAT.GET pool a");
    assert!(stored.ends_with(r#""heartbeat_count":1}""#), "{stored}");
    assert_eq!(
        (
            total(&server, "seat_already_active"),
            total(&server, "seat_heartbeats")
        ),
        (2, 1)
    );
}

#[test]
fn the_pool_reports_its_leases() {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    let info = |dialog: &mut Dialog| {
        ["used", "leased", "next_deadline_ms"].map(|field| dialog.pool_info("pool", field))
    };
    let second = dialog.now_ms() / 1000;
    let at_ms = |seconds: i64| (second + seconds) * 1000;
    dialog.ask("SEAT.ACQUIRE pool a 9");
    assert_eq!(info(&mut dialog), [1, 0, -1]);
    for (session, seconds) in [("b", 3000), ("c", 2000), ("d", 4000)] {
        let deadline_ms = at_ms(seconds);
        dialog.ask(&format!(
            "SEAT.EFFECT pool GRANT {session} '9 {second} {second} - 5000000 {deadline_ms}' {{}}"
        ));
    }
    assert_eq!(info(&mut dialog), [4, 3, at_ms(2000)]);
    dialog.ask("SEAT.RELEASE pool c");
    assert_eq!(info(&mut dialog), [3, 2, at_ms(3000)]);
    dialog.ask("SEAT.REVOKE pool b d");
    assert_eq!(info(&mut dialog), [1, 0, -1]);
}

#[test]
fn what_scripts_stored_about_a_session_knows_no_lease() {
    let (_server, mut dialog) = Server::scene();
    let replies = dialog.at_once(&[
        r#"SEAT.ACQUIRE leased a 1 {"m":[1]} EX 60"#,
        r#"SEAT.ACQUIRE plain a 1 {"m":[1]}"#,
        "SEAT.HEARTBEAT leased a",
        "SEAT.HEARTBEAT plain a",
        "SEAT.GET leased a",
        "SEAT.GET plain a",
        "SEAT.SESSIONS leased WITHMETADATA",
        "SEAT.SESSIONS plain WITHMETADATA",
    ]);
    let json = replies[4].trim_matches('"');
    let keys: Vec<String> = serde_json::from_str::<serde_json::Value>(json)
        .expect("JSON")
        .as_object()
        .expect("an object")
        .keys()
        .cloned()
        .collect();
    assert_eq!(
        keys,
        ["acquired_at", "heartbeat_count", "last_heartbeat", "m"]
    );
    assert_eq!(replies[6], format!(r#"["a", {}]"#, replies[4]));
    assert_eq!(replies[7], format!(r#"["a", {}]"#, replies[5]));
}

#[test]
fn cleanup_with_idle_takes_those_silent_for_longer_too() {
    let (server, mut dialog) = Server::builder()
        .recording()
        .module_args("allow-effects yes")
        .scene();
    let now = dialog.now_ms() / 1000;
    let far_ms = (now + 5000) * 1000;
    for (session, silent, lease) in [
        ("fresh", 0, format!("5000000 {far_ms}")),
        ("leased", 500, format!("5000000 {far_ms}")),
        ("unleased", 900, "0 0".to_owned()),
    ] {
        let heard = now - silent;
        dialog.ask(&format!(
            "SEAT.EFFECT pool GRANT {session} '9 {heard} {heard} - {lease}' {{}}"
        ));
    }
    dialog.expect("SEAT.CLEANUP pool", "[0, 3]");
    dialog.expect("SEAT.CLEANUP pool IDLE 2000", "[0, 3]");
    assert_eq!(
        effects_of(&server, || assert_eq!(
            dialog.ask("seat.cleanup pool idle 700"),
            "[1, 2]"
        )),
        ["SEAT.EFFECT pool FREE expired unleased"]
    );
    assert_eq!(
        effects_of(&server, || assert_eq!(
            dialog.ask("SEAT.CLEANUP pool IDLE 300"),
            "[1, 1]"
        )),
        ["SEAT.EFFECT pool FREE expired leased"]
    );
    assert_eq!(total(&server, "seat_expired"), 2);
    dialog.expect("SEAT.SESSIONS pool", r#"["fresh"]"#);
}

/// Effects by which `many` sessions get seats of `pool` with a lease until `deadline_ms`.
pub fn grants_until(deadline_ms: i64, many: usize) -> impl Iterator<Item = String> {
    let seconds = deadline_ms / 1000;
    (0..many).map(move |n| {
        format!(
            "SEAT.EFFECT pool GRANT session-{n} '1000000 {seconds} {seconds} - 60000 {deadline_ms}' {{}}"
        )
    })
}
