//! What users of similar systems ran into, replayed.

use crate::lines::{Lines, ask_many, grants_until, total, wait_for_reclaim, wait_until};
use crate::support::{Server, Wire};

/// Has a session lapse, once with its row still there and once reclaimed, and replays `late` after each.
fn after_a_lapse(acquire: &str, late: &[(&str, &str)]) {
    let lines: Vec<&str> = late.iter().map(|(line, _)| *line).collect();
    let expected: Vec<&str> = late.iter().map(|(_, reply)| *reply).collect();

    let server = Server::start();
    let mut wire = server.wire();
    let at_once = [&[acquire, "DEBUG SLEEP 0.005"], &lines[..]].concat();
    assert_eq!(
        wire.ask_at_once(&at_once)[2..],
        expected,
        "before the reclaim"
    );

    let server = Server::start();
    let mut wire = server.wire();
    wire.ask(acquire);
    wait_for_reclaim(&server, 1);
    let replies: Vec<String> = lines.iter().map(|line| wire.ask(line)).collect();
    assert_eq!(replies, expected, "after the reclaim");
}

/// Case 1, redisson 4086: releasing a permit whose lease was over added one too many.
#[test]
fn case_1_a_release_after_the_lapse_frees_nothing_more() {
    after_a_lapse(
        "SEAT.ACQUIRE pool a 2 PX 1",
        &[
            ("SEAT.RELEASE pool a", "0 SESSION_NOT_FOUND"),
            ("SEAT.RELEASE pool a", "0 SESSION_NOT_FOUND"),
            ("SEAT.COUNT pool", "0"),
            ("SEAT.ACQUIRE pool b 2", "1 ACQUIRED 1 2"),
            ("SEAT.ACQUIRE pool c 2", "1 ACQUIRED 2 2"),
            ("SEAT.ACQUIRE pool d 2", "0 NO_SEATS_AVAILABLE 2 2"),
        ],
    );
}

/// Case 2, swarthy/redis-semaphore 175: a refresh after another holder came and went took the permit back.
#[test]
fn case_2_a_heartbeat_after_somebody_else_came_and_went_holds_nothing() {
    after_a_lapse(
        "SEAT.ACQUIRE pool a 1 PX 1",
        &[
            ("SEAT.ACQUIRE pool b 1 EX 60", "1 ACQUIRED 1 1 60000"),
            ("SEAT.RELEASE pool b", "1 RELEASED 0"),
            ("SEAT.HEARTBEAT pool a", "0 SESSION_NOT_ACTIVE"),
            ("SEAT.HEARTBEAT pool a EX 60", "0 SESSION_NOT_ACTIVE"),
            ("SEAT.SESSIONS pool", ""),
            ("SEAT.COUNT pool", "0"),
        ],
    );
}

/// Case 3, dv/redis-semaphore 65: a stale holder's late unlock gave away the seat of the next one.
#[test]
fn case_3_a_late_release_leaves_the_next_holder_alone() {
    after_a_lapse(
        "SEAT.ACQUIRE pool a 1 PX 1",
        &[
            ("SEAT.ACQUIRE pool b 1 EX 60", "1 ACQUIRED 1 1 60000"),
            ("SEAT.RELEASE pool a", "0 SESSION_NOT_FOUND"),
            ("SEAT.ACQUIRE pool c 1", "0 NO_SEATS_AVAILABLE 1 1"),
            ("SEAT.SESSIONS pool", "b"),
        ],
    );
}

