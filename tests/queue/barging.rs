//! Nobody is granted a seat past those who have waited, whatever way a free seat came about.

use crate::support::{Dialog, Server, Waiter};

const DENIED: &str = "[0, NO_SEATS_AVAILABLE, 1, 1]";

#[test]
fn the_releaser_does_not_get_it_back() {
    let (server, mut dialog) = Server::scene();
    let script = "redis.call('SEAT.RELEASE', KEYS[1], 'a')
        return redis.call('SEAT.ACQUIRE', KEYS[1], 'a', 1)";
    let cases: [&dyn Fn(&mut Dialog) -> String; 3] = [
        &|dialog| {
            // In one go, so that nothing else comes between the two.
            dialog.send("SEAT.RELEASE pool a");
            dialog.send("SEAT.ACQUIRE pool a 1");
            dialog.read();
            dialog.read()
        },
        &|dialog| {
            let reply = dialog.transaction(&["SEAT.RELEASE pool a", "SEAT.ACQUIRE pool a 1"]);
            let (_, second) = reply.split_once("], ").expect("two replies");
            second.strip_suffix(']').expect("an array").to_owned()
        },
        &|dialog| dialog.eval(script, &["pool"]),
    ];
    for take_again in cases {
        dialog.acquire("pool", "a", 1, "{}");
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        assert_eq!(take_again(&mut dialog), DENIED);
        waiter.hears("[1, ACQUIRED, 1, 1]");
        assert_eq!(dialog.sessions("pool"), ["b"]);
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    }
}

#[test]
fn an_expired_seat_not_yet_reclaimed_is_not_for_newcomers() {
    let (server, mut dialog) = Server::scene();
    let script = "return redis.call('SEAT.ACQUIRE', KEYS[1], 'd', 2)";
    let eval = ["EVAL", script, "1", "pool"];
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("MULTI", "+OK");
    for command in [
        "SEAT.ACQUIRE pool a 1 PX 20",
        "DEBUG SLEEP 0.05",
        "SEAT.ACQUIRE pool c 1",
    ] {
        dialog.expect(command, "+QUEUED");
    }
    assert_eq!(dialog.ask_args(&eval), "+QUEUED");
    // The expired seat is for b first, whose figure the other grant would reach.
    let replies = [
        "[1, ALREADY_ACTIVE, 1, 20]",
        "+OK",
        "[0, NO_SEATS_AVAILABLE, 0, 1]",
        "[1, ACQUIRED, 2, 2]",
    ];
    dialog.expect("EXEC", &format!("[{}]", replies.join(", ")));
    waiter.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(dialog.sessions("pool"), ["b", "d"]);
}

#[test]
fn a_kept_seat_is_not_for_newcomers_nor_the_releaser() {
    let (server, mut dialog) = Server::full_pool();
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    let denied = "[0, NO_SEATS_AVAILABLE, 0, 1]";
    let script = "return redis.call('SEAT.ACQUIRE', KEYS[1], ARGV[1], 1)";
    for session in ["a", "c"] {
        let acquire = format!("SEAT.ACQUIRE pool {session} 1");
        dialog.expect(&acquire, denied);
        assert_eq!(dialog.transaction(&[&acquire]), format!("[{denied}]"));
        let eval = ["EVAL", script, "1", "pool", session];
        assert_eq!(dialog.ask_args(&eval), denied);
    }
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    assert_eq!(dialog.queue("pool"), ["t", "c"]);
    // A second seat is for the second in the queue.
    dialog.expect("SEAT.ACQUIRE pool d 2", "[0, NO_SEATS_AVAILABLE, 0, 2]");
    dialog.expect("SEAT.RESIZE pool 2", "1");
    let mut waiter = waiter;
    waiter.hears("[1, ACQUIRED, 1, 2]");
    dialog.expect("SEAT.ACQUIRE pool t 2", "[1, ACQUIRED, 2, 2]");
}

#[test]
fn nobody_passes_a_long_poll_whose_ticket_awaits_the_timer() {
    let (server, mut dialog) = Server::scene();
    dialog.acquire_all("pool", &["a1", "a2", "a3"], 3);
    dialog.expect("SEAT.ACQUIRE pool t 3 QUEUE 60000", "[0, QUEUED, 3, 3, 1]");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool l 3 QUEUE 200 BLOCK 0");
    dialog.expect_at_once(&[
        (
            "SEAT.ACQUIRE pool a1 3 PX 100",
            "[1, ALREADY_ACTIVE, 3, 100]",
        ),
        (
            "SEAT.ACQUIRE pool a2 3 PX 100",
            "[1, ALREADY_ACTIVE, 3, 100]",
        ),
        // Both leases expire, and the ticket of the client that is still there becomes due.
        ("DEBUG SLEEP 0.3", "+OK"),
        ("SEAT.POSITION pool l", "2"),
        ("SEAT.ACQUIRE pool c 3", "[0, NO_SEATS_AVAILABLE, 1, 3]"),
    ]);
    waiter.hears("[1, ACQUIRED, 2, 3]");
}

#[test]
fn blocking_where_the_server_may_not_block_answers_at_once() {
    let (_server, mut dialog) = Server::builder().recording().full_pool();
    let queued = "[0, QUEUED, 1, 1, 1]";
    for (options, reply) in [("BLOCK 0", DENIED), ("QUEUE 60000 BLOCK 0", queued)] {
        let acquire = format!("SEAT.ACQUIRE pool b 1 {options}");
        assert_eq!(dialog.transaction(&[&acquire]), format!("[{reply}]"));
        let arguments: Vec<_> = acquire.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.call({})", arguments.join(","));
        assert_eq!(dialog.eval(&script, &[]), reply);
    }
    assert_eq!(dialog.queue("pool"), ["b"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[1, ACQUIRED, 1, 1]");
}
