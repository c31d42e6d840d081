//! A session has one position, whichever client and kind of waiting it keeps it by.

use super::recording;
use crate::support::{Dialog, Server, Waiter, eventually, total, total_becomes, units};

const DENIED: &str = "[0, NO_SEATS_AVAILABLE, 1, 1]";

#[test]
fn a_newer_call_keeps_the_position() {
    let (server, mut dialog) = Server::full_pool();
    let command = r#"SEAT.ACQUIRE pool b 1 {"older":1} PX 1000 BLOCK 0"#;
    let mut older = Waiter::of(&server, command);
    let older_id = older.id();
    let mut next = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    eventually("it has waited", || {
        dialog.queue_with_times("pool")[0].1 >= 20
    });
    let mut newer = Dialog::with(&server);
    newer.send("SEAT.ACQUIRE pool b 1 {\"newer\":1} PX 60000 BLOCK 0");
    older.hears(DENIED);
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    assert!(dialog.queue_with_times("pool")[0].1 >= 20);
    assert_eq!(total(&server, "seat_blocked_clients"), 2);
    // The older client's end takes nothing away.
    dialog.expect(&format!("CLIENT KILL ID {older_id}"), "1");
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    newer.hears("[1, ACQUIRED, 1, 1, 60000]");
    dialog.begins("SEAT.GET pool b", r#""{"newer":1,"#);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    next.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(total(&server, "seat_queued"), 2);
    assert_eq!(total(&server, "seat_left"), 0);
}

#[test]
fn a_newer_call_with_a_higher_limit_takes_the_seat_itself() {
    let (server, mut dialog) = Server::full_pool();
    let mut older = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 {\"older\":1} BLOCK 0");
    dialog.expect(
        "SEAT.ACQUIRE pool b 2 {\"newer\":1} PX 60000 BLOCK 0",
        "[1, ACQUIRED, 2, 2, 60000]",
    );
    assert!(older.read().starts_with("[0, NO_SEATS_AVAILABLE, "));
    dialog.begins("SEAT.GET pool b", r#""{"newer":1,"#);
}

#[test]
fn blocking_while_active_answers_at_once() {
    let (server, mut dialog) = Server::full_pool();
    let _waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    for (options, reply) in [
        ("BLOCK 0", "[1, ALREADY_ACTIVE, 1]"),
        ("QUEUE 1000", "[1, ALREADY_ACTIVE, 1]"),
        ("QUEUE 1000 BLOCK 0", "[1, ALREADY_ACTIVE, 1]"),
        ("EX 60 BLOCK 0", "[1, ALREADY_ACTIVE, 1, 60000]"),
    ] {
        dialog.expect(&format!("SEAT.ACQUIRE pool a 1 {options}"), reply);
    }
    assert_eq!(dialog.queue("pool"), ["b"]);
}

#[test]
fn a_poll_takes_over_the_position_of_a_blocked_client() {
    let (server, mut dialog) = recording().full_pool();
    for options in ["BLOCK 0", "QUEUE 60000 BLOCK 0"] {
        let mut waiter = Waiter::of(&server, &format!("SEAT.ACQUIRE pool b 1 {options}"));
        let last = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
        dialog.expect("SEAT.ACQUIRE pool b 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
        waiter.hears(DENIED);
        assert_eq!(dialog.queue("pool"), ["b", "c"]);
        assert_eq!(dialog.pool_info("pool", "waiting"), 2);
        let mut last = last;
        dialog.expect("SEAT.REVOKE pool b c", "0");
        last.hears(DENIED);
    }
}

#[test]
fn a_blocked_client_takes_over_from_a_ticket_and_outlasts_it() {
    let (server, mut dialog) = recording().full_pool();
    dialog.expect("SEAT.ACQUIRE pool b 1 QUEUE 400", "[0, QUEUED, 1, 1, 1]");
    let mut waiter = Dialog::with(&server);
    waiter.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
    total_becomes(&server, "seat_blocked_clients", 1);
    let mut next = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    eventually("the ticket would be lost", || {
        dialog
            .queue_with_times("pool")
            .iter()
            .all(|(session, waited_ms)| session != "b" || *waited_ms >= 500)
    });
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    next.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_session_with_a_ticket_counts_once_when_it_blocks() {
    let (server, mut dialog) = Server::full_pool();
    dialog.expect("SEAT.ACQUIRE pool b 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
    let mut waiter = Dialog::with(&server);
    waiter.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
    total_becomes(&server, "seat_blocked_clients", 1);
    assert_eq!(dialog.queue("pool"), ["b"]);
    assert_eq!(dialog.pool_info("pool", "waiting"), 1);
    dialog.expect("SEAT.ACQUIRE pool c 1 QUEUE 60000", "[0, QUEUED, 1, 1, 2]");
    // Two seats are for b and c, and the third is free.
    dialog.expect("SEAT.RESIZE pool 4", "1");
    waiter.hears("[1, ACQUIRED, 2, 4]");
    dialog.expect("SEAT.ACQUIRE pool d 4", "[1, ACQUIRED, 3, 4]");
    dialog.expect("SEAT.ACQUIRE pool e 4", "[0, NO_SEATS_AVAILABLE, 3, 4]");
}

#[test]
fn release_and_revoke_take_a_waiting_session_out() {
    let (server, mut dialog) = recording().full_pool();
    for (command, reply) in [
        ("SEAT.RELEASE pool b", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool b x", "0"),
    ] {
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.expect(command, reply);
        waiter.hears(DENIED);
        assert_eq!(dialog.queue("pool"), [""; 0]);

        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
        let sent = units(&server, || dialog.expect(command, reply));
        waiter.hears(DENIED);
        assert_eq!(sent, [["pool LEAVE b"]]);
        assert_eq!(dialog.queue("pool"), [""; 0]);
    }
    assert_eq!(total(&server, "seat_left"), 4);
    assert_eq!(total(&server, "seat_released"), 0);
    assert_eq!(total(&server, "seat_revoked"), 0);
}

#[test]
fn a_seat_that_was_kept_for_who_leaves_goes_on_in_the_same_unit() {
    let (server, mut dialog) = recording().scene();
    for (command, reply) in [
        ("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool t", "0"),
    ] {
        dialog.acquire("pool", "a", 1, "{}");
        dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
        dialog.expect("SEAT.POSITION pool b", "2");
        let sent = units(&server, || dialog.expect(command, reply));
        assert_eq!(sent, [["pool LEAVE t", "pool GRANT b 1 T T - 0 0 {}"]]);
        waiter.hears("[1, ACQUIRED, 1, 1]");
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    }
}
