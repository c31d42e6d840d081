//! Keyspace events of the queue.

use crate::support::{Dialog, Events, Server, Waiter};

/// A pool whose only seat `a` holds, and who hears of it from then on.
fn listening() -> (Server, Dialog, Events) {
    let (server, dialog) = Server::full_pool();
    let events = Events::of(&server);
    (server, dialog, events)
}

#[test]
fn joining_leaving_and_grants_from_the_queue_are_published() {
    let (server, mut dialog, mut events) = listening();

    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    assert_eq!(events.until_now(), ["seat.queued pool"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(
        events.until_now(),
        [
            "seat.released pool",
            "seat.acquired pool",
            "seat.granted pool"
        ]
    );

    // Joining the queue is published, not each poll.
    for _ in 0..2 {
        let queued = "[0, QUEUED, 1, 1, 1]";
        dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
    }
    assert_eq!(events.until_now(), ["seat.queued pool"]);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    assert_eq!(events.until_now(), ["seat.released pool"]);
    dialog.expect("SEAT.ACQUIRE pool t 1", "[1, ACQUIRED, 1, 1]");
    assert_eq!(
        events.until_now(),
        ["seat.acquired pool", "seat.granted pool"]
    );

    for command in ["SEAT.RELEASE pool b", "SEAT.REVOKE pool b"] {
        let _waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.ask(command);
        assert_eq!(
            events.until_now(),
            ["seat.queued pool", "seat.left pool"],
            "{command}"
        );
    }
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 100");
    assert!(waiter.read().contains("NO_SEATS_AVAILABLE"));
    assert_eq!(events.until_now(), ["seat.queued pool", "seat.left pool"]);

    dialog.expect("SEAT.RESIZE pool 2", "0");
    dialog.expect("SEAT.RESIZE pool 2", "0");
    assert_eq!(events.until_now(), ["seat.resized pool"]);
}

#[test]
fn a_client_that_goes_away_is_published_as_leaving() {
    let (server, _dialog, mut events) = listening();
    drop(Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0"));
    assert_eq!(events.take(2), ["seat.queued pool", "seat.left pool"]);
}

#[test]
fn a_lost_ticket_is_published_and_the_last_removes_the_key() {
    let (_server, mut dialog, mut events) = listening();
    let replies = dialog.pipeline(&["SEAT.ACQUIRE pool t 1 QUEUE 200", "SEAT.RELEASE pool a"]);
    assert_eq!(replies, ["[0, QUEUED, 1, 1, 1]", "[1, RELEASED, 0]"]);
    assert_eq!(
        events.take(4),
        [
            "seat.queued pool",
            "seat.released pool",
            "seat.left pool",
            "del pool"
        ]
    );
    dialog.expect("EXISTS pool", "0");
}
