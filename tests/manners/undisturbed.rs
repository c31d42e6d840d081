//! WATCH and client tracking: a real change disturbs them, nothing else does.

use super::READING;
use crate::dialog::Dialog;
use crate::support::Server;

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
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 9, "{}");
    dialog.acquire("pool", "b", 9, "{}");
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
    for command in QUIET.iter().chain(&READING) {
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
    dialog.expect("SEAT.HEARTBEAT pool a", r#"[1, "HEARTBEAT_UPDATED", 1]"#);
    dialog.expect("MULTI", "+OK");
    dialog.expect("SEAT.RELEASE pool a", "+QUEUED");
    dialog.expect("EXEC", "nil array");
    dialog.expect("SEAT.COUNT pool", "2");
}

/// What a client that has read the pool under tracking hears when another sends `command`, up to its next PONG.
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
    for command in QUIET.iter().chain(&READING) {
        let heard = heard_after(&server, &mut other, "SEAT.GET pool a", command);
        assert_eq!(heard, nothing, "{command}");
    }
    for (read, command) in READING.iter().cycle().zip(CHANGING) {
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
