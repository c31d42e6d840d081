//! What servers do by themselves that an operator should know of: docs/operations.md lists it, and
//! these tests hold the list to be true.

use crate::support::{
    Dialog, Product, Server, Waiter, eventually, replicated, total, total_becomes,
};

#[test]
fn a_full_replica_follows_unless_6_2_heeds_its_own_limit() {
    let primary = Server::builder().tcp().start();
    let replica = Server::builder()
        .replica_of(&primary)
        .config("maxmemory 1")
        .config("replica-ignore-maxmemory no")
        .start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    if primary.version() < (7, 0, 0) {
        assert_ne!(replica.digest(), primary.digest());
        assert!(replica.log().contains("OOM"), "{}", replica.log());
    } else {
        assert_eq!(replica.digest(), primary.digest());
    }
    // With the server's default, all follow.
    let heedless = Server::builder()
        .replica_of(&primary)
        .config("maxmemory 1")
        .start();
    dialog.acquire("pool", "b", 9, "{}");
    primary.replica_agrees(&heedless);
}

#[test]
fn only_6_2_frames_each_effect_and_scripts_without_effects() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let one = replicated(&server, || dialog.acquire("pool", "a", 1, "{}"));
    let nothing = replicated(&server, || {
        let script = "return redis.call('SEAT.ACQUIRE', 'pool', 'b', '1')";
        let reply = dialog.eval(script, &[]);
        assert_eq!(reply, "[0, NO_SEATS_AVAILABLE, 1, 1]");
    });
    if server.version() < (7, 0, 0) {
        assert_eq!(
            (one[0].as_str(), one[2].as_str(), one.len()),
            ("MULTI", "EXEC", 3)
        );
        assert_eq!(nothing, ["MULTI", "EXEC"]);
    } else {
        assert_eq!(one.len(), 1, "{one:?}");
        assert_eq!(nothing, [""; 0]);
    }
}

#[test]
fn up_to_7_2_unblocking_by_error_at_a_grant_sends_two_replies() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let unblock = format!("CLIENT UNBLOCK {} ERROR", waiter.id());
    dialog.transaction(&["SEAT.RELEASE pool a", &unblock]);
    waiter.send("PING");
    let replies = [waiter.read(), waiter.read()];
    if matches!(server.product(), Product::Redis(version) if version < (7, 4, 0)) {
        assert!(replies[0].starts_with("[1, ACQUIRED"), "{replies:?}");
        assert!(replies[1].starts_with("!UNBLOCKED"), "{replies:?}");
        waiter.hears("+PONG");
    } else {
        assert_eq!(replies[1], "+PONG", "{replies:?}");
    }
}

/// The database that a connection has selected.
fn database_of(dialog: &mut Dialog) -> String {
    let client = dialog.ask("CLIENT INFO");
    let mut fields = client.split(' ');
    let database = fields.find_map(|field| field.strip_prefix("db="));
    database.expect("a database").to_owned()
}

/// Valkey leaves it in the database to which the key went, and from there on all goes wrong; the
/// module puts it back.
#[test]
fn a_client_is_where_it_was_when_it_has_moved_or_copied_a_pool() {
    let primary = Server::builder().recording().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 1, "{}");
    dialog.expect("COPY pool pool DB 3", "1");
    assert_eq!(database_of(&mut dialog), "0");
    dialog.expect("COPY pool other DB 3", "1");
    dialog.expect("MOVE pool 4", "1");
    assert_eq!(database_of(&mut dialog), "0");
    dialog.expect("SET text x", "+OK");
    dialog.expect("MOVE text 5", "1");
    assert_eq!(database_of(&mut dialog), "0");
    dialog.acquire("pool", "b", 1, "{}");
    let replies = dialog.transaction(&["COPY pool pool DB 6", "MOVE pool 7", "SET text y"]);
    assert_eq!(replies, "[1, 1, +OK]");
    assert_eq!(database_of(&mut dialog), "0");
    let script = "redis.call('MOVE', 'text', 8) return redis.call('SET', 'text', 'z')";
    assert_eq!(dialog.eval(script, &[]), "+OK");
    assert_eq!(database_of(&mut dialog), "0");
    let [a, b] = ["a", "b"].map(|session| vec![session]);
    for (database, sessions) in [("3", &a), ("4", &a), ("6", &b), ("7", &b)] {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        assert_eq!(dialog.sessions("pool"), *sessions, "{database}");
    }
    // The AOF and the replica have it in the right databases, too.
    primary.replica_agrees(&replica);
    let reloaded = Server::builder().recording().data_of(&primary).start();
    assert_eq!(reloaded.digest(), primary.digest());
}

#[test]
fn valkey_8_1_1_to_9_1_0_loses_its_database_on_a_text_copy() {
    let server = Server::start();
    let loses = server.product().loses_client_database();
    let log = server.log();
    let is_warned = log
        .lines()
        .any(|line| line.contains(" # <seat> ") && line.contains("COPY ... DB"));
    assert_eq!(is_warned, loses, "{log}");
    let mut dialog = Dialog::with(&server);
    dialog.expect("SET text x", "+OK");
    dialog.expect("COPY text text DB 3", "1");
    assert_eq!(database_of(&mut dialog), if loses { "3" } else { "0" });
}

#[test]
fn up_to_6_2_wait_after_a_blocked_grant_needs_a_command_first() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&primary, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    eventually("the replica has reported that it has all so far", || {
        let replication = primary.info("replication");
        let reported = format!("offset={},", replication["master_repl_offset"]);
        replication["slave0"].contains(&reported)
    });
    replica.signal("STOP");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.is_granted();
    // The replica has not heard of the grant.
    let wrong = if primary.version() < (7, 0, 0) {
        "1"
    } else {
        "0"
    };
    waiter.expect("WAIT 1 100", wrong);
    waiter.expect("PING", "+PONG");
    waiter.expect("WAIT 1 100", "0");
    replica.signal("CONT");
    waiter.expect("WAIT 1 20000", "1");
}

#[test]
fn another_type_at_a_missing_name_is_met_when_the_wait_ends() {
    let (server, mut dialog) = Server::scene();
    // A limit of none lets nobody in, so the name stays missing.
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE missing b 0 BLOCK 2500");
    dialog.expect("SET missing x", "+OK");
    dialog.expect("PING", "+PONG");
    let blocked = total(&server, "seat_blocked_clients");
    waiter.hears("!WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(blocked, 1);
    total_becomes(&server, "seat_blocked_clients", 0);
}

#[test]
fn a_key_whose_time_is_over_before_a_reload_goes_without_a_del() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    dialog.acquire("pool", "a", 1, "{}");
    dialog.expect("SET text x", "+OK");
    let lines = replicated(&server, || {
        for key in ["pool", "text"] {
            dialog.expect(&format!("PEXPIRE {key} 1"), "1");
        }
        dialog.expect("DEBUG SLEEP 0.01", "+OK");
        dialog.expect("DEBUG RELOAD", "+OK");
        dialog.expect("DBSIZE", "0");
    });
    let is_time = |line: &String| line.to_uppercase().starts_with("PEXPIREAT");
    assert!(lines.len() == 2 && lines.iter().all(is_time), "{lines:?}");
}
