//! TAKEOVER: one session of the owner ends, and this one takes its place in the same step.

use super::recording;
use crate::support::{Dialog, Events, Server, Waiter, total, units};

/// A pool in which `old`, then `new` were acquired by ann, a second apart.
fn two_of_ann(server: &Server, seats: i64) -> Dialog {
    let mut dialog = Dialog::with(server);
    for (session, at) in [("old", 1_700_000_000), ("new", 1_700_000_001)] {
        dialog.expect(
            &format!("SEAT.EFFECT pool GRANT {session} '{seats} {at} {at} - 0 0 1 -' {{}} ann"),
            "1",
        );
    }
    dialog
}

#[test]
fn the_session_silent_for_the_longest_ends_in_one_effect() {
    let server = recording().start();
    let mut dialog = two_of_ann(&server, 9);
    let sent = units(&server, || {
        dialog.expect(
            "SEAT.ACQUIRE pool c 9 OWNER ann MAX 2 TAKEOVER",
            r#"[1, ACQUIRED, 2, 9, "old"]"#,
        );
    });
    assert_eq!(sent, [["pool GRANT c 9 T T - 0 0 1 - {} ann old"]]);
    assert_eq!(dialog.sessions("pool"), ["c", "new"]);
    dialog.expect("SEAT.HEARTBEAT pool old", "[0, SESSION_NOT_ACTIVE]");
    assert_eq!(total(&server, "seat_replaced"), 1);
}

#[test]
fn a_takeover_from_the_only_session_keeps_the_time_to_live_of_the_key() {
    let (server, mut dialog) = recording().tcp().scene();
    let replica = Server::builder().replica_of(&server).start();
    let mut reader = Dialog::with(&replica);
    dialog.expect("SEAT.ACQUIRE pool a 9 OWNER ann", "[1, ACQUIRED, 1, 9]");
    dialog.expect("EXPIRE pool 1000", "1");
    server.wait_for_offset(&replica);
    let mut events = Events::of(&replica);
    dialog.expect(
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 TAKEOVER",
        r#"[1, ACQUIRED, 1, 9, "a"]"#,
    );
    server.wait_for_offset(&replica);
    assert_eq!(
        events.until_now(),
        ["seat.replaced pool", "seat.acquired pool"]
    );
    for dialog in [&mut dialog, &mut reader] {
        assert!(dialog.number("TTL pool") > 900);
        assert_eq!(dialog.sessions("pool"), ["b"]);
    }
    server.replica_agrees(&replica);
    server.reloads_the_same("DEBUG LOADAOF");
    assert!(dialog.number("TTL pool") > 900);
}

#[test]
fn a_blocked_client_takes_over_in_one_effect() {
    let (server, mut dialog) = recording().scene();
    dialog.expect("SEAT.ACQUIRE pool heavy 2 WEIGHT 2", "[1, ACQUIRED, 2, 2]");
    let mut waiter = Waiter::of(
        &server,
        "SEAT.ACQUIRE pool b 2 OWNER ann MAX 1 TAKEOVER BLOCK 0",
    );
    dialog.expect("SEAT.ACQUIRE pool a 3 OWNER ann", "[1, ACQUIRED, 3, 3]");
    let sent = units(&server, || {
        dialog.expect("SEAT.RELEASE pool heavy", "[1, RELEASED, 1]");
        waiter.hears(r#"[1, ACQUIRED, 1, 2, "a"]"#);
    });
    assert_eq!(
        sent,
        [[
            "pool FREE released heavy",
            "pool GRANT b 2 T T - 0 0 1 - {} ann a"
        ]]
    );
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn an_expired_session_of_the_same_id_goes_with_the_one_that_is_replaced() {
    let (server, mut dialog) = recording().scene();
    dialog.expect("MULTI", "+OK");
    for command in [
        "SEAT.EFFECT pool GRANT a '9 1 1 - 0 0 1 -' {} ann",
        "SEAT.EFFECT pool GRANT b '9 1 1 - 1000 2000' {}",
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 TAKEOVER",
    ] {
        dialog.expect(command, "+QUEUED");
    }
    dialog.expect("EXEC", r#"[1, 1, [1, ACQUIRED, 1, 9, "a"]]"#);
    assert_eq!(dialog.sessions("pool"), ["b"]);
    assert_eq!(total(&server, "seat_replaced"), 1);
    assert_eq!(total(&server, "seat_expired"), 1);
}

#[test]
fn a_replica_without_the_replaced_session_grants_all_the_same_and_says_that_it_has_diverged() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    for pool in ["pool", "other"] {
        dialog.expect(
            &format!("SEAT.ACQUIRE {pool} a 9 OWNER ann"),
            "[1, ACQUIRED, 1, 9]",
        );
    }
    primary.wait_for_offset(&replica);
    let mut meddler = Dialog::with(&replica);
    meddler.expect("CONFIG SET replica-read-only no", "+OK");
    meddler.expect("DEL pool", "1");
    for pool in ["pool", "other"] {
        dialog.expect(
            &format!("SEAT.ACQUIRE {pool} b 9 OWNER ann MAX 1 TAKEOVER"),
            r#"[1, ACQUIRED, 1, 9, "a"]"#,
        );
    }
    primary.wait_for_offset(&replica);
    assert_eq!(total(&replica, "seat_ignored_effects"), 1);
    primary.replica_agrees(&replica);
}

#[test]
fn a_heartbeat_is_a_sign_of_life() {
    let server = recording().start();
    let mut dialog = two_of_ann(&server, 9);
    dialog.expect("SEAT.HEARTBEAT pool old", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect(
        "SEAT.ACQUIRE pool c 9 OWNER ann MAX 2 TAKEOVER",
        r#"[1, ACQUIRED, 2, 9, "new"]"#,
    );
}

#[test]
fn nobody_ends_while_the_limit_and_the_seats_suffice() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 OWNER ann MAX 2 TAKEOVER",
        "[1, ACQUIRED, 1, 9, nil]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 2 TAKEOVER",
        "[1, ACQUIRED, 2, 9, nil]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 2 TAKEOVER",
        "[1, ALREADY_ACTIVE, 2, nil]",
    );
}

#[test]
fn a_full_pool_is_taken_over_in_as_well() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool other 2", "[1, ACQUIRED, 1, 2]");
    dialog.expect("SEAT.ACQUIRE pool a 2 OWNER ann", "[1, ACQUIRED, 2, 2]");
    dialog.expect(
        "SEAT.ACQUIRE pool b 2 OWNER bob MAX 2 TAKEOVER",
        "[0, NO_SEATS_AVAILABLE, 2, 2]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool b 2 OWNER ann MAX 2 TAKEOVER",
        r#"[1, ACQUIRED, 2, 2, "a"]"#,
    );
}

