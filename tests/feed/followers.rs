//! Whoever follows, and a log that is loaded, has the same stream.

use super::{Reader, entries, nothing_failed, with_feed};
use crate::support::{Dialog, Server, Waiter, eventually, line, total, wait_for_reclaim};

/// A bit of everything that is written.
fn history(server: &Server, dialog: &mut Dialog, pool: &str) {
    dialog.succeeds(&format!("SEAT.ACQUIRE {pool} a 2 OWNER ann WEIGHT 2"));
    dialog.succeeds(&format!("SEAT.ACQUIRE {pool} t 2 QUEUE 600000"));
    let mut waiter = Waiter::of(server, &format!("SEAT.ACQUIRE {pool} b 2 BLOCK 0"));
    dialog.succeeds(&format!("SEAT.RESIZE {pool} 4"));
    waiter.is_granted();
    dialog.succeeds(&format!("SEAT.ACQUIRE {pool} c 9 OWNER ann MAX 1 TAKEOVER"));
    dialog.succeeds(&format!("SEAT.RELEASE {pool} t"));
    dialog.succeeds(&format!("SEAT.RELEASE {pool} b"));
    dialog.succeeds(&format!("COPY {pool} {pool}-copy"));
    dialog.succeeds(&format!("RENAME {pool}-copy {pool}-moved"));
    dialog.succeeds(&format!("DEL {pool}-moved"));
    dialog.succeeds(&format!("SEAT.ACQUIRE {pool} d 9"));
    let reclaimed = total(server, "seat_expired");
    dialog.succeeds(&format!("SEAT.ACQUIRE {pool} e 9 PX 20"));
    wait_for_reclaim(server, reclaimed + 1);
    dialog.succeeds(&format!("SEAT.REVOKE {pool} d"));
}

#[track_caller]
fn same_streams(one: &Server, other: &Server) {
    for command in ["XRANGE feed - +", "XINFO STREAM feed FULL COUNT 0"] {
        let reply = Dialog::with(one).ask(command);
        assert_eq!(Dialog::with(other).ask(command), reply, "{command}");
    }
}

#[test]
fn replicas_and_theirs_have_the_same_stream_whatever_their_own_settings_say() {
    let primary = with_feed()
        .module_args("feed feed feed-maxlen 15")
        .tcp()
        .start();
    // It has a feed of another name and length, and the last has none.
    let middle = Server::builder()
        .module_args("feed another feed-maxlen 2 denial-feed feed")
        .replica_of(&primary)
        .start();
    let last = Server::builder().replica_of(&middle).start();
    primary.wait_for_offset(&middle);
    middle.wait_for_offset(&last);
    let mut dialog = Dialog::with(&primary);
    for pool in ["one", "two", "three"] {
        history(&primary, &mut dialog, pool);
    }
    dialog.expect("XLEN feed", "15");
    primary.replica_agrees(&middle);
    middle.wait_for_offset(&last);
    assert_eq!(last.digest(), primary.digest());
    for replica in [&middle, &last] {
        same_streams(&primary, replica);
        nothing_failed(replica);
        assert_eq!(
            total(replica, "seat_feed_entries"),
            total(&primary, "seat_feed_entries")
        );
    }
    Dialog::with(&middle).expect("EXISTS another", "0");
}

#[test]
fn the_log_gives_the_same_stream_rewritten_or_not() {
    let builder = with_feed().module_args("feed feed feed-maxlen 15");
    let (mut server, mut dialog) = builder.recording().scene();
    history(&server, &mut dialog, "one");
    history(&server, &mut dialog, "two");
    let before = dialog.ask("XRANGE feed - +");
    let digest = server.digest();
    for reload in ["DEBUG LOADAOF", "DEBUG RELOAD"] {
        server.reloads_the_same(reload);
        dialog.expect("XRANGE feed - +", &before);
    }
    nothing_failed(&server);
    drop(dialog);
    server.restart();
    assert_eq!(server.digest(), digest);
    server.rewrite_aof();
    let mut dialog = Dialog::with(&server);
    history(&server, &mut dialog, "three");
    let (digest, after) = (server.digest(), dialog.ask("XRANGE feed - +"));
    server.kill9();
    server.restart();
    assert_eq!(server.digest(), digest);
    Dialog::with(&server).expect("XRANGE feed - +", &after);
    nothing_failed(&server);
}

