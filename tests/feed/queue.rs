//! Who joins the queue, leaves it, and is granted a seat from there.

use super::{Reader, nothing_failed, with_feed};
use crate::support::{Dialog, Server, Waiter, now_ms};

/// A server with a feed, whose pool `pool` is full.
fn full() -> (Server, Dialog, Reader) {
    let (server, dialog) = with_feed().full_pool();
    let feed = Reader::of(&server, "feed");
    (server, dialog, feed)
}

/// A connection of the user `worker`.
fn worker(server: &Server) -> Dialog {
    Dialog::as_worker(server, "~* &* +@all")
}

#[test]
fn joining_is_written_once_whoever_polls_how_often() {
    let (server, mut dialog, mut feed) = full();
    let poll = "SEAT.ACQUIRE pool t 1 OWNER ann WEIGHT 1 QUEUE 600000";
    dialog.expect(poll, "[0, QUEUED, 1, 1, 1]");
    dialog.expect(poll, "[0, QUEUED, 1, 1, 1]");
    let heavy = "SEAT.ACQUIRE pool h 3 WEIGHT 3 BLOCK 0";
    let _heavy = Waiter::with(worker(&server), &server, heavy);
    let both = "SEAT.ACQUIRE pool both 1 QUEUE 600000 BLOCK 0";
    let mut first = Waiter::of(&server, both);
    // It takes the position over.
    let _second = Waiter::of(&server, both);
    first.hears("[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]");
    feed.hears(&[
        "queued pool t 1/1 owner=ann user=default",
        "queued pool h 1/3 weight=3 user=worker",
        "queued pool both 1/1 user=default",
        "left pool t 1/1 owner=ann waited_ms=_ user=default",
    ]);
    nothing_failed(&server);
}

