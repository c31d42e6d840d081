//! A session is gone from its deadline on, whether or not its seat was reclaimed.
//!
//! Sessions that have expired and are still there: within one MULTI, for the server's timers do not
//! run in between; while writes are paused; and on a replica.

use super::grants_until;
use crate::support::{
    Dialog, Events, Server, effects_of, eventually, staged, total, wait_for_reclaim,
};

/// Longer than any lease of one millisecond.
const PASS: &str = "DEBUG SLEEP 0.005";

#[test]
fn every_command_sees_an_expiry_before_the_reclaim() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let mut steps: Vec<(&str, &str)> = vec![
        ("SEAT.ACQUIRE pool b 4", "[1, ACQUIRED, 1, 4]"),
        (
            "SEAT.ACQUIRE pool c 4 EX 5000",
            "[1, ACQUIRED, 2, 4, 5000000]",
        ),
        ("SEAT.ACQUIRE pool a 4 PX 1", "[1, ACQUIRED, 3, 4, 1]"),
        (PASS, "+OK"),
        ("EXISTS pool", "1"),
        ("SEAT.COUNT pool", "2"),
        ("SEAT.SESSIONS pool", r#"["b", "c"]"#),
        ("SEAT.SCAN pool 0 COUNT 100", r#"["0", ["b", "c"]]"#),
        ("SEAT.GET pool a", "nil"),
        ("SEAT.PTTL pool a", "-2"),
        ("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.HEARTBEAT pool a EX 60", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool a", "0"),
        ("SEAT.ACQUIRE pool d 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ("SEAT.ACQUIRE pool d 4", "[1, ACQUIRED, 3, 4]"),
        ("SEAT.ACQUIRE pool a 3", "[0, NO_SEATS_AVAILABLE, 3, 3]"),
        ("SEAT.RELEASE pool d", "[1, RELEASED, 2]"),
        ("SEAT.CLEANUP pool", "[1, 2]"),
        ("SEAT.CLEANUP pool", "[0, 2]"),
    ];
    let effects = effects_of(&server, || {
        let lines: Vec<_> = steps.iter().map(|(line, _)| *line).collect();
        let replies = dialog.at_once(&lines);
        for ((line, expected), reply) in steps.drain(..).zip(replies) {
            assert_eq!(reply, expected, "{line}");
        }
    });
    let kinds: Vec<String> = effects
        .iter()
        .map(|effect| {
            effect
                .split(' ')
                .skip(2)
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "GRANT b 4",
            "GRANT c 4",
            "GRANT a 4",
            "GRANT d 4",
            "FREE released d",
            "FREE expired a"
        ]
    );
    assert_eq!(total(&server, "seat_expired"), 1);
}

#[test]
fn a_pool_of_expired_sessions_is_empty_and_there() {
    let server = Server::start();
    let replies = Dialog::with(&server).at_once(&[
        "SEAT.ACQUIRE pool a 1 PX 1",
        PASS,
        "EXISTS pool",
        "TYPE pool",
        "SEAT.COUNT pool",
        "SEAT.SESSIONS pool",
        "SEAT.SESSIONS pool WITHMETADATA",
        "SEAT.SCAN pool 0 WITHMETADATA",
        "SEAT.INFO pool",
        "SEAT.CLEANUP pool",
        "EXISTS pool",
        "SEAT.INFO pool",
    ]);
    assert_eq!(
        replies[2..8],
        ["1", "+seat-pool", "0", "[]", "[]", r#"["0", []]"#]
    );
    let described = r#"["seats", 1, "used", 0, "available", 1, "kept", 0, "waiting", 0, "leased", 0, "next_deadline_ms", -1, "memory_bytes", "#;
    assert!(replies[8].starts_with(described), "{}", replies[8]);
    assert_eq!(replies[9..], ["[1, 0]", "0", "nil"]);
}

#[test]
fn a_grant_to_an_expired_session_replaces_it() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let mut events = Events::matching(&server, "EdA", "*seat.*");
    let effects = effects_of(&server, || {
        let replies = dialog.at_once(&[
            r#"SEAT.ACQUIRE pool a 1 {"heartbeat_count":7,"n":1} PX 1"#,
            PASS,
            r#"SEAT.ACQUIRE pool a 1 {"n":2}"#,
            "SEAT.COUNT pool",
            "SEAT.HEARTBEAT pool a",
            "SEAT.PTTL pool a",
        ]);
        assert_eq!(
            replies[2..],
            [
                "[1, ACQUIRED, 1, 1]",
                "1",
                "[1, HEARTBEAT_UPDATED, 1]",
                "-1"
            ]
        );
    });
    let kinds: Vec<_> = effects
        .iter()
        .map(|effect| effect.split(' ').nth(2))
        .collect();
    assert_eq!(kinds, [Some("GRANT"), Some("GRANT"), Some("BEAT")]);
    assert!(effects[1].ends_with(r#" - 0 0 {"n":2}"#), "{}", effects[1]);
    assert_eq!(
        (
            total(&server, "seat_acquired"),
            total(&server, "seat_expired")
        ),
        (2, 1)
    );
    assert_eq!(
        events.take(4),
        [
            "seat.acquired pool",
            "seat.expired pool",
            "seat.acquired pool",
            "seat.heartbeat pool"
        ]
    );
}

#[test]
fn a_late_session_does_not_touch_whoever_holds_the_seat_now() {
    let (server, mut dialog) = Server::scene();
    dialog.ask("SEAT.ACQUIRE pool a 1 PX 1");
    wait_for_reclaim(&server, 1);
    dialog.expect("SEAT.ACQUIRE pool b 1 EX 60", "[1, ACQUIRED, 1, 1, 60000]");
    for (line, reply) in [
        ("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.HEARTBEAT pool a PX 5", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool a", "0"),
        ("SEAT.PTTL pool a", "-2"),
        ("SEAT.GET pool a", "nil"),
        ("SEAT.ACQUIRE pool a 1", "[0, NO_SEATS_AVAILABLE, 1, 1]"),
        ("SEAT.SESSIONS pool", r#"["b"]"#),
    ] {
        dialog.expect(line, reply);
    }
}

#[test]
fn an_expiry_comes_in_its_millisecond_and_not_before() {
    let (_server, mut dialog) = Server::scene();
    // The first look with no time left must be the first without the session, so never 0 and never
    // both.
    let mut looks = 0;
    for _ in 0..20 {
        dialog.ask("SEAT.ACQUIRE pool a 1 PX 4");
        loop {
            let replies =
                dialog.at_once(&["SEAT.PTTL pool a", "SEAT.COUNT pool", "SEAT.PTTL pool a"]);
            let number = |reply: &String| reply.parse::<i64>().expect("a number");
            let (before, count, after) = (
                number(&replies[0]),
                number(&replies[1]),
                number(&replies[2]),
            );
            assert!(
                before == -2 || (1..=4).contains(&before),
                "{before} ms left"
            );
            assert!(count == 0 || before > 0, "counted, but gone before");
            assert!(
                count == 1 || after == -2,
                "not counted, but there afterwards"
            );
            looks += 1;
            if before == -2 {
                break;
            }
        }
    }
    assert!(looks > 20, "no look came in time");
}

/// DUMPs of a pool of `expired` sessions whose leases are over, and one without a lease.
fn dump_of_expired(expired: usize) -> Vec<u8> {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    dialog.ask("MULTI");
    dialog.ask("SEAT.ACQUIRE pool live 1000000");
    dialog.ask_all(grants_until(1_700_000_000_000, expired));
    dialog.ask("DUMP pool");
    match dialog.value(&["EXEC"]) {
        redis::Value::Array(replies) => match replies.into_iter().next_back() {
            Some(redis::Value::BulkString(dump)) => dump,
            other => panic!("DUMP answered {other:?}"),
        },
        other => panic!("EXEC answered {other:?}"),
    }
}

/// Has the pool appear with its expired sessions and pauses writes in the same instant.
fn restore_and_pause(dialog: &mut Dialog, key: &str, dump: &[u8]) {
    dialog.ask("MULTI");
    dialog.restore(key, dump, &["REPLACE"]);
    dialog.ask("CLIENT PAUSE 600000 WRITE");
    dialog.expect("EXEC", "[+OK, +OK]");
}

#[test]
fn used_is_exact_and_cheap_with_100k_expired_sessions() {
    const MANY: usize = 100_000;
    let (few, many) = (dump_of_expired(10), dump_of_expired(MANY));
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    primary.wait_for_offset(&replica);

    let mut costs = [f64::INFINITY; 2];
    for (cost, (dump, expired)) in costs.iter_mut().zip([(&few, 10), (&many, MANY as u64)]) {
        restore_and_pause(&mut dialog, "pool", dump);
        for server in [&primary, &replica] {
            let mut dialog = Dialog::with(server);
            eventually("the pool is there", || dialog.ask("EXISTS pool") == "1");
            dialog.expect("SEAT.COUNT pool", "1");
            assert_eq!(dialog.pool_info("pool", "used"), 1);
            assert_eq!(dialog.pool_info("pool", "leased"), 0);
            assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), -1);
            dialog.expect("SEAT.GET pool session-9", "nil");
            dialog.expect("SEAT.PTTL pool session-9", "-2");
            dialog.expect("SEAT.SESSIONS pool", r#"["live"]"#);
        }
        assert_eq!(primary.digest(), replica.digest());
        for _ in 0..5 {
            *cost = cost.min(microseconds_of_count(&primary, &mut dialog));
        }
        let before = total(&primary, "seat_expired");
        dialog.expect("CLIENT UNPAUSE", "+OK");
        wait_for_reclaim(&primary, before + expired);
        primary.replica_agrees(&replica);
        for server in [&primary, &replica] {
            Dialog::with(server).expect("SEAT.SESSIONS pool", r#"["live"]"#);
        }
    }
    let [few, many] = costs;
    assert!(
        many < 20.0 * few,
        "SEAT.COUNT took {few} us with ten expired sessions and {many} us with {MANY}"
    );
    assert_eq!(total(&replica, "seat_expired"), 0);
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
}

/// Server time per SEAT.COUNT over a thousand of them.
fn microseconds_of_count(server: &Server, dialog: &mut Dialog) -> f64 {
    dialog.ask("CONFIG RESETSTAT");
    dialog.pipeline(&["SEAT.COUNT pool"; 1000]);
    let stats = server.info("commandstats");
    let field = stats["cmdstat_SEAT.COUNT".to_lowercase().as_str()]
        .split(',')
        .find_map(|field| field.strip_prefix("usec="))
        .expect("a total");
    // A total below a thousand microseconds would make the ratio a matter of chance.
    field.parse::<f64>().expect("microseconds").max(100.0) / 1000.0
}

#[test]
fn used_is_exact_while_leases_expire_one_by_one() {
    let what = "the count is looked at while it changes";
    staged(what, sees_leases_expire_one_by_one);
}

fn sees_leases_expire_one_by_one() -> Option<()> {
    let (server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    let start_ms = dialog.now_ms() + 300;
    let second = start_ms / 1000;
    let grant = |n| {
        let deadline_ms = start_ms + n;
        format!("SEAT.EFFECT pool GRANT s{n} '400 {second} {second} - 1000 {deadline_ms}' {{}}")
    };
    dialog.ask_all((0..400).map(grant));
    let mut seen = 0;
    let mut last = 400;
    while last > 0 {
        let replies = dialog.at_once(&["TIME", "SEAT.COUNT pool", "TIME"]);
        let at_ms = |time: &str| {
            let mut numbers = time.split('"').skip(1).step_by(2);
            let mut number = || numbers.next().and_then(|number| number.parse::<i64>().ok());
            number().expect("s") * 1000 + number().expect("us") / 1000
        };
        let left = |now_ms: i64| (start_ms + 399 - now_ms).clamp(0, 400);
        let used: i64 = replies[1].parse().expect("a count");
        // From 7.2 on TIME within MULTI is that of its start, which may be a little before the
        // count.
        let latest_ms = dialog.now_ms();
        assert!(
            (left(latest_ms)..=left(at_ms(&replies[0]))).contains(&used),
            "{used} used at {} to {latest_ms}, the first of 400 expires at {start_ms}",
            replies[0]
        );
        seen += usize::from(used != last);
        last = used;
    }
    wait_for_reclaim(&server, 400);
    (seen > 5).then_some(())
}

#[test]
fn a_replica_answers_by_the_deadline_alone() {
    let (mut primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.at_once(&[
        "SEAT.ACQUIRE pool a 2 PX 100",
        "SEAT.ACQUIRE pool b 2",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    let deadline_ms = dialog.now_ms() + 100;
    primary.wait_for_offset(&replica);
    primary.kill9();
    let digest = replica.digest();
    let mut dialog = Dialog::with(&replica);
    dialog.wait_until(deadline_ms);
    for (line, reply) in [
        ("SEAT.COUNT pool", "1"),
        ("SEAT.SESSIONS pool", r#"["b"]"#),
        ("SEAT.SCAN pool 0", r#"["0", ["b"]]"#),
        ("SEAT.GET pool a", "nil"),
        ("SEAT.PTTL pool a", "-2"),
    ] {
        dialog.expect(line, reply);
    }
    assert_eq!(dialog.pool_info("pool", "used"), 1);
    for line in [
        "SEAT.HEARTBEAT pool a",
        "SEAT.CLEANUP pool",
        "SEAT.ACQUIRE pool a 2 EX 1",
    ] {
        dialog.begins(line, "!READONLY ");
    }
    // Long after the deadline it is still there: a replica waits for its primary's word.
    dialog.wait_until(deadline_ms + 300);
    assert_eq!(replica.digest(), digest);
    assert_eq!(total(&replica, "seat_expired"), 0);
}
