//! What a feed cannot take is never an error of the caller's command.

use tempfile::TempDir;

use super::{Reader, entries, with_feed};
use crate::clock::compile;
use crate::support::cluster;
use crate::support::{Dialog, Server, Traces, Waiter, eventually, now_ms, total, total_becomes};

/// Calls of all kinds and their answers, the same with a feed as without.
#[track_caller]
fn answers_as_ever(server: &Server, dialog: &mut Dialog) {
    for (command, reply) in [
        ("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]"),
        ("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]"),
        ("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]"),
        ("SEAT.ACQUIRE pool t 1 QUEUE 600000", "[0, QUEUED, 1, 1, 1]"),
        ("SEAT.RESIZE pool 1", "0"),
        ("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]"),
        ("COPY pool copy", "1"),
        ("DEL copy", "1"),
    ] {
        dialog.expect(command, reply);
    }
    let mut waiter = Waiter::of(server, "SEAT.ACQUIRE pool w 1 BLOCK 0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.REVOKE pool w", "1");
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn another_type_at_the_name_is_counted_and_logged_ever_more_rarely() {
    let builder = with_feed().module_args("feed feed denial-feed denials");
    let (server, mut dialog) = builder.scene();
    for name in ["feed", "denials"] {
        dialog.expect(&format!("SET {name} x"), "+OK");
    }
    answers_as_ever(&server, &mut dialog);
    // Acquired, denied, queued, left, copied, dropped, queued, released, acquired, revoked. The
    // limit was that already.
    total_becomes(&server, "seat_feed_errors", 10);
    assert_eq!(total(&server, "seat_feed_entries"), 0);
    dialog.expect("GET feed", "\"x\"");
    let log = server.log();
    for (count, is_logged) in [
        (1, true),
        (2, true),
        (3, false),
        (4, true),
        (8, true),
        (9, false),
    ] {
        let line = format!("{count} entries so far could not be appended to a feed");
        assert_eq!(log.contains(&line), is_logged, "{line}");
    }
    assert!(log.contains(r#"the last to "feed": WRONGTYPE"#), "{log}");
    // With the key gone all goes on.
    dialog.expect("DEL feed", "1");
    dialog.acquire("pool", "a", 1, "{}");
    assert_eq!(entries(&mut dialog).len(), 1);
}

#[test]
fn a_replica_and_a_log_hear_of_the_changes_all_the_same() {
    let (server, mut dialog) = with_feed().recording().tcp().scene();
    let replica = Server::builder().replica_of(&server).start();
    dialog.expect("SET feed x", "+OK");
    dialog.acquire_all("pool", &["a", "b"], 9);
    server.replica_agrees(&replica);
    server.reloads_the_same("DEBUG LOADAOF");
    assert_eq!(total(&replica, "seat_feed_errors"), 0);
}

#[test]
fn the_name_of_a_pool_is_no_name_of_a_feed() {
    let builder = Server::builder().module_args("feed pool denial-feed denials");
    let (server, mut dialog) = builder.scene();
    answers_as_ever(&server, &mut dialog);
    dialog.acquire("pool", "a", 9, "{}");
    assert!(total(&server, "seat_feed_errors") > 0);
}

#[test]
fn nor_of_a_denial_feed_even_where_there_is_no_pool_yet() {
    let builder = Server::builder().module_args("denial-feed pool");
    let (server, mut dialog) = builder.scene();
    for _ in 0..2 {
        dialog.expect("SEAT.ACQUIRE pool a 0", "[0, NO_SEATS_AVAILABLE, 0, 0]");
    }
    dialog.expect("EXISTS pool", "0");
    answers_as_ever(&server, &mut dialog);
    assert_eq!(total(&server, "seat_feed_errors"), 3);
}

#[test]
fn nor_of_a_feed_where_only_clients_wait() {
    let builder = Server::builder().module_args("feed pool");
    let (server, mut dialog) = builder.scene();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 0 BLOCK 0");
    dialog.expect("EXISTS pool", "0");
    dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.RELEASE pool w", "[0, SESSION_NOT_FOUND]");
    waiter.hears("[0, NO_SEATS_AVAILABLE, 1, 0]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 0 BLOCK 0");
    drop(waiter);
    total_becomes(&server, "seat_left", 2);
    dialog.expect("DBSIZE", "0");
    assert_eq!(total(&server, "seat_feed_entries"), 0);
}

#[test]
fn memory_that_is_full_stops_no_entry_of_what_goes_through() {
    let builder = with_feed().module_args("feed feed denial-feed denials");
    let (server, mut dialog) = builder.scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    let mut feed = Reader::of(&server, "feed");
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    dialog.begins("SET x y", "!OOM");
    dialog.begins("SEAT.ACQUIRE pool c 3", "!OOM");
    dialog.expect("SEAT.ACQUIRE pool c 2", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.REVOKE pool b", "1");
    feed.hears(&[
        "released pool a 1/2 held_s=_ heartbeats=0 user=default",
        "revoked pool b 0/2 held_s=_ heartbeats=0 user=default",
    ]);
    assert_eq!(total(&server, "seat_feed_errors"), 0);
    dialog.expect("XLEN denials", "1");
}

#[test]
fn a_user_without_rights_to_the_stream_needs_none() {
    let builder = with_feed().module_args("feed feed denial-feed denials");
    let (server, mut dialog) = builder.scene();
    let mut feed = Reader::of(&server, "feed");
    let mut worker = Dialog::as_worker(&server, "~pool +seat.acquire +seat.release");
    worker.forbidden("XADD feed * a b");
    worker.expect("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]");
    worker.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    worker.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    feed.hears(&[
        "acquired pool a 1/1 user=worker",
        "released pool a 0/1 held_s=_ heartbeats=0 user=worker",
    ]);
    dialog.expect("XLEN denials", "1");
    assert_eq!(total(&server, "seat_feed_errors"), 0);
}

#[test]
fn entries_that_are_malformed_are_refused_and_change_nothing() {
    let builder = Server::builder().module_args("allow-effects yes");
    let (server, mut dialog) = builder.recording().scene();
    let good = "17 0 3 4:feed5:event8:acquired4:pool3:a:b";
    dialog.expect(
        &format!("SEAT.EFFECT pool '{good}' GRANT a '9 9 9 - 0 0' {{}}"),
        "1",
    );
    let second = good.replace("17 0", "17 1");
    dialog.expect(&format!("SEAT.EFFECT pool '{second}'"), "1");
    assert_eq!(
        dialog.ask("XRANGE feed - +"),
        r#"[["17-0", ["event", "acquired", "pool", "a:b"]], ["17-1", ["event", "acquired", "pool", "a:b"]]]"#
    );
    let before = Traces::of(&server);
    for entry in [
        "0",
        "18",
        "18 0",
        "18 0 3",
        "18 0 3 ",
        "18 0 3 4:feed",
        "18 0 3 0:5:event8:acquired",
        "18 0 3 4:feed5:event",
        "18 0 3 4:feed5:event9:acquired",
        "18 0 3 4:feed5:event8:acquired4",
        "18 0 3 4:feed5:event8:acquired4:pool",
        "18 0 3 99999999999999999999:feed5:event8:acquired",
        "18 0 3 18446744073709551615:feed5:event8:acquired",
        "018 0 3 4:feed5:event8:acquired",
        "18 -1 3 4:feed5:event8:acquired",
        "18 0 x 4:feed5:event8:acquired",
        "18446744073709551616 0 3 4:feed5:event8:acquired",
    ] {
        for rest in [" GRANT b '9 9 9 - 0 0' {}", "", &format!(" '{second}'")] {
            let command = format!("SEAT.EFFECT pool '{entry}'{rest}");
            dialog.begins(&command, "!ERR");
            assert_eq!(Traces::of(&server), before, "{command}");
        }
    }
    // Nor is a good entry taken with a bad one, or with a bad change.
    let third = good.replace("17 0", "17 2");
    for rest in [
        "'0 0'",
        "NONSENSE",
        "GRANT",
        "GRANT b '9 9 9'",
        "FREE released",
    ] {
        let command = format!("SEAT.EFFECT pool '{third}' {rest}");
        dialog.begins(&command, "!ERR");
        assert_eq!(Traces::of(&server), before, "{command}");
    }
    dialog.begins("SEAT.EFFECT pool", "!ERR");
    server.reloads_the_same("DEBUG LOADAOF");
}

#[test]
fn clients_may_send_no_entries_unless_they_may_send_effects() {
    let (_server, mut dialog) = Server::builder().module_args("feed feed").scene();
    let entry = "17 0 3 4:feed5:event8:acquired4:pool3:a:b";
    dialog.begins(&format!("SEAT.EFFECT pool '{entry}'"), "!ERR");
    dialog.expect("EXISTS feed", "0");
}

#[test]
fn an_entry_for_a_key_of_another_type_is_counted_and_its_change_is_made() {
    let builder = Server::builder().module_args("allow-effects yes");
    let (server, mut dialog) = builder.scene();
    dialog.expect("SET feed x", "+OK");
    let entry = "17 0 3 4:feed5:event8:acquired4:pool3:a:b";
    dialog.expect(
        &format!("SEAT.EFFECT pool '{entry}' GRANT a '9 9 9 - 0 0' {{}}"),
        "1",
    );
    dialog.expect("GET feed", "\"x\"");
    dialog.expect("SEAT.COUNT pool", "1");
    assert_eq!(total(&server, "seat_feed_errors"), 1);
    eventually("it is logged", || server.log().contains("1 entries so far"));
}

/// A key is opened after the streams: whoever hears that one of these has ended may remove it.
#[test]
fn a_stream_whose_time_to_live_is_over_takes_no_open_pool_with_it() {
    let dir = TempDir::new().expect("a directory");
    let listener = dir.path().join("listener.so");
    compile("tests/feed/listener.c", &listener);
    let builder = with_feed().config(&format!("loadmodule {}", listener.display()));
    let (server, mut dialog) = builder.recording().scene();
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    dialog.ask_all((0..200).map(|n| format!("SEAT.ACQUIRE pool s{n} 1000")));
    let over_ms = dialog.now_ms() + 100;
    dialog.expect(&format!("PEXPIREAT feed {over_ms}"), "1");
    eventually("the stream's time is over", || now_ms() > over_ms);
    dialog.expect("SEAT.ACQUIRE pool late 1000", "[1, ACQUIRED, 1, 1000]");
    assert_eq!(dialog.sessions("pool"), ["late"]);
    server.reloads_the_same("DEBUG LOADAOF");
}

#[test]
fn a_stream_that_is_about_to_end_takes_no_entry() {
    let (server, mut dialog) = with_feed().scene();
    dialog.acquire("pool", "a", 9, "{}");
    let ends_ms = dialog.now_ms() + 900;
    dialog.expect(&format!("PEXPIREAT feed {ends_ms}"), "1");
    dialog.acquire("pool", "b", 9, "{}");
    assert_eq!(total(&server, "seat_feed_errors"), 1);
    assert!(server.log().contains("the stream ends its time to live"));
    eventually("the stream has ended", || now_ms() > ends_ms);
    dialog.acquire("pool", "c", 9, "{}");
    assert_eq!(entries(&mut dialog).len(), 1);
}

#[test]
fn what_was_put_off_makes_no_stream_of_the_pool_that_is_opened() {
    let builder = Server::builder().module_args("feed P").recording();
    let (server, mut dialog) = builder.scene();
    dialog.acquire("Q", "s", 1, "{}");
    let commands = ["MULTI", "DEL P", "DEL Q", "SEAT.ACQUIRE P s 1", "EXEC"];
    let replies = dialog.pipeline(&commands);
    assert_eq!(replies[4], "[1, 1, [1, ACQUIRED, 1, 1]]");
    dialog.expect("TYPE P", "+seat-pool");
    server.reloads_the_same("DEBUG LOADAOF");
}

/// A stream is in one slot, and the pool whose entry it is in another.
#[test]
fn a_node_of_a_cluster_takes_no_entry_that_is_piped_in() {
    let server = cluster::alone_with("allow-effects yes");
    let mut dialog = Dialog::with(&server);
    for pool in ["one", "two", "three"] {
        dialog.expect(
            &format!("SEAT.EFFECT {pool} '17 0 9 4:feed1:x1:y' GRANT a '9 9 9 - 0 0' {{}}"),
            "1",
        );
    }
    dialog.expect("DBSIZE", "3");
    dialog.expect("EXISTS feed", "0");
    assert_eq!(total(&server, "seat_feed_errors"), 3);
}

/// A command that removes many pools has the next ones write no more than their share of it.
#[test]
fn what_was_put_off_is_written_a_part_at_a_time() {
    const POOLS: i64 = 2000;
    let (server, mut dialog) = with_feed().scene();
    dialog.ask_all((0..POOLS).map(|n| format!("SEAT.ACQUIRE p{n} a 1")));
    let names: Vec<String> = (0..POOLS).map(|n| format!("p{n}")).collect();
    let del = format!("DEL {}", names.join(" "));
    let commands = ["MULTI", &del, "SEAT.ACQUIRE other a 1", "XLEN feed", "EXEC"];
    let replies = dialog.pipeline(&commands);
    let written: i64 = replies[4]
        .trim_end_matches(']')
        .rsplit(", ")
        .next()
        .and_then(|length| length.parse().ok())
        .expect("a length");
    assert!((1..=200).contains(&(written - POOLS)), "{}", replies[4]);
    // One that is about a pool of them writes all.
    let del = format!("DEL {}", names.join(" "));
    dialog.ask_all(names.iter().map(|name| format!("SEAT.ACQUIRE {name} a 1")));
    let last = names.last().expect("some");
    let acquire = format!("SEAT.ACQUIRE {last} a 1");
    dialog.pipeline(&["MULTI", &del, &acquire, "EXEC"]);
    eventually("all drops are written", || {
        dialog.number("XLEN feed") == 4 * POOLS + 2
    });
    let seen = entries(&mut dialog);
    let of_last = seen.iter().filter(|entry| entry.field("pool") == last);
    let events: Vec<_> = of_last.map(|entry| entry.field("event")).collect();
    assert_eq!(
        events,
        ["acquired", "dropped", "acquired", "dropped", "acquired"]
    );
    assert_eq!(total(&server, "seat_feed_errors"), 0);
}
