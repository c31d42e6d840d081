//! What users may do who have less than all rights, beyond the single commands that
//! `server_features::acl` looks at.

use crate::data_type::corrupt_payloads::{CHECKSUM, signed};
use crate::support::{Dialog, Server, Waiter, total};

#[test]
fn without_a_default_user_nothing_is_done_before_a_login() {
    let (server, mut admin) = Server::scene();
    admin.acquire("pool", "a", 2, "{}");
    let mut worker = Dialog::as_worker(&server, "~* +@all");
    admin.expect("ACL SETUSER default off", "+OK");
    let mut stranger = Dialog::with(&server);
    for command in [
        "SEAT.ACQUIRE pool b 2",
        "SEAT.RELEASE pool a",
        "SEAT.REVOKE pool a",
        "SEAT.COUNT pool",
        "SEAT.EFFECT pool FREE released a",
    ] {
        stranger.begins(command, "!NOAUTH");
    }
    worker.expect("SEAT.COUNT pool", "1");
    worker.expect("ACL SETUSER default on nopass ~* +@all", "+OK");
}

#[test]
fn up_to_7_0_rights_by_category_leave_the_modules_commands_out() {
    let (server, mut admin) = Server::scene();
    admin.acquire("pool", "a", 2, "{}");
    let has_categories = server.version() >= (7, 2, 0);

    // Whoever may do all but write may write to pools there.
    let reply = Dialog::as_worker(&server, "~* +@all -@write").ask("SEAT.REVOKE pool nobody");
    assert_eq!(reply.starts_with("!NOPERM"), has_categories, "{reply}");

    // And whoever may read may not look at pools.
    let reply = Dialog::as_worker(&server, "~* -@all +@read +@connection").ask("SEAT.COUNT pool");
    assert_eq!(reply.starts_with("!NOPERM"), !has_categories, "{reply}");

    // Naming the commands does the same everywhere.
    let mut worker = Dialog::as_worker(
        &server,
        "~* +@all -@write -seat.acquire -seat.heartbeat -seat.release -seat.revoke -seat.cleanup -seat.resize -seat.effect",
    );
    for command in [
        "SEAT.ACQUIRE pool b 2",
        "SEAT.HEARTBEAT pool a",
        "SEAT.RELEASE pool a",
        "SEAT.REVOKE pool a",
        "SEAT.CLEANUP pool",
        "SEAT.RESIZE pool 1",
    ] {
        worker.begins(command, "!NOPERM");
    }
    Dialog::as_worker(&server, "~* -@all +auth +seat.count +seat.info")
        .expect("SEAT.COUNT pool", "1");
}

#[test]
fn no_right_is_enough_for_an_effect() {
    let server = Server::builder()
        .recording()
        .config("appendfsync no")
        .start();
    let mut admin = Dialog::with(&server);
    admin.acquire("pool", "a", 2, "{}");
    let mut worker = Dialog::as_worker(&server, "~* &* +@all");
    let digest = server.digest();
    let effect = "SEAT.EFFECT pool FREE released a";
    let refused = |reply: String| {
        assert!(reply.contains("SEAT.EFFECT is internal"), "{reply}");
    };
    refused(worker.ask(effect));
    refused(worker.ask(&effect.to_lowercase()));
    worker.expect("MULTI", "+OK");
    worker.ask(effect);
    refused(worker.ask("EXEC"));
    let script = "return redis.pcall('SEAT.EFFECT', 'pool', 'FREE', 'released', 'a')";
    refused(worker.eval(script, &[]));
    if server.version() >= (7, 0, 0) {
        let library =
            format!("#!lua name=mine\nredis.register_function('free', function() {script} end)");
        worker.ask_args(&["FUNCTION", "LOAD", &library]);
        refused(worker.ask("FCALL free 0"));
    }
    // Nor does it help to say that one is a replica.
    worker.ask("REPLCONF listening-port 1");
    refused(worker.ask(effect));
    assert_eq!(server.digest(), digest);
    assert_eq!(total(&server, "seat_ignored_effects"), 0);
}

#[test]
fn a_client_without_the_right_joins_no_queue_and_is_not_counted() {
    let (server, mut admin) = Server::full_pool();
    let mut worker = Dialog::as_worker(&server, "~other -@all +seat.acquire +auth");
    worker.begins("SEAT.ACQUIRE pool b 1 BLOCK 0", "!NOPERM");
    admin.expect("SEAT.QUEUE pool", "[]");
    assert_eq!(total(&server, "seat_denied"), 0);
    assert_eq!(total(&server, "seat_queued"), 0);
}