#[test]
fn each_way_out_of_the_queue_is_written_with_the_wait() {
    let (server, mut dialog, mut feed) = full();
    for session in ["t", "u"] {
        dialog.succeeds(&format!("SEAT.ACQUIRE pool {session} 1 QUEUE 600000"));
    }
    dialog.succeeds("SEAT.ACQUIRE pool v 1 OWNER ann QUEUE 600000");
    let killed = Waiter::with(worker(&server), &server, "SEAT.ACQUIRE pool k 1 BLOCK 0");
    let mut timed = worker(&server);
    feed.until("all have joined", |new| new.len() == 4);
    dialog.expect("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]");
    dialog.expect("SEAT.REVOKE pool u", "0");
    dialog.expect("SEAT.REVOKEOWNER pool ann", "0");
    feed.hears(&[
        "left pool t 1/1 waited_ms=_ user=default",
        "left pool u 1/1 waited_ms=_ user=default",
        "left pool v 1/1 owner=ann waited_ms=_ user=default",
    ]);
    dialog.expect(&killed.kill(), "1");
    feed.hears(&["left pool k 1/1 waited_ms=_"]);
    timed.expect(
        "SEAT.ACQUIRE pool b 1 BLOCK 20",
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    let seen = feed.until("a time-out", |new| new.len() == 2);
    assert_eq!(seen[0].line(), "queued pool b 1/1 user=worker");
    assert_eq!(seen[1].line(), "left pool b 1/1 waited_ms=_ user=worker");
    assert!(seen[1].number("waited_ms") >= 20);
}

#[test]
fn a_ticket_that_is_lost_is_written_by_the_timer() {
    let (_server, mut dialog, mut feed) = full();
    dialog.succeeds("SEAT.ACQUIRE pool t 7 OWNER ann WEIGHT 9 QUEUE 30");
    let seen = feed.hears(&[
        "queued pool t 1/7 owner=ann weight=9 user=default",
        "left pool t 1/7 owner=ann weight=9 waited_ms=_",
    ]);
    assert!((30..30_000).contains(&seen[1].number("waited_ms")));
}

#[test]
fn a_grant_from_the_queue_has_the_wait_and_the_user_of_the_one_who_waits() {
    let (server, mut dialog, mut feed) = full();
    let joined_ms = now_ms();
    let mut waiter = Waiter::with(
        worker(&server),
        &server,
        "SEAT.ACQUIRE pool b 1 EX 60 OWNER ann BLOCK 0",
    );
    dialog.wait_until(joined_ms + 30);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.is_granted();
    let seen = feed.hears(&[
        "queued pool b 1/1 owner=ann user=worker",
        "released pool a 0/1 held_s=_ heartbeats=0 user=default",
        "acquired pool b 1/1 owner=ann lease_ms=60000 deadline_ms=_ waited_ms=_ user=worker",
    ]);
    let waited_ms = seen[2].number("waited_ms");
    assert!(
        (20..=now_ms() - joined_ms).contains(&waited_ms),
        "{waited_ms}"
    );
}

#[test]
fn a_ticket_that_is_redeemed_has_its_wait() {
    let (_server, mut dialog, mut feed) = full();
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 600000", "[0, QUEUED, 1, 1, 1]");
    let joined_ms = now_ms();
    dialog.wait_until(joined_ms + 30);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 600000", "[1, ACQUIRED, 1, 1]");
    let seen = feed.hears(&[
        "queued pool t 1/1 user=default",
        "released pool a 0/1 held_s=_ heartbeats=0 user=default",
        "acquired pool t 1/1 waited_ms=_ user=default",
    ]);
    assert!(seen[2].number("waited_ms") >= 30);
}

#[test]
fn who_is_served_by_the_timer_has_a_user_and_what_expired_has_none() {
    let (server, mut dialog) = with_feed().scene();
    dialog.succeeds("SEAT.ACQUIRE pool a 1 PX 150");
    let mut feed = Reader::of(&server, "feed");
    let mut waiter = Waiter::with(worker(&server), &server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    waiter.is_granted();
    feed.hears(&[
        "queued pool b 1/1 user=worker",
        "expired pool a 0/1 held_s=_ heartbeats=0 deadline_ms=_",
        "acquired pool b 1/1 waited_ms=_ user=worker",
    ]);
}

#[test]
fn a_new_limit_is_written_before_those_whom_it_lets_in() {
    let (server, mut dialog, mut feed) = full();
    let mut waiter = Waiter::with(worker(&server), &server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("SEAT.RESIZE pool 3", "1");
    waiter.is_granted();
    dialog.expect("SEAT.RESIZE pool 1", "0");
    feed.hears(&[
        "queued pool b 1/1 user=worker",
        "resized pool - 1/3 user=default",
        "acquired pool b 2/3 waited_ms=_ user=worker",
        "resized pool - 2/1 user=default",
    ]);
}

#[test]
fn a_limit_reached_at_the_turn_is_one_entry() {
    let (server, mut dialog, mut feed) = full();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 OWNER ann MAX 1 BLOCK 0");
    dialog.succeeds("SEAT.ACQUIRE pool c 2 OWNER ann");
    dialog.expect("SEAT.RESIZE pool 3", "0");
    waiter.hears("[0, OWNER_LIMIT, 1, 1]");
    let seen = feed.until("four entries", |new| new.len() >= 4);
    let mut lines: Vec<String> = seen.iter().map(super::Entry::line).collect();
    lines.sort();
    assert_eq!(
        lines[..2],
        [
            "acquired pool c 2/2 owner=ann user=default",
            "owner_limit pool b 2/3 owner=ann waited_ms=_",
        ]
    );
    assert_eq!(
        lines[2..],
        [
            "queued pool b 1/1 owner=ann user=default",
            "resized pool - 2/3 user=default"
        ]
    );
}

#[test]
fn a_ticket_at_its_owners_limit_leaves_with_one_entry() {
    let (_server, mut dialog, mut feed) = full();
    dialog.succeeds("SEAT.ACQUIRE pool t 1 OWNER ann MAX 1 QUEUE 600000");
    dialog.succeeds("SEAT.ACQUIRE pool c 2 OWNER ann");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.RESIZE pool 5", "0");
    dialog.expect("SEAT.QUEUE pool", "[]");
    let seen = feed.until("five entries", |new| new.len() >= 5);
    let of_ticket = seen
        .iter()
        .filter(|entry| entry.get("session") == Some("t"));
    let events: Vec<&str> = of_ticket.map(|entry| entry.field("event")).collect();
    assert_eq!(events, ["queued", "owner_limit"]);
}

#[test]
fn a_grant_whose_client_is_gone_is_taken_back_in_the_feed_as_well() {
    let (server, mut dialog, mut feed) = full();
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    // Both reach the server in one turn of its event loop, so that it has no reply to write.
    let (release, kill) = ("SEAT.RELEASE pool a".to_owned(), waiter.kill());
    let replies = dialog.pipeline(&["MULTI", &release, &kill, "EXEC"]);
    assert_eq!(
        replies.last().map(String::as_str),
        Some("[[1, RELEASED, 1], 1]")
    );
    dialog.queue_becomes("pool", &[]);
    let seen = feed.until("the end", |new| {
        new.iter()
            .filter(|entry| entry.get("session") == Some("b"))
            .count()
            >= 4
    });
    let of_b = seen
        .iter()
        .filter(|entry| entry.get("session") == Some("b"));
    let events: Vec<&str> = of_b.map(|entry| entry.field("event")).collect();
    assert_eq!(events, ["queued", "acquired", "released", "left"]);
    dialog.expect("SEAT.COUNT pool", "0");
}
