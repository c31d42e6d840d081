//! QUEUE and BLOCK together: the position outlives the call.

use super::expiry::has_left;
use super::poll;
use crate::queue::recording;
use crate::support::{Dialog, Server, Waiter, eventually, total, total_becomes, units};

const SECOND: &str = "[0, QUEUED, 1, 1, 2]";

/// `a` holds the only seat, and `t` is first in line.
fn prepared() -> (Server, Dialog) {
    let (server, mut dialog) = recording().full_pool();
    let queued = "[0, QUEUED, 1, 1, 1]";
    assert_eq!(poll(&mut dialog, "pool", "t", 1), queued);
    (server, dialog)
}

#[test]
fn the_position_outlives_the_time_out() {
    let (server, mut dialog) = prepared();
    let mut client = Waiter::of(&server, "SEAT.ACQUIRE pool l 1 QUEUE 600000 BLOCK 200");
    let last = poll(&mut dialog, "pool", "z", 1);
    assert!(last.contains("QUEUED"), "{last}");
    for _ in 0..3 {
        // Its time-out, with the position that it has.
        client.hears(SECOND);
        assert_eq!(dialog.queue("pool"), ["t", "l", "z"]);
        client.send("SEAT.ACQUIRE pool l 1 QUEUE 600000 BLOCK 20");
    }
    client.hears(SECOND);
    assert_eq!(total(&server, "seat_left"), 0);
    assert_eq!(total(&server, "seat_queued"), 3);
    // A blocked client is granted its seat, while one that is between two calls has it kept.
    dialog.expect("SEAT.REVOKE pool t a", "1");
    assert_eq!(dialog.pool_info("pool", "kept"), 1);
    client.expect(
        "SEAT.ACQUIRE pool l 1 QUEUE 600000 BLOCK 0",
        "[1, ACQUIRED, 1, 1]",
    );
    assert_eq!(dialog.queue("pool"), ["z"]);
}

#[test]
fn a_grant_comes_while_it_is_blocked() {
    let (server, mut dialog) = prepared();
    let command = "SEAT.ACQUIRE pool l 1 {\"k\":1} EX 70 QUEUE 600000 BLOCK 0";
    let mut client = Waiter::of(&server, command);
    dialog.expect("SEAT.REVOKE pool t", "0");
    let sent = units(&server, || {
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
        client.hears("[1, ACQUIRED, 1, 1, 70000]");
    });
    let unit = [
        "pool FREE released a",
        "pool GRANT l 1 T T - 70000 T {\"k\":1}",
    ];
    assert_eq!(sent, [unit]);
    assert_eq!(dialog.queue("pool"), [""; 0]);
}

