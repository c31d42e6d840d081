//! Slots that move in one step, values and all (`CLUSTER MIGRATESLOTS`): Valkey from 9 on.

use super::{id_of, is_sent_away, node, slot, two_nodes};
use crate::support::{Dialog, Server, Waiter, eventually, total};

/// The first and the last of some slots.
type Range = (u32, u32);

/// Whether this server moves slots in one step. One that does not says that it does not know the
/// command.
pub fn is_possible(server: &Server) -> bool {
    let reply = Dialog::with(server).ask("CLUSTER MIGRATESLOTS");
    assert!(reply.starts_with("!ERR "), "{reply}");
    !reply.to_lowercase().contains("unknown subcommand")
}

/// Begins to move ranges of slots from one node to the one of this id.
#[track_caller]
fn begin(from: &Server, to: &str, ranges: &[Range]) {
    let mut command = String::from("CLUSTER MIGRATESLOTS SLOTSRANGE");
    for (first, last) in ranges {
        command += &format!(" {first} {last}");
    }
    Dialog::with(from).expect(&format!("{command} NODE {to}"), "+OK");
}

/// What the node that the slots leave says of the last migration.
fn state(from: &Server) -> String {
    let log = Dialog::with(from).ask("CLUSTER GETSLOTMIGRATIONS");
    let (_, rest) = log.split_once(r#""state", ""#).expect("a migration");
    rest.split('"').next().expect("a word").to_owned()
}

/// Moves ranges of slots from one node to another, and returns once both know.
#[track_caller]
pub fn migrate(from: &Server, to: &Server, ranges: &[Range]) {
    begin(from, &id_of(to), ranges);
    eventually("the slots have moved", || {
        let state = state(from);
        assert!(
            !["failed", "cancelled"].contains(&state.as_str()),
            "{state}"
        );
        state == "success"
    });
    eventually("the new node knows that the slots are its own", || {
        let mut dialog = Dialog::with(to);
        let nodes = dialog.ask("CLUSTER NODES");
        ranges.iter().all(|(first, _)| has_slot(&nodes, *first))
    });
}

/// Whether the node that tells of the nodes has a slot.
fn has_slot(nodes: &str, slot: u32) -> bool {
    slots_of(nodes).any(|(first, last)| (first..=last).contains(&slot))
}

/// The ranges of slots of the node that tells of the nodes.
pub fn slots_of(nodes: &str) -> impl Iterator<Item = Range> {
    let lines = nodes.trim_matches('"').split("\\n");
    let own = lines.filter(|line| line.contains("myself,"));
    own.flat_map(|line| line.split(' ').skip(8))
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
}

/// Two nodes, if their server moves slots in one step, and the range of the pool's slot alone.
fn two_nodes_of_a_kind() -> Option<(Server, Server, [Range; 1])> {
    let (here, there) = two_nodes();
    if !is_possible(&here) {
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
        r#"[1, "ACQUIRED", 2, 2, 600000]"#,
    );
    for (session, position) in [("c", 1), ("d", 2)] {
        dialog.expect(
            &format!("SEAT.ACQUIRE pool {session} 2 QUEUE 600000"),
            &format!(r#"[0, "QUEUED", 2, 2, {position}]"#),
        );
    }
    let digest = dialog.digest_of("pool");
    migrate(&here, &there, &range);
    assert_eq!(other.digest_of("pool"), digest);
    assert_eq!(other.queue("pool"), ["c", "d"]);
    other.expect("SEAT.RELEASE pool b", r#"[1, "RELEASED", 1]"#);
    other.expect("SEAT.ACQUIRE pool c 2 PX 1", r#"[1, "ACQUIRED", 2, 2, 1]"#);
    // The lease ends by itself on the node that has the pool, and the next in the queue can have
    // the seat.
    eventually("the lease is reclaimed", || {
        total(&there, "seat_expired") == 1
    });
    other.expect("SEAT.ACQUIRE pool d 2", r#"[1, "ACQUIRED", 2, 2]"#);
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
    migrate(&here, &there, &range);
    is_sent_away(&mut blocked);
    is_sent_away(&mut poll);
    assert_eq!(other.queue("pool"), ["c"]);
    let mut poll = Waiter::of(&there, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 0");
    other.expect("SEAT.RELEASE pool a", r#"[1, "RELEASED", 1]"#);
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
    dialog.expect(
        "SEAT.ACQUIRE pool c 1 QUEUE 600000",
        r#"[0, "QUEUED", 1, 1, 2]"#,
    );
    let id = id_of(&there);
    there.stands_still(|| {
        begin(&here, &id, &range);
        // The pool is in use meanwhile, up to the lease of the next in the queue.
        dialog.expect("SEAT.RELEASE pool a", r#"[1, "RELEASED", 1]"#);
        waiter.is_granted();
        dialog.expect("CLUSTER CANCELSLOTMIGRATIONS", "+OK");
        assert_eq!(state(&here), "cancelled");
    });
    eventually("nothing is left on the other node", || {
        Dialog::with(&there).ask("DBSIZE") == "0"
    });
    dialog.expect(
        "SEAT.ACQUIRE pool b 1 PX 1",
        r#"[1, "ALREADY_ACTIVE", 1, 1]"#,
    );
    eventually("the lease is reclaimed", || {
        total(&here, "seat_expired") == 1
    });
    dialog.expect("SEAT.ACQUIRE pool c 1", r#"[1, "ACQUIRED", 1, 1]"#);
    // The same slot can go after all.
    let digest = dialog.digest_of("pool");
    migrate(&here, &there, &range);
    let mut other = Dialog::with(&there);
    assert_eq!(other.digest_of("pool"), digest);
    other.expect("SEAT.RELEASE pool c", r#"[1, "RELEASED", 0]"#);
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
        r#"[1, "ACQUIRED", 2, 3, 600000]"#,
    );
    dialog.expect(
        "SEAT.ACQUIRE pool c 3 EX 600",
        r#"[1, "ACQUIRED", 3, 3, 600000]"#,
    );
    dialog.expect(
        "SEAT.ACQUIRE pool d 3 QUEUE 600000",
        r#"[0, "QUEUED", 3, 3, 1]"#,
    );
    let digest = dialog.digest_of("pool");
    migrate(&here, &there, &range);
    other.expect(
        "SEAT.ACQUIRE pool b 3 PX 1",
        r#"[1, "ALREADY_ACTIVE", 3, 1]"#,
    );
    assert_ne!(other.digest_of("pool"), digest);
    eventually("the lease is reclaimed", || {
        total(&there, "seat_expired") == 1
    });
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
