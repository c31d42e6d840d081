//! Clients that are blocked for entries, and keyspace events.

use super::{nothing_failed, with_feed};
use crate::support::{Dialog, Events, Server, Waiter, eventually};

/// A client that is blocked for the entries that come.
struct Blocked(Dialog);

impl Blocked {
    #[track_caller]
    fn by(server: &Server, command: &str) -> Blocked {
        let mut dialog = Dialog::with(server);
        let id = dialog.number("CLIENT ID");
        dialog.send(command);
        let mut observer = Dialog::with(server);
        eventually("the reader is blocked", || observer.is_blocked(id));
        Blocked(dialog)
    }

    #[track_caller]
    fn reading(server: &Server) -> Blocked {
        Blocked::by(server, "XREAD BLOCK 0 STREAMS feed $")
    }

    #[track_caller]
    fn hears_of(mut self, event: &str, session: &str) {
        let reply = self.0.read();
        for value in [event, session] {
            assert!(reply.contains(&format!("\"{value}\"")), "{value}: {reply}");
        }
    }
}

#[test]
fn a_command_a_transaction_a_script_and_the_timer_serve_who_reads() {
    let (server, mut dialog) = with_feed().scene();
    let reader = Blocked::reading(&server);
    dialog.acquire("pool", "a", 9, "{}");
    reader.hears_of("acquired", "a");

    let reader = Blocked::reading(&server);
    dialog.transaction(&["SEAT.ACQUIRE pool b 9"]);
    reader.hears_of("acquired", "b");

    let reader = Blocked::reading(&server);
    dialog.eval(
        "return redis.call('SEAT.ACQUIRE', KEYS[1], 'c', 9)",
        &["pool"],
    );
    reader.hears_of("acquired", "c");

    dialog.succeeds("SEAT.ACQUIRE pool d 9 PX 300");
    let reader = Blocked::reading(&server);
    reader.hears_of("expired", "d");

    let reader = Blocked::reading(&server);
    dialog.expect("DEL pool", "1");
    reader.hears_of("dropped", "pool");

    dialog.acquire("pool", "a", 1, "{}");
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 1 BLOCK 0");
    let reader = Blocked::reading(&server);
    drop(waiter);
    reader.hears_of("left", "w");
    nothing_failed(&server);
}

#[test]
fn a_reader_of_a_group_is_served_and_one_that_waits_for_the_stream_to_be_made() {
    let (server, mut dialog) = with_feed().scene();
    let reader = Blocked::reading(&server);
    dialog.acquire("pool", "a", 9, "{}");
    reader.hears_of("acquired", "a");
    dialog.expect("XGROUP CREATE feed group $", "+OK");
    let command = "XREADGROUP GROUP group me BLOCK 0 STREAMS feed >";
    let reader = Blocked::by(&server, command);
    dialog.acquire("pool", "b", 9, "{}");
    reader.hears_of("acquired", "b");
    let reader = Blocked::by(&server, command);
    dialog.eval("return redis.call('SEAT.RELEASE', KEYS[1], 'a')", &["pool"]);
    reader.hears_of("released", "a");
    dialog.contains("XPENDING feed group", "[2, ");
}

#[test]
fn a_refusal_serves_readers_of_the_denial_feed() {
    let builder = with_feed().module_args("denial-feed denials");
    let (server, mut dialog) = builder.full_pool();
    let reader = Blocked::by(&server, "XREAD BLOCK 0 STREAMS denials $");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    reader.hears_of("denied", "b");
}

#[test]
fn readers_on_a_replica_are_served_as_well() {
    let primary = with_feed().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    let reader = Blocked::reading(&replica);
    dialog.acquire("pool", "b", 9, "{}");
    reader.hears_of("acquired", "b");
    let reader = Blocked::reading(&replica);
    dialog.at_once(&["SEAT.ACQUIRE pool c 9", "PING"]);
    reader.hears_of("acquired", "c");
}

#[test]
fn each_entry_is_published_as_one_that_was_added() {
    let (server, mut dialog) = with_feed()
        .module_args("feed feed denial-feed denials feed-maxlen 2")
        .scene();
    let mut events = Events::of(&server);
    dialog.acquire("pool", "a", 1, "{}");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("SEAT.RESIZE pool 2", "0");
    let mut seen = events.until_now();
    seen.sort();
    // A server tells of keys that are made, too, where it has that event.
    seen.retain(|event| !event.starts_with("new "));
    assert_eq!(
        seen,
        [
            "seat.acquired pool",
            "seat.resized pool",
            "xadd denials",
            "xadd feed",
            "xadd feed",
        ]
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    let seen = events.until_now();
    assert!(seen.contains(&"xadd feed".to_owned()), "{seen:?}");
    assert!(seen.contains(&"xtrim feed".to_owned()), "{seen:?}");
}

#[test]
fn who_watches_the_stream_hears_of_each_entry_and_of_no_other() {
    let (server, mut dialog) = with_feed().full_pool();
    let mut watcher = Dialog::with(&server);
    watcher.expect("WATCH feed", "+OK");
    dialog.succeeds("SEAT.HEARTBEAT pool a");
    dialog.succeeds("SEAT.ACQUIRE pool b 1");
    assert_eq!(watcher.transaction(&["PING"]), "[+PONG]");
    watcher.expect("WATCH feed", "+OK");
    dialog.succeeds("SEAT.RELEASE pool a");
    assert_eq!(watcher.transaction(&["PING"]), "nil array");
}
