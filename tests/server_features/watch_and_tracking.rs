//! WATCH and client tracking: a real change disturbs them, nothing else does.

use crate::commands::table::{self, Row};
use crate::support::{Dialog, Server, Waiter, eventually, total_becomes};

/// Commands that change nothing in a pool that holds `a` and `b`, refused ones included.
const QUIET: [&str; 13] = [
    "SEAT.ACQUIRE pool a 9 {}",
    "SEAT.ACQUIRE pool c 2 {}",
    "SEAT.ACQUIRE pool c -1 {}",
    "SEAT.ACQUIRE pool c 9 nonsense",
    "SEAT.ACQUIRE pool c x {}",
    "SEAT.ACQUIRE pool c 9 {} more",
    "SEAT.RELEASE pool c",
    "SEAT.HEARTBEAT pool c",
    "SEAT.HEARTBEAT pool a {} more",
    "SEAT.REVOKE pool c d",
    "SEAT.CLEANUP pool",
    "SEAT.EFFECT pool FREE released a",
    "SEAT.SCAN pool x",
];

/// Each a change when carried out in this order.
const CHANGING: [&str; 6] = [
    "SEAT.ACQUIRE pool c 9 {}",
    "SEAT.HEARTBEAT pool c",
    "SEAT.RELEASE pool c",
    "SEAT.REVOKE pool x a",
    "SEAT.RELEASE pool b",
    "SEAT.ACQUIRE pool a 9 {}",
];

fn prepared() -> (Server, Dialog) {
    let (server, mut dialog) = Server::scene();
    dialog.acquire_all("pool", &["a", "b"], 9);
    (server, dialog)
}

/// What EXEC answers to a client that watched `key` while another sent `command`.
fn exec_after(server: &Server, other: &mut Dialog, key: &str, command: &str) -> String {
    let mut watcher = Dialog::with(server);
    watcher.expect(&format!("WATCH {key}"), "+OK");
    other.ask(command);
    watcher.expect("MULTI", "+OK");
    watcher.expect("PING", "+QUEUED");
    watcher.ask("EXEC")
}

#[test]
fn exec_goes_through_after_what_changed_nothing() {
    let (server, mut other) = prepared();
    for command in QUIET
        .into_iter()
        .chain(table::readers().flat_map(Row::calls))
    {
        assert_eq!(
            exec_after(&server, &mut other, "pool", command),
            "[+PONG]",
            "{command}"
        );
    }
    for command in [
        "SEAT.ACQUIRE missing a 0 {}",
        "SEAT.ACQUIRE missing a 9 nonsense",
        "SEAT.RELEASE missing a",
        "SEAT.HEARTBEAT missing a",
        "SEAT.REVOKE missing a b",
        "SEAT.COUNT missing",
        "SEAT.SESSIONS missing",
    ] {
        assert_eq!(
            exec_after(&server, &mut other, "missing", command),
            "[+PONG]",
            "{command}"
        );
    }
    other.expect("SET text x", "+OK");
    let command = "SEAT.ACQUIRE text a 9 {}";
    assert_eq!(exec_after(&server, &mut other, "text", command), "[+PONG]");
}

#[test]
fn exec_is_off_after_a_change() {
    let (server, mut other) = prepared();
    for command in CHANGING {
        assert_eq!(
            exec_after(&server, &mut other, "pool", command),
            "nil array",
            "{command}"
        );
    }
    assert_eq!(
        exec_after(&server, &mut other, "another", CHANGING[1]),
        "[+PONG]"
    );
}

#[test]
fn a_change_of_ones_own_before_exec_counts_too() {
    let (server, _) = prepared();
    let mut dialog = Dialog::with(&server);
    dialog.expect("WATCH pool", "+OK");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    assert_eq!(dialog.transaction(&["SEAT.RELEASE pool a"]), "nil array");
    dialog.expect("SEAT.COUNT pool", "2");
}

/// What a client that has read the pool under tracking hears when another sends `command`, up to
/// its next PONG.
fn heard_after(server: &Server, other: &mut Dialog, read: &str, command: &str) -> Vec<String> {
    let mut tracking = Dialog::in_resp3(server);
    tracking.expect("CLIENT TRACKING ON", "+OK");
    tracking.ask(read);
    other.ask(command);
    let mut heard = Vec::new();
    tracking.send("PING");
    loop {
        let reply = tracking.read();
        if reply == "+PONG" {
            return heard;
        }
        heard.push(reply);
    }
}

