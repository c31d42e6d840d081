//! maxmemory reached: only what needs memory is refused, and only where the server would refuse a
//! SET.

use crate::support::{Dialog, Server, Traces};

const OOM: &str = "!OOM command not allowed when used memory > 'maxmemory'.";

fn prepared() -> (Server, Dialog) {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.acquire_all("pool", &["a", "b", "c", "d"], 9);
    (server, dialog)
}

fn fill_memory(server: &Server) {
    Dialog::with(server).expect("CONFIG SET maxmemory 1", "+OK");
}

#[test]
fn only_a_grant_is_refused() {
    let (server, mut dialog) = prepared();
    fill_memory(&server);
    dialog.expect("SET x y", OOM);
    let before = Traces::of(&server);
    for command in [
        "SEAT.ACQUIRE pool e 9 {}",
        "SEAT.ACQUIRE pool e 9",
        "SEAT.ACQUIRE missing e 9 {}",
    ] {
        dialog.expect(command, OOM);
        assert_eq!(Traces::of(&server), before, "{command}");
    }
    for (command, reply) in [
        ("SEAT.ACQUIRE pool e 4 {}", "[0, NO_SEATS_AVAILABLE, 4, 4]"),
        ("SEAT.ACQUIRE pool a 9 {}", "[1, ALREADY_ACTIVE, 4]"),
        (
            "SEAT.ACQUIRE pool e 9 nonsense",
            "!ERR metadata must be a JSON object (RFC 8259, UTF-8)",
        ),
        ("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]"),
        ("SEAT.HEARTBEAT pool e", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.COUNT pool", "4"),
        ("SEAT.RELEASE pool a", "[1, RELEASED, 3]"),
        ("SEAT.RELEASE pool a", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool b", "1"),
        ("SEAT.CLEANUP pool", "[0, 2]"),
        ("SEAT.SESSIONS missing", "[]"),
        ("SEAT.SCAN missing 0", r#"["0", []]"#),
        ("SEAT.GET pool e", "nil"),
        ("SEAT.INFO missing", "nil"),
    ] {
        dialog.expect(command, reply);
    }
    assert_eq!(dialog.sessions("pool"), ["c", "d"]);
    assert_eq!(dialog.pool_info("pool", "used"), 2);
    dialog.expect("CONFIG SET maxmemory 0", "+OK");
    dialog.acquire("pool", "e", 9, "{}");
}

#[test]
fn in_a_transaction_the_rest_of_it_goes_through() {
    let (server, mut dialog) = prepared();
    dialog.expect("MULTI", "+OK");
    for command in [
        "SEAT.ACQUIRE pool e 9 {}",
        "SEAT.ACQUIRE pool e 4 {}",
        "SEAT.ACQUIRE pool a 9 {}",
        "SEAT.HEARTBEAT pool a",
        "SEAT.RELEASE pool a",
        "SEAT.REVOKE pool b",
        "SEAT.COUNT pool",
    ] {
        dialog.expect(command, "+QUEUED");
    }
    // While memory is full the server itself takes no more commands into a transaction.
    fill_memory(&server);
    let expected = [
        OOM,
        "[0, NO_SEATS_AVAILABLE, 4, 4]",
        "[1, ALREADY_ACTIVE, 4]",
        "[1, HEARTBEAT_UPDATED, 1]",
        "[1, RELEASED, 3]",
        "1",
        "2",
    ];
    assert_eq!(dialog.ask("EXEC"), format!("[{}]", expected.join(", ")));
}

#[test]
fn in_a_script_the_rest_of_it_goes_through() {
    let (server, mut dialog) = prepared();
    fill_memory(&server);
    let before = server.digest();
    for command in ["pcall", "call"] {
        let script = format!("return redis.{command}('SEAT.ACQUIRE', 'pool', 'e', '9', '{{}}')");
        let reply = dialog.eval(&script, &[]);
        assert!(reply.starts_with('!') && reply.contains("OOM"), "{reply}");
        assert_eq!(server.digest(), before);
    }
    for (call, reply) in [
        (
            "'SEAT.ACQUIRE', 'pool', 'e', '4'",
            "[0, NO_SEATS_AVAILABLE, 4, 4]",
        ),
        ("'SEAT.ACQUIRE', 'pool', 'a', '9'", "[1, ALREADY_ACTIVE, 4]"),
        ("'SEAT.HEARTBEAT', 'pool', 'a'", "[1, HEARTBEAT_UPDATED, 1]"),
        ("'SEAT.RELEASE', 'pool', 'a'", "[1, RELEASED, 3]"),
        ("'SEAT.REVOKE', 'pool', 'b'", "1"),
        ("'SEAT.COUNT', 'pool'", "2"),
    ] {
        let script = format!("return redis.call({call})");
        assert_eq!(dialog.eval(&script, &[]), reply, "{script}");
    }
}

#[test]
fn a_watcher_is_not_disturbed_by_a_refused_grant() {
    let (server, mut dialog) = prepared();
    dialog.expect("WATCH pool", "+OK");
    dialog.expect("MULTI", "+OK");
    dialog.expect("SEAT.COUNT pool", "+QUEUED");
    fill_memory(&server);
    Dialog::with(&server).expect("SEAT.ACQUIRE pool e 9 {}", OOM);
    dialog.expect("EXEC", "[4]");
}

#[test]
fn a_full_replica_follows_its_primary() {
    let primary = Server::builder().tcp().start();
    let replica = Server::builder()
        .replica_of(&primary)
        .config("maxmemory 1")
        .start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.acquire_all("pool", &["a", "b"], 9);
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    primary.replica_agrees(&replica);
}

/// Sets a limit of a megabyte more than is used.
fn leave_a_megabyte(server: &Server) {
    let used = server.used_memory();
    let limit = format!("CONFIG SET maxmemory {}", used + 1_000_000);
    Dialog::with(server).expect(&limit, "+OK");
}

/// What a SET would be answered here is what these are answered.
const GROWTH: [(&str, &str); 3] = [
    ("SEAT.ACQUIRE pool e 9 {}", "[1, ACQUIRED, 5, 9]"),
    ("SEAT.ACQUIRE pool e 1 QUEUE 1000", "[0, QUEUED, 4, 1, 1]"),
    ("SEAT.EXPORT pool sessions metadata", "4"),
];

/// A call from a script, in which it stands after what fills more than a megabyte.
fn after_much(command: &str) -> String {
    let words: Vec<_> = command.split(' ').map(|word| format!("'{word}'")).collect();
    let call = words.join(", ");
    format!("redis.call('SETRANGE', 'much', 2000000, 'x') return redis.call({call})")
}

#[test]
fn a_unit_that_begins_below_the_limit_is_not_stopped_above_it() {
    for policy in ["noeviction", "volatile-lru"] {
        for (command, reply) in GROWTH.into_iter().chain([("SET x y", "+OK")]) {
            let (server, mut dialog) = prepared();
            dialog.expect(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK");
            leave_a_megabyte(&server);
            let script = after_much(command);
            assert_eq!(dialog.eval(&script, &[]), reply, "{policy} {command}");
            dialog.expect("SEAT.ACQUIRE other e 9", OOM);

            let (server, mut dialog) = prepared();
            dialog.expect(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK");
            leave_a_megabyte(&server);
            dialog.expect("MULTI", "+OK");
            dialog.expect("SETRANGE much 2000000 x", "+QUEUED");
            dialog.expect(command, "+QUEUED");
            let expected = format!("[2000001, {reply}]");
            assert_eq!(dialog.ask("EXEC"), expected, "{policy} {command}");
            dialog.expect("SEAT.ACQUIRE other e 9", OOM);
        }
    }
}

#[test]
fn a_unit_that_begins_above_the_limit_is_held_to_it() {
    for policy in ["noeviction", "volatile-lru"] {
        let (server, mut dialog) = prepared();
        dialog.expect(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK");
        dialog.expect("SETRANGE much 2000000 x", "2000001");
        dialog.expect("MULTI", "+OK");
        dialog.expect("DEL much", "+QUEUED");
        dialog.expect("SEAT.ACQUIRE pool e 9", "+QUEUED");
        let used = server.used_memory();
        let limit = format!("CONFIG SET maxmemory {}", used - 1_000_000);
        Dialog::with(&server).expect(&limit, "+OK");
        assert_eq!(dialog.ask("EXEC"), format!("[1, {OOM}]"), "{policy}");
        dialog.acquire("pool", "e", 9, "{}");
    }
}

#[test]
fn a_script_that_may_run_out_of_memory_is_granted_seats() {
    for policy in ["noeviction", "volatile-lru"] {
        let (server, mut dialog) = prepared();
        if server.version() < (7, 0, 0) {
            // Scripts have no flags there: one whose first line looks so is no script.
            let script = "#!lua flags=allow-oom\nreturn 1";
            assert!(dialog.eval(script, &[]).starts_with("!ERR"));
            return;
        }
        dialog.expect(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK");
        let call = "redis.call(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])";
        let flagged = format!("#!lua flags=allow-oom\nreturn {call}");
        let library = format!(
            "#!lua name=lib\nlocal function f(KEYS, ARGV) return {call} end \
             redis.register_function{{function_name='f', callback=f, flags={{'allow-oom'}}}}"
        );
        let plain = format!("return {call}");
        let sha = |script: &str, dialog: &mut Dialog| {
            let reply = dialog.ask_args(&["SCRIPT", "LOAD", script]);
            reply.trim_matches('"').to_owned()
        };
        let (flagged_sha, plain_sha) = (sha(&flagged, &mut dialog), sha(&plain, &mut dialog));
        dialog.ask_args(&["FUNCTION", "LOAD", &library]);
        fill_memory(&server);
        let mut run = |how: &str, script: &str, session: &str| {
            dialog.ask_args(&[how, script, "1", "SEAT.ACQUIRE", "pool", session, "9", "{}"])
        };
        for (session, how, script, used) in [
            ("e", "EVAL", &*flagged, 5),
            ("f", "EVALSHA", &flagged_sha, 6),
            ("g", "FCALL", "f", 7),
        ] {
            // What was called before it is not taken for it.
            assert!(run("EVALSHA", &plain_sha, "h").contains("OOM "), "{how}");
            assert!(run("EVAL", &plain, "h").contains("OOM "), "{how}");
            assert_eq!(
                run(how, script, session),
                format!("[1, ACQUIRED, {used}, 9]"),
                "{policy} {how}"
            );
        }
        // In a transaction, too, a function is known to be one.
        dialog.expect("CONFIG SET maxmemory 0", "+OK");
        dialog.expect("MULTI", "+OK");
        dialog.expect("FCALL f 1 SEAT.ACQUIRE pool h 9 {}", "+QUEUED");
        fill_memory(&server);
        dialog.expect("EXEC", "[[1, ACQUIRED, 8, 9]]");
    }
}

/// Sets a limit of a little more than is used, and fills the room with keys of a kilobyte until
/// some are evicted.
fn fill_cache(server: &Server, dialog: &mut Dialog) {
    let used = server.used_memory();
    let limit = used + 4_000_000;
    dialog.expect(&format!("CONFIG SET maxmemory {limit}"), "+OK");
    let value = "x".repeat(1000);
    let mut key = 0;
    while server.info("stats")["evicted_keys"] == "0" {
        for _ in 0..500 {
            dialog.expect(&format!("SET cached-{key} {value}"), "+OK");
            key += 1;
        }
    }
}

#[test]
fn while_eviction_makes_room_only_what_a_set_would_is_refused() {
    let (server, mut dialog) = Server::builder()
        .config("maxmemory-policy allkeys-lru")
        .scene();
    fill_cache(&server, &mut dialog);
    let value = "x".repeat(10_000);
    for round in 0..1000 {
        dialog.expect(&format!("SET set-{round} {value}"), "+OK");
        dialog.begins(
            &format!("SEAT.ACQUIRE pool-{round} a 9 {{}}"),
            "[1, ACQUIRED",
        );
    }
    // In a transaction the server looks once, before it; what its first command takes is evicted
    // for later.
    for command in [
        "SEAT.ACQUIRE inside a 1",
        "SEAT.ACQUIRE inside b 1 QUEUE 1000",
        "SEAT.EXPORT inside sessions metadata",
    ] {
        let reply =
            dialog.transaction(&["SETRANGE much 500000 x", "SEAT.ACQUIRE inside a 1", command]);
        assert!(!reply.contains("OOM"), "{command}: {reply}");
        dialog.ask("DEL much inside sessions metadata");
    }
}

#[test]
fn a_policy_with_nothing_to_evict_refuses_like_noeviction() {
    let (server, mut dialog) = Server::builder()
        .config("maxmemory-policy volatile-lru")
        .full_pool();
    fill_memory(&server);
    for command in [
        "SET x y",
        "SEAT.ACQUIRE pool b 9 {}",
        "SEAT.ACQUIRE pool b 1 QUEUE 1000",
        "SEAT.ACQUIRE missing b 1",
        "SEAT.EXPORT pool sessions metadata",
    ] {
        dialog.expect(command, OOM);
    }
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
}

#[test]
fn the_verdict_of_the_server_is_asked_without_a_trace() {
    let (server, mut dialog) = prepared();
    dialog.expect("CONFIG SET maxmemory-policy volatile-lru", "+OK");
    fill_memory(&server);
    let mut monitor = Dialog::with(&server);
    monitor.expect("MONITOR", "+OK");
    let before = Traces::of(&server);
    dialog.expect("SEAT.ACQUIRE pool e 9 {}", OOM);
    assert_eq!(Traces::of(&server), before);
    assert!(!server.info("commandstats").contains_key("cmdstat_set"));
    dialog.expect("ECHO end", r#""end""#);
    let mut line = monitor.read();
    while !line.contains(r#"] "ECHO""#) {
        assert!(!line.contains(r#"] "SET""#), "{line}");
        line = monitor.read();
    }
}
