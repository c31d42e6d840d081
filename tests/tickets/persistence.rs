//! Tickets are part of the value: they go where it goes, in their order and with their deadlines.

use super::poll;
use crate::queue::recording;
use crate::support::{
    Builder, Dialog, Server, Waiter, eventually, now_ms, staged, total, total_becomes,
};

/// `h` holds one of two seats, and the other is kept for t1 whom t2 and t3 follow; t2 has polled
/// again since.
#[track_caller]
fn fill(dialog: &mut Dialog) {
    dialog.acquire("pool", "a", 2, "{}");
    dialog.acquire("pool", "h", 2, r#"{"k":1}"#);
    for session in ["t1", "t2", "t3", "t2"] {
        let reply = poll(dialog, "pool", session, 2);
        assert!(reply.starts_with("[0, QUEUED, 2, 2"), "{reply}");
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
}

#[track_caller]
fn is_as_before(dialog: &mut Dialog, key: &str, context: &str) {
    assert_eq!(dialog.queue(key), ["t1", "t2", "t3"], "{context}");
    assert_eq!(dialog.pool_info(key, "kept"), 1, "{context}");
    let denied = "[0, NO_SEATS_AVAILABLE, 1, 2]";
    dialog.expect(&format!("SEAT.ACQUIRE {key} n 2"), denied);
}

/// The queue goes on where it stopped, and those who join now come last.
#[track_caller]
fn goes_on(dialog: &mut Dialog, key: &str) {
    is_as_before(dialog, key, "before it goes on");
    assert_eq!(poll(dialog, key, "new", 2), "[0, QUEUED, 1, 2, 4]");
    assert_eq!(poll(dialog, key, "t3", 2), "[0, QUEUED, 1, 2, 3]");
    assert_eq!(poll(dialog, key, "t2", 2), "[0, QUEUED, 1, 2, 2]");
    assert_eq!(poll(dialog, key, "t1", 2), "[1, ACQUIRED, 2, 2]");
    dialog.expect(&format!("SEAT.RELEASE {key} h"), "[1, RELEASED, 1]");
    assert_eq!(poll(dialog, key, "new", 2), "[0, QUEUED, 1, 2, 3]");
    assert_eq!(poll(dialog, key, "t2", 2), "[1, ACQUIRED, 2, 2]");
    assert_eq!(dialog.queue(key), ["t3", "new"]);
}

#[test]
fn in_an_rdb_file() {
    let mut server = Server::builder().config("save 3600 1").start();
    fill(&mut Dialog::with(&server));
    let digest = server.digest();
    Dialog::with(&server).expect("DEBUG RELOAD", "+OK");
    assert_eq!(server.digest(), digest);
    is_as_before(&mut Dialog::with(&server), "pool", "reloaded");
    server.restart();
    assert_eq!(server.digest(), digest);
    goes_on(&mut Dialog::with(&server), "pool");
}

#[test]
fn in_an_append_only_file_and_when_that_is_rewritten() {
    for preamble in ["aof-use-rdb-preamble yes", "aof-use-rdb-preamble no"] {
        let mut server = Server::builder().recording().config(preamble).start();
        fill(&mut Dialog::with(&server));
        let digest = server.digest();
        server.kill9();
        server.restart();
        assert_eq!(server.digest(), digest, "{preamble}");
        is_as_before(&mut Dialog::with(&server), "pool", preamble);
        server.rewrite_aof();
        server.kill9();
        server.restart();
        assert_eq!(server.digest(), digest, "{preamble}, rewritten");
        Dialog::with(&server).expect("DEBUG LOADAOF", "+OK");
        assert_eq!(server.digest(), digest, "{preamble}, loaded again");
        goes_on(&mut Dialog::with(&server), "pool");
        assert_eq!(total(&server, "seat_ignored_effects"), 0);
    }
}

#[test]
fn in_a_copy_a_dump_and_under_a_new_name() {
    let (_server, mut dialog) = Server::scene();
    fill(&mut dialog);
    let digest = dialog.digest_of("pool");
    dialog.expect("COPY pool copied", "1");
    let payload = dialog.bytes(&["DUMP", "pool"]);
    let restore = [b"RESTORE".as_slice(), b"restored", b"0", &payload];
    assert_eq!(dialog.ask_args(&restore), "+OK");
    dialog.expect("RENAME pool renamed", "+OK");
    assert_eq!(dialog.queue("pool"), [""; 0]);
    for key in ["copied", "restored", "renamed"] {
        assert_eq!(dialog.digest_of(key), digest, "{key}");
        // Each is a queue of its own.
        goes_on(&mut dialog, key);
    }
}

/// What happens to a pool between the joining and the loss of a ticket.
type Move = fn(&mut Server, &mut Dialog);

#[test]
fn wherever_it_is_then_a_ticket_is_lost_at_its_deadline_by_timer() {
    let moves: [(&str, &str, Builder, Move); 5] = [
        ("RENAME", "moved", Server::builder(), |_, dialog| {
            dialog.expect("RENAME pool moved", "+OK");
        }),
        ("COPY", "moved", Server::builder(), |_, dialog| {
            dialog.expect("COPY pool moved", "1");
        }),
        ("RESTORE", "moved", Server::builder(), |_, dialog| {
            let payload = dialog.bytes(&["DUMP", "pool"]);
            let restore = [b"RESTORE".as_slice(), b"moved", b"0", &payload];
            assert_eq!(dialog.ask_args(&restore), "+OK");
        }),
        ("DEBUG RELOAD", "pool", Server::builder(), |_, dialog| {
            dialog.expect("DEBUG RELOAD", "+OK");
        }),
        (
            "a restart",
            "pool",
            Server::builder().config("save 3600 1"),
            |server, dialog| {
                server.restart();
                *dialog = Dialog::with(server);
            },
        ),
    ];
    for (how, key, builder, happen) in moves {
        staged("the ticket is valid after it happened", || {
            let (mut server, mut dialog) = builder.clone().full_pool();
            let begun_ms = now_ms();
            let queued = "[0, QUEUED, 1, 1, 1]";
            dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 1000", queued);
            happen(&mut server, &mut dialog);
            let command = format!("SEAT.ACQUIRE {key} b 1 BLOCK 0");
            let mut waiter = Waiter::of(&server, &command);
            let then = [
                format!("SEAT.POSITION {key} t"),
                format!("SEAT.RELEASE {key} a"),
            ];
            let replies = dialog.pipeline(&then);
            if now_ms() >= begun_ms + 1000 {
                return None;
            }
            assert_eq!(replies, ["1", "[1, RELEASED, 0]"], "{how}");
            assert_eq!(waiter.read(), "[1, ACQUIRED, 1, 1]", "{how}");
            dialog.expect(&format!("SEAT.POSITION {key} t"), "nil");
            Some(())
        });
    }
}

#[test]
fn a_long_poll_at_a_crash_keeps_its_ticket_for_its_time() {
    for timeout_ms in [0, 120_000] {
        let (mut server, _dialog) = recording().full_pool();
        let command = format!("SEAT.ACQUIRE pool l 1 QUEUE 1000 BLOCK {timeout_ms}");
        let _client = Waiter::of(&server, &command);
        server.kill9();
        server.restart();
        let mut dialog = Dialog::with(&server);
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
        let mut next = Dialog::with(&server);
        next.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
        assert_eq!(next.read(), "[1, ACQUIRED, 1, 1]", "{timeout_ms}");
    }
}

#[test]
fn a_replica_shows_the_tickets_and_takes_over_with_them() {
    let (primary, mut dialog) = Server::builder().tcp().scene();
    dialog.acquire("before", "a", 1, "{}");
    let queued = "[0, QUEUED, 1, 1, 1]";
    assert_eq!(poll(&mut dialog, "before", "t", 1), queued);
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    fill(&mut dialog);
    let _waiter = Waiter::of(&primary, "SEAT.ACQUIRE pool b 2 BLOCK 0");
    primary.replica_agrees(&replica);

    let mut reader = Dialog::with(&replica);
    // Clients are blocked at the primary alone.
    assert_eq!(dialog.queue("pool"), ["t1", "t2", "t3", "b"]);
    assert_eq!(reader.queue("pool"), ["t1", "t2", "t3"]);
    for (session, position) in [("t1", "1"), ("t3", "3"), ("b", "nil"), ("h", "nil")] {
        reader.expect(&format!("SEAT.POSITION pool {session}"), position);
    }
    reader.expect("SEAT.POSITION before t", "1");
    for (field, value) in [("kept", 1), ("waiting", 3), ("used", 1)] {
        assert_eq!(reader.pool_info("pool", field), value, "{field}");
    }
    for command in [
        "SEAT.ACQUIRE pool t1 2 QUEUE 1000",
        "SEAT.ACQUIRE pool x 2 BLOCK 0",
        "SEAT.RESIZE pool 9",
        "SEAT.RELEASE pool t1",
        "SEAT.EFFECT pool LEAVE t1",
    ] {
        reader.begins(command, "!READONLY");
    }
    assert_eq!(replica.digest(), primary.digest());

    reader.expect("REPLICAOF NO ONE", "+OK");
    goes_on(&mut reader, "pool");
    assert_eq!(poll(&mut reader, "before", "u", 1), "[0, QUEUED, 1, 1, 2]");
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
}

#[test]
fn a_replica_goes_by_its_own_clock_and_removes_nothing() {
    let (mut primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 1, "{}");
    // The pause keeps the primary from removing it.
    dialog.expect_at_once(&[
        ("SEAT.ACQUIRE pool t 1 QUEUE 300", "[0, QUEUED, 1, 1, 1]"),
        ("SEAT.ACQUIRE pool u 1 QUEUE 600000", "[0, QUEUED, 1, 1, 2]"),
        ("CLIENT PAUSE 600000 WRITE", "+OK"),
    ]);
    primary.wait_for_offset(&replica);
    let digest = replica.digest();
    assert_eq!(digest, primary.digest());
    primary.kill9();
    let mut reader = Dialog::with(&replica);
    eventually("the ticket is lost there", || {
        reader.ask("SEAT.POSITION pool t") == "nil"
    });
    assert_eq!(reader.queue("pool"), ["u"]);
    assert_eq!(reader.pool_info("pool", "waiting"), 1);
    assert_eq!(replica.digest(), digest);
    assert_eq!(total(&replica, "seat_left"), 0);
    reader.expect("REPLICAOF NO ONE", "+OK");
    total_becomes(&replica, "seat_left", 1);
    assert_ne!(replica.digest(), digest);
    assert_eq!(reader.queue("pool"), ["u"]);
}

#[test]
fn primary_and_replica_agree_after_all_that_a_queue_does() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    fill(&mut dialog);
    let mut b = Waiter::of(&primary, "SEAT.ACQUIRE pool b 2 {\"b\":1} PX 60000 BLOCK 0");
    let mut l = Waiter::of(&primary, "SEAT.ACQUIRE pool l 2 QUEUE 600000 BLOCK 0");
    let l_id = l.id();
    let same = |dialog: &mut Dialog| {
        primary.wait_for_offset(&replica);
        assert_eq!(
            Dialog::with(&replica).digest_of("pool"),
            dialog.digest_of("pool")
        );
    };
    same(&mut dialog);
    dialog.expect("SEAT.REVOKE pool t2 t3", "0");
    same(&mut dialog);
    assert_eq!(poll(&mut dialog, "pool", "t1", 2), "[1, ACQUIRED, 2, 2]");
    same(&mut dialog);
    dialog.expect("SEAT.RELEASE pool h", "[1, RELEASED, 2]");
    b.hears("[1, ACQUIRED, 2, 2, 60000]");
    same(&mut dialog);
    let queued = "[0, QUEUED, 2, 2, 1]";
    dialog.expect(&format!("CLIENT UNBLOCK {l_id} TIMEOUT"), "1");
    l.hears(queued);
    dialog.expect("SEAT.ACQUIRE pool u 2 QUEUE 1", "[0, QUEUED, 2, 2, 2]");
    total_becomes(&primary, "seat_left", 3);
    same(&mut dialog);
    dialog.expect("SEAT.RESIZE pool 7", "0");
    same(&mut dialog);
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
}

#[test]
fn memory_usage_grows_with_tickets() {
    let (_server, mut dialog) = recording().full_pool();
    let before = dialog.number("MEMORY USAGE pool");
    for n in 0..100 {
        let reply = poll(&mut dialog, "pool", &format!("session-{n}"), 1);
        assert!(reply.contains("QUEUED"), "{reply}");
    }
    let with = dialog.number("MEMORY USAGE pool");
    assert!(with > before + 100 * 50, "{before} {with}");
    for n in 0..100 {
        dialog.ask(&format!("SEAT.RELEASE pool session-{n}"));
    }
    assert!(dialog.number("MEMORY USAGE pool") < with);
}

#[test]
fn info_counts_the_tickets_of_all_pools_however_they_come_and_go() {
    let (mut server, mut dialog) = recording().scene();
    let expect = |server: &Server, tickets: u64| {
        total_becomes(server, "seat_tickets", tickets);
    };
    for session in ["s", "t", "u"] {
        dialog.ask(&format!("SEAT.ACQUIRE pool {session} 0 QUEUE 600000"));
        dialog.ask(&format!("SEAT.ACQUIRE pool {session} 0 QUEUE 600000"));
    }
    expect(&server, 3);
    dialog.expect("COPY pool other", "1");
    dialog.expect("SEAT.RELEASE pool s", "[0, SESSION_NOT_FOUND]");
    expect(&server, 5);
    dialog.expect("SEAT.ACQUIRE other s 1", "[1, ACQUIRED, 1, 1]");
    expect(&server, 4);
    dialog.expect("DEBUG RELOAD", "+OK");
    expect(&server, 4);
    server.kill9();
    server.restart();
    expect(&server, 4);
    let mut dialog = Dialog::with(&server);
    dialog.expect("UNLINK other", "1");
    expect(&server, 2);
    dialog.expect("FLUSHALL", "+OK");
    expect(&server, 0);
}
