//! Which limit counts, and what changes it.

use super::{NOTHING, recording};
use crate::support::{Server, Traces, Waiter, units};

#[test]
fn a_higher_limit_grants_at_once_and_a_lower_one_evicts_nobody() {
    let (server, mut dialog) = Server::scene();
    dialog.acquire("grown", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE grown b 1 BLOCK 0");
    dialog.expect("SEAT.RESIZE grown 2", "1");
    waiter.hears("[1, ACQUIRED, 2, 2]");
    assert_eq!(dialog.sessions("grown"), ["a", "b"]);

    dialog.acquire_all("shrunk", &["a", "b", "c", "d"], 5);
    dialog.expect("SEAT.RESIZE shrunk 2", "0");
    assert_eq!(dialog.sessions("shrunk"), ["a", "b", "c", "d"]);
    for (field, value) in [("seats", 2), ("used", 4), ("available", 0), ("kept", 0)] {
        assert_eq!(dialog.pool_info("shrunk", field), value, "{field}");
    }
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE shrunk w 2 BLOCK 0");
    for (session, used) in [("a", 3), ("b", 2)] {
        let reply = format!("[1, RELEASED, {used}]");
        dialog.expect(&format!("SEAT.RELEASE shrunk {session}"), &reply);
        let denied = format!("[0, NO_SEATS_AVAILABLE, {used}, 2]");
        dialog.expect("SEAT.ACQUIRE shrunk n 2", &denied);
        dialog.expect("SEAT.POSITION shrunk w", "1");
    }
    dialog.expect("SEAT.RELEASE shrunk c", "[1, RELEASED, 2]");
    waiter.hears("[1, ACQUIRED, 2, 2]");
}

#[test]
fn resizing_says_how_many_it_granted_and_creates_nothing() {
    let (server, mut dialog) = recording().scene();
    let before = Traces::of(&server);
    dialog.expect("SEAT.RESIZE pool 5", "0");
    assert_eq!(Traces::of(&server), before);
    dialog.expect("EXISTS pool", "0");

    dialog.acquire("pool", "a", 1, "{}");
    let mut waiters: Vec<_> = ["b", "c", "d"]
        .map(|session| Waiter::of(&server, &format!("SEAT.ACQUIRE pool {session} 1 BLOCK 0")))
        .into();
    for (seats, granted, effects) in [
        (1, 0, &[][..]),
        (0, 0, &["pool RESIZE 0"]),
        (-1, 0, &["pool RESIZE -1"]),
        (
            3,
            2,
            &[
                "pool RESIZE 3",
                "pool GRANT b 3 T T - 0 0 {}",
                "pool GRANT c 3 T T - 0 0 {}",
            ],
        ),
    ] {
        let sent = units(&server, || {
            dialog.expect(&format!("SEAT.RESIZE pool {seats}"), &granted.to_string());
        });
        assert_eq!(sent.concat(), effects, "{seats}");
        assert!(sent.len() < 2, "{sent:?}");
    }
    waiters[0].hears("[1, ACQUIRED, 2, 3]");
    waiters[1].hears("[1, ACQUIRED, 3, 3]");
    // What is stated with the next grant counts again.
    dialog.expect("SEAT.REVOKE pool d a b", "2");
    waiters[2].hears("[0, NO_SEATS_AVAILABLE, 1, 3]");
    dialog.expect("SEAT.ACQUIRE pool e 2", "[1, ACQUIRED, 2, 2]");
    assert_eq!(dialog.pool_info("pool", "seats"), 2);

    dialog.expect("SET text x", "+OK");
    let before = Traces::of(&server);
    for (command, error) in [
        (
            "SEAT.RESIZE pool 1.5",
            "!ERR seats must be a 64-bit integer",
        ),
        (
            "SEAT.RESIZE pool many",
            "!ERR seats must be a 64-bit integer",
        ),
        (
            "SEAT.RESIZE pool 9223372036854775808",
            "!ERR seats must be a 64-bit integer",
        ),
        ("SEAT.RESIZE pool", "!ERR wrong number of arguments"),
        ("SEAT.RESIZE pool 1 2", "!ERR wrong number of arguments"),
        ("SEAT.RESIZE text 1", "!WRONGTYPE"),
    ] {
        dialog.begins(command, error);
    }
    assert_eq!(Traces::of(&server), before);
}

#[test]
fn waiters_of_different_limits_are_each_held_to_their_own() {
    let (server, mut dialog) = recording().scene();
    dialog.acquire_all("pool", &["a", "b", "c"], 3);
    let mut waiters = Vec::new();
    let sent = units(&server, || {
        let calls = [
            "SEAT.ACQUIRE pool d 2 BLOCK 0",
            "SEAT.ACQUIRE pool e 1 BLOCK 0",
        ];
        waiters.extend(calls.map(|call| Waiter::of(&server, call)));
    });
    let [first, second] = &mut waiters[..] else {
        panic!("two");
    };
    assert_eq!(sent, NOTHING);
    assert_eq!(dialog.pool_info("pool", "seats"), 3);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 2]");
    assert_eq!(dialog.queue("pool"), ["d", "e"]);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 2]");
    first.hears("[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 1]");
    assert_eq!(dialog.queue("pool"), ["e"]);
    // A higher figure has a seat that a lower one cannot have.
    dialog.expect("SEAT.ACQUIRE pool f 2", "[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.REVOKE pool d f", "2");
    second.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_ticket_is_held_to_the_limit_that_its_poll_states() {
    let (_server, mut dialog) = Server::scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    let joined = "[0, QUEUED, 2, 2, 1]";
    dialog.expect("SEAT.ACQUIRE pool t 2 QUEUE 60000", joined);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    assert_eq!(dialog.pool_info("pool", "kept"), 1);
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
    assert_eq!(dialog.pool_info("pool", "seats"), 2);
    assert_eq!(dialog.pool_info("pool", "kept"), 0);
    dialog.expect("SEAT.ACQUIRE pool t 2 QUEUE 60000", "[1, ACQUIRED, 2, 2]");
}

