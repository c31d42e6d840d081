//! Odd orders of events.

use super::two_waiters;
use crate::support::{Dialog, Server, Waiter, nobody_is_blocked};

const GRANTED: &str = "[1, ACQUIRED, 1, 1]";
const DENIED: &str = "[0, NO_SEATS_AVAILABLE, 1, 1]";

#[test]
fn the_death_of_a_call_that_was_replaced_removes_nothing() {
    let (server, mut dialog) = Server::full_pool();
    let [mut older, _second] = two_waiters(&server);
    let mut newer = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    older.hears(DENIED);
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    drop(older);
    let mut newest = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    newer.hears(DENIED);
    dialog.expect(&newer.kill(), "1");
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    newest.hears(GRANTED);
    assert_eq!(dialog.queue("pool"), ["c"]);
}

#[test]
fn a_queue_entry_replaced_and_killed_at_once_is_the_newer_ones() {
    let (server, mut dialog) = Server::full_pool();
    let older = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    // The ticket takes the entry over before the end of the older client is known.
    let replies = dialog.transaction(&[&older.kill(), "SEAT.ACQUIRE pool b 1 QUEUE 60000"]);
    assert_eq!(replies, "[1, [0, QUEUED, 1, 1, 1]]");
    nobody_is_blocked(&server);
    assert_eq!(dialog.queue("pool"), ["b"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool b 1", GRANTED);
}

#[test]
fn a_session_that_is_taken_out_of_the_queue_hears_so() {
    for (command, reply) in [
        ("SEAT.RELEASE pool b", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool b", "0"),
        ("SEAT.REVOKE pool x b y", "0"),
    ] {
        for wait in ["BLOCK 0", "QUEUE 60000 BLOCK 0"] {
            let (server, mut dialog) = Server::full_pool();
            let mut waiter = Waiter::of(&server, &format!("SEAT.ACQUIRE pool b 1 {wait}"));
            let mut other = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
            dialog.expect(command, reply);
            waiter.hears(DENIED);
            assert_eq!(dialog.queue("pool"), ["c"], "{command}, {wait}");
            dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
            other.hears(GRANTED);
            dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
            dialog.one_seat_is_free("pool");
            nobody_is_blocked(&server);
        }
    }
}

#[test]
fn two_connections_of_a_revoked_session_leave_nothing() {
    let (server, mut dialog) = Server::full_pool();
    let mut older = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
    let mut newer = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    older.hears(DENIED);
    dialog.transaction(&["SEAT.RELEASE pool b", "SEAT.REVOKE pool b a"]);
    let reply = newer.read();
    assert!(reply.starts_with("[0, NO_SEATS_AVAILABLE, "), "{reply}");
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
}

#[test]
fn a_seat_granted_on_another_connection_ends_the_wait() {
    let (server, mut dialog) = Server::full_pool();
    let [mut first, mut second] = two_waiters(&server);
    dialog.expect("SEAT.ACQUIRE pool b 2", "[1, ACQUIRED, 2, 2]");
    let reply = first.read();
    assert!(reply.starts_with("[0, NO_SEATS_AVAILABLE, "), "{reply}");
    dialog.expect("SEAT.ACQUIRE pool b 1 BLOCK 0", "[1, ALREADY_ACTIVE, 2]");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    assert_eq!(dialog.queue("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    second.hears(GRANTED);
    nobody_is_blocked(&server);
}

#[test]
fn an_overwritten_and_deleted_key_serves_by_what_is_left() {
    let (server, mut dialog) = Server::full_pool();
    let [mut first, mut second] = two_waiters(&server);
    dialog.transaction(&["SET pool x", "DEL pool"]);
    first.hears(GRANTED);
    dialog.expect("SET pool x", "+OK");
    second.hears("!WRONGTYPE Operation against a key holding the wrong kind of value");
    let mut late = Dialog::with(&server);
    late.expect(
        "SEAT.ACQUIRE pool b 1 BLOCK 0",
        "!WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    dialog.expect("DEL pool", "1");
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
}

#[test]
fn a_wait_under_limit_zero_lasts_until_resize_states_more() {
    for wait in ["BLOCK 0", "QUEUE 60000 BLOCK 0"] {
        let (server, mut dialog) = Server::scene();
        let mut first = Waiter::of(&server, "SEAT.ACQUIRE pool b 0 BLOCK 0");
        dialog.expect(&format!("SEAT.ACQUIRE pool c 1 {wait}"), GRANTED);
        assert_eq!(dialog.queue("pool"), ["b"], "{wait}");
        dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
        dialog.expect("SEAT.RESIZE pool 1", "1");
        first.hears(GRANTED);
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
        dialog.one_seat_is_free("pool");
    }
}

#[test]
fn a_wait_for_a_limit_of_none_that_ends_holds_nobody_up() {
    let (server, mut dialog) = Server::scene();
    let hopeless = Waiter::of(&server, "SEAT.ACQUIRE pool b 0 BLOCK 0");
    let mut late = Dialog::with(&server);
    late.expect(
        "SEAT.ACQUIRE pool c 0 BLOCK 1",
        "[0, NO_SEATS_AVAILABLE, 0, 0]",
    );
    drop(hopeless);
    dialog.queue_becomes("pool", &[]);
    dialog.one_seat_is_free("pool");
}

#[test]
fn a_waiter_under_limit_zero_is_served_when_the_pool_is_gone() {
    let (server, mut dialog) = Server::full_pool();
    let mut first = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let _hopeless = Waiter::of(&server, "SEAT.ACQUIRE pool c 0 BLOCK 0");
    // The limit is none now, by the latest that joined; without a pool it is what the first in line
    // states.
    dialog.ask("SEAT.RELEASE pool a");
    first.hears(GRANTED);
}

#[test]
fn a_limit_lowered_and_raised_again_grants_in_order() {
    let (server, mut dialog) = Server::full_pool();
    let [mut first, mut second] = two_waiters(&server);
    let mut third = Waiter::of(&server, "SEAT.ACQUIRE pool d 1 BLOCK 0");
    dialog.expect("SEAT.RESIZE pool -5", "0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    // The pool is gone with its last holder, and those who wait have the limit still.
    assert_eq!(dialog.queue("pool"), ["b", "c", "d"]);
    dialog.expect("SEAT.RESIZE pool 2", "2");
    first.hears("[1, ACQUIRED, 1, 2]");
    second.hears("[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.RESIZE pool 9223372036854775807", "1");
    third.hears("[1, ACQUIRED, 3, 9223372036854775807]");
    nobody_is_blocked(&server);
}

#[test]
fn a_client_that_waits_again_is_where_it_last_stood() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Dialog::with(&server);
    waiter.expect("SEAT.ACQUIRE pool b 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
    let mut waiter = Waiter::with(waiter, &server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let _second = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    dialog.expect(&format!("CLIENT UNBLOCK {}", waiter.id()), "1");
    // The wait without QUEUE took the entry over from the ticket, and has ended.
    waiter.hears(DENIED);
    dialog.expect("SEAT.POSITION pool b", "nil");
    waiter.waits_again(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
    assert_eq!(dialog.queue("pool"), ["c", "b"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    assert_eq!(dialog.queue("pool"), ["b"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 1]");
    waiter.hears(GRANTED);
}

#[test]
fn a_wait_survives_what_does_not_concern_it() {
    let (server, mut dialog) = Server::full_pool();
    let [mut first, _second] = two_waiters(&server);
    for command in [
        "SEAT.ACQUIRE pool a 1",
        "SEAT.ACQUIRE pool x 1",
        "SEAT.HEARTBEAT pool a",
        "SEAT.RELEASE pool x",
        "SEAT.CLEANUP pool",
        "SEAT.RESIZE pool 1",
        "EXPIRE pool 60",
        "PERSIST pool",
        "COPY pool copy",
        "DUMP pool",
        "SET other x",
        "SWAPDB 5 6",
        "DEL missing copy",
        "RENAME other another",
        "BGREWRITEAOF",
        "MEMORY PURGE",
        "SCRIPT FLUSH",
    ] {
        dialog.succeeds(command);
        assert_eq!(dialog.queue("pool"), ["b", "c"], "{command}");
        assert!(dialog.is_blocked(first.id()), "{command}");
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    first.hears(GRANTED);
}