/// Case 6, argo-workflows 10286: holders were lost, or held for ever, when the controller started again.
#[test]
fn case_6_a_holder_outlives_a_reload_and_a_promotion() {
    fn assert_held(server: &Server, deadline_ms: i64) {
        let mut wire = server.wire();
        assert_eq!(wire.pool_info("pool", "next_deadline_ms"), deadline_ms);
        assert_eq!(
            wire.ask("SEAT.ACQUIRE pool c 1"),
            "0 NO_SEATS_AVAILABLE 1 1"
        );
        assert_eq!(wire.pool_info("pool", "next_deadline_ms"), deadline_ms);
    }
    fn hold(wire: &mut Wire) -> i64 {
        wire.ask("SEAT.ACQUIRE pool a 1 EX 3600");
        wire.pool_info("pool", "next_deadline_ms")
    }
    let beats = |server: &Server| server.wire().ask("SEAT.HEARTBEAT pool a");

    let mut server = Server::builder().config("save 3600 1").start();
    let deadline_ms = hold(&mut server.wire());
    server.restart();
    assert_held(&server, deadline_ms);
    assert_eq!(beats(&server), "1 HEARTBEAT_UPDATED 1");

    let mut server = Server::builder().recording().tcp().start();
    let deadline_ms = hold(&mut server.wire());
    server.kill9();
    server.restart();
    assert_held(&server, deadline_ms);

    let replica = Server::builder().replica_of(&server).start();
    server.wait_for_offset(&replica);
    server.kill9();
    assert_eq!(replica.wire().ask("REPLICAOF NO ONE"), "OK");
    assert_held(&replica, deadline_ms);
    assert_eq!(beats(&replica), "1 HEARTBEAT_UPDATED 1");
}

/// Case 7, swarthy/redis-semaphore 155: one id took several permits.
#[test]
fn case_7_one_session_has_one_seat_however_often_it_asks() {
    let server = Server::start();
    let mut wire = server.wire();
    assert_eq!(
        wire.ask("SEAT.ACQUIRE pool a 5 EX 60"),
        "1 ACQUIRED 1 5 60000"
    );
    assert_eq!(
        wire.ask("SEAT.ACQUIRE pool a 5 EX 60"),
        "1 ALREADY_ACTIVE 1 60000"
    );
    assert_eq!(wire.ask("SEAT.ACQUIRE pool a 5"), "1 ALREADY_ACTIVE 1");
    for session in ["b", "c", "d", "e"] {
        wire.ask(&format!("SEAT.ACQUIRE pool {session} 5"));
    }
    assert_eq!(
        wire.ask("SEAT.ACQUIRE pool f 5"),
        "0 NO_SEATS_AVAILABLE 5 5"
    );
    assert_eq!(
        wire.ask("SEAT.ACQUIRE pool a 5 EX 60"),
        "1 ALREADY_ACTIVE 5 60000"
    );
    assert_eq!(wire.ask("SEAT.RELEASE pool a"), "1 RELEASED 4");
    assert_eq!(wire.ask("SEAT.RELEASE pool a"), "0 SESSION_NOT_FOUND");
}

