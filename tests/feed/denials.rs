//! The denial feed: who was refused, and what they wanted.

use super::{Entry, Reader, entries_of};
use crate::support::{Builder, Server, Waiter, total};

fn with_denials() -> Builder {
    Server::builder().module_args("denial-feed denials denial-feed-maxlen 5")
}

#[test]
fn a_refusal_says_what_was_wanted_and_why_it_was_not_granted() {
    let (server, mut dialog) = with_denials().full_pool();
    let mut feed = Reader::of(&server, "denials");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect(
        "SEAT.ACQUIRE pool c 2 WEIGHT 3 OWNER ann",
        "[0, NO_SEATS_AVAILABLE, 1, 2]",
    );
    dialog.succeeds("SEAT.ACQUIRE pool d 9 OWNER ann");
    dialog.expect(
        "SEAT.ACQUIRE pool e 9 OWNER ann MAX 1",
        "[0, OWNER_LIMIT, 1, 1]",
    );
    dialog.expect("SEAT.ACQUIRE missing f 0", "[0, NO_SEATS_AVAILABLE, 0, 0]");
    feed.hears(&[
        "denied pool b 1/1 reason=NO_SEATS_AVAILABLE user=default",
        "denied pool c 1/2 owner=ann weight=3 reason=NO_SEATS_AVAILABLE user=default",
        "denied pool e 2/9 owner=ann reason=OWNER_LIMIT held=1 max=1 user=default",
        "denied missing f 0/0 reason=NO_SEATS_AVAILABLE user=default",
    ]);
    dialog.expect("EXISTS missing feed", "0");
    assert_eq!(total(&server, "seat_feed_errors"), 0);
}

#[test]
fn the_end_of_a_wait_and_an_error_are_no_refusals() {
    let (server, mut dialog) = with_denials().full_pool();
    let mut feed = Reader::of(&server, "denials");
    dialog.succeeds("SEAT.ACQUIRE pool t 1 QUEUE 600000");
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 1 BLOCK 0");
    drop(waiter);
    dialog.begins("SEAT.ACQUIRE pool b x", "!ERR");
    dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ALREADY_ACTIVE, 1]");
    dialog.expect("SEAT.HEARTBEAT pool b", "[0, SESSION_NOT_ACTIVE]");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    feed.hears(&["denied pool b 1/1 reason=NO_SEATS_AVAILABLE user=default"]);
}

#[test]
fn a_storm_of_refusals_pushes_nothing_out_of_the_feed() {
    let builder = with_denials()
        .module_args("feed feed denial-feed denials denial-feed-maxlen 5 feed-maxlen 3");
    let (server, mut dialog) = builder.full_pool();
    dialog.ask_all((0..200).map(|n| format!("SEAT.ACQUIRE pool s{n} 1")));
    let sessions = |seen: Vec<Entry>| -> Vec<String> {
        seen.iter()
            .map(|entry| entry.field("session").to_owned())
            .collect()
    };
    assert_eq!(
        sessions(entries_of(&mut dialog, "denials")),
        ["s195", "s196", "s197", "s198", "s199"]
    );
    assert_eq!(sessions(entries_of(&mut dialog, "feed")), ["a"]);
    assert_eq!(total(&server, "seat_feed_entries"), 201);
}

#[test]
fn a_refusal_changes_no_pool_and_signals_only_its_stream() {
    let (server, mut dialog) = with_denials().full_pool();
    let mut watcher = crate::support::Dialog::with(&server);
    watcher.expect("WATCH pool", "+OK");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    assert_eq!(watcher.transaction(&["PING"]), "[+PONG]");
    watcher.expect("WATCH denials", "+OK");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    assert_eq!(watcher.transaction(&["PING"]), "nil array");
}

#[test]
fn the_stream_reaches_replica_and_log_with_each_refusal_in_one_command() {
    let (server, mut dialog) = with_denials().recording().tcp().full_pool();
    let replica = Server::builder().replica_of(&server).start();
    let sent = crate::support::effects_of(&server, || {
        dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    });
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].starts_with("SEAT.EFFECT pool "), "{sent:?}");
    dialog.ask_all((0..50).map(|n| format!("SEAT.ACQUIRE pool s{n} 1")));
    server.replica_agrees(&replica);
    server.reloads_the_same("DEBUG LOADAOF");
    dialog.expect("XLEN denials", "5");
}