#[test]
fn a_user_who_is_deleted_while_waiting_leaves_the_queue() {
    let (server, mut admin) = Server::full_pool();
    let mut worker = Dialog::as_worker(&server, "~* +@all");
    worker.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
    admin.queue_becomes("pool", &["b"]);
    let _next = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    admin.expect("ACL DELUSER worker", "1");
    admin.queue_becomes("pool", &["c"]);
    admin.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    assert_eq!(admin.sessions("pool"), ["c"]);
}

#[test]
fn rights_are_checked_on_joining_and_not_again_at_the_grant() {
    let (server, mut admin) = Server::full_pool();
    let mut worker = Dialog::as_worker(&server, "~pool +@all");
    worker.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
    admin.queue_becomes("pool", &["b"]);
    admin.expect("ACL SETUSER worker -seat.acquire", "+OK");
    admin.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    worker.hears("[1, ACQUIRED, 1, 1]");
    worker.begins("SEAT.ACQUIRE pool b 1", "!NOPERM");
}

#[test]
fn a_replica_logs_in_as_a_user_without_any_right_to_pools() {
    let primary = Server::builder().tcp().start();
    let mut admin = Dialog::with(&primary);
    admin.expect(
        "ACL SETUSER replication reset on >secret -@all +psync +replconf +ping",
        "+OK",
    );
    let replica = Server::builder()
        .replica_of(&primary)
        .config("masteruser replication")
        .config("masterauth secret")
        .start();
    primary.wait_for_offset(&replica);
    admin.acquire("pool", "a", 2, "{}");
    admin.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    primary.replica_agrees(&replica);
    // The default user of the replica need not be allowed anything either.
    Dialog::with(&replica).expect("ACL SETUSER default -@all +info +debug", "+OK");
    admin.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    primary.replica_agrees(&replica);
}

#[test]
fn whoever_may_release_seats_may_release_anybodys() {
    let (server, mut admin) = Server::scene();
    admin.acquire("pool", "a", 2, "{}");
    Dialog::as_worker(&server, "~pool -@all +auth +seat.release")
        .expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
}

#[test]
fn the_acl_log_has_the_refused_command_and_key() {
    let (server, mut admin) = Server::scene();
    let mut worker = Dialog::as_worker(&server, "~other +@all -seat.revoke");
    worker.ask("SEAT.REVOKE other a");
    worker.ask("SEAT.ACQUIRE pool a 1");
    let log = admin.ask("ACL LOG");
    assert!(log.contains("\"seat.revoke\""), "{log}");
    assert!(log.contains("\"pool\""), "{log}");
}

#[test]
fn the_log_holds_no_metadata_however_they_came_and_were_refused() {
    let (mut server, mut dialog) = Server::builder()
        .config("loglevel debug")
        .module_args("allow-effects yes script-keys yes")
        .recording()
        .scene();
    dialog.acquire("pool", "a", 9, r#"{"token":"s3cret"}"#);
    for refused in [
        r#"SEAT.ACQUIRE pool b 9 {"token":"s3cret""#,
        r#"SEAT.ACQUIRE pool b 9 {"heartbeat_count":"s3cret"}"#,
        r#"SEAT.EFFECT pool GRANT b 9 "1 1 - 0 0" {"s3cret"}"#,
        r#"SEAT.EFFECT pool BEAT nobody "1 1 0 0" s3cret"#,
        "SEAT.HEARTBEAT pool a {} s3cret",
    ] {
        dialog.begins(refused, "!ERR ");
    }
    // That of an invalid entry of the legacy keys.
    dialog.expect("SADD license:pool:active_sessions c", "1");
    dialog.expect("HSET license:pool:session_metadata c s3cret", "1");
    dialog.begins("SEAT.HEARTBEAT pool c", "!ERR ");
    dialog.expect("DEL license:pool:active_sessions", "1");
    // A payload that is no pool.
    dialog.expect("CONFIG SET rdbcompression no", "+OK");
    let payload = dialog.bytes(&["DUMP", "pool"]);
    let text = payload.windows(6).position(|bytes| bytes == b"s3cret");
    let mut spoilt = payload[..payload.len() - CHECKSUM].to_vec();
    spoilt[text.expect("the text is in the payload") + 6] = b'}';
    let reply = dialog.restore("bad", &signed(spoilt), &[]);
    assert!(reply.starts_with("!ERR "), "{reply}");
    dialog.expect("DEBUG RELOAD", "+OK");
    server.restart();
    assert_eq!(Dialog::with(&server).sessions("pool"), ["a"]);
    let log = server.log();
    assert!(log.contains("not a seat-pool"), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}
