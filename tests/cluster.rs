//! Those who wait at a key whose slot goes to another node.

mod atomic;

use crate::support::cluster::{alone, id_of, is_sent_away, slot, two_nodes};
use crate::support::{Dialog, Server, Waiter, eventually, total, total_becomes};

#[test]
fn a_node_of_a_cluster_serves_those_who_wait() {
    let server = alone();
    let mut dialog = Dialog::with(&server);
    for freeing in ["SEAT.RELEASE pool a", "DEL pool", "SEAT.REVOKE pool a"] {
        dialog.acquire("pool", "a", 1, "{}");
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.ask(freeing);
        waiter.is_granted();
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    }
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool a 1 PX 30", "[1, ALREADY_ACTIVE, 1, 30]");
    waiter.is_granted();
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn those_who_wait_at_a_slot_that_is_taken_away_are_sent_away() {
    let server = alone();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiters: Vec<_> = ["b", "c"]
        .map(|session| Waiter::of(&server, &format!("SEAT.ACQUIRE pool {session} 1 BLOCK 0")))
        .into();
    let slot = slot(&mut dialog);
    dialog.expect(&format!("CLUSTER DELSLOTS {slot}"), "+OK");
    for waiter in &mut waiters {
        is_sent_away(waiter);
    }
    assert_eq!(total(&server, "seat_granted"), 0);
    assert_eq!(total(&server, "seat_blocked_clients"), 0);
    dialog.expect(&format!("CLUSTER ADDSLOTS {slot}"), "+OK");
    eventually("the slot is served again", || {
        !dialog.ask("SEAT.COUNT pool").starts_with('!')
    });
    assert_eq!(dialog.queue("pool"), [""; 0]);
    if dialog.sessions("pool") == ["a"] {
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    }
    dialog.one_seat_is_free("pool");
}

#[test]
fn waiters_stay_when_all_other_slots_go() {
    let server = alone();
    let mut dialog = Dialog::with(&server);
    for key in ["pool", "a}b", "{}x}", ""] {
        dialog.acquire(key, "a", 1, "{}");
        let mut waiter = Waiter::of(&server, &format!("SEAT.ACQUIRE {key} b 1 BLOCK 0"));
        // The server looks at so few clients in one go, and unblocks all who are blocked at a slot
        // that it lacks.
        let mut control = Waiter::of(&server, "BLPOP control 0");
        let kept = dialog.ask_args(&["CLUSTER", "KEYSLOT", key]);
        let mut others = vec!["CLUSTER".to_owned(), "DELSLOTS".to_owned()];
        others.extend((0..16384).map(|slot: u32| slot.to_string()));
        others.retain(|slot| *slot != kept);
        assert_eq!(dialog.ask_args(&others), "+OK");
        is_sent_away(&mut control);
        dialog.expect(&format!("SEAT.RELEASE {key} a"), "[1, RELEASED, 1]");
        waiter.is_granted();
        dialog.expect(&format!("SEAT.RELEASE {key} b"), "[1, RELEASED, 0]");
        others[1] = "ADDSLOTS".to_owned();
        assert_eq!(dialog.ask_args(&others), "+OK");
    }
}

#[test]
fn an_expiry_in_a_slot_that_was_taken_away_grants_nobody_a_seat() {
    let server = alone();
    let mut dialog = Dialog::with(&server);
    dialog.expect("SEAT.ACQUIRE pool a 1 PX 100", "[1, ACQUIRED, 1, 1, 100]");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let slot = slot(&mut dialog);
    dialog.expect(&format!("CLUSTER DELSLOTS {slot}"), "+OK");
    let reply = waiter.read();
    // The expiry may have come first on a slow machine.
    let granted = u64::from(reply.starts_with("[1, "));
    assert!(granted == 1 || reply.starts_with('!'), "{reply}");
    assert_eq!(total(&server, "seat_granted"), granted);
}

/// Has the pool's slot be on its way from one node to the other, and returns its number.
#[track_caller]
fn begins_to_move(here: &Server, there: &Server) -> i64 {
    let (mut dialog, mut other) = (Dialog::with(here), Dialog::with(there));
    let slot = slot(&mut dialog);
    let (from, to) = (id_of(here), id_of(there));
    other.expect(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"), "+OK");
    dialog.expect(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"), "+OK");
    slot
}

#[test]
fn waiters_of_a_migrating_key_are_granted_where_it_went() {
    let (here, there) = two_nodes();
    let (mut dialog, mut other) = (Dialog::with(&here), Dialog::with(&there));
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiters: Vec<_> = ["b", "c"]
        .map(|session| Waiter::of(&here, &format!("SEAT.ACQUIRE pool {session} 1 BLOCK 0")))
        .into();
    let mut poll = Waiter::of(&here, "SEAT.ACQUIRE pool d 1 QUEUE 60000 BLOCK 0");
    let slot = begins_to_move(&here, &there);
    dialog.expect(
        &format!("MIGRATE 127.0.0.1 {} pool 0 5000", there.port()),
        "+OK",
    );
    for waiter in waiters.iter_mut().chain([&mut poll]) {
        is_sent_away(waiter);
    }
    assert_eq!(total(&here, "seat_granted"), 0);
    other.expect(
        &format!("CLUSTER SETSLOT {slot} NODE {}", id_of(&there)),
        "+OK",
    );
    dialog.expect(
        &format!("CLUSTER SETSLOT {slot} NODE {}", id_of(&there)),
        "+OK",
    );
    assert_eq!(other.sessions("pool"), ["a"]);
    assert_eq!(other.queue("pool"), ["d"]);
    dialog.begins("SEAT.COUNT pool", "!MOVED ");
    let mut poll = Waiter::of(&there, "SEAT.ACQUIRE pool d 1 QUEUE 60000 BLOCK 0");
    let mut late = Waiter::of(&there, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    other.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    poll.hears("[1, ACQUIRED, 1, 1]");
    other.expect("SEAT.RELEASE pool d", "[1, RELEASED, 1]");
    late.hears("[1, ACQUIRED, 1, 1]");
    other.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    assert_eq!(total(&here, "seat_granted"), 0);
    assert_eq!(total(&here, "seat_blocked_clients"), 0);
}

#[test]
fn a_wait_that_ends_as_its_pool_leaves_is_no_denial() {
    let (here, there) = two_nodes();
    let (mut dialog, mut other) = (Dialog::with(&here), Dialog::with(&there));
    dialog.acquire("pool", "a", 1, "{}");
    let slot = begins_to_move(&here, &there);
    let [mut both, mut blocked] = [(); 2].map(|()| here.accepted());
    here.stands_still(|| {
        both.send("SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 500");
        blocked.send("SEAT.ACQUIRE pool c 1 BLOCK 500");
        // When the server looks at the clock again, the time is over and the pool is gone.
        let migrate = format!("MIGRATE 127.0.0.1 {} pool 0 5000", there.port());
        dialog.send_all(&["MULTI", "DEBUG SLEEP 0.6", &migrate, "EXEC"]);
    });
    for reply in ["+OK", "+QUEUED", "+QUEUED", "[+OK, +OK]"] {
        dialog.hears(reply);
    }
    is_sent_away(&mut both);
    is_sent_away(&mut blocked);
    assert_eq!(total(&here, "seat_blocked_clients"), 0);
    other.expect(
        &format!("CLUSTER SETSLOT {slot} NODE {}", id_of(&there)),
        "+OK",
    );
    assert_eq!(other.queue("pool"), ["b"]);
}

/// The end of the killed client is dealt with after its pool has gone to the other node.
#[test]
fn a_seat_that_migrates_lets_nobody_in_on_the_node_it_left() {
    let (here, there) = two_nodes();
    let (mut dialog, mut other) = (Dialog::with(&here), Dialog::with(&there));
    dialog.acquire("pool", "a", 1, "{}");
    let first = Waiter::of(&here, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let mut second = Waiter::of(&here, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    let slot = begins_to_move(&here, &there);
    let replies = dialog.transaction(&[
        &first.kill(),
        "SEAT.RELEASE pool a",
        &format!("MIGRATE 127.0.0.1 {} pool 0 5000", there.port()),
    ]);
    assert!(!replies.contains('!'), "{replies}");
    is_sent_away(&mut second);
    total_becomes(&here, "seat_blocked_clients", 0);
    // `b` alone was granted here; where the pool went it holds the seat as after any lost reply.
    assert_eq!(total(&here, "seat_granted"), 1);
    assert_eq!(dialog.number(&format!("CLUSTER COUNTKEYSINSLOT {slot}")), 0);
    other.expect(
        &format!("CLUSTER SETSLOT {slot} NODE {}", id_of(&there)),
        "+OK",
    );
    assert_eq!(other.sessions("pool"), ["b"]);
}

#[test]
fn a_seat_in_a_slot_that_is_taken_away_is_not_passed_on_there() {
    let server = alone();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 1, "{}");
    let first = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let mut second = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    let slot = slot(&mut dialog);
    dialog.transaction(&[
        &first.kill(),
        "SEAT.RELEASE pool a",
        &format!("CLUSTER DELSLOTS {slot}"),
    ]);
    is_sent_away(&mut second);
    assert_eq!(total(&server, "seat_granted"), 1);
}
