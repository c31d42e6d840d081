//! Pools that come, go and move by the server's own commands, and by import and export.

use super::{Reader, entries_of, nothing_failed, with_feed};
use crate::support::{Builder, Dialog, Server, eventually, total, total_becomes};

const SESSIONS: &str = "license:p:active_sessions";
const METADATA: &str = "license:p:session_metadata";

/// A pool of two sessions of three seats, and a reader of what comes next.
fn scene(builder: Builder) -> (Server, Dialog, Reader) {
    let (server, mut dialog) = builder.scene();
    dialog.acquire_all("pool", &["a", "b"], 3);
    let feed = Reader::of(&server, "feed");
    (server, dialog, feed)
}

#[test]
fn whatever_removes_a_pool_drops_it() {
    let (server, mut dialog, mut feed) = scene(with_feed());
    for removal in [
        "DEL pool",
        "UNLINK pool",
        "SET pool x",
        "EXPIRE pool -1",
        "PEXPIRE pool 1",
        "RENAME other pool",
        "RESTORE pool 0 PAYLOAD REPLACE",
        "COPY other pool REPLACE",
    ] {
        dialog.ask("DEL pool");
        dialog.expect("SET other x", "+OK");
        dialog.acquire("pool", "a", 3, "{}");
        feed.until("the grant", |new| {
            new.last()
                .is_some_and(|entry| entry.field("event") == "acquired")
        });
        if removal.starts_with("RESTORE") {
            let payload = dialog.bytes(&["DUMP", "other"]);
            assert_eq!(dialog.restore("pool", &payload, &["REPLACE"]), "+OK");
        } else {
            let reply = dialog.ask(removal);
            assert!(!reply.starts_with('!'), "{removal}: {reply}");
            eventually("it is gone", || dialog.ask("TYPE pool") != "+seat-pool");
        }
        let seen = feed.until(removal, |new| !new.is_empty());
        assert_eq!(seen.len(), 1, "{removal}");
        assert_eq!(seen[0].line(), "dropped pool - 0/-", "{removal}");
    }
    nothing_failed(&server);
}

#[test]
fn a_pool_that_ends_with_its_last_session_is_not_dropped() {
    let (_server, mut dialog, mut feed) = scene(with_feed());
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.acquire("pool", "c", 1, "{}");
    feed.hears(&[
        "released pool a 1/3 held_s=_ heartbeats=0 user=default",
        "released pool b 0/3 held_s=_ heartbeats=0 user=default",
        "acquired pool c 1/1 user=default",
    ]);
}

#[test]
fn nothing_is_written_for_what_empties_or_swaps_whole_databases() {
    let (server, mut dialog, _) = scene(with_feed());
    for command in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
        dialog.acquire_all("pool", &["c"], 3);
        dialog.expect(command, "+OK");
        dialog.acquire_all("mark", &["m"], 1);
        dialog.expect("SEAT.RELEASE mark m", "[1, RELEASED, 0]");
        let seen = entries_of(&mut dialog, "feed");
        let pools: Vec<_> = seen.iter().map(|entry| entry.field("pool")).collect();
        assert_eq!(pools, ["mark", "mark"], "{command}");
    }
    // The feeds go with their databases.
    dialog.acquire_all("pool", &["a"], 3);
    dialog.expect("SWAPDB 0 1", "+OK");
    dialog.expect("EXISTS feed", "0");
    dialog.acquire_all("pool", &["b"], 3);
    let lines = |dialog: &mut Dialog| -> Vec<String> {
        let seen = entries_of(dialog, "feed");
        seen.iter().map(super::Entry::line).collect()
    };
    assert_eq!(lines(&mut dialog), ["acquired pool b 1/3 user=default"]);
    dialog.expect("SELECT 1", "+OK");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    assert_eq!(
        lines(&mut dialog).last().map(String::as_str),
        Some("released pool a 0/3 held_s=_ heartbeats=0 user=default")
    );
    nothing_failed(&server);
}

#[test]
fn what_is_put_off_when_databases_swap_follows_them() {
    let (_server, mut dialog, _) = scene(with_feed());
    dialog.expect("MULTI", "+OK");
    for command in ["DEL pool", "SWAPDB 0 1"] {
        dialog.expect(command, "+QUEUED");
    }
    dialog.expect("EXEC", "[1, +OK]");
    dialog.expect("SELECT 1", "+OK");
    eventually("the drop is in the feed that was swapped away", || {
        let seen = entries_of(&mut dialog, "feed");
        seen.last()
            .is_some_and(|entry| entry.field("event") == "dropped")
    });
    dialog.expect("SELECT 0", "+OK");
    dialog.expect("EXISTS feed", "0");
}