#[test]
fn the_position_outlives_the_connection() {
    let (server, mut dialog) = prepared();
    for how in ["closed", "killed"] {
        let client = Waiter::of(&server, "SEAT.ACQUIRE pool l 1 QUEUE 600000 BLOCK 0");
        if how == "closed" {
            let last = poll(&mut dialog, "pool", "z", 1);
            assert!(last.contains("QUEUED"), "{last}");
            drop(client);
        } else {
            dialog.expect(&client.kill(), "1");
        }
        total_becomes(&server, "seat_blocked_clients", 0);
        assert_eq!(dialog.queue("pool"), ["t", "l", "z"], "{how}");
    }
    // Whatever way the session comes back, it has its position.
    assert_eq!(poll(&mut dialog, "pool", "l", 1), SECOND);
    let mut client = Dialog::with(&server);
    client.send("SEAT.ACQUIRE pool l 1 BLOCK 0");
    total_becomes(&server, "seat_blocked_clients", 1);
    assert_eq!(dialog.queue("pool"), ["t", "l", "z"]);
    dialog.expect("SEAT.REVOKE pool t a", "1");
    client.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn it_needs_no_poll_while_it_is_blocked() {
    let (server, mut dialog) = prepared();
    let mut client = Waiter::of(&server, "SEAT.ACQUIRE pool l 1 QUEUE 50 BLOCK 0");
    let last = poll(&mut dialog, "pool", "z", 1);
    assert!(last.contains("QUEUED"), "{last}");
    eventually("it has waited longer than its ticket lasts", || {
        let waiters = dialog.queue_with_times("pool");
        assert_eq!(waiters[1].0, "l");
        waiters[1].1 > 300
    });
    dialog.expect(&format!("CLIENT UNBLOCK {} TIMEOUT", client.id()), "1");
    client.hears(SECOND);
    // From then on it does.
    eventually("it is lost", || dialog.queue("pool") == ["t", "z"]);
}

#[test]
fn its_ticket_lasts_from_the_end_of_the_call() {
    let (server, mut dialog) = prepared();
    for end in ["CLIENT UNBLOCK {} TIMEOUT", "CLIENT KILL ID {}"] {
        let client = Waiter::of(&server, "SEAT.ACQUIRE pool l 1 QUEUE 2500 BLOCK 0");
        let id = client.id();
        let waited_ms = |dialog: &mut Dialog| {
            let waiters = dialog.queue_with_times("pool");
            let own = waiters.iter().find(|(session, _)| session == "l");
            own.map(|(_, waited_ms)| *waited_ms)
        };
        eventually("its first ticket has nearly run out", || {
            waited_ms(&mut dialog).expect("a position") >= 2200
        });
        dialog.expect(&end.replace("{}", &id.to_string()), "1");
        eventually("its first ticket has run out", || {
            waited_ms(&mut dialog).expect("a position") >= 2600
        });
        dialog.expect("SEAT.REVOKE pool l", "0");
    }
}

#[test]
fn a_call_without_queue_has_a_position_only_while_blocked() {
    let (server, mut dialog) = prepared();
    assert_eq!(poll(&mut dialog, "pool", "l", 1), SECOND);
    let last = poll(&mut dialog, "pool", "z", 1);
    assert!(last.contains("QUEUED"), "{last}");
    let mut client = Dialog::with(&server);
    let id = client.number("CLIENT ID");
    client.send("SEAT.ACQUIRE pool l 1 BLOCK 0");
    total_becomes(&server, "seat_blocked_clients", 1);
    assert_eq!(dialog.queue("pool"), ["t", "l", "z"]);
    dialog.expect(&format!("CLIENT UNBLOCK {id} TIMEOUT"), "1");
    client.hears("[0, NO_SEATS_AVAILABLE, 1, 1]");
    assert_eq!(dialog.queue("pool"), ["t", "z"]);
    let joined_anew = "[0, QUEUED, 1, 1, 3]";
    assert_eq!(poll(&mut dialog, "pool", "l", 1), joined_anew);
}

#[test]
fn a_call_without_queue_may_give_up_the_pools_last_ticket() {
    let (mut server, mut dialog) = recording().scene();
    let queued = "[0, QUEUED, 0, 0, 1]";
    assert_eq!(poll(&mut dialog, "pool", "l", 0), queued);
    let sent = units(&server, || {
        dialog.expect(
            "SEAT.ACQUIRE pool l -1 BLOCK 20",
            "[0, NO_SEATS_AVAILABLE, 0, -1]",
        );
    });
    assert_eq!(sent, [["pool LEAVE l"]]);
    dialog.expect("EXISTS pool", "0");
    server.kill9();
    server.restart();
    assert_eq!(total(&server, "seat_ignored_effects"), 0);
}

#[test]
fn the_latest_call_says_how_long_the_ticket_lasts() {
    let (server, mut dialog) = prepared();
    let mut client = Waiter::of(&server, "SEAT.ACQUIRE pool l 1 QUEUE 600000 BLOCK 0");
    let id = client.id();
    // It is carried out in the same turn of the event loop in which the first call ends.
    client.send("SEAT.ACQUIRE pool l 1 QUEUE 1");
    dialog.expect(&format!("CLIENT UNBLOCK {id} TIMEOUT"), "1");
    client.hears(SECOND);
    client.hears(SECOND);
    eventually("it is lost", || has_left(&server, "l"));
}