#[test]
fn an_entry_travels_in_the_command_of_its_change() {
    let (server, mut dialog) = with_feed().recording().scene();
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let commands = server.stream_of(|| {
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
        waiter.is_granted();
    });
    let names: Vec<&[u8]> = commands.iter().map(|command| &command[0][..]).collect();
    assert_eq!(
        names,
        [&b"MULTI"[..], b"SEAT.EFFECT", b"SEAT.EFFECT", b"EXEC"]
    );
    for (command, (kind, entry)) in commands[1..3]
        .iter()
        .zip([(&b"FREE"[..], "8:released"), (b"GRANT", "8:acquired")])
    {
        assert_eq!(command[1], b"pool");
        assert!(command[2][0].is_ascii_digit());
        assert!(line(command).contains(entry), "{}", line(command));
        assert_eq!(command[3], kind);
    }
}

#[test]
fn without_a_feed_effects_are_as_they_were() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let mut commands = server.stream_of(|| {
        dialog.acquire("pool", "a", 1, "{}");
        dialog.expect("SEAT.ACQUIRE pool b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
        dialog.expect("DEL pool", "1");
    });
    // 6.2 has units of one.
    commands.retain(|command| command.len() > 1);
    assert_eq!(commands.len(), 2);
    assert_eq!(commands[0].len(), 6, "{}", line(&commands[0]));
    dialog.expect("DBSIZE", "0");
    assert_eq!(total(&server, "seat_feed_entries"), 0);
}

#[test]
fn a_replica_that_is_promoted_writes_by_its_own_settings_and_name() {
    let primary = with_feed().tcp().start();
    let replica = with_feed().replica_of(&primary).start();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire_all("pool", &["a", "b"], 9);
    primary.wait_for_offset(&replica);
    let mut promoted = Dialog::with(&replica);
    promoted.expect("REPLICAOF NO ONE", "+OK");
    promoted.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    let seen = entries(&mut promoted);
    let nodes: Vec<&str> = seen.iter().map(|entry| entry.field("node")).collect();
    let (old, new) = (super::node_of(&primary), super::node_of(&replica));
    assert_ne!(old, new);
    assert_eq!(nodes, [&old, &old, &new]);
}

#[test]
fn a_replica_that_takes_writes_leaves_the_feed_to_its_primary() {
    let primary = with_feed().tcp().start();
    let replica = with_feed()
        .config("replica-read-only no")
        .replica_of(&primary)
        .start();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    let mut meddler = Dialog::with(&replica);
    meddler.expect("SEAT.ACQUIRE pool b 9", "[1, ACQUIRED, 2, 9]");
    meddler.expect("DEL pool", "1");
    meddler.expect("XLEN feed", "1");
    dialog.acquire("pool", "c", 9, "{}");
    primary.wait_for_offset(&replica);
    same_streams(&primary, &replica);
}

#[test]
fn what_was_put_off_is_dropped_by_a_demotion() {
    let primary = with_feed().tcp().start();
    let other = with_feed().tcp().start();
    let mut dialog = Dialog::with(&other);
    dialog.acquire("pool", "a", 9, "{}");
    let port = primary.port();
    dialog.at_once(&["DEL pool", &format!("REPLICAOF 127.0.0.1 {port}")]);
    eventually("it follows", || {
        other.info("replication")["master_link_status"] == "up"
    });
    Dialog::with(&primary).acquire("pool", "b", 9, "{}");
    primary.wait_for_offset(&other);
    dialog.expect("REPLICAOF NO ONE", "+OK");
    let mut feed = Reader::of(&other, "feed");
    dialog.acquire("pool", "c", 9, "{}");
    feed.hears(&["acquired pool c 2/9 user=default"]);
}

#[test]
fn a_replica_whose_stream_is_ahead_says_so_and_follows_on() {
    let primary = with_feed().tcp().start();
    let replica = Server::builder()
        .config("replica-read-only no")
        .replica_of(&primary)
        .start();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    Dialog::with(&replica).succeeds("XADD feed 99999999999999-7 by hand");
    dialog.acquire("pool", "b", 9, "{}");
    primary.wait_for_offset(&replica);
    assert_eq!(total(&replica, "seat_feed_errors"), 1);
    assert_eq!(Dialog::with(&replica).sessions("pool"), ["a", "b"]);
    assert!(replica.log().contains("could not be appended to a feed"));
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
}