#[test]
fn a_higher_figure_that_lets_nobody_in_is_a_plain_denial() {
    let (server, mut dialog) = recording().scene();
    dialog.acquire_all("pool", &["a", "b", "c"], 3);
    dialog.expect("SEAT.RESIZE pool 1", "0");
    let _waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 1 BLOCK 0");
    let before = Traces::without_totals(&server);
    let sent = units(&server, || {
        for seats in [1, 2, 3] {
            let denied = format!("[0, NO_SEATS_AVAILABLE, 3, {seats}]");
            dialog.expect(&format!("SEAT.ACQUIRE pool n {seats}"), &denied);
        }
    });
    assert_eq!(sent, NOTHING);
    assert_eq!(dialog.pool_info("pool", "seats"), 1);
    assert_eq!(Traces::without_totals(&server), before);
}

#[test]
fn an_error_does_not_change_the_limit_either() {
    let (server, mut dialog) = recording().full_pool();
    let _waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 1 BLOCK 0");
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    let before = Traces::of(&server);
    for command in [
        "SEAT.ACQUIRE pool n 3",
        "SEAT.ACQUIRE pool n 2 QUEUE 60000",
        "SEAT.ACQUIRE pool n 2 BLOCK 1",
    ] {
        dialog.begins(command, "!OOM ");
        assert_eq!(Traces::of(&server), before, "{command}");
    }
    dialog.expect("CONFIG SET maxmemory 0", "+OK");
    let before = Traces::of(&server);
    for command in [
        "SEAT.ACQUIRE pool n 3 nonsense",
        "SEAT.ACQUIRE pool n 2 nonsense QUEUE 60000",
        "SEAT.ACQUIRE pool n 2 nonsense BLOCK 1",
    ] {
        dialog.begins(command, "!ERR metadata");
        assert_eq!(Traces::of(&server), before, "{command}");
    }
}

#[test]
fn who_waits_where_there_is_no_pool_stands_in_nobodys_way() {
    let (server, mut dialog) = Server::scene();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 0 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool n 0", "[0, NO_SEATS_AVAILABLE, 0, 0]");
    dialog.expect("SEAT.ACQUIRE pool n 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.RELEASE pool n", "[1, RELEASED, 0]");
    dialog.expect("EXISTS pool", "0");
    assert_eq!(dialog.queue("pool"), ["w"]);
    // A limit for all lets it in, as it does where there is a pool.
    dialog.expect("SEAT.RESIZE pool 5", "1");
    waiter.hears("[1, ACQUIRED, 1, 5]");
}
