//! A session is gone from its deadline on, whether or not its seat was reclaimed.
//!
//! Rows that have lapsed and are still there: within one MULTI, for the server's timers do not run in between; while writes are
//! paused; and on a replica.

use crate::lines::{
    Lines, ask_many, effects_of, grants_until, total, wait_for_reclaim, wait_until,
};
use crate::support::{Server, Wire, eventually};

/// Longer than any lease of one millisecond.
const PASS: &str = "DEBUG SLEEP 0.005";

#[test]
fn every_command_sees_a_lapse_before_the_reclaim() {
    let server = Server::builder().recording().start();
    let mut wire = server.wire();
    let mut steps: Vec<(&str, &str)> = vec![
        ("SEAT.ACQUIRE pool b 4", "1 ACQUIRED 1 4"),
        ("SEAT.ACQUIRE pool c 4 EX 5000", "1 ACQUIRED 2 4 5000000"),
        ("SEAT.ACQUIRE pool a 4 PX 1", "1 ACQUIRED 3 4 1"),
        (PASS, "OK"),
        ("EXISTS pool", "1"),
        ("SEAT.COUNT pool", "2"),
        ("SEAT.SESSIONS pool", "b c"),
        ("SEAT.SCAN pool 0 COUNT 100", "0 [b c]"),
        ("SEAT.GET pool a", "nil"),
        ("SEAT.PTTL pool a", "-2"),
        ("SEAT.HEARTBEAT pool a", "0 SESSION_NOT_ACTIVE"),
        ("SEAT.HEARTBEAT pool a EX 60", "0 SESSION_NOT_ACTIVE"),
        ("SEAT.RELEASE pool a", "0 SESSION_NOT_FOUND"),
        ("SEAT.REVOKE pool a", "0"),
        ("SEAT.ACQUIRE pool d 2", "0 NO_SEATS_AVAILABLE 2 2"),
        ("SEAT.ACQUIRE pool d 4", "1 ACQUIRED 3 4"),
        ("SEAT.ACQUIRE pool a 3", "0 NO_SEATS_AVAILABLE 3 3"),
        ("SEAT.RELEASE pool d", "1 RELEASED 2"),
        ("SEAT.CLEANUP pool", "1 2"),
        ("SEAT.CLEANUP pool", "0 2"),
    ];
    let effects = effects_of(&server, || {
        let lines: Vec<_> = steps.iter().map(|(line, _)| *line).collect();
        let replies = wire.ask_at_once(&lines);
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
    assert_eq!(total(&server, "expired"), 1);
}

#[test]
fn a_pool_of_lapsed_sessions_is_empty_and_there() {
    let server = Server::start();
    let replies = server.wire().ask_at_once(&[
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
    assert_eq!(replies[2..8], ["1", "seat-pool", "0", "", "", "0 []"]);
    let described =
        "seats 1 used 0 available 1 kept 0 waiting 0 leased 0 next_deadline_ms -1 memory_bytes ";
    assert!(replies[8].starts_with(described), "{}", replies[8]);
    assert_eq!(replies[9..], ["1 0", "0", "nil"]);
}

#[test]
fn a_grant_to_a_session_takes_the_place_of_its_own_lapsed_row() {
    let server = Server::builder()
        .recording()
        .config("notify-keyspace-events EdA")
        .start();
    let mut wire = server.wire();
    let mut events = server.wire();
    events.ask("PSUBSCRIBE *seat.*");
    let effects = effects_of(&server, || {
        let replies = wire.ask_at_once(&[
            r#"SEAT.ACQUIRE pool a 1 {"heartbeat_count":7,"n":1} PX 1"#,
            PASS,
            r#"SEAT.ACQUIRE pool a 1 {"n":2}"#,
            "SEAT.COUNT pool",
            "SEAT.HEARTBEAT pool a",
            "SEAT.PTTL pool a",
        ]);
        assert_eq!(
            replies[2..],
            ["1 ACQUIRED 1 1", "1", "1 HEARTBEAT_UPDATED 1", "-1"]
        );
    });
    let kinds: Vec<_> = effects
        .iter()
        .map(|effect| effect.split(' ').nth(2))
        .collect();
    assert_eq!(kinds, [Some("GRANT"), Some("GRANT"), Some("BEAT")]);
    assert!(
        effects[1].ends_with(r#" - 0 0 {\"n\":2}"#),
        "{}",
        effects[1]
    );
    assert_eq!(
        (total(&server, "acquired"), total(&server, "expired")),
        (2, 1)
    );
    let heard: Vec<String> = (0..4)
        .map(|_| {
            let message = String::from_utf8(events.read()).expect("text");
            let event = message.split("__:").nth(1).expect("an event");
            event.split("\r\n").next().expect("its name").to_owned()
        })
        .collect();
    assert_eq!(
        heard,
        [
            "seat.acquired",
            "seat.expired",
            "seat.acquired",
            "seat.heartbeat"
        ]
    );
}

#[test]
fn a_late_session_does_not_touch_whoever_holds_the_seat_now() {
    let server = Server::start();
    let mut wire = server.wire();
    wire.ask("SEAT.ACQUIRE pool a 1 PX 1");
    wait_for_reclaim(&server, 1);
    assert_eq!(
        wire.ask("SEAT.ACQUIRE pool b 1 EX 60"),
        "1 ACQUIRED 1 1 60000"
    );
    for (line, reply) in [
        ("SEAT.HEARTBEAT pool a", "0 SESSION_NOT_ACTIVE"),
        ("SEAT.HEARTBEAT pool a PX 5", "0 SESSION_NOT_ACTIVE"),
        ("SEAT.RELEASE pool a", "0 SESSION_NOT_FOUND"),
        ("SEAT.REVOKE pool a", "0"),
        ("SEAT.PTTL pool a", "-2"),
        ("SEAT.GET pool a", "nil"),
        ("SEAT.ACQUIRE pool a 1", "0 NO_SEATS_AVAILABLE 1 1"),
        ("SEAT.SESSIONS pool", "b"),
    ] {
        assert_eq!(wire.ask(line), reply, "{line}");
    }
}

#[test]
fn a_lapse_comes_in_its_millisecond_and_not_before() {
    let server = Server::start();
    let mut wire = server.wire();
    // The first look with no time left must be the first without the session, so never 0 and never both.
    let mut looks = 0;
    for _ in 0..20 {
        wire.ask("SEAT.ACQUIRE pool a 1 PX 4");
        loop {
            let replies =
                wire.ask_at_once(&["SEAT.PTTL pool a", "SEAT.COUNT pool", "SEAT.PTTL pool a"]);
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

/// DUMPs of a pool of `lapsed` sessions whose leases are over, and one without a lease.
fn dump_of_lapsed(lapsed: usize) -> Vec<u8> {
    let server = Server::builder().module_args("allow-effects yes").start();
    let mut wire = server.wire();
    wire.ask("MULTI");
    wire.ask("SEAT.ACQUIRE pool live 1000000");
    ask_many(&mut wire, grants_until(1_700_000_000_000, lapsed));
    wire.ask("DUMP pool");
    match wire.value(&["EXEC"]) {
        redis::Value::Array(replies) => match replies.into_iter().next_back() {
            Some(redis::Value::BulkString(dump)) => dump,
            other => panic!("DUMP answered {other:?}"),
        },
        other => panic!("EXEC answered {other:?}"),
    }
}

/// Has the pool appear with its lapsed sessions and pauses writes in the same instant.
fn restore_and_pause(wire: &mut Wire, key: &str, dump: &[u8]) {
    wire.ask("MULTI");
    wire.call(&[b"RESTORE", key.as_bytes(), b"0", dump, b"REPLACE"]);
    wire.ask("CLIENT PAUSE 600000 WRITE");
    assert_eq!(wire.ask("EXEC"), "OK OK");
}

#[test]
fn used_is_exact_and_cheap_with_a_hundred_thousand_lapsed_sessions() {
    const MANY: usize = 100_000;
    let (few, many) = (dump_of_lapsed(10), dump_of_lapsed(MANY));
    let primary = Server::builder().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut wire = primary.wire();
    primary.wait_for_offset(&replica);

    let mut costs = [f64::INFINITY; 2];
    for (cost, (dump, lapsed)) in costs.iter_mut().zip([(&few, 10), (&many, MANY as u64)]) {
        restore_and_pause(&mut wire, "pool", dump);
        for server in [&primary, &replica] {
            let mut wire = server.wire();
            eventually("the pool is there", || wire.ask("EXISTS pool") == "1");
            assert_eq!(wire.ask("SEAT.COUNT pool"), "1");
            assert_eq!(wire.pool_info("pool", "used"), 1);
            assert_eq!(wire.pool_info("pool", "leased"), 0);
            assert_eq!(wire.pool_info("pool", "next_deadline_ms"), -1);
            assert_eq!(wire.ask("SEAT.GET pool session-9"), "nil");
            assert_eq!(wire.ask("SEAT.PTTL pool session-9"), "-2");
            assert_eq!(wire.ask("SEAT.SESSIONS pool"), "live");
        }
        assert_eq!(primary.digest(), replica.digest());
        for _ in 0..5 {
            *cost = cost.min(microseconds_of_count(&primary, &mut wire));
        }
        let before = total(&primary, "expired");
        assert_eq!(wire.ask("CLIENT UNPAUSE"), "OK");
        wait_for_reclaim(&primary, before + lapsed);
        primary.wait_for_offset(&replica);
        assert_eq!(primary.digest(), replica.digest());
        for server in [&primary, &replica] {
            assert_eq!(server.wire().ask("SEAT.SESSIONS pool"), "live");
        }
    }
    let [few, many] = costs;
    assert!(
        many < 20.0 * few,
        "SEAT.COUNT took {few} us with ten lapsed sessions and {many} us with {MANY}"
    );
    assert_eq!(total(&replica, "expired"), 0);
    assert_eq!(total(&replica, "ignored_effects"), 0);
}

/// Server time per SEAT.COUNT over a thousand of them.
fn microseconds_of_count(server: &Server, wire: &mut Wire) -> f64 {
    let count: &[&[u8]] = &[b"SEAT.COUNT", b"pool"];
    wire.ask("CONFIG RESETSTAT");
    wire.values(&[count; 1000]);
    let stats = server.info("commandstats");
    let field = stats["cmdstat_SEAT.COUNT".to_lowercase().as_str()]
        .split(',')
        .find_map(|field| field.strip_prefix("usec="))
        .expect("a total");
    // A total below a thousand microseconds would make the ratio a matter of chance.
    field.parse::<f64>().expect("microseconds").max(100.0) / 1000.0
}

#[test]
fn used_is_exact_while_leases_lapse_one_by_one() {
    let server = Server::builder().module_args("allow-effects yes").start();
    let mut wire = server.wire();
    let start_ms = wire.now_ms() + 300;
    let second = start_ms / 1000;
    let grant = |n| {
        let deadline_ms = start_ms + n;
        format!("SEAT.EFFECT pool GRANT s{n} 400 {second} {second} - 1000 {deadline_ms} {{}}")
    };
    ask_many(&mut wire, (0..400).map(grant));
    let mut seen = 0;
    let mut last = 400;
    while last > 0 {
        let replies = wire.ask_at_once(&["TIME", "SEAT.COUNT pool", "TIME"]);
        let at_ms = |time: &str| {
            let (seconds, micros) = time.split_once(' ').expect("two numbers");
            seconds.parse::<i64>().expect("s") * 1000 + micros.parse::<i64>().expect("us") / 1000
        };
        let left = |now_ms: i64| (start_ms + 399 - now_ms).clamp(0, 400);
        let used: i64 = replies[1].parse().expect("a count");
        // From 7.2 on TIME within MULTI is that of its start, which may be a little before the count.
        let latest_ms = wire.now_ms();
        assert!(
            (left(latest_ms)..=left(at_ms(&replies[0]))).contains(&used),
            "{used} used at {} to {latest_ms}, the first of 400 lapses at {start_ms}",
            replies[0]
        );
        seen += usize::from(used != last);
        last = used;
    }
    assert!(seen > 5, "the count was seen to change {seen} times only");
    wait_for_reclaim(&server, 400);
}

#[test]
fn a_replica_answers_by_the_deadline_and_without_the_primarys_word() {
    let mut primary = Server::builder().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut wire = primary.wire();
    wire.ask_at_once(&[
        "SEAT.ACQUIRE pool a 2 PX 100",
        "SEAT.ACQUIRE pool b 2",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    let deadline_ms = wire.now_ms() + 100;
    primary.wait_for_offset(&replica);
    primary.kill9();
    let digest = replica.digest();
    let mut wire = replica.wire();
    wait_until(&mut wire, deadline_ms);
    for (line, reply) in [
        ("SEAT.COUNT pool", "1"),
        ("SEAT.SESSIONS pool", "b"),
        ("SEAT.SCAN pool 0", "0 [b]"),
        ("SEAT.GET pool a", "nil"),
        ("SEAT.PTTL pool a", "-2"),
    ] {
        assert_eq!(wire.ask(line), reply, "{line}");
    }
    assert_eq!(wire.pool_info("pool", "used"), 1);
    for line in [
        "SEAT.HEARTBEAT pool a",
        "SEAT.CLEANUP pool",
        "SEAT.ACQUIRE pool a 2 EX 1",
    ] {
        let reply = wire.ask(line);
        assert!(reply.starts_with("-READONLY "), "{line}: {reply}");
    }
    // Long after the deadline its row is still there: a replica waits for its primary's word.
    wait_until(&mut wire, deadline_ms + 300);
    assert_eq!(replica.digest(), digest);
    assert_eq!(total(&replica, "expired"), 0);
}
