//! Invalid entries of legacy keys: each counts as one taken seat, for every command and in the
//! queue.

use super::{
    ACQUIRE, METADATA, RELEASE, SESSIONS, all_settings, fill, put_invalid_entry, with_migration,
};
use crate::support::{Dialog, Events, Server, Traces, Waiter, replicated, total, total_becomes};

/// Instead of an ACQUIRE's seats.
const RELEASED: &str = "released";

#[test]
fn calls_are_answered_as_the_scripts_answer_them() {
    let oracle = Server::plain();
    let server = with_migration().start();
    for server in [&oracle, &server] {
        let mut dialog = Dialog::with(server);
        fill(&mut dialog, &["g"]);
        put_invalid_entry(&mut dialog, "s");
    }
    for (session, seats) in [
        ("s", "1"),
        ("nobody", RELEASED),
        ("new", "1"),
        ("new", "2"),
        ("s", "9"),
        ("new", "3"),
        ("new", "1"),
        ("s", "3"),
        ("other", "3"),
        ("other", "4"),
        ("g", "4"),
        ("s", RELEASED),
        ("s", RELEASED),
        ("more", "4"),
        ("s", "5"),
        ("s", RELEASED),
    ] {
        let call = match seats {
            RELEASED => vec!["EVAL", RELEASE, "1", "p", session],
            _ => vec!["EVAL", ACQUIRE, "1", "p", session, seats, "{}"],
        };
        let expected = Dialog::with(&oracle).ask_args(&call);
        let replied = Dialog::with(&server).ask_args(&call);
        assert_eq!(replied, expected, "{session} {seats}");
        for reader in [
            format!("SCARD {SESSIONS}"),
            format!("HLEN {METADATA}"),
            format!("SISMEMBER {SESSIONS} s"),
            format!("HEXISTS {METADATA} s"),
        ] {
            let expected = Dialog::with(&oracle).ask(&reader);
            Dialog::with(&server).expect(&reader, &expected);
        }
    }
    assert!(total(&server, "seat_script_calls") >= 10);
}

