//! Replicas: what they hold, what they answer, and what they become.

use fastrand::Rng;

use crate::support::{Dialog, Events, Server, Waiter, eventually, total, workload};

/// Equal by the replica's own digest.
#[track_caller]
fn same(primary: &Server, replica: &Server, seed: u64) {
    primary.wait_for_offset(replica);
    assert_eq!(replica.digest(), primary.digest(), "SEAT_TEST_SEED={seed}");
}

/// After a full synchronisation a replica rewrites its AOF in the background.
#[track_caller]
fn aof_at_rest(server: &Server) {
    eventually("the AOF is rewritten", || {
        let persistence = server.info("persistence");
        persistence["aof_rewrite_in_progress"] == "0"
            && persistence["aof_rewrite_scheduled"] == "0"
            && persistence["aof_last_bgrewrite_status"] == "ok"
            && persistence.contains_key("aof_current_size")
    });
}

#[test]
fn replicas_and_their_replicas_hold_what_the_primary_holds() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let (primary, mut dialog) = Server::builder().tcp().scene();
    // What exists before is sent whole.
    workload::run(&mut dialog, &mut random, 500);
    let replica = Server::builder().recording().replica_of(&primary).start();
    let chained = Server::builder().replica_of(&replica).start();
    same(&primary, &replica, seed);
    for _ in 0..4 {
        workload::run(&mut dialog, &mut random, 500);
        same(&primary, &replica, seed);
        replica.wait_for_offset(&chained);
        assert_eq!(chained.digest(), primary.digest(), "SEAT_TEST_SEED={seed}");
    }
    assert_ne!(
        primary.digest(),
        "0".repeat(40),
        "SEAT_TEST_SEED={seed}: no data to compare"
    );
    for node in [&replica, &chained] {
        assert_eq!(total(node, "seat_ignored_effects"), 0);
    }
    // The replica's own AOF holds the same.
    aof_at_rest(&replica);
    let from_aof = Server::builder().recording().data_of(&replica).start();
    assert_eq!(from_aof.digest(), primary.digest(), "SEAT_TEST_SEED={seed}");
}

#[test]
fn a_lost_link_is_made_up_for_without_sending_everything() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    let full_before = primary.info("stats")["sync_full"].clone();
    Dialog::with(&replica).expect("CLIENT KILL TYPE master", "1");
    dialog.acquire("pool", "b", 9, r#"{"k":1}"#);
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    eventually("the replica came back", || {
        primary.info("stats")["sync_partial_ok"] == "1"
    });
    primary.replica_agrees(&replica);
    assert_eq!(primary.info("stats")["sync_full"], full_before);
}

#[test]
fn a_promoted_replica_goes_on_where_the_primary_stopped() {
    let mut primary = Server::builder().tcp().start();
    let replica = Server::builder().recording().replica_of(&primary).start();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 2, "{}");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.acquire("pool", "b", 2, "{}");
    primary.wait_for_offset(&replica);
    primary.kill9();
    let mut dialog = Dialog::with(&replica);
    dialog.expect("REPLICAOF NO ONE", "+OK");
    dialog.expect("SEAT.ACQUIRE pool c 2 {}", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    dialog.expect("SEAT.ACQUIRE pool a 2 {}", "[1, ALREADY_ACTIVE, 2]");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 2]");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    dialog.expect("SEAT.ACQUIRE pool c 2 {}", "[1, ACQUIRED, 2, 2]");
    dialog.begins("SEAT.EFFECT pool FREE released a", "!ERR");
    aof_at_rest(&replica);
    let from_aof = Server::builder().recording().data_of(&replica).start();
    assert_eq!(from_aof.digest(), replica.digest());
}

#[test]
fn a_replica_that_has_diverged_says_so_and_lives_on() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire_all("pool", &["a", "b", "c"], 9);
    dialog.acquire("other", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    let mut meddler = Dialog::with(&replica);
    meddler.expect("CONFIG SET replica-read-only no", "+OK");
    meddler.expect("SEAT.RELEASE pool a", "[1, RELEASED, 2]");
    meddler.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    meddler.expect("DEL other", "1");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 2]");
    dialog.expect("SEAT.RELEASE other a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.HEARTBEAT pool c", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.acquire("pool", "d", 9, "{}");
    primary.wait_for_offset(&replica);
    assert_eq!(total(&replica, "seat_ignored_effects"), 3);
    assert_eq!(total(&primary, "seat_ignored_effects"), 0);
    let log = replica.log();
    assert!(
        log.lines()
            .any(|line| line.contains("<seat>") && line.contains("diverged")),
        "{log}"
    );
    assert_eq!(meddler.sessions("pool"), ["c", "d"]);
    meddler.expect("EXISTS other", "0");
}

#[test]
fn an_effect_that_meets_another_type_does_not_stop_a_replica() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    let mut meddler = Dialog::with(&replica);
    meddler.expect("CONFIG SET replica-read-only no", "+OK");
    meddler.expect("SET pool text", "+OK");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.acquire("another", "a", 9, "{}");
    primary.wait_for_offset(&replica);
    meddler.expect("SEAT.COUNT another", "1");
    meddler.expect("GET pool", r#""text""#);
}

#[test]
fn a_replica_notifies_as_its_primary_does() {
    let (primary, replica) = Server::with_replica();
    let mut events = Events::of(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 9, "{}");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    for event in ["seat.acquired", "seat.heartbeat", "seat.released", "del"] {
        assert_eq!(events.next(), format!("{event} pool"));
    }
}

#[test]
fn a_pool_that_expired_is_gone_on_a_replica_too() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    // The replica goes by its own clock alone.
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    dialog.acquire("pool", "a", 9, "{}");
    dialog.expect("PEXPIRE pool 1", "1");
    primary.wait_for_offset(&replica);
    let mut reader = Dialog::with(&replica);
    eventually("the pool has expired", || {
        reader.ask("SEAT.COUNT pool") == "0"
    });
    reader.expect("SEAT.SESSIONS pool", "[]");
    reader.expect("SEAT.GET pool a", "nil");
    reader.expect("SEAT.INFO pool", "nil");
    reader.expect("SEAT.SCAN pool 0", r#"["0", []]"#);
}

#[test]
fn a_pool_that_is_refilled_at_once_has_no_time_to_live() {
    let primary = Server::builder().recording().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&primary, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("EXPIRE pool 5000", "1");
    // The last session goes and the next is granted the seat: to the others that is the end of the
    // key and another key.
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.is_granted();
    dialog.expect("TTL pool", "-1");
    primary.wait_for_offset(&replica);
    Dialog::with(&replica).expect("TTL pool", "-1");
    let digest = primary.digest();
    assert_eq!(replica.digest(), digest);
    dialog.expect("DEBUG LOADAOF", "+OK");
    assert_eq!(primary.digest(), digest);
    // One that does not empty keeps it.
    dialog.expect("EXPIRE pool 5000", "1");
    dialog.acquire("pool", "c", 2, "{}");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    dialog.expect("TTL pool", "5000");
}