#[test]
fn a_tracking_client_hears_of_changes_and_of_nothing_else() {
    let (server, mut other) = prepared();
    let nothing: [String; 0] = [];
    for command in QUIET
        .into_iter()
        .chain(table::readers().flat_map(Row::calls))
    {
        let heard = heard_after(&server, &mut other, "SEAT.GET pool a", command);
        assert_eq!(heard, nothing, "{command}");
    }
    for (read, command) in table::readers().cycle().zip(CHANGING) {
        let read = read.call;
        let heard = heard_after(&server, &mut other, read, command);
        assert_eq!(
            heard,
            [r#"push ["invalidate", ["pool"]]"#],
            "{read}, then {command}"
        );
    }
    let heard = heard_after(
        &server,
        &mut other,
        "SEAT.COUNT missing",
        "SEAT.RELEASE missing a",
    );
    assert_eq!(heard, nothing);
}

/// What shows who waits.
const SHOWING_THE_QUEUE: [&str; 3] = ["SEAT.QUEUE pool", "SEAT.INFO pool", "SEAT.POSITION pool c"];

/// A pool whose two seats are taken.
fn full() -> (Server, Dialog) {
    let (server, mut dialog) = Server::scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    (server, dialog)
}

/// A client that has read the queue under tracking and watches the pool.
#[track_caller]
fn onlooker(server: &Server) -> Dialog {
    onlooker_after(server, ("PING", "+PONG"))
}

/// The same, from the instant in which it has had something done.
#[track_caller]
fn onlooker_after(server: &Server, (command, reply): (&str, &str)) -> Dialog {
    let mut onlooker = Dialog::in_resp3(server);
    let mut commands = vec![command, "CLIENT TRACKING ON"];
    commands.extend(SHOWING_THE_QUEUE);
    commands.push("WATCH pool");
    let replies = onlooker.pipeline(&commands);
    assert_eq!(
        [&replies[0], &replies[1], &replies[5]],
        [reply, "+OK", "+OK"]
    );
    onlooker
}

/// Whether the pool was signalled as changed: an invalidation has come, and a transaction does not
/// go through.
#[track_caller]
fn is_disturbed(mut onlooker: Dialog) -> bool {
    onlooker.send("MULTI");
    let first = onlooker.read();
    let is_invalidated = first == r#"push ["invalidate", ["pool"]]"#;
    if is_invalidated {
        onlooker.hears("+OK");
    } else {
        assert_eq!(first, "+OK");
    }
    onlooker.expect("PING", "+QUEUED");
    let exec = onlooker.ask("EXEC");
    assert_eq!(exec == "null", is_invalidated, "{exec}");
    is_invalidated
}

/// The pool is no other for it, so whoever watches the sessions is left in peace, and caches of the
/// queue go stale: as documented.
#[test]
fn a_client_that_waits_by_block_alone_disturbs_nobody() {
    let (server, mut other) = full();
    let seen = |other: &mut Dialog| SHOWING_THE_QUEUE.map(|command| other.ask(command));
    let empty = seen(&mut other);

    let before = onlooker(&server);
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool c 2 BLOCK 0");
    let joined = seen(&mut other);
    for (empty, joined) in empty.iter().zip(&joined) {
        assert_ne!(empty, joined);
    }
    assert!(!is_disturbed(before));

    for leave in [format!("CLIENT UNBLOCK {}", waiter.id()), String::new()] {
        let before = onlooker(&server);
        if leave.is_empty() {
            drop(Waiter::of(&server, "SEAT.ACQUIRE pool c 2 BLOCK 0"));
        } else {
            other.expect(&leave, "1");
        }
        eventually("the queue is empty", || other.queue("pool").is_empty());
        assert!(!is_disturbed(before));
    }
}

#[test]
fn a_ticket_and_a_grant_from_the_queue_disturb_as_any_change() {
    let (server, mut other) = full();
    for ask in ["", " BLOCK 1"] {
        let before = onlooker(&server);
        let reply = other.ask(&format!("SEAT.ACQUIRE pool c 2 QUEUE 60000{ask}"));
        assert_eq!(reply, "[0, QUEUED, 2, 2, 1]");
        assert!(is_disturbed(before), "the ticket of {ask:?}");
        let before = onlooker(&server);
        other.expect("SEAT.REVOKE pool c", "0");
        assert!(is_disturbed(before), "the end of a ticket");
    }
    let queued = "[0, QUEUED, 2, 2, 1]";
    let before = onlooker_after(&server, ("SEAT.ACQUIRE pool c 2 QUEUE 200", queued));
    total_becomes(&server, "seat_tickets", 0);
    assert!(is_disturbed(before), "the loss of a ticket");

    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool c 2 BLOCK 0");
    let before = onlooker(&server);
    other.expect("SEAT.RELEASE pool a", "[1, RELEASED, 2]");
    waiter.is_granted();
    assert!(is_disturbed(before), "a grant");
}