#[test]
fn each_database_has_its_own_feed() {
    let (server, mut dialog, mut feed) = scene(with_feed());
    let mut other = Dialog::with(&server);
    other.expect("SELECT 3", "+OK");
    other.acquire("pool", "x", 9, "{}");
    other.expect("DEL pool", "1");
    dialog.expect("DEL pool", "1");
    feed.hears(&["dropped pool - 0/-"]);
    eventually("the other drop", || {
        let seen = entries_of(&mut other, "feed");
        let events: Vec<_> = seen.iter().map(|entry| entry.field("event")).collect();
        events == ["acquired", "dropped"]
    });
}

#[test]
fn an_eviction_drops_the_pool() {
    let builder = with_feed().config("maxmemory-policy volatile-ttl");
    let (_server, mut dialog, mut feed) = scene(builder);
    dialog.expect("EXPIRE pool 100000", "1");
    // Everything but the pool is safe from this policy.
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    dialog.ask("SET x y");
    eventually("it is evicted", || dialog.ask("EXISTS pool") == "0");
    dialog.expect("CONFIG SET maxmemory 0", "+OK");
    feed.hears(&["dropped pool - 0/-"]);
}

#[test]
fn a_new_name_says_the_old_one() {
    let (server, mut dialog, mut feed) = scene(with_feed());
    dialog.expect("RENAME pool moved", "+OK");
    feed.hears(&["renamed moved - 2/3 from=pool"]);
    dialog.expect("RENAMENX moved pool", "1");
    feed.hears(&["renamed pool - 2/3 from=moved"]);
    dialog.acquire_all("other", &["x"], 9);
    feed.hears(&["acquired other x 1/9 user=default"]);
    dialog.expect("RENAME pool other", "+OK");
    feed.hears(&["dropped other - 0/-", "renamed other - 2/3 from=pool"]);
    // Twice before anything can be written.
    dialog.at_once(&["RENAME other one", "RENAME one two"]);
    feed.hears(&["renamed one - 2/3 from=other", "renamed two - 2/3 from=one"]);
    nothing_failed(&server);
}

#[test]
fn a_copy_in_the_same_database_says_of_what() {
    let (_server, mut dialog, mut feed) = scene(with_feed());
    dialog.expect("COPY pool copy", "1");
    feed.hears(&["copied copy - 2/3 from=pool"]);
    dialog.expect("COPY pool copy", "0");
    dialog.expect("SEAT.RELEASE copy a", "[1, RELEASED, 1]");
    dialog.expect("COPY copy pool REPLACE", "1");
    feed.hears(&[
        "released copy a 1/3 held_s=_ heartbeats=0 user=default",
        "dropped pool - 0/-",
        "copied pool - 1/3 from=copy",
    ]);
}

#[test]
fn what_comes_from_elsewhere_says_only_that_it_came() {
    let (_server, mut dialog, mut feed) = scene(with_feed());
    let payload = dialog.bytes(&["DUMP", "pool"]);
    assert_eq!(dialog.restore("restored", &payload, &[]), "+OK");
    feed.hears(&["copied restored - 2/3"]);
    dialog.expect("SELECT 5", "+OK");
    dialog.acquire_all("guest", &["x"], 4);
    dialog.expect("COPY guest guest DB 0", "1");
    feed.hears(&["copied guest - 1/4"]);
    dialog.expect("SELECT 5", "+OK");
    dialog.expect("RENAME guest mover", "+OK");
    dialog.expect("MOVE mover 0", "1");
    let moved = feed.hears(&["copied mover - 1/4"]);
    assert_eq!(moved[0].get("from"), None);
    // There it is gone.
    dialog.expect("SELECT 5", "+OK");
    eventually("the drop of the moved one", || {
        let seen = entries_of(&mut dialog, "feed");
        seen.last().is_some_and(|entry| {
            entry.field("event") == "dropped" && entry.field("pool") == "mover"
        })
    });
}