/// Case 8, dv/redis-semaphore 13: a client whose clock is fast took a live holder for a stale one.
#[test]
fn case_8_a_clients_clock_counts_for_nothing() {
    let server = Server::start();
    let mut wire = server.wire();
    wire.ask("SEAT.ACQUIRE pool a 1 EX 30");
    let deadline_ms = wire.pool_info("pool", "next_deadline_ms");
    let fast = wire.now_ms() / 1000 + 60;
    let metadata = format!(r#"{{"acquired_at":{fast},"last_heartbeat":{fast},"now":{fast}}}"#);
    assert_eq!(
        wire.ask(&format!("SEAT.ACQUIRE pool b 1 {metadata} EX 30")),
        "0 NO_SEATS_AVAILABLE 1 1"
    );
    assert_eq!(wire.pool_info("pool", "next_deadline_ms"), deadline_ms);
    wire.ask(&format!("SEAT.HEARTBEAT pool a {metadata}"));
    assert!(wire.pool_info("pool", "next_deadline_ms") < fast * 1000);
    wire.ask(&format!("SEAT.ACQUIRE pool b 2 {metadata} EX 30"));
    for session in ["a", "b"] {
        let stored = wire.ask(&format!("SEAT.GET pool {session}"));
        let stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
        for field in ["acquired_at", "last_heartbeat"] {
            let seconds = stored[field].as_i64().expect("seconds");
            assert!(seconds < fast - 20, "{session}: {field} is the client's");
        }
    }
}

/// Case 9, "too many results to unpack" in Redisson: ten thousand leases that were over broke the next command.
#[test]
fn case_9_ten_thousand_lapses_are_nothing_to_the_next_command() {
    const MANY: usize = 10_000;
    for command in [
        "SEAT.ACQUIRE pool new 10001 EX 60",
        "SEAT.HEARTBEAT pool live EX 60",
        "SEAT.RELEASE pool live",
        "SEAT.CLEANUP pool",
        "SEAT.SESSIONS pool",
    ] {
        let server = Server::builder().module_args("allow-effects yes").start();
        let mut wire = server.wire();
        wire.ask("SEAT.ACQUIRE pool live 10001");
        let deadline_ms = wire.now_ms() + 400;
        ask_many(&mut wire, grants_until(deadline_ms, MANY));
        wait_until(&mut wire, deadline_ms);
        let began = std::time::Instant::now();
        let reply = wire.ask(command);
        let took = began.elapsed();
        let expected = match command.split(' ').next() {
            Some("SEAT.ACQUIRE") => "1 ACQUIRED 2 10001 60000".to_owned(),
            Some("SEAT.HEARTBEAT") => "1 HEARTBEAT_UPDATED 1 60000".to_owned(),
            Some("SEAT.RELEASE") => "1 RELEASED 0".to_owned(),
            Some("SEAT.SESSIONS") => "live".to_owned(),
            // The timer may have been there before.
            _ => format!("{} 1", reply.split(' ').next().expect("a number")),
        };
        assert_eq!(reply, expected, "{command}");
        assert!(took.as_millis() < 200, "{command} took {took:?}");
        wait_for_reclaim(&server, MANY as u64);
    }
}

/// Case 10: callers that state different limits of one pool.
#[test]
fn case_10_a_grant_is_within_the_limit_that_it_states() {
    let server = Server::start();
    let mut wire = server.wire();
    for (line, reply) in [
        ("SEAT.ACQUIRE pool a 1 EX 60", "1 ACQUIRED 1 1 60000"),
        ("SEAT.ACQUIRE pool b 1 EX 60", "0 NO_SEATS_AVAILABLE 1 1"),
        ("SEAT.ACQUIRE pool b 3 EX 60", "1 ACQUIRED 2 3 60000"),
        ("SEAT.ACQUIRE pool c 1 EX 60", "0 NO_SEATS_AVAILABLE 2 1"),
        ("SEAT.ACQUIRE pool c 2 EX 60", "0 NO_SEATS_AVAILABLE 2 2"),
        ("SEAT.ACQUIRE pool c 3 EX 60", "1 ACQUIRED 3 3 60000"),
        ("SEAT.ACQUIRE pool a 1 EX 60", "1 ALREADY_ACTIVE 3 60000"),
        ("SEAT.ACQUIRE pool d 0 EX 60", "0 NO_SEATS_AVAILABLE 3 0"),
    ] {
        assert_eq!(wire.ask(line), reply, "{line}");
    }
}

/// Case 11, keygate `floating.go`: a heartbeat brought a lapsed session back above the limit.
#[test]
fn case_11_a_heartbeat_revives_nobody() {
    after_a_lapse(
        "SEAT.ACQUIRE pool a 1 PX 1",
        &[
            ("SEAT.ACQUIRE pool b 1", "1 ACQUIRED 1 1"),
            ("SEAT.HEARTBEAT pool a", "0 SESSION_NOT_ACTIVE"),
            ("SEAT.HEARTBEAT pool a EX 60", "0 SESSION_NOT_ACTIVE"),
            ("SEAT.COUNT pool", "1"),
            ("SEAT.SESSIONS pool", "b"),
            ("SEAT.RELEASE pool b", "1 RELEASED 0"),
            ("SEAT.HEARTBEAT pool a EX 60", "0 SESSION_NOT_ACTIVE"),
            ("SEAT.COUNT pool", "0"),
        ],
    );
}

/// Across all of these nothing may count twice.
#[test]
fn a_lapse_is_counted_once() {
    let server = Server::start();
    let mut wire = server.wire();
    wire.ask("SEAT.ACQUIRE pool a 1 PX 1");
    wait_for_reclaim(&server, 1);
    wire.ask("SEAT.RELEASE pool a");
    wire.ask("SEAT.REVOKE pool a");
    wire.ask("SEAT.CLEANUP pool IDLE 0");
    assert_eq!(
        ["acquired", "expired", "released", "revoked"].map(|name| total(&server, name)),
        [1, 1, 0, 0]
    );
}
