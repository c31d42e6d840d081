//! Blocked clients belong to a name, tickets and limits to the value under it: what becomes of the
//! queue when one of them goes or comes alone.

use crate::support::{Dialog, Server, Waiter, eventually, now_ms, total_becomes};

fn prepared(commands: &[&str]) -> (Server, Dialog) {
    let (server, mut dialog) = Server::scene();
    for command in commands {
        dialog.succeeds(command);
    }
    (server, dialog)
}

#[test]
fn a_plain_block_takes_over_from_its_ticket_and_outlives_it() {
    let (server, mut dialog) =
        prepared(&["SEAT.ACQUIRE pool a 1", "SEAT.ACQUIRE pool b 1 QUEUE 100"]);
    let mut b = Dialog::with(&server);
    b.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
    // Nothing but time ends the position that the ticket had; the client waits on at it.
    let mut c = Dialog::with(&server);
    total_becomes(&server, "seat_blocked_clients", 1);
    c.expect("SEAT.ACQUIRE pool c 1 QUEUE 60000", "[0, QUEUED, 1, 1, 2]");
    assert_eq!(dialog.pool_info("pool", "waiting"), 2);
    // Once a later ticket is lost, the earlier would be, too.
    dialog.ask("SEAT.ACQUIRE pool x 1 QUEUE 150");
    eventually("x has lost its position", || {
        dialog.queue("pool") == ["b", "c"]
    });
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    b.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn another_value_under_the_name_brings_its_own_tickets() {
    let (server, mut dialog) = prepared(&[
        "SEAT.ACQUIRE other h 1",
        "SEAT.ACQUIRE other t 1 QUEUE 60000",
        "SEAT.ACQUIRE pool a 1",
    ]);
    let mut b = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
    dialog.expect("RENAME other pool", "+OK");
    eventually("the queue is looked at", || {
        dialog.pool_info("pool", "waiting") == 2
    });
    dialog.expect("SEAT.ACQUIRE pool n 1 QUEUE 60000", "[0, QUEUED, 1, 1, 3]");
    assert_eq!(dialog.queue("pool"), ["t", "b", "n"]);
    dialog.expect("SEAT.RELEASE pool h", "[1, RELEASED, 0]");
    dialog.expect("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]");
    b.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_blocked_client_does_not_wait_behind_its_own_ticket() {
    let (server, mut dialog) = prepared(&[
        "SEAT.ACQUIRE other h 1",
        "SEAT.ACQUIRE other b 1 QUEUE 600000",
        "SEAT.ACQUIRE pool a 1",
    ]);
    let mut b = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
    dialog.expect("RENAME other pool", "+OK");
    eventually("the queue is looked at", || {
        dialog.pool_info("pool", "waiting") == 1
    });
    dialog.ask("SEAT.RELEASE pool h");
    b.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_deleted_pool_loses_its_tickets_and_the_clients_stay() {
    let (server, mut dialog) = prepared(&["SEAT.ACQUIRE pool a 1"]);
    let mut b = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
    let _c = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 0");
    dialog.expect("DEL pool", "1");
    b.hears("[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.ACQUIRE pool d 1 QUEUE 60000", "[0, QUEUED, 1, 1, 2]");
    dialog.expect("SEAT.ACQUIRE pool e 1 QUEUE 60000", "[0, QUEUED, 1, 1, 3]");
    assert_eq!(dialog.pool_info("pool", "waiting"), 3);
}

#[test]
fn what_resize_states_for_a_waiter_outlives_the_pool() {
    let (server, mut dialog) = prepared(&["SEAT.ACQUIRE pool a 1"]);
    let mut b = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("SEAT.RESIZE pool 0", "0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("EXISTS pool", "0");
    assert_eq!(dialog.queue("pool"), ["b"]);
    dialog.expect("SEAT.RESIZE pool 1", "1");
    b.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn the_next_waiters_limit_counts_when_the_first_goes() {
    let (server, mut dialog) = prepared(&["SEAT.ACQUIRE pool a 1"]);
    let first = Waiter::of(&server, "SEAT.ACQUIRE pool b 0 BLOCK 0");
    let mut second = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    dialog.expect("DEL pool", "1");
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    drop(first);
    second.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_denial_that_lets_nobody_in_does_not_change_the_limit() {
    let (_server, mut dialog) = prepared(&[
        "SEAT.ACQUIRE pool a 2",
        "SEAT.ACQUIRE pool b 2",
        "SEAT.RESIZE pool 0",
        "SEAT.ACQUIRE pool t 0 QUEUE 60000",
    ]);
    dialog.expect("SEAT.ACQUIRE pool n 1", "[0, NO_SEATS_AVAILABLE, 2, 1]");
    dialog.contains("SEAT.INFO pool", r#""seats", 0"#);
}

#[test]
fn a_long_poll_keeps_its_position_from_one_time_out_to_the_next() {
    let (server, mut dialog) = prepared(&["SEAT.ACQUIRE pool a 1"]);
    let mut poller = Dialog::with(&server);
    let first = poller.ask("SEAT.ACQUIRE pool p 1 QUEUE 60000 BLOCK 5");
    assert_eq!(first, "[0, QUEUED, 1, 1, 1]");
    let _other = Waiter::of(&server, "SEAT.ACQUIRE pool o 1 BLOCK 0");
    for round in 0..100 {
        let reply = poller.ask("SEAT.ACQUIRE pool p 1 QUEUE 60000 BLOCK 5");
        assert_eq!(reply, "[0, QUEUED, 1, 1, 1]", "round {round}");
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    poller.expect(
        "SEAT.ACQUIRE pool p 1 QUEUE 60000 BLOCK 5",
        "[1, ACQUIRED, 1, 1]",
    );
}

#[test]
fn a_call_that_the_full_queue_refuses_lets_nobody_in() {
    let (server, mut dialog) = prepared(&["SEAT.ACQUIRE pool a 1"]);
    let _b = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    if server.version() >= (7, 0, 0) {
        dialog.expect("CONFIG SET seat.max-queue-length 1", "+OK");
        dialog.expect(
            "SEAT.ACQUIRE pool e 1 QUEUE 1000",
            "!ERR the queue of this pool is full",
        );
        assert_eq!(dialog.sessions("pool"), ["a"]);
        assert_eq!(dialog.pool_info("pool", "seats"), 1);
    }
    dialog.expect("SEAT.ACQUIRE pool e 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
}

#[test]
fn server_and_module_agree_on_the_longest_waits() {
    let (server, mut dialog) = prepared(&["SEAT.ACQUIRE pool a 1"]);
    let now_ms = now_ms();
    for ms in [4_503_599_627_370_497, i64::MAX - now_ms, i64::MAX] {
        dialog.begins(
            &format!("SEAT.ACQUIRE pool b 1 BLOCK {ms}"),
            "!ERR BLOCK must be",
        );
    }
    let mut b = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 4503599627370496");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    b.hears("[1, ACQUIRED, 1, 1]");
}