#[test]
fn import_writes_each_session_and_export_the_pool() {
    let (server, mut dialog, mut feed) = scene(with_feed());
    for session in ["x", "y"] {
        dialog.expect(&format!("SADD {SESSIONS} {session}"), "1");
        dialog.expect(&format!("HSET {METADATA} {session} '{{\"n\":1}}'"), "1");
    }
    dialog.expect(&format!("SEAT.IMPORT pool {SESSIONS} {METADATA}"), "2");
    let seen = feed.until("two entries", |new| new.len() >= 2);
    let mut lines: Vec<String> = seen.iter().map(super::Entry::line).collect();
    for (line, used) in lines.iter().zip([3, 4]) {
        assert!(line.contains(&format!(" {used}/3")), "{line}");
    }
    lines = lines.iter().map(|line| line[..15].to_owned()).collect();
    lines.sort();
    assert_eq!(lines, ["imported pool x", "imported pool y"]);

    dialog.expect(&format!("DEL {SESSIONS} {METADATA}"), "0");
    dialog.expect(&format!("SEAT.EXPORT pool {SESSIONS} {METADATA}"), "4");
    dialog.acquire("pool", "z", 9, "{}");
    feed.hears(&[
        "exported pool - 4/- user=default",
        "acquired pool z 1/9 user=default",
    ]);
    nothing_failed(&server);
}

#[test]
fn adoption_writes_each_session_before_what_found_them() {
    let builder = with_feed().module_args("feed feed feed-metadata yes script-keys yes");
    let (server, mut dialog) = builder.scene();
    dialog.acquire("mark", "m", 1, "{}");
    let mut feed = Reader::of(&server, "feed");
    dialog.expect(&format!("SADD {SESSIONS} x"), "1");
    dialog.expect(&format!("HSET {METADATA} x '{{\"n\":1}}'"), "1");
    dialog.expect("SEAT.ACQUIRE p z 9", "[1, ACQUIRED, 2, 9]");
    let seen = feed.until("two entries", |new| new.len() >= 2);
    assert_eq!(seen[0].field("event"), "imported");
    assert_eq!(seen[0].field("session"), "x");
    assert_eq!(seen[0].field("metadata"), r#"{"n":1}"#);
    assert_eq!(seen[1].line(), "acquired p z 2/9 metadata={} user=default");
    total_becomes(&server, "seat_imported", 1);
    assert_eq!(total(&server, "seat_feed_errors"), 0);
}

#[test]
fn a_pool_that_takes_the_name_of_one_that_expired_is_not_dropped_with_it() {
    let (server, mut dialog, mut feed) = scene(with_feed());
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    dialog.expect("PEXPIRE pool 1", "1");
    let now_ms = dialog.now_ms();
    dialog.wait_until(now_ms + 5);
    // Before the timer comes.
    dialog.at_once(&[
        "SEAT.ACQUIRE pool c 9",
        "PEXPIRE pool 100000",
        "SEAT.ACQUIRE other d 9",
    ]);
    dialog.acquire("other", "e", 9, "{}");
    feed.hears(&[
        "dropped pool - 0/-",
        "acquired pool c 1/9 user=default",
        "acquired other d 1/9 user=default",
        "acquired other e 2/9 user=default",
    ]);
    // The timer, too, has come and has nothing to add.
    dialog.succeeds("SEAT.ACQUIRE brief f 1 PX 1");
    feed.hears(&[
        "acquired brief f 1/1 lease_ms=1 deadline_ms=_ user=default",
        "expired brief f 0/1 held_s=_ heartbeats=0 deadline_ms=_",
    ]);
    nothing_failed(&server);
}

#[test]
fn a_pool_that_is_renamed_is_not_taken_for_one_that_was_where_it_is() {
    let (server, mut dialog, mut feed) = scene(with_feed());
    dialog.acquire("other", "x", 4, "{}");
    feed.now();
    for _ in 0..20 {
        // The copy often has the memory of the pool that has gone.
        dialog.at_once(&[
            "SET pool x",
            "DEL pool",
            "COPY other pool",
            "RENAME pool moved",
            "RENAME moved pool",
        ]);
        feed.hears(&[
            "dropped pool - 0/-",
            "copied pool - 1/4 from=other",
            "renamed moved - 1/4 from=pool",
            "renamed pool - 1/4 from=moved",
        ]);
    }
    nothing_failed(&server);
}
