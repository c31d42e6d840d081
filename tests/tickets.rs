//! Tickets: positions that are kept by polling, and by clients that come back.

mod digest;
mod expiry;
mod long_poll;
mod persistence;

use crate::queue::recording;
use crate::support::{Dialog, Server, Traces, Waiter, units, words};

/// A poll of `session` for one of `seats`, with a ticket that no test outlasts.
#[track_caller]
pub fn poll(dialog: &mut Dialog, key: &str, session: &str, seats: i64) -> String {
    dialog.ask(&format!(
        "SEAT.ACQUIRE {key} {session} {seats} QUEUE 600000"
    ))
}

#[test]
fn polls_keep_their_positions() {
    let (_server, mut dialog) = recording().full_pool();
    for _ in 0..2 {
        for (session, position) in [("t1", 1), ("t2", 2), ("t3", 3)] {
            let queued = format!("[0, QUEUED, 1, 1, {position}]");
            assert_eq!(poll(&mut dialog, "pool", session, 1), queued);
        }
    }
    let queued = "[0, QUEUED, 1, 1, 3]";
    assert_eq!(poll(&mut dialog, "pool", "t3", 1), queued);
    assert_eq!(dialog.queue("pool"), ["t1", "t2", "t3"]);
    dialog.expect("SEAT.REVOKE pool t1", "0");
    let queued = "[0, QUEUED, 1, 1, 2]";
    assert_eq!(poll(&mut dialog, "pool", "t3", 1), queued);
}

#[test]
fn each_poll_replicates_the_ticket_that_it_leaves() {
    let (server, mut dialog) = recording().scene();
    let sent = units(&server, || {
        dialog.acquire("pool", "a", 1, "{}");
        for (seats, ms) in [(1, 60_000), (1, 60_000), (0, 5_000)] {
            let queued = format!("[0, QUEUED, 1, {seats}, 1]");
            let poll = format!("SEAT.ACQUIRE pool t {seats} {{\"k\":1}} EX 9 QUEUE {ms}");
            dialog.expect(&poll, &queued);
        }
        dialog.expect("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]");
    });
    assert_eq!(
        sent,
        [
            ["pool GRANT a 1 T T - 0 0 {}"],
            ["pool JOIN t 1 1 T 60000 T"],
            ["pool JOIN t 1 1 T 60000 T"],
            ["pool JOIN t 0 1 T 5000 T"],
            ["pool LEAVE t"],
        ]
    );
    let commands = server.commands_in_aof();
    let joins: Vec<Vec<i64>> = commands
        .iter()
        .filter(|command| command.get(2) == Some(&b"JOIN".to_vec()))
        .map(|join| {
            let numbers = words(join).into_iter().skip(4);
            numbers.map(|number| number.parse().unwrap()).collect()
        })
        .collect();
    for (join, ms) in joins.iter().zip([60_000, 60_000, 5_000]) {
        let (since_ms, deadline_ms) = (join[2], join[4]);
        assert_eq!(since_ms, joins[0][2]);
        let polled_ms = deadline_ms - ms;
        assert!(
            (since_ms..since_ms + 30_000).contains(&polled_ms),
            "{join:?}"
        );
    }
    assert!(joins[1][4] >= joins[0][4]);
}

