//! Whatever frees a seat grants it to who waits, in the same command and the same replicated unit.

use super::{NOTHING, recording};
use crate::support::{Dialog, Server, Waiter, eventually, now_ms, replicated, total, units, words};

#[test]
fn each_command_that_frees_a_seat_grants_it_in_the_same_unit() {
    let (server, mut dialog) = recording().scene();
    let released = ["pool FREE released a", "pool GRANT b 1 T T - 0 0 {\"m\":1}"];
    let revoked = ["pool FREE revoked a", "pool GRANT b 1 T T - 0 0 {\"m\":1}"];
    let expired = ["pool FREE expired a", "pool GRANT b 1 T T - 0 0 {\"m\":1}"];
    let resized = ["pool RESIZE 2", "pool GRANT b 2 T T - 0 0 {\"m\":1}"];
    let alone = "[1, ACQUIRED, 1, 1]";
    let second = "[1, ACQUIRED, 2, 2]";
    for (command, reply, granted, unit) in [
        (
            "SEAT.RELEASE pool a",
            "[1, RELEASED, 1]",
            alone,
            &released[..],
        ),
        ("SEAT.REVOKE pool x a", "1", alone, &revoked),
        ("SEAT.CLEANUP pool IDLE 60", "[1, 1]", alone, &expired),
        ("SEAT.RESIZE pool 2", "1", second, &resized),
    ] {
        dialog.ask("DEL pool");
        let silent = "SEAT.EFFECT pool GRANT a '1 1700000000 1700000000 - 0 0' {}";
        dialog.expect(silent, "1");
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 {\"m\":1} BLOCK 0");
        let units = units(&server, || {
            dialog.expect(command, reply);
            assert_eq!(waiter.read(), granted, "{command}");
        });
        assert_eq!(units[0], unit, "{command}");
        dialog.begins("SEAT.GET pool b", r#""{"m":1,"#);
    }
    assert_eq!(total(&server, "seat_granted"), 4);
    assert_eq!(total(&server, "seat_blocked_clients"), 0);
}

#[test]
fn transactions_and_scripts_grant_within_their_own_unit() {
    let (server, mut dialog) = recording().scene();
    let script = "redis.call('SEAT.RELEASE', KEYS[1], 'a')
        redis.call('SET', 'text', 'x')
        return redis.call('SEAT.RELEASE', KEYS[1], 'b')";
    for in_script in [false, true] {
        dialog.acquire("pool", "a", 1, "{}");
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 {\"m\":1} BLOCK 0");
        let released = "[1, RELEASED, 0]";
        let lines = replicated(&server, || {
            if in_script {
                let eval = ["EVAL", script, "1", "pool"];
                assert_eq!(dialog.ask_args(&eval), released);
            } else {
                dialog.expect("MULTI", "+OK");
                for command in ["SEAT.RELEASE pool a", "SET text x", "SEAT.RELEASE pool b"] {
                    dialog.expect(command, "+QUEUED");
                }
                let replies = format!("[[1, RELEASED, 1], +OK, {released}]");
                dialog.expect("EXEC", &replies);
            }
            waiter.hears("[1, ACQUIRED, 1, 1]");
        });
        let kinds: Vec<_> = lines
            .iter()
            .map(|line| line.split(' ').take(4).collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "MULTI",
            "SEAT.EFFECT pool FREE released",
            "SEAT.EFFECT pool GRANT b",
            "SET text x",
            "SEAT.EFFECT pool FREE released",
            "EXEC",
        ];
        assert_eq!(kinds, expected, "in a script: {in_script}");
        dialog.expect("EXISTS pool", "0");
    }
}

#[test]
fn an_expiry_grants_by_timer_in_one_unit() {
    let (server, mut dialog) = recording().scene();
    dialog.expect("SELECT 3", "+OK");
    let sent = units(&server, || {
        dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]");
        let mut waiter = Dialog::with(&server);
        waiter.expect("SELECT 3", "+OK");
        let command = r#"SEAT.ACQUIRE pool b 1 {"m":1} BLOCK 0"#;
        let mut waiter = Waiter::with(waiter, &server, command);
        dialog.expect("SEAT.ACQUIRE pool a 1 PX 50", "[1, ALREADY_ACTIVE, 1, 50]");
        waiter.hears("[1, ACQUIRED, 1, 1]");
    });
    let expected = [
        vec!["pool GRANT a 1 T T - 0 0 {}"],
        vec!["pool RENEW a 50 T"],
        vec!["pool FREE expired a", "pool GRANT b 1 T T - 0 0 {\"m\":1}"],
    ];
    assert_eq!(sent, expected);
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn a_cleanup_that_comes_before_the_timer_grants_as_well() {
    let (server, mut dialog) = recording().scene();
    dialog.expect_at_once(&[
        ("SEAT.ACQUIRE pool a 1 PX 20", "[1, ACQUIRED, 1, 1, 20]"),
        ("SEAT.ACQUIRE pool t 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]"),
        ("DEBUG SLEEP 0.05", "+OK"),
        ("SEAT.CLEANUP pool", "[1, 0]"),
        ("SEAT.ACQUIRE pool t 1", "[1, ACQUIRED, 1, 1]"),
    ]);

    // The waiter of a expired holder is granted by the command itself, and so before whoever comes
    // after it in the transaction.
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool t 1 PX 20", "[1, ALREADY_ACTIVE, 1, 20]");
    let reply = dialog.transaction(&[
        "DEBUG SLEEP 0.05",
        "SEAT.CLEANUP pool",
        "SEAT.SESSIONS pool",
    ]);
    // A slow machine may have let the timer come first.
    assert!(
        [r#"[+OK, [1, 1], ["b"]]"#, r#"[+OK, [0, 1], ["b"]]"#].contains(&reply.as_str()),
        "{reply}"
    );
    waiter.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_command_grants_a_bounded_number_and_the_timer_the_rest() {
    const WAITERS: usize = 300;
    let (server, mut dialog) = recording().full_pool();
    let mut clients = many_blocked(&server, WAITERS);
    let mut at_once = 0;
    let sent = units(&server, || {
        at_once = dialog.number("SEAT.RESIZE pool 1000") as usize;
        for (n, client) in clients.iter_mut().enumerate() {
            // The number of holders counts those before.
            assert_eq!(client.read(), format!("[1, ACQUIRED, {}, 1000]", n + 2));
        }
    });
    assert!((1..WAITERS).contains(&at_once), "{at_once}");
    assert_eq!(sent[0].len(), at_once + 1);
    assert_eq!(sent[0][0], "pool RESIZE 1000");
    assert!(sent.len() > 1);
    let granted: Vec<_> = sent.concat().split_off(1);
    let expected: Vec<_> = (0..WAITERS)
        .map(|n| format!("pool GRANT w{n} 1000 T T - 0 0 {{}}"))
        .collect();
    assert_eq!(granted, expected);
    assert_eq!(dialog.number("SEAT.COUNT pool"), WAITERS as i64 + 1);
    assert_eq!(dialog.queue("pool"), [""; 0]);
}

#[test]
fn nobody_passes_those_whom_the_timer_has_yet_to_serve() {
    const WAITERS: usize = 100;
    let (server, mut dialog) = Server::full_pool();
    let mut clients = many_blocked(&server, WAITERS);
    let reply = dialog.transaction(&[
        "SEAT.RESIZE pool 101",
        "SEAT.ACQUIRE pool c 101",
        "SEAT.INFO pool",
    ]);
    let at_once: usize = reply[1..].split(',').next().unwrap().parse().unwrap();
    assert!((1..WAITERS).contains(&at_once), "{reply}");
    let used = at_once + 1;
    let denied = format!("[0, NO_SEATS_AVAILABLE, {used}, 101]");
    assert!(reply.contains(&denied), "{reply}");
    let left = format!(r#""waiting", {}"#, WAITERS - at_once);
    assert!(reply.contains(&left), "{reply}");
    for client in &mut clients {
        client.is_granted();
    }
    assert_eq!(dialog.number("SEAT.COUNT pool"), WAITERS as i64 + 1);
}

/// Clients of the sessions w0, w1, .. that wait in this order.
fn many_blocked(server: &Server, count: usize) -> Vec<Waiter> {
    (0..count)
        .map(|n| Waiter::of(server, &format!("SEAT.ACQUIRE pool w{n} 1 BLOCK 0")))
        .collect()
}

#[test]
fn a_time_out_is_denied_with_the_numbers_of_that_moment() {
    let (server, mut dialog) = recording().scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    let sent = units(&server, || {
        let start = now_ms();
        let mut waiter = Dialog::with(&server);
        waiter.send("SEAT.ACQUIRE pool c 2 BLOCK 400");
        waiter.hears("[0, NO_SEATS_AVAILABLE, 2, 2]");
        assert!(now_ms() - start >= 400);
    });
    assert_eq!(sent, NOTHING);
    assert_eq!(dialog.queue("pool"), [""; 0]);
    // The limit is lowered meanwhile, for the waiter as well, so that the seat that frees stays
    // empty.
    let mut waiter = server.accepted();
    server.stands_still(|| {
        waiter.send("SEAT.ACQUIRE pool c 2 BLOCK 100");
        dialog.send_all(&["SEAT.RESIZE pool 1", "SEAT.RELEASE pool a"]);
    });
    dialog.hears("0");
    dialog.hears("[1, RELEASED, 1]");
    waiter.hears("[0, NO_SEATS_AVAILABLE, 1, 1]");
    waiter.expect("PING", "+PONG");
    assert_eq!(total(&server, "seat_left"), 2);
    // A seat that frees later is free.
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn a_lease_starts_at_the_grant() {
    let (server, mut dialog) = recording().scene();
    for (option, length_ms) in [("EX 70", 70_000), ("PX 70001", 70_001)] {
        dialog.acquire("pool", "a", 1, "{}");
        let command = format!("SEAT.ACQUIRE pool b 1 {option} BLOCK 0");
        let mut waiter = Waiter::of(&server, &command);
        eventually("it has waited", || {
            dialog.queue_with_times("pool")[0].1 >= 50
        });
        let before_ms = now_ms();
        let stream = server.stream_of(|| {
            dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
            let granted = format!("[1, ACQUIRED, 1, 1, {length_ms}]");
            waiter.hears(&granted);
        });
        let grant = stream
            .iter()
            .map(words)
            .find(|words| words.get(2).is_some_and(|kind| kind == "GRANT"));
        let deadline_ms: i64 = grant.expect("a grant")[9].parse().unwrap();
        let granted_ms = deadline_ms - length_ms;
        assert!((before_ms..=now_ms()).contains(&granted_ms), "{option}");
        assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    }
}
