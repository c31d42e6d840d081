//! Keyspace events of the queue.

use crate::support::{Dialog, Server, Waiter};

fn listening() -> (Server, Dialog, Dialog) {
    let server = Server::builder()
        .config("notify-keyspace-events EA")
        .start();
    let mut listener = Dialog::with(&server);
    let reply = listener.ask("PSUBSCRIBE __keyevent@0__:*");
    assert!(reply.contains("psubscribe"), "{reply}");
    let client = Dialog::with(&server);
    (server, listener, client)
}

/// The next event, as `event key`.
#[track_caller]
fn next(listener: &mut Dialog) -> String {
    let message = listener.read();
    let fields: Vec<_> = message.split('"').collect();
    let event = fields[5].strip_prefix("__keyevent@0__:");
    format!("{} {}", event.expect("an event of database 0"), fields[7])
}

/// The events until now.
#[track_caller]
fn events(listener: &mut Dialog, client: &mut Dialog) -> Vec<String> {
    client.expect("PUBLISH __keyevent@0__:end here", "1");
    let events = std::iter::from_fn(|| Some(next(listener)));
    events.take_while(|event| event != "end here").collect()
}

#[test]
fn joining_leaving_and_grants_from_the_queue_are_told() {
    let (server, mut listener, mut client) = listening();
    client.acquire("pool", "a", 1, "{}");
    assert_eq!(next(&mut listener), "seat.acquired pool");

    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    assert_eq!(events(&mut listener, &mut client), ["seat.queued pool"]);
    client.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(
        events(&mut listener, &mut client),
        [
            "seat.released pool",
            "seat.acquired pool",
            "seat.granted pool"
        ]
    );

    // Joining the queue is published, not each poll.
    for _ in 0..2 {
        let queued = "[0, QUEUED, 1, 1, 1]";
        client.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
    }
    assert_eq!(events(&mut listener, &mut client), ["seat.queued pool"]);
    client.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    assert_eq!(events(&mut listener, &mut client), ["seat.released pool"]);
    client.expect("SEAT.ACQUIRE pool t 1", "[1, ACQUIRED, 1, 1]");
    assert_eq!(
        events(&mut listener, &mut client),
        ["seat.acquired pool", "seat.granted pool"]
    );

    for command in ["SEAT.RELEASE pool b", "SEAT.REVOKE pool b"] {
        let _waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        client.ask(command);
        let seen = events(&mut listener, &mut client);
        assert_eq!(seen, ["seat.queued pool", "seat.left pool"], "{command}");
    }
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 100");
    assert!(waiter.read().contains("NO_SEATS_AVAILABLE"));
    let seen = events(&mut listener, &mut client);
    assert_eq!(seen, ["seat.queued pool", "seat.left pool"]);

    client.expect("SEAT.RESIZE pool 2", "0");
    client.expect("SEAT.RESIZE pool 2", "0");
    assert_eq!(events(&mut listener, &mut client), ["seat.resized pool"]);
}

#[test]
fn a_client_that_goes_away_is_told_as_leaving() {
    let (server, mut listener, mut client) = listening();
    client.acquire("pool", "a", 1, "{}");
    assert_eq!(next(&mut listener), "seat.acquired pool");
    drop(Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0"));
    assert_eq!(next(&mut listener), "seat.queued pool");
    assert_eq!(next(&mut listener), "seat.left pool");
}

#[test]
fn a_lost_ticket_is_replicated_and_the_last_removes_the_key() {
    let (_server, mut listener, mut client) = listening();
    client.acquire("pool", "a", 1, "{}");
    client.expect("SEAT.ACQUIRE pool t 1 QUEUE 200", "[0, QUEUED, 1, 1, 1]");
    client.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    let seen: Vec<_> = (0..5).map(|_| next(&mut listener)).collect();
    assert_eq!(
        seen,
        [
            "seat.acquired pool",
            "seat.queued pool",
            "seat.released pool",
            "seat.left pool",
            "del pool"
        ]
    );
    client.expect("EXISTS pool", "0");
}
