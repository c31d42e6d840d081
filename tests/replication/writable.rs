//! A replica that takes its clients' writes (`replica-read-only no`), and what its promotion makes
//! of them.

use crate::support::{Dialog, Server, Waiter, eventually, total};

/// A primary on which `a` holds the only seat of `pool`, and a replica of it that takes writes.
fn primary_and_writable_replica() -> (Server, Server) {
    let primary = Server::builder().tcp().start();
    Dialog::with(&primary).acquire("pool", "a", 1, "{}");
    let replica = Server::builder()
        .config("replica-read-only no")
        .replica_of(&primary)
        .start();
    primary.wait_for_offset(&replica);
    (primary, replica)
}

#[test]
fn a_promotion_takes_back_the_seat_of_a_client_killed_before() {
    let (_primary, replica) = primary_and_writable_replica();
    let mut dialog = Dialog::with(&replica);
    let [killed, mut next] =
        ["b", "c"].map(|name| Waiter::of(&replica, &format!("SEAT.ACQUIRE pool {name} 1 BLOCK 0")));
    dialog.transaction(&[&killed.kill(), "SEAT.RELEASE pool a"]);
    assert_eq!(dialog.sessions("pool"), ["b"]);
    dialog.expect("REPLICAOF NO ONE", "+OK");
    next.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
}

#[test]
fn a_promotion_leaves_the_seat_of_a_session_that_was_confirmed() {
    let (_primary, replica) = primary_and_writable_replica();
    let mut dialog = Dialog::with(&replica);
    let killed = Waiter::of(&replica, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.transaction(&[&killed.kill(), "SEAT.RELEASE pool a"]);
    dialog.expect("SEAT.ACQUIRE pool b 1", "[1, ALREADY_ACTIVE, 1]");
    dialog.expect("REPLICAOF NO ONE", "+OK");
    // A turn of the timer later.
    dialog.expect("SEAT.ACQUIRE other x 1 PX 1", "[1, ACQUIRED, 1, 1, 1]");
    eventually("the timer has run", || dialog.ask("EXISTS other") == "0");
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn a_promotion_serves_those_who_wait_for_what_the_primary_freed() {
    let (primary, replica) = primary_and_writable_replica();
    let mut there = Dialog::with(&primary);
    there.acquire("leased", "a", 1, "{}");
    primary.wait_for_offset(&replica);
    let mut at_pool = Waiter::of(&replica, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let mut at_leased = Waiter::of(&replica, "SEAT.ACQUIRE leased b 1 BLOCK 0");
    // The primary reclaims nothing before its replica is one no more.
    there.transaction(&[
        "SEAT.RELEASE pool a",
        "SEAT.ACQUIRE leased a 1 PX 1",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&replica);
    eventually("the lease is over", || {
        dialog.ask("SEAT.COUNT leased") == "0"
    });
    // Nobody is granted a seat on a replica that its primary or time has freed.
    assert_eq!(total(&replica, "seat_granted"), 0);
    dialog.expect("REPLICAOF NO ONE", "+OK");
    at_pool.is_granted();
    at_leased.is_granted();
    assert_eq!(total(&replica, "seat_expired"), 1);
}

/// The new primary may have answered the session's next client that it holds a seat, of which the
/// old one never hears.
#[test]
fn a_demotion_leaves_the_seat_of_a_killed_client_held() {
    let nobody = {
        let mut server = Server::builder().plain().tcp().start();
        server.shutdown();
        server.port()
    };
    let (server, mut dialog) = Server::full_pool();
    let killed = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    // The pause holds the taking back up.
    dialog.transaction(&[
        &killed.kill(),
        "SEAT.RELEASE pool a",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    dialog.expect(&format!("REPLICAOF 127.0.0.1 {nobody}"), "+OK");
    dialog.expect("REPLICAOF NO ONE", "+OK");
    dialog.expect("CLIENT UNPAUSE", "+OK");
    dialog.expect("SEAT.ACQUIRE other x 1 PX 1", "[1, ACQUIRED, 1, 1, 1]");
    eventually("the timer has run", || dialog.ask("EXISTS other") == "0");
    assert_eq!(dialog.sessions("pool"), ["b"]);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}