#[test]
fn a_freed_seat_is_kept_for_a_poll_that_brings_the_metadata() {
    let (server, mut dialog) = recording().scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    let queued = "[0, QUEUED, 2, 2, 1]";
    dialog.expect(
        "SEAT.ACQUIRE pool t1 2 {\"first\":1} EX 5 QUEUE 600000",
        queued,
    );
    assert_eq!(poll(&mut dialog, "pool", "t2", 2), "[0, QUEUED, 2, 2, 2]");
    let sent = units(&server, || {
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    });
    assert_eq!(sent, [["pool FREE released a"]]);
    assert_eq!(dialog.pool_info("pool", "kept"), 1);
    let before = Traces::without_totals(&server);
    // Used is below the limit in these denials.
    for session in ["n", "a"] {
        let denied = "[0, NO_SEATS_AVAILABLE, 1, 2]";
        dialog.expect(&format!("SEAT.ACQUIRE pool {session} 2"), denied);
        assert_eq!(Traces::without_totals(&server), before);
    }
    assert_eq!(poll(&mut dialog, "pool", "t2", 2), "[0, QUEUED, 1, 2, 2]");
    // A poll that cannot take it leaves it kept.
    dialog.begins(
        "SEAT.ACQUIRE pool t1 2 nonsense QUEUE 600000",
        "!ERR metadata",
    );
    assert_eq!(dialog.queue("pool"), ["t1", "t2"]);
    let sent = units(&server, || {
        dialog.expect(
            "SEAT.ACQUIRE pool t1 2 {\"second\":2} PX 90000 QUEUE 600000",
            "[1, ACQUIRED, 2, 2, 90000]",
        );
    });
    assert_eq!(sent, [["pool GRANT t1 2 T T - 90000 T {\"second\":2}"]]);
    dialog.begins("SEAT.GET pool t1", r#""{"second":2,"#);
    assert_eq!(dialog.queue("pool"), ["t2"]);
    assert_eq!(dialog.pool_info("pool", "kept"), 0);
    // A call without QUEUE takes a kept seat, too.
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    dialog.expect("SEAT.ACQUIRE pool t2 2", "[1, ACQUIRED, 2, 2]");
    assert_eq!(dialog.queue("pool"), [""; 0]);
}

#[test]
fn tickets_and_blocked_clients_share_one_order() {
    let (server, mut dialog) = Server::full_pool();
    assert_eq!(poll(&mut dialog, "pool", "t1", 1), "[0, QUEUED, 1, 1, 1]");
    let mut b1 = Waiter::of(&server, "SEAT.ACQUIRE pool b1 1 BLOCK 0");
    assert_eq!(poll(&mut dialog, "pool", "t2", 1), "[0, QUEUED, 1, 1, 3]");
    let mut l1 = Waiter::of(&server, "SEAT.ACQUIRE pool l1 1 QUEUE 600000 BLOCK 0");
    let mut b2 = Waiter::of(&server, "SEAT.ACQUIRE pool b2 1 BLOCK 0");
    assert_eq!(dialog.queue("pool"), ["t1", "b1", "t2", "l1", "b2"]);
    assert_eq!(dialog.pool_info("pool", "waiting"), 5);
    // The seat is kept for t1; what comes after is for b1, who does not get the kept one.
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    assert_eq!(dialog.queue("pool").len(), 5);
    dialog.expect("SEAT.RESIZE pool 2", "1");
    b1.hears("[1, ACQUIRED, 1, 2]");
    // The third is kept for t2, and l1 waits for the fourth.
    dialog.expect("SEAT.RESIZE pool 3", "0");
    assert_eq!(dialog.pool_info("pool", "kept"), 2);
    assert_eq!(poll(&mut dialog, "pool", "t2", 3), "[1, ACQUIRED, 2, 3]");
    assert_eq!(dialog.queue("pool"), ["t1", "l1", "b2"]);
    dialog.expect("SEAT.RESIZE pool 5", "2");
    l1.hears("[1, ACQUIRED, 3, 5]");
    b2.hears("[1, ACQUIRED, 4, 5]");
    assert_eq!(poll(&mut dialog, "pool", "t1", 5), "[1, ACQUIRED, 5, 5]");
}

#[test]
fn a_pool_may_be_made_of_tickets_alone() {
    let (server, mut dialog) = recording().scene();
    let sent = units(&server, || {
        assert_eq!(poll(&mut dialog, "pool", "t", 0), "[0, QUEUED, 0, 0, 1]");
        dialog.expect("EXISTS pool", "1");
        dialog.expect("SEAT.COUNT pool", "0");
        dialog.expect("SEAT.RESIZE pool 1", "0");
        assert_eq!(dialog.pool_info("pool", "kept"), 1);
        dialog.expect("SEAT.REVOKE pool t", "0");
        dialog.expect("EXISTS pool", "0");
    });
    assert_eq!(
        sent,
        [
            ["pool JOIN t 0 1 T 600000 T"],
            ["pool RESIZE 1"],
            ["pool LEAVE t"]
        ]
    );
}
