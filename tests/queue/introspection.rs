//! What can be seen of a queue, in both protocols.

use crate::support::{Dialog, Server, Waiter, eventually, total, total_becomes};

#[test]
fn queue_position_and_info_show_who_waits() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.QUEUE pool", "[]");
    dialog.expect("SEAT.POSITION pool b", "nil");
    dialog.expect("SET text x", "+OK");
    for command in ["SEAT.QUEUE text", "SEAT.POSITION text b"] {
        dialog.begins(command, "!WRONGTYPE");
    }
    dialog.acquire("pool", "a", 1, "{}");
    dialog.expect("SEAT.QUEUE pool", "[]");
    let _first = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    eventually("b has waited", || {
        dialog.queue_with_times("pool")[0].1 >= 30
    });
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", "[0, QUEUED, 1, 1, 2]");
    let _last = Waiter::of(&server, "SEAT.ACQUIRE pool l 1 QUEUE 60000 BLOCK 0");
    let waiters = dialog.queue_with_times("pool");
    assert!(
        waiters.windows(2).all(|pair| pair[0].1 >= pair[1].1),
        "{waiters:?}"
    );
    assert!(waiters[0].1 >= 30 && waiters[2].1 >= 0, "{waiters:?}");
    assert_eq!(dialog.queue("pool"), ["b", "t", "l"]);
    for (session, position) in [
        ("b", "1"),
        ("t", "2"),
        ("l", "3"),
        ("a", "nil"),
        ("x", "nil"),
    ] {
        dialog.expect(&format!("SEAT.POSITION pool {session}"), position);
    }
    for (field, value) in [("kept", 0), ("waiting", 3), ("used", 1), ("available", 0)] {
        assert_eq!(dialog.pool_info("pool", field), value, "{field}");
    }
    // Free seats are kept for tickets, as many as there are.
    dialog.expect("SEAT.RESIZE pool 2", "1");
    for (field, value) in [("kept", 0), ("waiting", 2), ("used", 2)] {
        assert_eq!(dialog.pool_info("pool", field), value, "{field}");
    }
    dialog.expect("SEAT.RESIZE pool 3", "0");
    let free = [("kept", 1), ("waiting", 2), ("used", 2), ("available", 1)];
    for (field, value) in free {
        assert_eq!(dialog.pool_info("pool", field), value, "{field}");
    }
    dialog.expect("SEAT.RESIZE pool 9", "1");
    let free = [("kept", 1), ("waiting", 1), ("used", 3), ("available", 6)];
    for (field, value) in free {
        assert_eq!(dialog.pool_info("pool", field), value, "{field}");
    }
    dialog.expect("SEAT.POSITION pool t", "1");
}

#[test]
fn the_totals_count_waiters_and_what_became_of_them() {
    let (server, mut dialog) = Server::scene();
    let expect = |expected: [u64; 6]| {
        let fields = [
            "queued",
            "granted",
            "left",
            "blocked_clients",
            "acquired",
            "denied",
        ];
        let seen = fields.map(|field| total(&server, &format!("seat_{field}")));
        assert_eq!(seen, expected, "{fields:?}");
    };
    expect([0; 6]);
    dialog.acquire("pool", "a", 1, "{}");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    expect([1, 0, 0, 1, 1, 0]);
    for _ in 0..2 {
        let queued = "[0, QUEUED, 1, 1, 2]";
        dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
        expect([2, 0, 0, 1, 1, 0]);
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1]");
    expect([2, 1, 0, 0, 2, 0]);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool n 1", "[0, NO_SEATS_AVAILABLE, 0, 1]");
    expect([2, 1, 0, 0, 2, 1]);
    dialog.expect("SEAT.ACQUIRE pool t 1", "[1, ACQUIRED, 1, 1]");
    expect([2, 2, 0, 0, 3, 1]);
    dialog.expect("SEAT.ACQUIRE pool l 1 QUEUE 20", "[0, QUEUED, 1, 1, 1]");
    total_becomes(&server, "seat_left", 1);
    expect([3, 2, 1, 0, 3, 1]);
}

#[test]
fn a_long_poll_that_goes_leaves_once_its_ticket_is_lost() {
    let (server, _dialog) = Server::builder().recording().full_pool();
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 300 BLOCK 0");
    drop(waiter);
    eventually("the position is lost", || {
        let commands = server.commands_in_aof();
        commands
            .iter()
            .any(|command| command.get(2) == Some(&b"LEAVE".to_vec()))
    });
    assert_eq!(total(&server, "seat_left"), 1);
    assert_eq!(total(&server, "seat_queued"), 1);
}

#[test]
fn replies_are_the_same_in_resp3() {
    let server = Server::start();
    let mut dialog = Dialog::in_resp3(&server);
    dialog.acquire("pool", "a", 1, "{}");
    let waiter = Dialog::in_resp3(&server);
    let mut waiter = Waiter::with(waiter, &server, "SEAT.ACQUIRE pool b 1 EX 60 BLOCK 0");
    let mut denied = Dialog::in_resp3(&server);
    denied.expect(
        "SEAT.ACQUIRE pool c 1 BLOCK 20",
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    let queued = "[0, QUEUED, 1, 1, 2]";
    denied.expect("SEAT.ACQUIRE pool c 1 QUEUE 60000", queued);
    denied.expect("SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 20", queued);
    dialog.expect("SEAT.POSITION pool c", "2");
    dialog.expect("SEAT.POSITION pool x", "null");
    dialog.expect("SEAT.QUEUE missing", "[]");
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    let info = dialog.ask("SEAT.INFO pool");
    // Modules cannot reply with maps before 7.0.
    let waiting = if server.version() >= (7, 0, 0) {
        r#""waiting": 2"#
    } else {
        r#""waiting", 2"#
    };
    assert!(info.contains(waiting), "{info}");
    dialog.expect("SEAT.RESIZE pool 2", "1");
    waiter.hears("[1, ACQUIRED, 2, 2, 60000]");
}

#[test]
fn a_queue_entry_older_than_time_shows_the_longest_wait() {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    let join = format!(
        "SEAT.EFFECT pool JOIN old '1 1 {} 1000 4102444800000'",
        i64::MIN
    );
    dialog.expect(&join, "1");
    let join = format!(
        "SEAT.EFFECT pool JOIN young '1 2 {} 1000 4102444800000'",
        i64::MAX
    );
    dialog.expect(&join, "1");
    let shown = format!(r#"[["old", {}], ["young", 0]]"#, i64::MAX);
    dialog.expect("SEAT.QUEUE pool", &shown);
}
