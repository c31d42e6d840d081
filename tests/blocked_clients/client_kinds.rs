//! Kinds of clients that wait, and the contexts in which they are woken.

use super::two_waiters;
use crate::support::{Dialog, Product, Server, Waiter, nobody_is_blocked, replicated};

const GRANTED: &str = "[1, ACQUIRED, 1, 1]";
const DENIED: &str = "[0, NO_SEATS_AVAILABLE, 1, 1]";

#[test]
fn waiters_in_resp3_hear_what_those_in_resp2_hear() {
    let (server, mut dialog) = Server::full_pool();
    let mut late = Dialog::in_resp3(&server);
    late.expect(
        "SEAT.ACQUIRE pool b 1 BLOCK 1",
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    late.expect(
        "SEAT.ACQUIRE pool b 1 QUEUE 1 BLOCK 1",
        "[0, QUEUED, 1, 1, 1]",
    );
    dialog.queue_becomes("pool", &[]);
    let mut waiter = Waiter::with(late, &server, "SEAT.ACQUIRE pool b 1 {} EX 60 BLOCK 0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears("[1, ACQUIRED, 1, 1, 60000]");
    let mut waiter = Waiter::with(
        Dialog::in_resp3(&server),
        &server,
        "SEAT.ACQUIRE pool c 1 BLOCK 0",
    );
    dialog.expect("SET pool x", "+OK");
    waiter.hears("!WRONGTYPE Operation against a key holding the wrong kind of value");
    nobody_is_blocked(&server);
}

/// All that a connection has to say up to the reply of its wait.
fn heard_until_reply(waiter: &mut Waiter) -> (Vec<String>, String) {
    let mut pushes = Vec::new();
    loop {
        let message = waiter.read();
        if !message.starts_with("push ") {
            return (pushes, message);
        }
        pushes.push(message);
    }
}

#[test]
fn a_waiter_with_tracking_hears_of_changes_and_of_its_seat() {
    for mode in ["", " BCAST", " NOLOOP", " OPTIN", " BCAST PREFIX po"] {
        let (server, mut dialog) = Server::full_pool();
        let mut tracking = Dialog::in_resp3(&server);
        tracking.expect(&format!("CLIENT TRACKING ON{mode}"), "+OK");
        tracking.ask("SEAT.COUNT pool");
        let mut waiter = Waiter::with(tracking, &server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
        let (pushes, reply) = heard_until_reply(&mut waiter);
        assert_eq!(reply, GRANTED, "{mode}");
        let invalidated = r#"push ["invalidate", ["pool"]]"#;
        assert!(
            pushes.iter().all(|push| push == invalidated),
            "{mode}: {pushes:?}"
        );
        assert_eq!(pushes.is_empty(), mode == " OPTIN", "{mode}: {pushes:?}");
        waiter.send("PING");
        assert_eq!(heard_until_reply(&mut waiter).1, "+PONG", "{mode}");
    }
}

/// A full pool, and a client of RESP3 that is subscribed to news and to the grants from the queue.
fn with_a_subscribed_client() -> (Server, Dialog, Dialog) {
    let events = "notify-keyspace-events Ed";
    let (server, dialog) = Server::builder().config(events).recording().full_pool();
    let mut subscribed = Dialog::in_resp3(&server);
    subscribed.begins("SUBSCRIBE news __keyevent@0__:seat.granted", "push ");
    let reply = subscribed.read();
    assert!(reply.starts_with("push "), "{reply}");
    (server, dialog, subscribed)
}

/// Valkey from 8.1.1 on does not let a module block such a client.
fn lets_no_subscribed_client_be_blocked(server: &Server) -> bool {
    matches!(server.product(), Product::Valkey(version) if version >= (8, 1, 1))
}

#[test]
fn a_subscribed_client_that_cannot_block_is_answered_at_once() {
    let (server, mut dialog, mut subscribed) = with_a_subscribed_client();
    if !lets_no_subscribed_client_be_blocked(&server) {
        let mut waiter = Waiter::with(subscribed, &server, "SEAT.ACQUIRE pool b 1 BLOCK 1");
        waiter.hears(DENIED);
        return;
    }
    let nothing = replicated(&server, || {
        subscribed.expect("SEAT.ACQUIRE pool b 1 BLOCK 0", DENIED);
    });
    assert_eq!(nothing, [""; 0]);
    dialog.expect("SEAT.QUEUE pool", "[]");
    // A ticket it can have, and polls for.
    let poll = "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0";
    subscribed.expect(poll, "[0, QUEUED, 1, 1, 1]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    subscribed.send(poll);
    let heard = [subscribed.read(), subscribed.read()];
    assert!(heard.contains(&GRANTED.to_owned()), "{heard:?}");
    assert_eq!(dialog.sessions("pool"), ["b"]);
    // Of whoever is answered at once, nothing is left behind.
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
}

#[test]
fn a_subscribed_waiter_hears_its_messages_and_its_seat() {
    let (server, mut dialog, subscribed) = with_a_subscribed_client();
    if lets_no_subscribed_client_be_blocked(&server) {
        // What holds there is in `a_subscribed_client_that_cannot_block_is_answered_at_once`.
        return;
    }
    let mut waiter = Waiter::with(subscribed, &server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.expect("PUBLISH news hello", "1");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.send("PING");
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last: &String| last != "+PONG") {
        heard.push(waiter.read());
    }
    assert_eq!(heard[0], r#"push ["message", "news", "hello"]"#);
    heard[1..3].sort();
    assert_eq!(
        heard[1..],
        [
            GRANTED,
            r#"push ["message", "__keyevent@0__:seat.granted", "pool"]"#,
            "+PONG"
        ]
    );
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn a_waiter_that_wants_no_replies_is_granted_its_seat() {
    for mode in ["OFF", "SKIP"] {
        let (server, mut dialog) = Server::full_pool();
        let mut silent = Dialog::with(&server);
        let id = silent.number("CLIENT ID");
        silent.send(&format!("CLIENT REPLY {mode}"));
        silent.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.queue_becomes("pool", &["b"]);
        assert!(dialog.is_blocked(id));
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
        nobody_is_blocked(&server);
        silent.send("CLIENT REPLY ON");
        assert_eq!(silent.read(), "+OK", "{mode}");
        silent.expect("SEAT.HEARTBEAT pool b", "[1, HEARTBEAT_UPDATED, 1]");
        assert_eq!(dialog.sessions("pool"), ["b"], "{mode}");
    }
}

#[test]
fn what_was_sent_behind_a_wait_is_answered_after_it() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    waiter.send("SEAT.COUNT pool");
    waiter.send("SEAT.RELEASE pool b");
    waiter.send("SEAT.ACQUIRE pool c 1 BLOCK 0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    waiter.hears(GRANTED);
    waiter.hears("1");
    waiter.hears("[1, RELEASED, 0]");
    waiter.hears(GRANTED);
    assert_eq!(dialog.sessions("pool"), ["c"]);
}

#[test]
fn a_wait_in_a_transaction_or_script_is_answered_at_once() {
    let (server, mut dialog) = Server::full_pool();
    let denied = "[0, NO_SEATS_AVAILABLE, 1, 1]";
    assert_eq!(
        dialog.transaction(&["SEAT.ACQUIRE pool b 1 BLOCK 0", "SEAT.COUNT pool"]),
        format!("[{denied}, 1]")
    );
    let script = "return redis.call('SEAT.ACQUIRE', KEYS[1], 'b', 1, unpack(ARGV))";
    let eval = ["EVAL", script, "1", "pool"];
    let eval = |more: &[&'static str]| [&eval[..], more].concat();
    assert_eq!(dialog.ask_args(&eval(&["BLOCK", "0"])), denied);
    assert_eq!(
        dialog.ask_args(&eval(&["QUEUE", "60000", "BLOCK", "0"])),
        "[0, QUEUED, 1, 1, 1]"
    );
    assert_eq!(
        dialog.transaction(&["SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 0"]),
        "[[0, QUEUED, 1, 1, 2]]"
    );
    assert_eq!(dialog.queue("pool"), ["b", "c"]);
    nobody_is_blocked(&server);
}

/// What frees the seat of `a`, and so wakes the first of those who wait.
#[test]
fn waiters_are_woken_in_whatever_context_the_seat_is_freed() {
    let release = "redis.call('SEAT.RELEASE', 'pool', 'a')";
    let eval = |body: &str| {
        vec![
            "EVAL".to_owned(),
            body.to_owned(),
            "1".to_owned(),
            "pool".to_owned(),
        ]
    };
    let plain = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let ways: [Vec<Vec<String>>; 8] = [
        vec![plain("SEAT.RELEASE pool a")],
        vec![plain("SEAT.REVOKE pool x a")],
        vec![plain("MULTI"), plain("SEAT.RELEASE pool a"), plain("EXEC")],
        vec![plain("MULTI"), plain("DEL pool"), plain("EXEC")],
        vec![eval(&format!("{release} return 1"))],
        vec![eval(&format!(
            "for i = 1, 3 do {release} end return redis.call('PING')"
        ))],
        vec![
            plain("MULTI"),
            eval(&format!("return {release}")),
            plain("EXEC"),
        ],
        vec![
            plain("MULTI"),
            plain("SEAT.RELEASE pool a"),
            eval("return redis.call('SEAT.COUNT', 'pool')"),
            plain("SEAT.ACQUIRE pool a 1 BLOCK 0"),
            plain("EXEC"),
        ],
    ];
    for way in ways {
        let (server, mut dialog) = Server::builder().recording().full_pool();
        let [mut first, mut second] = two_waiters(&server);
        for command in &way {
            let reply = dialog.ask_args(command);
            assert!(!reply.starts_with('!'), "{command:?}: {reply}");
        }
        first.hears(GRANTED);
        assert_eq!(dialog.sessions("pool"), ["b"], "{way:?}");
        assert_eq!(dialog.queue("pool"), ["c"], "{way:?}");
        let copy = Server::builder().recording().data_of(&server).start();
        assert_eq!(copy.digest(), server.digest(), "{way:?}");
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
        second.hears(GRANTED);
        nobody_is_blocked(&server);
    }
}

#[test]
fn an_expiry_wakes_the_first_by_itself() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    let mut waiters: Vec<_> = ["b", "c", "d"]
        .map(|session| {
            Waiter::of(
                &server,
                &format!("SEAT.ACQUIRE pool {session} 1 {{}} PX 30 BLOCK 0"),
            )
        })
        .into();
    dialog.expect("SEAT.ACQUIRE pool a 1 PX 50", "[1, ALREADY_ACTIVE, 1, 50]");
    for waiter in &mut waiters {
        waiter.hears("[1, ACQUIRED, 1, 1, 30]");
    }
    crate::support::eventually("the last has expired", || dialog.ask("EXISTS pool") == "0");
    dialog.one_seat_is_free("pool");
}

#[test]
fn the_releaser_does_not_get_past_those_who_wait() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let replies = dialog.transaction(&["SEAT.RELEASE pool a", "SEAT.ACQUIRE pool a 1"]);
    assert_eq!(replies, "[[1, RELEASED, 1], [0, NO_SEATS_AVAILABLE, 1, 1]]");
    waiter.hears(GRANTED);
    let replies = dialog.transaction(&["DEL pool", "SEAT.ACQUIRE pool a 1"]);
    assert_eq!(replies, "[1, [1, ACQUIRED, 1, 1]]");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let replies = dialog.transaction(&["DEL pool", "SEAT.ACQUIRE pool a 1"]);
    assert_eq!(replies, "[1, [0, NO_SEATS_AVAILABLE, 0, 1]]");
    waiter.hears(GRANTED);
}

#[test]
fn waiters_of_many_databases_and_names_do_not_meet() {
    const NAMES: [&str; 4] = ["pool", "POOL", "{pool}", "pool\u{e9}"];
    let (server, mut dialog) = Server::scene();
    let mut waiters = Vec::new();
    for database in 0..16 {
        for name in NAMES {
            dialog.expect(&format!("SELECT {database}"), "+OK");
            dialog.acquire(name, "a", 1, "{}");
            let mut waiting = Dialog::with(&server);
            waiting.expect(&format!("SELECT {database}"), "+OK");
            let command = format!("SEAT.ACQUIRE {name} b 1 BLOCK 0");
            waiters.push((database, name, Waiter::with(waiting, &server, &command)));
        }
    }
    for (number, (database, name, waiter)) in waiters.iter_mut().enumerate().rev() {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        assert_eq!(dialog.queue(name), ["b"]);
        match number % 3 {
            0 => drop(dialog.ask(&format!("SEAT.RELEASE {name} a"))),
            1 => drop(dialog.ask(&format!("DEL {name}"))),
            _ => drop(dialog.ask(&format!("RENAME {name} moved"))),
        }
        waiter.hears(GRANTED);
        assert_eq!(dialog.sessions(name), ["b"], "{database} {name}");
        let left = server.info("seat")["seat_blocked_clients"]
            .parse::<usize>()
            .unwrap();
        assert!(left >= number, "{left} of {number} wait on");
    }
    nobody_is_blocked(&server);
}

#[test]
fn swapped_databases_swap_what_those_who_wait_wait_for() {
    let (server, mut dialog) = Server::scene();
    let mut there = Dialog::with(&server);
    there.expect("SELECT 3", "+OK");
    dialog.acquire_all("pool", &["a", "z"], 2);
    there.acquire_all("pool", &["x", "y"], 2);
    let mut here = Waiter::of(&server, "SEAT.ACQUIRE pool b 2 BLOCK 0");
    let mut waiting = Dialog::with(&server);
    waiting.expect("SELECT 3", "+OK");
    let mut away = Waiter::with(waiting, &server, "SEAT.ACQUIRE pool c 2 BLOCK 0");
    dialog.expect("SWAPDB 0 3", "+OK");
    dialog.expect("SEAT.RELEASE pool x", "[1, RELEASED, 2]");
    here.hears("[1, ACQUIRED, 2, 2]");
    assert_eq!(there.queue("pool"), ["c"]);
    there.expect("SEAT.RELEASE pool a", "[1, RELEASED, 2]");
    away.is_granted();
    assert_eq!(dialog.sessions("pool"), ["b", "y"]);
    assert_eq!(there.sessions("pool"), ["c", "z"]);
}
