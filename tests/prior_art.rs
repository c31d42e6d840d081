//! What users of similar systems ran into, replayed.

use std::time::{Duration, Instant};

use crate::leases::grants_until;
use crate::support::{Dialog, Server, staged, total, wait_for_reclaim};

/// Has a session expire, once with it still in the table and once reclaimed, and replays `late`
/// after each.
fn after_an_expiry(acquire: &str, late: &[(&str, &str)]) {
    let lines: Vec<&str> = late.iter().map(|(line, _)| *line).collect();
    let expected: Vec<&str> = late.iter().map(|(_, reply)| *reply).collect();

    let (_server, mut dialog) = Server::scene();
    let at_once = [&[acquire, "DEBUG SLEEP 0.005"], &lines[..]].concat();
    assert_eq!(
        dialog.at_once(&at_once)[2..],
        expected,
        "before the reclaim"
    );

    let (server, mut dialog) = Server::scene();
    dialog.ask(acquire);
    wait_for_reclaim(&server, 1);
    let replies: Vec<String> = lines.iter().map(|line| dialog.ask(line)).collect();
    assert_eq!(replies, expected, "after the reclaim");
}

/// Case 1, redisson 4086: releasing a permit whose lease was over added one too many.
#[test]
fn case_1_a_release_after_the_expiry_frees_nothing_more() {
    after_an_expiry(
        "SEAT.ACQUIRE pool a 2 PX 1",
        &[
            ("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]"),
            ("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]"),
            ("SEAT.COUNT pool", "0"),
            ("SEAT.ACQUIRE pool b 2", "[1, ACQUIRED, 1, 2]"),
            ("SEAT.ACQUIRE pool c 2", "[1, ACQUIRED, 2, 2]"),
            ("SEAT.ACQUIRE pool d 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ],
    );
}

/// Case 2, swarthy/redis-semaphore 175: a refresh after another holder came and went took the
/// permit back.
#[test]
fn case_2_a_heartbeat_after_another_came_and_went_fails() {
    after_an_expiry(
        "SEAT.ACQUIRE pool a 1 PX 1",
        &[
            ("SEAT.ACQUIRE pool b 1 EX 60", "[1, ACQUIRED, 1, 1, 60000]"),
            ("SEAT.RELEASE pool b", "[1, RELEASED, 0]"),
            ("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]"),
            ("SEAT.HEARTBEAT pool a EX 60", "[0, SESSION_NOT_ACTIVE]"),
            ("SEAT.SESSIONS pool", "[]"),
            ("SEAT.COUNT pool", "0"),
        ],
    );
}

/// Case 3, dv/redis-semaphore 65: a stale holder's late unlock gave away the seat of the next one.
#[test]
fn case_3_a_late_release_leaves_the_next_holder_alone() {
    after_an_expiry(
        "SEAT.ACQUIRE pool a 1 PX 1",
        &[
            ("SEAT.ACQUIRE pool b 1 EX 60", "[1, ACQUIRED, 1, 1, 60000]"),
            ("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]"),
            ("SEAT.ACQUIRE pool c 1", "[0, NO_SEATS_AVAILABLE, 1, 1]"),
            ("SEAT.SESSIONS pool", r#"["b"]"#),
        ],
    );
}

/// Case 6, argo-workflows 10286: holders were lost, or held for ever, when the controller started
/// again.
#[test]
fn case_6_a_holder_outlives_a_reload_and_a_promotion() {
    fn assert_held(server: &Server, deadline_ms: i64) {
        let mut dialog = Dialog::with(server);
        assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
        dialog.expect("SEAT.ACQUIRE pool c 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
        assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
    }
    fn hold(dialog: &mut Dialog) -> i64 {
        dialog.ask("SEAT.ACQUIRE pool a 1 EX 3600");
        dialog.pool_info("pool", "next_deadline_ms")
    }
    let renews = |server: &Server| Dialog::with(server).ask("SEAT.HEARTBEAT pool a");

    let mut server = Server::builder().config("save 3600 1").start();
    let deadline_ms = hold(&mut Dialog::with(&server));
    server.restart();
    assert_held(&server, deadline_ms);
    assert_eq!(renews(&server), "[1, HEARTBEAT_UPDATED, 1]");

    let mut server = Server::builder().recording().tcp().start();
    let deadline_ms = hold(&mut Dialog::with(&server));
    server.kill9();
    server.restart();
    assert_held(&server, deadline_ms);

    let replica = Server::builder().replica_of(&server).start();
    server.wait_for_offset(&replica);
    server.kill9();
    Dialog::with(&replica).expect("REPLICAOF NO ONE", "+OK");
    assert_held(&replica, deadline_ms);
    assert_eq!(renews(&replica), "[1, HEARTBEAT_UPDATED, 1]");
}

/// Case 7, swarthy/redis-semaphore 155: one id took several permits.
#[test]
fn case_7_one_session_has_one_seat_however_often_it_asks() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 5 EX 60", "[1, ACQUIRED, 1, 5, 60000]");
    dialog.expect(
        "SEAT.ACQUIRE pool a 5 EX 60",
        "[1, ALREADY_ACTIVE, 1, 60000]",
    );
    dialog.expect("SEAT.ACQUIRE pool a 5", "[1, ALREADY_ACTIVE, 1]");
    for session in ["b", "c", "d", "e"] {
        dialog.ask(&format!("SEAT.ACQUIRE pool {session} 5"));
    }
    dialog.expect("SEAT.ACQUIRE pool f 5", "[0, NO_SEATS_AVAILABLE, 5, 5]");
    dialog.expect(
        "SEAT.ACQUIRE pool a 5 EX 60",
        "[1, ALREADY_ACTIVE, 5, 60000]",
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 4]");
    dialog.expect("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]");
}

/// Case 8, dv/redis-semaphore 13: a client whose clock is fast took a live holder for a stale one.
#[test]
fn case_8_a_clients_clock_counts_for_nothing() {
    let (_server, mut dialog) = Server::scene();
    dialog.ask("SEAT.ACQUIRE pool a 1 EX 30");
    let deadline_ms = dialog.pool_info("pool", "next_deadline_ms");
    let fast = dialog.now_ms() / 1000 + 60;
    let metadata = format!(r#"{{"acquired_at":{fast},"last_heartbeat":{fast},"now":{fast}}}"#);
    dialog.expect(
        &format!("SEAT.ACQUIRE pool b 1 {metadata} EX 30"),
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
    dialog.ask(&format!("SEAT.HEARTBEAT pool a {metadata}"));
    assert!(dialog.pool_info("pool", "next_deadline_ms") < fast * 1000);
    dialog.ask(&format!("SEAT.ACQUIRE pool b 2 {metadata} EX 30"));
    for session in ["a", "b"] {
        let stored = dialog.bytes(&["SEAT.GET", "pool", session]);
        let stored: serde_json::Value = serde_json::from_slice(&stored).expect("JSON");
        for field in ["acquired_at", "last_heartbeat"] {
            let seconds = stored[field].as_i64().expect("seconds");
            assert!(seconds < fast - 20, "{session}: {field} is the client's");
        }
    }
}

/// Case 9, "too many results to unpack" in Redisson: ten thousand leases that were over broke the
/// next command.
#[test]
fn case_9_ten_thousand_expiries_are_nothing_to_the_next_command() {
    const MANY: usize = 10_000;
    for command in [
        "SEAT.ACQUIRE pool new 10001 EX 60",
        "SEAT.HEARTBEAT pool live EX 60",
        "SEAT.RELEASE pool live",
        "SEAT.CLEANUP pool",
        "SEAT.SESSIONS pool",
    ] {
        // The least of some tries is what the command itself takes.
        staged("the command takes less than 200 ms", || {
            let took = took_after_expiries(command, MANY);
            (took < Duration::from_millis(200)).then_some(())
        });
    }
}

/// How long a command took to which many leases were over.
fn took_after_expiries(command: &str, many: usize) -> Duration {
    let (server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    dialog.ask("SEAT.ACQUIRE pool live 10001");
    let deadline_ms = dialog.now_ms() + 400;
    dialog.ask_all(grants_until(deadline_ms, many));
    dialog.wait_until(deadline_ms);
    let began = Instant::now();
    let reply = dialog.ask(command);
    let took = began.elapsed();
    let expected = match command.split(' ').next() {
        Some("SEAT.ACQUIRE") => "[1, ACQUIRED, 2, 10001, 60000]".to_owned(),
        Some("SEAT.HEARTBEAT") => "[1, HEARTBEAT_UPDATED, 1, 60000]".to_owned(),
        Some("SEAT.RELEASE") => "[1, RELEASED, 0]".to_owned(),
        Some("SEAT.SESSIONS") => r#"["live"]"#.to_owned(),
        // The timer may have been there before.
        _ => format!("{}, 1]", reply.split(',').next().expect("a number")),
    };
    assert_eq!(reply, expected, "{command}");
    wait_for_reclaim(&server, many as u64);
    took
}

/// Case 10: callers that state different limits of one pool.
#[test]
fn case_10_a_grant_is_within_the_limit_that_it_states() {
    let (_server, mut dialog) = Server::scene();
    for (line, reply) in [
        ("SEAT.ACQUIRE pool a 1 EX 60", "[1, ACQUIRED, 1, 1, 60000]"),
        (
            "SEAT.ACQUIRE pool b 1 EX 60",
            "[0, NO_SEATS_AVAILABLE, 1, 1]",
        ),
        ("SEAT.ACQUIRE pool b 3 EX 60", "[1, ACQUIRED, 2, 3, 60000]"),
        (
            "SEAT.ACQUIRE pool c 1 EX 60",
            "[0, NO_SEATS_AVAILABLE, 2, 1]",
        ),
        (
            "SEAT.ACQUIRE pool c 2 EX 60",
            "[0, NO_SEATS_AVAILABLE, 2, 2]",
        ),
        ("SEAT.ACQUIRE pool c 3 EX 60", "[1, ACQUIRED, 3, 3, 60000]"),
        (
            "SEAT.ACQUIRE pool a 1 EX 60",
            "[1, ALREADY_ACTIVE, 3, 60000]",
        ),
        (
            "SEAT.ACQUIRE pool d 0 EX 60",
            "[0, NO_SEATS_AVAILABLE, 3, 0]",
        ),
    ] {
        dialog.expect(line, reply);
    }
}

/// Case 11, keygate `floating.go`: a heartbeat brought a expired session back above the limit.
#[test]
fn case_11_a_heartbeat_revives_nobody() {
    after_an_expiry(
        "SEAT.ACQUIRE pool a 1 PX 1",
        &[
            ("SEAT.ACQUIRE pool b 1", "[1, ACQUIRED, 1, 1]"),
            ("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]"),
            ("SEAT.HEARTBEAT pool a EX 60", "[0, SESSION_NOT_ACTIVE]"),
            ("SEAT.COUNT pool", "1"),
            ("SEAT.SESSIONS pool", r#"["b"]"#),
            ("SEAT.RELEASE pool b", "[1, RELEASED, 0]"),
            ("SEAT.HEARTBEAT pool a EX 60", "[0, SESSION_NOT_ACTIVE]"),
            ("SEAT.COUNT pool", "0"),
        ],
    );
}

/// Across all of these nothing may count twice.
#[test]
fn an_expiry_is_counted_once() {
    let (server, mut dialog) = Server::scene();
    dialog.ask("SEAT.ACQUIRE pool a 1 PX 1");
    wait_for_reclaim(&server, 1);
    dialog.ask("SEAT.RELEASE pool a");
    dialog.ask("SEAT.REVOKE pool a");
    dialog.ask("SEAT.CLEANUP pool IDLE 0");
    assert_eq!(
        ["acquired", "expired", "released", "revoked"]
            .map(|name| total(&server, &format!("seat_{name}"))),
        [1, 1, 0, 0]
    );
}
