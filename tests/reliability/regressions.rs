//! Defects that the random inputs next to this file have found, each in a few steps.

use crate::support::{Dialog, Server, Waiter, total, total_becomes};

/// The highest number in the order of arrival that is accepted from elsewhere.
const LAST_ARRIVAL: u64 = (1 << 62) - 1;

#[test]
fn a_ticket_of_the_last_number_leaves_some_for_others() {
    let forge = Server::builder().module_args("allow-effects yes").start();
    let mut dialog = Dialog::with(&forge);
    let join = format!("SEAT.EFFECT pool JOIN made-up '1 {LAST_ARRIVAL} 1 1000 4102444800000'");
    dialog.expect(&join, "1");
    let payload = dialog.bytes(&["DUMP", "pool"]);

    let mut primary = Server::builder().recording().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    assert_eq!(dialog.restore("pool", &payload, &[]), "+OK");
    dialog.acquire("other", "a", 1, "{}");
    for session in ["b", "c"] {
        dialog.begins(
            &format!("SEAT.ACQUIRE other {session} 1 QUEUE 80000000"),
            "[0, QUEUED",
        );
    }
    primary.replica_agrees(&replica);
    dialog.expect("DEBUG RELOAD", "+OK");
    assert_eq!(dialog.queue("other"), ["b", "c"]);
    primary.restart();
    assert_eq!(replica.digest(), primary.digest());
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
}

#[test]
fn a_key_that_ends_as_the_timer_opens_it_delays_no_other() {
    let (server, mut dialog) = Server::scene();
    // Only opening the key drops it, and the timer is the first to do so.
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    dialog.expect_at_once(&[
        ("SEAT.ACQUIRE pool a 1 PX 100", "[1, ACQUIRED, 1, 1, 100]"),
        ("PEXPIRE pool 20", "1"),
        ("SELECT 1", "+OK"),
        ("SEAT.ACQUIRE pool b 1 PX 300", "[1, ACQUIRED, 1, 1, 300]"),
    ]);
    total_becomes(&server, "seat_expired", 1);
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn a_wait_that_ends_at_another_type_leaves_an_empty_queue() {
    let (server, mut dialog) = Server::scene();
    // A limit of none lets nobody in, so the name is missing until another type takes it.
    let mut first = Waiter::of(&server, "SEAT.ACQUIRE pool a 0 BLOCK 0");
    dialog.expect("SET pool x", "+OK");
    dialog.expect(&format!("CLIENT UNBLOCK {} TIMEOUT", first.id()), "1");
    first.hears("!WRONGTYPE Operation against a key holding the wrong kind of value");
    dialog.expect("DEL pool", "1");
    assert_eq!(dialog.queue("pool"), [""; 0]);
    // Whoever comes next is the first, and so states the limit.
    let second = Waiter::of(&server, "SEAT.ACQUIRE pool b 0 BLOCK 0");
    assert_eq!(dialog.queue("pool"), ["b"]);
    drop(second);
    dialog.queue_becomes("pool", &[]);
    dialog.one_seat_is_free("pool");
}
