//! `script-keys`: what is in the legacy keys is adopted by the next command that writes to the
//! pool.

use std::collections::HashSet;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use tempfile::TempDir;

use super::{METADATA, SESSIONS, fill, put_invalid_entry};
#[cfg(target_os = "linux")]
use crate::blocked_clients::other_modules::listened_to;
use crate::support::{
    Builder, Dialog, Events, Server, Traces, Waiter, eventually, replicated, total, total_becomes,
};

fn adopting() -> Builder {
    Server::builder().recording().module_args("script-keys yes")
}

#[track_caller]
fn is_gone(dialog: &mut Dialog) {
    dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "0");
}

#[test]
fn each_writing_command_adopts_first() {
    for (command, reply) in [
        ("SEAT.ACQUIRE p c 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ("SEAT.ACQUIRE p c 3", "[1, ACQUIRED, 3, 3]"),
        ("SEAT.ACQUIRE p a 1", "[1, ALREADY_ACTIVE, 2]"),
        ("SEAT.HEARTBEAT p a", "[1, HEARTBEAT_UPDATED, 2]"),
        ("SEAT.HEARTBEAT p c", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.RELEASE p a", "[1, RELEASED, 1]"),
        ("SEAT.RELEASE p c", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE p a b", "2"),
        ("SEAT.CLEANUP p", "[0, 2]"),
        ("SEAT.CLEANUP p IDLE 60", "[2, 0]"),
        ("SEAT.RESIZE p 5", "0"),
    ] {
        let (server, mut dialog) = adopting().scene();
        fill(&mut dialog, &["a", "b"]);
        dialog.expect(command, reply);
        is_gone(&mut dialog);
        assert_eq!(total(&server, "seat_imported"), 2, "{command}");
        let digest = server.digest();
        dialog.expect("DEBUG LOADAOF", "+OK");
        assert_eq!(server.digest(), digest, "{command}");
    }
}

#[test]
fn readers_and_internal_commands_take_nothing_over() {
    let (_server, mut dialog) = adopting().scene();
    fill(&mut dialog, &["a"]);
    for command in [
        "SEAT.COUNT p",
        "SEAT.SESSIONS p",
        "SEAT.GET p a",
        "SEAT.INFO p",
        "SEAT.PTTL p a",
        "SEAT.QUEUE p",
        "SEAT.POSITION p a",
        "SEAT.SCAN p 0",
    ] {
        dialog.ask(command);
        dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
    }
}

#[test]
fn it_works_into_a_pool_that_exists_and_again_and_again() {
    let (_server, mut dialog) = adopting().scene();
    dialog.acquire("p", "x", 3, r#"{"mine":1}"#);
    dialog.expect(&format!("SADD {SESSIONS} x y"), "2");
    dialog.expect("SEAT.ACQUIRE p z 3", "[1, ACQUIRED, 3, 3]");
    dialog.expect(&format!("SADD {SESSIONS} more"), "1");
    dialog.expect("SEAT.RELEASE p more", "[1, RELEASED, 3]");
    dialog.contains("SEAT.GET p x", "mine");
    dialog.expect("SEAT.HEARTBEAT p y", "[0, METADATA_NOT_FOUND]");
}

#[test]
fn merged_above_the_limit_nobody_is_evicted_or_let_in() {
    let (server, mut dialog) = adopting().scene();
    dialog.acquire_all("p", &["x", "y"], 2);
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 2 BLOCK 0");
    fill(&mut dialog, &["a", "b"]);
    dialog.expect("SEAT.RELEASE p x", "[1, RELEASED, 3]");
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 2]");
    dialog.expect("SEAT.POSITION p w", "1");
    dialog.expect("SEAT.RELEASE p b", "[1, RELEASED, 2]");
    waiter.hears("[1, ACQUIRED, 2, 2]");
}

#[test]
fn the_timer_counts_them_before_it_gives_a_expired_seat_away() {
    let (server, mut dialog) = adopting().scene();
    dialog.acquire("p", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    // Another program's script counts without the expired seat, and takes it before the timer
    // looks.
    let script = format!(
        r#"while redis.call("SEAT.COUNT", "p") > 0 do end return redis.call("SADD", "{SESSIONS}", "s")"#
    );
    let replies = dialog.pipeline(&[
        "SEAT.ACQUIRE p a 1 PX 200".to_owned(),
        format!("EVAL '{script}' 0"),
    ]);
    assert_eq!(replies, ["[1, ALREADY_ACTIVE, 1, 200]", "1"]);
    total_becomes(&server, "seat_expired", 1);
    assert_eq!(dialog.sessions("p"), ["s"]);
    dialog.expect("SEAT.POSITION p w", "1");
    dialog.expect("SEAT.RELEASE p s", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn the_timer_counts_invalid_entries_before_it_gives_a_seat_away() {
    let (server, mut dialog) = adopting().scene();
    dialog.acquire("p", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    dialog.expect_at_once(&[
        ("SEAT.ACQUIRE p a 1 PX 200", "[1, ALREADY_ACTIVE, 1, 200]"),
        (&format!("SADD {SESSIONS} s"), "1"),
        (&format!("HSET {METADATA} s nonsense"), "1"),
    ]);
    total_becomes(&server, "seat_expired", 1);
    assert_eq!(total(&server, "seat_granted"), 0);
    dialog.expect(&format!("DEL {SESSIONS} {METADATA}"), "2");
    waiter.hears("[1, ACQUIRED, 1, 1]");
}

/// A pool in which `a` holds a seat, with legacy keys that have `g`, who can be adopted, and the
/// invalid entry of `s`.
fn with_an_invalid_entry(server: &Server) -> Dialog {
    let mut dialog = Dialog::with(server);
    dialog.expect("SEAT.ACQUIRE p a 2", "[1, ACQUIRED, 1, 2]");
    fill(&mut dialog, &["g"]);
    put_invalid_entry(&mut dialog, "s");
    dialog.expect(&format!("HSET {METADATA} orphan {{}}"), "1");
    dialog
}

#[test]
fn an_invalid_entry_counts_as_one_taken_seat() {
    let waits = "[0, QUEUED, 3, 3, 1]";
    for (command, reply) in [
        ("SEAT.ACQUIRE p b 4", "[1, ACQUIRED, 4, 4]"),
        ("SEAT.ACQUIRE p b 3", "[0, NO_SEATS_AVAILABLE, 3, 3]"),
        ("SEAT.ACQUIRE p b 3 QUEUE 60000", waits),
        ("SEAT.ACQUIRE p s 3", "[1, ALREADY_ACTIVE, 3]"),
        ("SEAT.ACQUIRE p s 1 BLOCK 0", "[1, ALREADY_ACTIVE, 3]"),
        ("SEAT.CLEANUP p", "[0, 3]"),
        ("SEAT.CLEANUP p IDLE 60", "[1, 2]"),
        ("SEAT.RESIZE p 9", "0"),
        ("SEAT.HEARTBEAT p g", "[1, HEARTBEAT_UPDATED, 2]"),
        ("SEAT.HEARTBEAT p a EX 9", "[1, HEARTBEAT_UPDATED, 1, 9000]"),
        ("SEAT.RELEASE p g", "[1, RELEASED, 2]"),
        ("SEAT.RELEASE p a", "[1, RELEASED, 2]"),
        ("SEAT.REVOKE p a g nobody", "2"),
        ("SEAT.HEARTBEAT p nobody", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.RELEASE p nobody", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE p nobody", "0"),
        ("SEAT.ACQUIRE p g 2", "[1, ALREADY_ACTIVE, 3]"),
        ("SEAT.ACQUIRE p a 1 EX 9", "[1, ALREADY_ACTIVE, 3, 9000]"),
    ] {
        let server = adopting().start();
        let mut dialog = with_an_invalid_entry(&server);
        dialog.expect(command, reply);
        assert_eq!(total(&server, "seat_imported"), 1, "{command}");
        dialog.expect(&format!("SMEMBERS {SESSIONS}"), r#"["s"]"#);
        dialog.expect(&format!("HGETALL {METADATA}"), r#"["s", "nonsense"]"#);
        let digest = server.digest();
        dialog.expect("DEBUG LOADAOF", "+OK");
        assert_eq!(server.digest(), digest, "{command}");
    }
}

#[test]
fn what_would_change_an_invalid_entry_is_refused_by_name() {
    let server = adopting().start();
    total_becomes(&server, "seat_script_key_scan", 0);
    let mut dialog = with_an_invalid_entry(&server);
    put_invalid_entry(&mut dialog, "r");
    dialog.expect("SEAT.HEARTBEAT p g", "[1, HEARTBEAT_UPDATED, 2]");
    for command in [
        "SEAT.ACQUIRE p s 9 EX 60",
        "SEAT.ACQUIRE p s 9 PX 60000 BLOCK 0",
        "SEAT.HEARTBEAT p s",
        "SEAT.HEARTBEAT p s EX 60",
    ] {
        let before = Traces::of(&server);
        dialog.begins(command, "!ERR session s cannot be imported: ");
        assert_eq!(Traces::of(&server), before, "{command}");
    }
    // What holds the seats is not lost, and is adopted as soon as it can be.
    dialog.expect(&format!("HSET {METADATA} s {{}}"), "0");
    dialog.expect(&format!("HDEL {METADATA} r"), "1");
    dialog.expect("SEAT.ACQUIRE p b 4", "[0, NO_SEATS_AVAILABLE, 4, 4]");
    is_gone(&mut dialog);
}

#[test]
fn those_who_wait_are_let_in_once_an_invalid_entry_is_gone() {
    let (server, mut dialog) = adopting().scene();
    dialog.expect("SEAT.ACQUIRE p a 1", "[1, ACQUIRED, 1, 1]");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    put_invalid_entry(&mut dialog, "s");
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 1]");
    dialog.expect(&format!("DEL {SESSIONS} {METADATA}"), "2");
    // Nobody asks for the pool any more.
    waiter.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn invalid_entries_are_not_read_again_until_something_changes() {
    let server = adopting().start();
    total_becomes(&server, "seat_script_key_scan", 0);
    let mut dialog = Dialog::with(&server);
    dialog.acquire("p", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    put_invalid_entry(&mut dialog, "s");
    dialog.expect("SEAT.REVOKE p a", "1");
    // With no pool there, they are looked at anew.
    dialog.expect("SEAT.HEARTBEAT p nobody", "[0, SESSION_NOT_ACTIVE]");
    let reads = || server.info("commandstats")["cmdstat_hgetall"].clone();
    let before = reads();
    // The timer, which has somebody to let in, looks each second.
    let start = Instant::now();
    eventually("the timer has looked a few times", || {
        let denied = "[0, NO_SEATS_AVAILABLE, 1, 1]";
        dialog.expect("SEAT.ACQUIRE p b 1", denied);
        dialog.expect("SEAT.HEARTBEAT p nobody", "[0, SESSION_NOT_ACTIVE]");
        start.elapsed() > Duration::from_millis(2500)
    });
    assert_eq!(reads(), before);
    dialog.expect(&format!("SREM {SESSIONS} s"), "1");
    waiter.hears("[1, ACQUIRED, 1, 1]");
    assert_ne!(reads(), before);
    is_gone(&mut dialog);
}

#[test]
fn whatever_changes_invalid_entries_is_noticed() {
    let denied = "[0, NO_SEATS_AVAILABLE, 2, 2]";
    for (ways, reply) in [
        ("HDEL {m} s", denied),
        ("HSET {m} s {}", denied),
        ("DEL {m}", denied),
        ("UNLINK {m}", denied),
        ("RENAME {m} x", denied),
        ("MOVE {m} 1", denied),
        ("SET {m} x", denied),
        ("PEXPIRE {m} -1", denied),
        ("SELECT 1|SWAPDB 0 1|DEL {m}|SWAPDB 0 1|SELECT 0", denied),
        ("MULTI|DEL {m}|EXEC", denied),
        ("SREM {s} s", "[1, ACQUIRED, 2, 2]"),
        ("DEL {s}", "[1, ACQUIRED, 2, 2]"),
        ("RENAME {s} x", "[1, ACQUIRED, 2, 2]"),
        ("MOVE {s} 1", "[1, ACQUIRED, 2, 2]"),
        ("SET {s} x", "[1, ACQUIRED, 2, 2]"),
        ("SADD e s|SDIFFSTORE {s} {s} e", "[1, ACQUIRED, 2, 2]"),
        ("SPOP {s}", "[1, ACQUIRED, 2, 2]"),
        ("PEXPIRE {s} 1|DEBUG SLEEP 0.01", "[1, ACQUIRED, 2, 2]"),
        ("PEXPIRE {m} 1|DEBUG SLEEP 0.01", denied),
        // The pool that takes the name has the session.
        ("SEAT.ACQUIRE q s 2|RENAME q p", "[1, ACQUIRED, 2, 2]"),
        ("SADD e s|SEAT.IMPORT p e none", denied),
    ] {
        let server = adopting().start();
        total_becomes(&server, "seat_script_key_scan", 0);
        let mut dialog = Dialog::with(&server);
        dialog.expect("SEAT.ACQUIRE p a 2", "[1, ACQUIRED, 1, 2]");
        put_invalid_entry(&mut dialog, "s");
        for _ in 0..2 {
            dialog.expect("SEAT.ACQUIRE p n 2", denied);
        }
        assert_eq!(dialog.sessions("p"), ["a"]);
        for way in ways.split('|') {
            let way = way.replace("{s}", SESSIONS).replace("{m}", METADATA);
            dialog.succeeds(&way);
        }
        assert_eq!(dialog.ask("SEAT.ACQUIRE p n 2"), reply, "{ways}");
        // Nobody but sessions of the pool counts any more.
        assert_eq!(dialog.number("SEAT.COUNT p"), 2, "{ways}");
    }
}

#[test]
fn a_session_that_comes_otherwise_is_no_invalid_entry_any_more() {
    for way in [
        "SADD e z|SEAT.IMPORT p e none",
        "SEAT.ACQUIRE q z 2|RENAME q p",
    ] {
        let (_server, mut dialog) = adopting().scene();
        for session in ["b", "z"] {
            put_invalid_entry(&mut dialog, session);
        }
        dialog.expect("SEAT.CLEANUP p", "[0, 2]");
        for command in way.split('|') {
            dialog.succeeds(command);
        }
        dialog.expect("SEAT.ACQUIRE p n 2", "[0, NO_SEATS_AVAILABLE, 2, 2]");
        dialog.expect("SEAT.RELEASE p z", "[1, RELEASED, 1]");
        dialog.expect("SEAT.RELEASE p z", "[0, SESSION_NOT_FOUND]");
        dialog.expect(&format!("SMEMBERS {SESSIONS}"), r#"["b"]"#);
    }
}

#[test]
fn the_error_of_an_invalid_entry_with_a_long_name_is_short() {
    let (_server, mut dialog) = adopting().scene();
    let long = "s".repeat(70_000);
    dialog.expect(&format!("SADD {SESSIONS} {long}"), "1");
    dialog.expect("SEAT.ACQUIRE p a 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    let reply = dialog.ask(&format!("SEAT.HEARTBEAT p {long}"));
    assert_eq!(
        reply,
        format!(
            "!ERR session {}... cannot be imported: a session must be at most 65535 bytes",
            "s".repeat(100)
        )
    );
}

#[test]
fn an_entry_of_a_session_that_the_pool_has_is_not_needed() {
    let (_server, mut dialog) = adopting().scene();
    dialog.acquire("p", "s", 2, r#"{"mine":1}"#);
    put_invalid_entry(&mut dialog, "s");
    dialog.expect("SEAT.ACQUIRE p b 2", "[1, ACQUIRED, 2, 2]");
    is_gone(&mut dialog);
    dialog.contains("SEAT.GET p s", "mine");
}

#[test]
fn adoption_with_an_invalid_entry_is_one_unit() {
    let server = Server::builder()
        .recording()
        .tcp()
        .module_args("script-keys yes")
        .start();
    let replica = Server::builder().replica_of(&server).start();
    server.wait_for_offset(&replica);
    let mut dialog = with_an_invalid_entry(&server);
    let sent = replicated(&server, || {
        dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 2]");
    });
    let [first, import, srem, hdel, free, last] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!([first, last], ["MULTI", "EXEC"]);
    assert!(import.starts_with("SEAT.EFFECT p IMPORT g "), "{import}");
    assert_eq!(srem, &format!("SREM {SESSIONS} g"));
    // A field without a member is nobody's.
    let fields: HashSet<&str> = hdel.split(' ').skip(2).collect();
    assert_eq!(fields, HashSet::from(["g", "orphan"]), "{hdel}");
    assert_eq!(free, "SEAT.EFFECT p FREE released a");
    server.replica_agrees(&replica);
}

#[test]
#[cfg(target_os = "linux")]
fn another_module_that_hears_of_adopted_entries_finds_the_pool() {
    let dir = TempDir::new().expect("a directory");
    let server = listened_to(&dir, "script-keys yes");
    let mut dialog = with_an_invalid_entry(&server);
    // As soon as the entry of `g` has gone, the other module renews it.
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 2]");
    dialog.contains("SEAT.GET p g", r#""heartbeat_count":2"#);
    dialog.expect(&format!("SMEMBERS {SESSIONS}"), r#"["s"]"#);
    dialog.expect(&format!("HGETALL {METADATA}"), r#"["s", "nonsense"]"#);
    server.reloads_the_same("DEBUG LOADAOF");
}

#[test]
#[cfg(target_os = "linux")]
fn who_another_module_adds_while_others_are_adopted_is_counted() {
    let dir = TempDir::new().expect("a directory");
    let server = listened_to(&dir, "script-keys yes");
    let mut dialog = with_an_invalid_entry(&server);
    // No pool has a session without a name.
    assert_eq!(dialog.ask_args(&["SADD", "late", ""]), "1");
    // Besides `a`, `g` and `s` there is this one as soon as the entry of `g` has gone.
    dialog.expect("SEAT.ACQUIRE p b 4", "[0, NO_SEATS_AVAILABLE, 4, 4]");
    dialog.expect("SEAT.ACQUIRE p b 5", "[1, ACQUIRED, 5, 5]");
    // Where somebody comes back whenever it is adopted, nobody knows who else is there.
    dialog.expect("SADD late l", "1");
    dialog.expect(&format!("SADD {SESSIONS} l"), "1");
    let reply = dialog.ask("SEAT.ACQUIRE p c 9");
    assert!(reply.starts_with("!TRYAGAIN "), "{reply}");
}

#[test]
fn a_waiter_whose_session_is_adopted_hears_so_and_has_its_lease() {
    for (command, reply) in [
        ("SEAT.HEARTBEAT p a", "[1, HEARTBEAT_UPDATED, 1]"),
        ("SEAT.RESIZE p 3", "0"),
        ("SEAT.RELEASE p nobody", "[0, SESSION_NOT_FOUND]"),
    ] {
        for in_the_way in [false, true] {
            let (server, mut dialog) = adopting().scene();
            dialog.expect("SEAT.ACQUIRE p a 1", "[1, ACQUIRED, 1, 1]");
            let mut leased = Waiter::of(&server, "SEAT.ACQUIRE p w 1 {} EX 60 BLOCK 0");
            let mut other = Waiter::of(&server, "SEAT.ACQUIRE p x 1 QUEUE 60000 BLOCK 0");
            let _third = Waiter::of(&server, "SEAT.ACQUIRE p y 1 BLOCK 0");
            dialog.expect(&format!("SADD {SESSIONS} x w"), "2");
            let used = if in_the_way {
                put_invalid_entry(&mut dialog, "s");
                4
            } else {
                3
            };
            dialog.expect(command, reply);
            leased.hears(&format!("[1, ALREADY_ACTIVE, {used}, 60000]"));
            other.hears(&format!("[1, ALREADY_ACTIVE, {used}]"));
            let left_ms = dialog.number("SEAT.PTTL p w");
            assert!((1..=60_000).contains(&left_ms), "{command}: {left_ms}");
            assert_eq!(total(&server, "seat_already_active"), 2, "{command}");
            assert_eq!(dialog.queue("p"), ["y"]);
            let digest = server.digest();
            dialog.expect("DEBUG LOADAOF", "+OK");
            assert_eq!(server.digest(), digest, "{command}");
        }
    }
}

#[test]
fn it_is_one_unit_with_the_command_in_the_aof_and_on_replicas() {
    let server = Server::builder()
        .recording()
        .tcp()
        .module_args("script-keys yes")
        .start();
    let replica = Server::builder()
        .module_args("script-keys yes")
        .replica_of(&server)
        .start();
    let mut dialog = Dialog::with(&server);
    fill(&mut dialog, &["a"]);
    let sent = replicated(&server, || {
        dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 0]");
    });
    assert_eq!(
        sent,
        [
            "MULTI",
            "UNLINK license:p:active_sessions",
            "UNLINK license:p:session_metadata",
            "SEAT.EFFECT p IMPORT a 1 1700000000 1700000060 1 0 0 {}",
            "SEAT.EFFECT p FREE released a",
            "EXEC",
        ]
    );
    fill(&mut dialog, &["b"]);
    server.wait_for_offset(&replica);
    // A replica waits for what its primary does.
    let mut on_replica = Dialog::with(&replica);
    assert!(
        on_replica
            .ask("SEAT.ACQUIRE p c 9")
            .starts_with("!READONLY")
    );
    on_replica.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
    // It knows of the keys when it becomes one itself.
    on_replica.expect("REPLICAOF NO ONE", "+OK");
    on_replica.expect("SEAT.ACQUIRE p c 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
}

#[test]
fn keys_are_noticed_by_whatever_way_they_come() {
    let (server, mut dialog) = adopting().scene();
    total_becomes(&server, "seat_script_key_scan", 0);
    let other = "license:q:active_sessions";
    let dump = |dialog: &mut Dialog| {
        dialog.expect("SADD plain s", "1");
        let payload = dialog.bytes(&["DUMP", "plain"]);
        dialog.expect("DEL plain", "1");
        payload
    };
    type Way<'a> = (&'a str, &'a dyn Fn(&mut Dialog));
    let ways: [Way<'_>; 11] = [
        ("SADD", &|dialog| {
            dialog.expect(&format!("SADD {SESSIONS} s"), "1")
        }),
        ("SMOVE", &|dialog| {
            dialog.expect("SADD plain s", "1");
            dialog.expect(&format!("SMOVE plain {SESSIONS} s"), "1");
        }),
        ("SUNIONSTORE", &|dialog| {
            dialog.expect("SADD plain s", "1");
            dialog.expect(&format!("SUNIONSTORE {SESSIONS} plain"), "1");
            dialog.expect("DEL plain", "1");
        }),
        ("RENAME", &|dialog| {
            dialog.expect("SADD plain s", "1");
            dialog.expect(&format!("RENAME plain {SESSIONS}"), "+OK");
        }),
        ("COPY", &|dialog| {
            dialog.expect(&format!("SADD {other} s"), "1");
            dialog.expect(&format!("COPY {other} {SESSIONS}"), "1");
            dialog.expect(&format!("DEL {other}"), "1");
        }),
        ("RESTORE", &|dialog| {
            let payload = dump(dialog);
            let restore = [&b"RESTORE"[..], SESSIONS.as_bytes(), b"0", &payload];
            assert_eq!(dialog.ask_args(&restore), "+OK");
        }),
        ("MOVE", &|dialog| {
            dialog.expect("SELECT 1", "+OK");
            dialog.expect(&format!("SADD {SESSIONS} s"), "1");
            dialog.expect(&format!("MOVE {SESSIONS} 0"), "1");
            dialog.expect("SELECT 0", "+OK");
        }),
        // There the selected database may be the transaction's, not that of the key.
        ("MOVE in MULTI", &|dialog| {
            dialog.expect("SELECT 1", "+OK");
            let [add, go] = [format!("SADD {SESSIONS} s"), format!("MOVE {SESSIONS} 0")];
            assert_eq!(dialog.transaction(&[&add, &go]), "[1, 1]");
            dialog.expect("SELECT 0", "+OK");
        }),
        ("COPY to another database in MULTI", &|dialog| {
            dialog.expect("SELECT 1", "+OK");
            let add = format!("SADD {SESSIONS} s");
            let copy = format!("COPY {SESSIONS} {SESSIONS} DB 0");
            assert_eq!(dialog.transaction(&[&add, &copy]), "[1, 1]");
            // Some versions of Valkey leave the client in the database of the copy.
            dialog.expect("SELECT 1", "+OK");
            dialog.expect(&format!("DEL {SESSIONS}"), "1");
            dialog.expect("SELECT 0", "+OK");
        }),
        ("SWAPDB", &|dialog| {
            dialog.expect("SELECT 1", "+OK");
            dialog.expect(&format!("SADD {SESSIONS} s"), "1");
            dialog.expect("SELECT 0", "+OK");
            dialog.expect("SWAPDB 0 1", "+OK");
        }),
        ("DEBUG RELOAD", &|dialog| {
            dialog.expect(&format!("SADD {SESSIONS} s"), "1");
            dialog.expect("DEBUG RELOAD", "+OK");
        }),
    ];
    for (way, come) in ways {
        come(&mut dialog);
        dialog.expect("SEAT.ACQUIRE p t 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
        is_gone(&mut dialog);
        dialog.expect("SEAT.RELEASE p s", "[1, RELEASED, 0]");
        assert_eq!(dialog.ask("KEYS *"), "[]", "{way}");
    }
    assert_eq!(total(&server, "seat_script_key_pools"), 0);
}

#[test]
fn nothing_is_kept_in_mind_of_what_a_flush_took() {
    let (server, mut dialog) = adopting().scene();
    for database in [0, 1] {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        for n in 0..1500 {
            dialog.ask(&format!("SADD license:{n}:active_sessions s"));
        }
    }
    total_becomes(&server, "seat_script_key_scan", 0);
    assert_eq!(total(&server, "seat_script_key_pools"), 3000);
    dialog.expect("FLUSHDB", "+OK");
    assert_eq!(total(&server, "seat_script_key_pools"), 1500);
    dialog.expect("FLUSHALL ASYNC", "+OK");
    assert_eq!(total(&server, "seat_script_key_pools"), 0);
}

#[test]
fn each_database_is_scanned_when_the_module_meets_data() {
    let (server, mut dialog) = Server::builder().plain().config("databases 3").scene();
    for database in [0, 2] {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        for n in 0..3000 {
            dialog.ask(&format!("SET other:{n} x"));
        }
        for n in 0..500 {
            dialog.ask(&format!("SADD license:{n}:active_sessions s t"));
        }
    }
    server.load_module("script-keys yes");
    dialog.expect("SELECT 0", "+OK");
    // Before the look-through is over as after it.
    dialog.expect("SEAT.ACQUIRE 7 u 2", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    total_becomes(&server, "seat_script_key_scan", 0);
    assert_eq!(total(&server, "seat_script_key_pools"), 999);
    dialog.expect("SELECT 2", "+OK");
    dialog.expect("SEAT.ACQUIRE 499 u 3", "[1, ACQUIRED, 3, 3]");
    dialog.expect("SEAT.ACQUIRE 499 v 3", "[0, NO_SEATS_AVAILABLE, 3, 3]");
}

#[test]
fn another_type_at_a_scripts_name_is_left_alone() {
    let (_server, mut dialog) = adopting().scene();
    dialog.expect(&format!("SET {SESSIONS} text"), "+OK");
    dialog.expect("LPUSH list x", "1");
    dialog.expect(&format!("RENAME list {METADATA}"), "+OK");
    dialog.expect("SEAT.ACQUIRE p a 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
}

#[test]
fn without_the_setting_the_legacy_keys_are_left_alone() {
    let (_server, mut dialog) = Server::scene();
    fill(&mut dialog, &["a"]);
    dialog.expect("SEAT.ACQUIRE p b 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
}

#[test]
fn it_can_be_switched_on_and_off_while_the_server_runs() {
    let (server, mut dialog) = Server::scene();
    if server.version() < (7, 0, 0) {
        dialog.begins("CONFIG SET seat.script-keys yes", "!ERR");
        return;
    }
    fill(&mut dialog, &["a"]);
    dialog.expect("CONFIG SET seat.script-keys yes", "+OK");
    dialog.expect("SEAT.ACQUIRE p b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("CONFIG SET seat.script-keys no", "+OK");
    fill(&mut dialog, &["c"]);
    dialog.expect("SEAT.ACQUIRE p b 2", "[1, ACQUIRED, 2, 2]");
    dialog.expect("CONFIG SET seat.script-keys yes", "+OK");
    dialog.expect("SEAT.ACQUIRE p d 3", "[0, NO_SEATS_AVAILABLE, 3, 3]");
    is_gone(&mut dialog);
}

#[test]
fn pools_without_legacy_keys_are_not_counted_after_a_restart() {
    let builder = Server::builder().recording().tcp();
    let mut primary = builder.module_args("script-keys yes").start();
    let replica = Server::builder()
        .module_args("script-keys yes")
        .replica_of(&primary)
        .start();
    let mut dialog = Dialog::with(&primary);
    fill(&mut dialog, &["a"]);
    dialog.expect("SADD license:other:active_sessions a", "1");
    dialog.expect("SADD license:third:active_sessions a", "1");
    dialog.expect("RENAME license:third:active_sessions elsewhere", "+OK");
    dialog.expect("SEAT.CLEANUP p", "[0, 1]");
    primary.wait_for_offset(&replica);
    primary.restart();
    for server in [&primary, &replica] {
        total_becomes(server, "seat_script_key_scan", 0);
        assert_eq!(total(server, "seat_script_key_pools"), 1);
    }
    let mut dialog = Dialog::with(&primary);
    dialog.expect("SREM license:other:active_sessions a", "1");
    assert_eq!(total(&primary, "seat_script_key_pools"), 0);
}

#[test]
fn a_server_that_lacks_a_command_by_its_name_loses_nothing() {
    let lacking = |name: &str| {
        Server::builder()
            .config(&format!("rename-command {name} \"\""))
            .module_args("script-keys yes script-view yes")
            .start()
    };
    for name in ["SMEMBERS", "HGETALL", "UNLINK"] {
        let server = lacking(name);
        let mut dialog = Dialog::with(&server);
        dialog.acquire("p", "x", 1, "{}");
        let waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
        dialog.expect_at_once(&[
            ("SEAT.ACQUIRE p x 1 PX 300", "[1, ALREADY_ACTIVE, 1, 300]"),
            (&format!("SADD {SESSIONS} a b"), "2"),
            (&format!("HSET {METADATA} a {{}} b {{}}"), "2"),
        ]);
        for command in ["SEAT.ACQUIRE p d 9", "SEAT.RELEASE p a"] {
            let reply = dialog.ask(command);
            let expected = format!("!ERR required command {name} is unavailable");
            assert!(reply.starts_with(&expected), "{command}: {reply}");
        }
        // Nor does the timer grant a seat past them.
        total_becomes(&server, "seat_expired", 1);
        assert_eq!(total(&server, "seat_granted"), 0, "{name}");
        dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
        drop(waiter);
    }
    for name in ["SREM", "HDEL"] {
        let server = lacking(name);
        let mut dialog = with_an_invalid_entry(&server);
        for command in [
            "SEAT.ACQUIRE p d 9",
            "SEAT.RELEASE p g",
            "SEAT.HEARTBEAT p a",
        ] {
            let reply = dialog.ask(command);
            let expected = format!("!ERR required command {name} is unavailable");
            assert!(reply.starts_with(&expected), "{command}: {reply}");
        }
        dialog.expect(&format!("SCARD {SESSIONS}"), "3");
        // With invalid entries alone nothing has to be taken out, unless one of their sessions
        // ends.
        dialog.expect(&format!("DEL {SESSIONS} {METADATA}"), "2");
        put_invalid_entry(&mut dialog, "s");
        dialog.expect("SEAT.ACQUIRE p d 3", "[1, ACQUIRED, 3, 3]");
        for command in ["SEAT.RELEASE p s", "SEAT.REVOKE p a s"] {
            let reply = dialog.ask(command);
            let expected = format!("!ERR required command {name} is unavailable");
            assert!(reply.starts_with(&expected), "{command}: {reply}");
        }
        dialog.expect("SEAT.CLEANUP p", "[0, 3]");
    }
    for name in ["SADD", "HSET", "UNLINK"] {
        let server = lacking(name);
        let mut dialog = Dialog::with(&server);
        dialog.acquire("p", "a", 1, "{}");
        let digest = server.digest();
        dialog.begins(
            &format!("SEAT.EXPORT p {SESSIONS} {METADATA}"),
            &format!("!ERR required command {name} is unavailable"),
        );
        assert_eq!(server.digest(), digest, "{name}");
    }
    // What counts through the view would count too few.
    let server = lacking("SMEMBERS");
    let mut dialog = Dialog::with(&server);
    dialog.acquire("p", "a", 1, "{}");
    dialog.expect(&format!("SCARD {SESSIONS}"), "1");
    dialog.expect(&format!("SADD {SESSIONS} b"), "1");
    dialog.begins(
        &format!("SCARD {SESSIONS}"),
        "!ERR required command SMEMBERS is unavailable",
    );
}

#[test]
fn a_client_that_leaves_the_queue_has_nothing_adopted() {
    let (server, mut dialog) = Server::builder().module_args("script-keys yes").scene();
    dialog.acquire("p", "x", 1, "{}");
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE p w 1 BLOCK 0");
    fill(&mut dialog, &["a"]);
    let mut events = Events::matching(&server, "EA", "__keyevent@0__:seat.*");
    drop(waiter);
    assert_eq!(events.next(), "seat.left p");
    assert_eq!(total(&server, "seat_left"), 1);
    dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
}

/// Each ticket that is renewed takes longer than a turn of the timer may, for the sessions that are
/// adopted there first.
#[test]
fn clients_that_go_at_once_all_keep_their_positions() {
    const POOLS: usize = 5;
    const SESSIONS: usize = 5000;
    let (server, mut dialog) = adopting().scene();
    let mut kill = Vec::new();
    let mut waiters = Vec::new();
    for pool in 0..POOLS {
        dialog.acquire(&format!("p{pool}"), "x", 1, "{}");
        let poll = format!("SEAT.ACQUIRE p{pool} w 1 QUEUE 60000 BLOCK 0");
        let waiter = Waiter::of(&server, &poll);
        kill.push(format!("CLIENT KILL ID {}", waiter.id()));
        waiters.push(waiter);
        let key = format!("license:p{pool}:active_sessions");
        let mut add = vec!["SADD".to_owned(), key];
        add.extend((0..SESSIONS).map(|n| format!("session-{n}")));
        assert_eq!(dialog.ask_args(&add), SESSIONS.to_string());
    }
    let kill: Vec<&str> = kill.iter().map(String::as_str).collect();
    let sent = replicated(&server, || {
        dialog.transaction(&kill);
        total_becomes(&server, "seat_imported", (POOLS * SESSIONS) as u64);
    });
    // What one turn of the timer changes is one unit.
    let units = sent.split(|line| line == "MULTI" || line == "EXEC");
    let changed = units.map(|unit| {
        let effects = unit
            .iter()
            .filter_map(|line| line.strip_prefix("SEAT.EFFECT "));
        let pools = effects.filter_map(|effect| effect.split(' ').next());
        pools.collect::<HashSet<_>>()
    });
    let changed: Vec<_> = changed.filter(|pools| !pools.is_empty()).collect();
    assert_eq!(changed.len(), POOLS, "{changed:?}");
}

#[test]
fn tickets_are_kept_and_lost_in_time_with_an_invalid_entry() {
    let (server, mut dialog) = adopting().scene();
    dialog.acquire("p", "a", 1, "{}");
    dialog.expect("SEAT.ACQUIRE p b 1 QUEUE 300", "[0, QUEUED, 1, 1, 1]");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE p c 1 QUEUE 300 BLOCK 0");
    put_invalid_entry(&mut dialog, "s");
    let start = Instant::now();
    total_becomes(&server, "seat_tickets", 1);
    // Longer than the other would be valid if its client were gone.
    eventually("its position would be lost", || {
        start.elapsed() > Duration::from_millis(2500)
    });
    assert_eq!(dialog.queue("p"), ["c"]);
    dialog.expect(&format!("DEL {SESSIONS} {METADATA}"), "2");
    dialog.expect("SEAT.RELEASE p a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
}
