//! The keyspace events of owners.

use crate::support::{Events, Server, Waiter};

#[test]
fn a_takeover_is_published_before_its_grant() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 9 OWNER ann", "[1, ACQUIRED, 1, 9]");
    let mut events = Events::of(&server);
    dialog.expect(
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 TAKEOVER",
        r#"[1, ACQUIRED, 1, 9, "a"]"#,
    );
    assert_eq!(
        events.until_now(),
        ["seat.replaced pool", "seat.acquired pool"]
    );
    // A refusal is none, and a new token is not worth one.
    dialog.expect(
        "SEAT.ACQUIRE pool c 9 OWNER ann MAX 1",
        "[0, OWNER_LIMIT, 1, 1]",
    );
    dialog.token("SEAT.ACQUIRE pool b 9 WITHTOKEN");
    assert_eq!(events.until_now(), [""; 0]);
    dialog.expect("SEAT.REVOKEOWNER pool ann", "1");
    assert_eq!(events.until_now(), ["seat.revoked pool", "del pool"]);
}

#[test]
fn a_limit_reached_at_the_turn_is_published() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 OWNER ann MAX 1 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool c 2 OWNER ann", "[1, ACQUIRED, 2, 2]");
    let mut events = Events::of(&server);
    dialog.expect("SEAT.RESIZE pool 3", "0");
    waiter.hears("[0, OWNER_LIMIT, 1, 1]");
    assert_eq!(
        events.until_now(),
        [
            "seat.left pool",
            "seat.owner_limit pool",
            "seat.resized pool"
        ]
    );
}
