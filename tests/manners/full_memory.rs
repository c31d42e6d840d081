//! maxmemory reached under noeviction: only what needs memory is refused.

use crate::dialog::{Dialog, Traces};
use crate::support::Server;

const OOM: &str = "!OOM command not allowed when used memory > 'maxmemory'.";

fn prepared() -> (Server, Dialog) {
    let server = Server::builder().recording().start();
    let mut dialog = Dialog::with(&server);
    for session in ["a", "b", "c", "d"] {
        dialog.acquire("pool", session, 9, "{}");
    }
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
        (
            "SEAT.ACQUIRE pool e 4 {}",
            r#"[0, "NO_SEATS_AVAILABLE", 4, 4]"#,
        ),
        ("SEAT.ACQUIRE pool a 9 {}", r#"[1, "ALREADY_ACTIVE", 4]"#),
        (
            "SEAT.ACQUIRE pool e 9 nonsense",
            "!ERR metadata must be a JSON object (RFC 8259, UTF-8)",
        ),
        ("SEAT.HEARTBEAT pool a", r#"[1, "HEARTBEAT_UPDATED", 1]"#),
        ("SEAT.HEARTBEAT pool e", r#"[0, "SESSION_NOT_ACTIVE"]"#),
        ("SEAT.COUNT pool", "4"),
        ("SEAT.RELEASE pool a", r#"[1, "RELEASED", 3]"#),
        ("SEAT.RELEASE pool a", r#"[0, "SESSION_NOT_FOUND"]"#),
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
        r#"[0, "NO_SEATS_AVAILABLE", 4, 4]"#,
        r#"[1, "ALREADY_ACTIVE", 4]"#,
        r#"[1, "HEARTBEAT_UPDATED", 1]"#,
        r#"[1, "RELEASED", 3]"#,
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
        let reply = dialog.ask_args(&["EVAL", &script, "0"]);
        assert!(reply.starts_with('!') && reply.contains("OOM"), "{reply}");
        assert_eq!(server.digest(), before);
    }
    for (call, reply) in [
        (
            "'SEAT.ACQUIRE', 'pool', 'e', '4'",
            r#"[0, "NO_SEATS_AVAILABLE", 4, 4]"#,
        ),
        (
            "'SEAT.ACQUIRE', 'pool', 'a', '9'",
            r#"[1, "ALREADY_ACTIVE", 4]"#,
        ),
        (
            "'SEAT.HEARTBEAT', 'pool', 'a'",
            r#"[1, "HEARTBEAT_UPDATED", 1]"#,
        ),
        ("'SEAT.RELEASE', 'pool', 'a'", r#"[1, "RELEASED", 3]"#),
        ("'SEAT.REVOKE', 'pool', 'b'", "1"),
        ("'SEAT.COUNT', 'pool'", "2"),
    ] {
        let script = format!("return redis.call({call})");
        assert_eq!(dialog.ask_args(&["EVAL", &script, "0"]), reply, "{script}");
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
    dialog.acquire("pool", "a", 9, "{}");
    dialog.acquire("pool", "b", 9, "{}");
    dialog.expect("SEAT.HEARTBEAT pool a", r#"[1, "HEARTBEAT_UPDATED", 1]"#);
    primary.wait_for_offset(&replica);
    assert_eq!(primary.digest(), replica.digest());
}
