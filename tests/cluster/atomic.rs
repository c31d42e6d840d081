//! Slots that move in one step, values and all (`CLUSTER MIGRATESLOTS`): Valkey from 9 on.

use crate::support::cluster::{
    Slots, begin_atomic_migration, id_of, is_sent_away, migrate_atomically, moves_slots_atomically,
    node, slot, state_of_migration, two_nodes,
};
use crate::support::{Dialog, Server, Waiter, eventually, total, total_becomes};

/// Two nodes, if their server moves slots in one step, and the range of the pool's slot alone.
fn two_nodes_of_a_kind() -> Option<(Server, Server, [Slots; 1])> {
    let (here, there) = two_nodes();
    if !moves_slots_atomically(&here) {
        return None;
    }
    let slot = slot(&mut Dialog::with(&here)) as u32;
    Some((here, there, [(slot, slot)]))
}

#[test]
fn a_pool_that_migrates_atomically_keeps_all_that_is_in_it() {
    let Some((here, there, range)) = two_nodes_of_a_kind() else {
        return;
    };
    let (mut dialog, mut other) = (Dialog::with(&here), Dialog::with(&there));
    dialog.acquire("pool", "a", 2, r#"{"n":1}"#);
    dialog.expect(
        "SEAT.ACQUIRE pool b 2 EX 600",
        "[1, ACQUIRED, 2, 2, 600000]",
    );
    for (session, position) in [("c", 1), ("d", 2)] {
        dialog.expect(
            &format!("SEAT.ACQUIRE pool {session} 2 QUEUE 600000"),
            &format!("[0, QUEUED, 2, 2, {position}]"),
        );
    }
    let digest = dialog.digest_of("pool");
    migrate_atomically(&here, &there, &range);
    assert_eq!(other.digest_of("pool"), digest);
    assert_eq!(other.queue("pool"), ["c", "d"]);
    other.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    other.expect("SEAT.ACQUIRE pool c 2 PX 1", "[1, ACQUIRED, 2, 2, 1]");
    // The lease ends by itself on the node that has the pool, and the next in the queue can have
    // the seat.
    total_becomes(&there, "seat_expired", 1);
    other.expect("SEAT.ACQUIRE pool d 2", "[1, ACQUIRED, 2, 2]");
    for node in [&here, &there] {
        assert_eq!(total(node, "seat_ignored_effects"), 0);
    }
    assert_eq!(
        [total(&here, "seat_expired"), total(&here, "seat_granted")],
        [0, 0]
    );
}

#[test]
fn who_waits_at_a_slot_that_migrates_atomically_is_sent_away() {
    let Some((here, there, range)) = two_nodes_of_a_kind() else {
        return;
    };
    let (mut dialog, mut other) = (Dialog::with(&here), Dialog::with(&there));
    dialog.acquire("pool", "a", 1, "{}");
    let mut blocked = Waiter::of(&here, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let mut poll = Waiter::of(&here, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 0");
    migrate_atomically(&here, &there, &range);
    is_sent_away(&mut blocked);
    is_sent_away(&mut poll);
    assert_eq!(other.queue("pool"), ["c"]);
    let mut poll = Waiter::of(&there, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 0");
    other.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    poll.is_granted();
    assert_eq!(
        [
            total(&here, "seat_granted"),
            total(&here, "seat_blocked_clients")
        ],
        [0, 0]
    );
    assert_eq!(
        [
            total(&there, "seat_granted"),
            total(&there, "seat_ignored_effects")
        ],
        [1, 0]
    );
}

/// The node that the slot is to come to stands still, so that the migration is under way for as
/// long as the test wants.
#[test]
fn an_atomic_migration_that_is_cancelled_leaves_the_pool() {
    let Some((here, there, range)) = two_nodes_of_a_kind() else {
        return;
    };
    let mut dialog = Dialog::with(&here);
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&here, "SEAT.ACQUIRE pool b 1 EX 600 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool c 1 QUEUE 600000", "[0, QUEUED, 1, 1, 2]");
    let id = id_of(&there);
    there.stands_still(|| {
        begin_atomic_migration(&here, &id, &range);
        // The pool is in use meanwhile, up to the lease of the next in the queue.
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
        waiter.is_granted();
        dialog.expect("CLUSTER CANCELSLOTMIGRATIONS", "+OK");
        assert_eq!(state_of_migration(&here), "cancelled");
    });
    eventually("nothing is left on the other node", || {
        Dialog::with(&there).ask("DBSIZE") == "0"
    });
    dialog.expect("SEAT.ACQUIRE pool b 1 PX 1", "[1, ALREADY_ACTIVE, 1, 1]");
    total_becomes(&here, "seat_expired", 1);
    dialog.expect("SEAT.ACQUIRE pool c 1", "[1, ACQUIRED, 1, 1]");
    // The same slot can go after all.
    let digest = dialog.digest_of("pool");
    migrate_atomically(&here, &there, &range);
    let mut other = Dialog::with(&there);
    assert_eq!(other.digest_of("pool"), digest);
    other.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    for node in [&here, &there] {
        assert_eq!(total(node, "seat_ignored_effects"), 0);
    }
}

/// A replica of `primary`, which is a node of a cluster.
fn replica_of(primary: &Server) -> Server {
    let replica = node().start();
    let mut dialog = Dialog::with(&replica);
    dialog.expect(&format!("CLUSTER MEET 127.0.0.1 {}", primary.port()), "+OK");
    let id = id_of(primary);
    eventually("the replica knows its primary", || {
        dialog.ask(&format!("CLUSTER REPLICATE {id}")) == "+OK"
    });
    primary.wait_for_offset(&replica);
    replica
}

#[test]
fn replicas_follow_a_pool_that_migrates_atomically() {
    let Some((here, there, range)) = two_nodes_of_a_kind() else {
        return;
    };
    let (left, right) = (replica_of(&here), replica_of(&there));
    let (mut dialog, mut other) = (Dialog::with(&here), Dialog::with(&there));
    dialog.acquire("pool", "a", 3, "{}");
    dialog.expect(
        "SEAT.ACQUIRE pool b 3 EX 600",
        "[1, ACQUIRED, 2, 3, 600000]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool c 3 EX 600",
        "[1, ACQUIRED, 3, 3, 600000]",
    );
    dialog.expect("SEAT.ACQUIRE pool d 3 QUEUE 600000", "[0, QUEUED, 3, 3, 1]");
    let digest = dialog.digest_of("pool");
    migrate_atomically(&here, &there, &range);
    other.expect("SEAT.ACQUIRE pool b 3 PX 1", "[1, ALREADY_ACTIVE, 3, 1]");
    assert_ne!(other.digest_of("pool"), digest);
    total_becomes(&there, "seat_expired", 1);
    there.wait_for_offset(&right);
    here.wait_for_offset(&left);
    assert_eq!(right.digest(), there.digest());
    eventually(
        "the node that the slot has left keeps nothing, nor does its replica",
        || [&here, &left].map(Server::digest) == ["0".repeat(40), "0".repeat(40)],
    );
    for node in [&here, &there, &left, &right] {
        assert_eq!(total(node, "seat_ignored_effects"), 0);
    }
    assert_eq!(
        [&here, &left, &right].map(|node| total(node, "seat_expired")),
        [0, 0, 0]
    );
}