#[test]
fn without_a_pool_they_take_its_seats_all_the_same() {
    let (server, mut dialog) = with_migration().scene();
    put_invalid_entry(&mut dialog, "s");
    dialog.expect("SEAT.ACQUIRE p a 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("SEAT.ACQUIRE p s 1", "[1, ALREADY_ACTIVE, 1]");
    dialog.expect("SEAT.RELEASE p a", "[0, SESSION_NOT_FOUND]");
    dialog.expect("EXISTS p", "0");
    let mut first = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    let _second = Waiter::of(&server, "SEAT.ACQUIRE p x 1 BLOCK 0");
    put_invalid_entry(&mut dialog, "t");
    dialog.expect(&format!("SREM {SESSIONS} s"), "1");
    dialog.expect("SEAT.RELEASE p a", "[0, SESSION_NOT_FOUND]");
    assert_eq!(dialog.queue("p"), ["w", "x"]);
    dialog.expect(&format!("DEL {SESSIONS} {METADATA}"), "2");
    first.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(dialog.queue("p"), ["x"]);
}

#[test]
fn a_call_that_changes_nothing_leaves_no_trace() {
    let server = Server::builder()
        .recording()
        .module_args(&all_settings())
        .start();
    total_becomes(&server, "seat_script_key_scan", 0);
    let mut dialog = Dialog::with(&server);
    dialog.acquire("p", "a", 9, "{}");
    put_invalid_entry(&mut dialog, "s");
    for (command, reply) in [
        ("SEAT.ACQUIRE p s 9", "[1, ALREADY_ACTIVE, 2]"),
        ("SEAT.ACQUIRE p b 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ("SEAT.CLEANUP p", "[0, 2]"),
        ("SEAT.RELEASE p b", "[0, SESSION_NOT_FOUND]"),
    ] {
        let before = Traces::without_totals(&server);
        dialog.expect(command, reply);
        assert_eq!(Traces::without_totals(&server), before, "{command}");
    }
}

#[test]
fn the_queue_is_served_by_the_count() {
    let (server, mut dialog) = with_migration().scene();
    dialog.acquire_all("p", &["a", "b"], 3);
    put_invalid_entry(&mut dialog, "s");
    let mut first = Waiter::of(&server, "SEAT.ACQUIRE p w 3 BLOCK 0");
    let mut second = Waiter::of(&server, "SEAT.ACQUIRE p x 3 BLOCK 0");
    let third = Waiter::of(&server, "SEAT.ACQUIRE p y 3 BLOCK 0");
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 3]");
    first.hears("[1, ACQUIRED, 3, 3]");
    put_invalid_entry(&mut dialog, "t");
    // One seat is free, and it is the new entry's.
    dialog.expect("SEAT.REVOKE p b", "1");
    assert_eq!(dialog.queue("p"), ["x", "y"]);
    dialog.expect("SEAT.RESIZE p 4", "1");
    second.hears("[1, ACQUIRED, 4, 4]");
    assert_eq!(dialog.queue("p"), ["y"]);
    drop(third);
    dialog.queue_becomes("p", &[]);
    // A higher limit for all lets those in who wait, by the same count.
    let mut waits = Waiter::of(&server, "SEAT.ACQUIRE p z 4 BLOCK 0");
    dialog.expect("SEAT.RESIZE p 5", "1");
    waits.hears("[1, ACQUIRED, 5, 5]");
    dialog.expect("SEAT.ACQUIRE p n 5", "[0, NO_SEATS_AVAILABLE, 5, 5]");
}

#[test]
fn their_sessions_can_be_released_and_revoked() {
    for (command, reply, event) in [
        ("SEAT.RELEASE p s", "[1, RELEASED, 3]", "seat.released"),
        ("SEAT.REVOKE p s nobody s", "1", "seat.revoked"),
    ] {
        let server = Server::builder()
            .recording()
            .tcp()
            .module_args(&all_settings())
            .start();
        let replica = with_migration().replica_of(&server).start();
        let mut dialog = Dialog::with(&server);
        dialog.acquire("p", "a", 3, "{}");
        for session in ["s", "t"] {
            put_invalid_entry(&mut dialog, session);
        }
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 3 BLOCK 0");
        let mut events = Events::matching(&server, "EA", "__keyevent@0__:seat.*");
        let sent = replicated(&server, || dialog.expect(command, reply));
        let [multi, srem, hdel, grant, exec] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!([multi, exec], ["MULTI", "EXEC"]);
        assert_eq!(srem, &format!("SREM {SESSIONS} s"));
        assert_eq!(hdel, &format!("HDEL {METADATA} s"));
        assert!(grant.starts_with("SEAT.EFFECT p GRANT w 3 "), "{grant}");
        waiter.hears("[1, ACQUIRED, 3, 3]");
        assert_eq!(events.next(), format!("{event} p"));
        dialog.expect(&format!("SISMEMBER {SESSIONS} s"), "0");
        dialog.expect(&format!("SCARD {SESSIONS}"), "3");
        let totals = total(&server, &event.replace('.', "_"));
        assert_eq!(totals, 1);
        dialog.expect("SEAT.RELEASE p s", "[0, SESSION_NOT_FOUND]");
        server.replica_agrees(&replica);
        server.reloads_the_same("DEBUG LOADAOF");
    }
}

#[test]
fn metadata_of_another_type_is_not_written_to() {
    let (server, mut dialog) = Server::builder()
        .recording()
        .module_args(&all_settings())
        .scene();
    dialog.expect(&format!("SET {METADATA} text"), "+OK");
    assert_eq!(dialog.ask_args(&["SADD", SESSIONS, ""]), "1");
    dialog.expect("SEAT.ACQUIRE p a 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    let release = ["SEAT.RELEASE", "p", ""];
    let sent = replicated(&server, || {
        assert_eq!(dialog.ask_args(&release), "[1, RELEASED, 0]");
    });
    // Up to 6.2 what a module replicates is a transaction in any case.
    let mut written = sent
        .iter()
        .filter(|line| *line != "MULTI" && *line != "EXEC");
    assert_eq!(written.next(), Some(&format!("SREM {SESSIONS} ")));
    assert_eq!(written.next(), None);
    dialog.expect(&format!("GET {METADATA}"), "\"text\"");
    dialog.expect("SEAT.ACQUIRE p a 1", "[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_wait_that_ends_answers_the_count() {
    let (_server, mut dialog) = with_migration().scene();
    dialog.acquire("p", "a", 1, "{}");
    put_invalid_entry(&mut dialog, "s");
    let denied = "[0, NO_SEATS_AVAILABLE, 2, 2]";
    dialog.expect("SEAT.ACQUIRE p w 2 BLOCK 1", denied);
    let queued = "[0, QUEUED, 2, 2, 1]";
    dialog.expect("SEAT.ACQUIRE p w 2 QUEUE 60000 BLOCK 1", queued);
    dialog.expect("SEAT.ACQUIRE p w 2 QUEUE 60000", queued);
}

#[test]
fn seat_info_counts_them_where_a_command_has_found_them() {
    let server = with_migration().tcp().start();
    let replica = with_migration().replica_of(&server).start();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("p", "a", 3, "{}");
    put_invalid_entry(&mut dialog, "s");
    let figures = |dialog: &mut Dialog| {
        ["seats", "used", "available", "kept"].map(|field| dialog.pool_info("p", field))
    };
    assert_eq!(figures(&mut dialog), [3, 1, 2, 0]);
    dialog.expect("SEAT.CLEANUP p", "[0, 2]");
    assert_eq!(figures(&mut dialog), [3, 2, 1, 0]);
    let queued = "[0, QUEUED, 2, 2, 1]";
    dialog.expect("SEAT.ACQUIRE p w 2 QUEUE 60000", queued);
    dialog.expect("SEAT.ACQUIRE p x 2 QUEUE 60000", "[0, QUEUED, 2, 2, 2]");
    assert_eq!(figures(&mut dialog), [3, 2, 1, 0]);
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 1]");
    assert_eq!(figures(&mut dialog), [3, 1, 2, 1]);
    // What lists or counts sessions goes by those of the pool alone.
    dialog.expect("SEAT.COUNT p", "0");
    assert_eq!(dialog.sessions("p"), [""; 0]);
    server.wait_for_offset(&replica);
    let mut on_replica = Dialog::with(&replica);
    assert_eq!(figures(&mut on_replica), [3, 0, 3, 2]);
    on_replica.expect(&format!("SCARD {SESSIONS}"), "1");
    // What has changed since is not counted before somebody looks.
    dialog.expect(&format!("SET {SESSIONS} text"), "+OK");
    assert_eq!(figures(&mut dialog), [3, 0, 3, 2]);
}

#[test]
fn they_count_after_a_restart_and_a_promotion() {
    let mut server = Server::builder()
        .recording()
        .tcp()
        .module_args(&all_settings())
        .start();
    let replica = with_migration().replica_of(&server).start();
    let mut dialog = Dialog::with(&server);
    put_invalid_entry(&mut dialog, "s");
    dialog.expect("SEAT.ACQUIRE p a 2", "[1, ACQUIRED, 2, 2]");
    let denied = "[0, NO_SEATS_AVAILABLE, 2, 2]";
    server.wait_for_offset(&replica);
    let digest = server.digest();
    assert_eq!(replica.digest(), digest);
    let mut promoted = Dialog::with(&replica);
    promoted.expect("REPLICAOF NO ONE", "+OK");
    promoted.expect("SEAT.ACQUIRE p b 2", denied);
    server.restart();
    assert_eq!(server.digest(), digest);
    Dialog::with(&server).expect("SEAT.ACQUIRE p b 2", denied);
}

#[test]
fn who_waits_for_the_session_of_one_hears_that_it_holds_a_seat() {
    let (server, mut dialog) = with_migration().scene();
    dialog.acquire("p", "a", 1, "{}");
    let mut plain = Waiter::of(&server, "SEAT.ACQUIRE p s 1 BLOCK 0");
    let mut ticketed = Waiter::of(&server, "SEAT.ACQUIRE p t 1 QUEUE 60000 BLOCK 0");
    let mut leased = Waiter::of(&server, "SEAT.ACQUIRE p u 1 EX 60 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE p v 1 QUEUE 60000", "[0, QUEUED, 1, 1, 4]");
    let _other = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    for session in ["s", "t", "u", "v"] {
        put_invalid_entry(&mut dialog, session);
    }
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 4]");
    plain.hears("[1, ALREADY_ACTIVE, 5]");
    ticketed.hears("[1, ALREADY_ACTIVE, 5]");
    let reply = leased.read();
    let expected = "!ERR session u cannot be imported: ";
    assert!(reply.starts_with(expected), "{reply}");
    // Nor is a seat kept for a ticket of such a session.
    assert_eq!(dialog.queue("p"), ["w"]);
    assert_eq!(total(&server, "seat_tickets"), 0);
}

/// Entries are known at `p` of database 1, while clients wait for their sessions at `p` of database
/// 0.
#[test]
fn entries_that_come_by_swapdb_are_nobodys_grant() {
    // In a full pool, and in one that has seats for more than are answered at once.
    for (clients, seats) in [(1, 2), (66, 999)] {
        let server = with_migration().start();
        total_becomes(&server, "seat_script_key_scan", 0);
        let mut dialog = Dialog::with(&server);
        dialog.acquire("p", "a", 1, "{}");
        let wait = |n| Waiter::of(&server, &format!("SEAT.ACQUIRE p s{n} 1 BLOCK 0"));
        let waiters: Vec<_> = (0..clients).map(wait).collect();
        dialog.expect("SELECT 1", "+OK");
        dialog.acquire("p", "b", seats, "{}");
        for n in 0..clients {
            put_invalid_entry(&mut dialog, &format!("s{n}"));
        }
        let used = 1 + clients;
        dialog.expect("SEAT.CLEANUP p", &format!("[0, {used}]"));
        dialog.expect("SWAPDB 0 1", "+OK");
        for mut waiter in waiters {
            waiter.hears(&format!("[1, ALREADY_ACTIVE, {used}]"));
        }
        dialog.expect("SELECT 0", "+OK");
        assert_eq!(dialog.sessions("p"), ["b"]);
    }
}

#[test]
fn an_effect_that_brings_the_session_ends_its_entry() {
    let (_server, mut dialog) = Server::builder()
        .module_args(&format!("{} allow-effects yes", all_settings()))
        .scene();
    dialog.acquire("p", "a", 9, "{}");
    put_invalid_entry(&mut dialog, "s");
    dialog.expect("SEAT.CLEANUP p", "[0, 2]");
    dialog.expect(
        "SEAT.EFFECT p IMPORT s '9 1700000000 1700000060 1 0 0' {}",
        "1",
    );
    dialog.expect("SEAT.CLEANUP p", "[0, 2]");
    dialog.expect("SEAT.RELEASE p s", "[1, RELEASED, 1]");
    dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "0");
}