#[test]
fn nothing_ends_where_one_session_less_would_not_do() {
    let server = recording().start();
    let mut dialog = two_of_ann(&server, 9);
    let digest = dialog.digest_of("pool");
    dialog.expect(
        "SEAT.ACQUIRE pool c 9 OWNER ann MAX 1 TAKEOVER",
        "[0, OWNER_LIMIT, 2, 1]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool c 2 WEIGHT 2 OWNER ann MAX 2 TAKEOVER",
        "[0, OWNER_LIMIT, 2, 2]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool c 2 WEIGHT 2 OWNER ann MAX 3 TAKEOVER",
        "[0, NO_SEATS_AVAILABLE, 2, 2]",
    );
    // Metadata are looked at before anything ends.
    dialog.begins(
        "SEAT.ACQUIRE pool c 9 nonsense OWNER ann MAX 2 TAKEOVER",
        "!ERR metadata must be",
    );
    assert_eq!(dialog.digest_of("pool"), digest);
}

#[test]
fn a_lighter_successor_lets_the_queue_be_served() {
    let (server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 3 WEIGHT 3 OWNER ann",
        "[1, ACQUIRED, 3, 3]",
    );
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 3 WEIGHT 2 BLOCK 0");
    dialog.expect(
        "SEAT.ACQUIRE pool b 3 OWNER ann MAX 1 TAKEOVER",
        r#"[1, ACQUIRED, 1, 3, "a"]"#,
    );
    waiter.hears("[1, ACQUIRED, 3, 3]");
}

#[test]
fn a_heavier_successor_waits_its_turn() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 3 OWNER ann", "[1, ACQUIRED, 1, 3]");
    dialog.expect("SEAT.ACQUIRE pool other 3", "[1, ACQUIRED, 2, 3]");
    let mut first = Waiter::of(&server, "SEAT.ACQUIRE pool first 3 WEIGHT 2 BLOCK 0");
    dialog.begins(
        "SEAT.ACQUIRE pool b 3 WEIGHT 2 OWNER ann MAX 1 TAKEOVER",
        "[0, ",
    );
    assert_eq!(dialog.sessions("pool"), ["a", "other"]);
    dialog.expect("SEAT.RELEASE pool other", "[1, RELEASED, 3]");
    first.hears("[1, ACQUIRED, 3, 3]");
}

#[test]
fn a_blocked_client_takes_over_at_its_turn_and_hears_from_whom() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(
        &server,
        "SEAT.ACQUIRE pool b 1 OWNER ann MAX 1 TAKEOVER WITHTOKEN EX 60 BLOCK 0",
    );
    dialog.expect("SEAT.ACQUIRE pool mine 2 OWNER ann", "[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.RESIZE pool 2", "1");
    let reply = waiter.read();
    assert!(
        reply.starts_with("[1, ACQUIRED, 1, 2, 60000, ") && reply.ends_with(r#", "mine"]"#),
        "{reply}"
    );
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn the_elements_of_options_stand_in_one_order() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 9 OWNER ann", "[1, ACQUIRED, 1, 9]");
    let reply = dialog.ask("SEAT.ACQUIRE pool b 9 TAKEOVER WITHTOKEN MAX 1 OWNER ann PX 60000 {}");
    assert!(reply.starts_with("!ERR syntax error"), "{reply}");
    let reply = dialog.ask("SEAT.ACQUIRE pool b 9 {} TAKEOVER WITHTOKEN MAX 1 OWNER ann PX 60000");
    assert!(
        reply.starts_with("[1, ACQUIRED, 1, 9, 60000, ") && reply.ends_with(r#", "a"]"#),
        "{reply}"
    );
    let reply = dialog.ask("SEAT.ACQUIRE pool b 9 WITHTOKEN OWNER ann MAX 1 TAKEOVER EX 60");
    assert!(
        reply.starts_with("[1, ALREADY_ACTIVE, 1, 60000, ") && reply.ends_with(", nil]"),
        "{reply}"
    );
}
