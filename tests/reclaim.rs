//! Seats whose leases expire come back by themselves: on time, announced once, by the primary
//! alone.

mod many_leases;
mod moved_pools;
mod paused_writes;

use std::io::{self, Write};
use std::time::Duration;

use crate::support::{
    Dialog, Events, Server, busy_seconds, effects_of, eventually, mostly_within, now_ms,
    number_after, total, wait_for_reclaim,
};

/// Those of the events of pools that match, from now on.
fn events(server: &Server, pattern: &str) -> Events {
    Events::matching(server, "KEgd", pattern)
}

#[test]
fn an_idle_server_reclaims_within_a_tenth_of_a_second() {
    // A cron of one turn a second could not be that punctual, so it is the timer that is tried
    // here.
    let server = Server::builder()
        .config("hz 1")
        .config("dynamic-hz no")
        .start();
    let mut events = events(&server, "__keyevent@0__:seat.expired");
    let mut lengths_ms = (150..350).step_by(37).cycle();
    let late = mostly_within(Duration::from_millis(100), || {
        let deadline_ms = {
            let mut dialog = Dialog::with(&server);
            let lease_ms = lengths_ms.next().expect("a length");
            let acquire = format!("SEAT.ACQUIRE pool a 1 PX {lease_ms}");
            let replies = dialog.at_once(&[&acquire, "SEAT.INFO pool"]);
            number_after(&replies[1], "\"next_deadline_ms\", ")
        };
        // From here to the event nobody sends anything.
        assert_eq!(events.next(), "seat.expired pool");
        let late_ms = now_ms() - deadline_ms;
        Duration::from_millis(u64::try_from(late_ms).expect("not too early"))
    });
    writeln!(io::stderr(), "reclaim: {late:?} after the deadlines").expect("stderr");
    assert_eq!(total(&server, "seat_expired"), late.len() as u64);
}

/// An earlier deadline must not wait for the later one that was there first, nor be forgotten for
/// it.
#[test]
fn each_lease_has_its_own_time_in_whatever_order_they_come() {
    let server = Server::builder()
        .config("hz 1")
        .config("dynamic-hz no")
        .start();
    let mut events = events(&server, "__keyevent@*__:seat.expired");
    let mut dialog = Dialog::with(&server);
    dialog.at_once(&[
        "SEAT.ACQUIRE long a 9 EX 3600",
        "SEAT.ACQUIRE third a 9 PX 300",
        "SEAT.ACQUIRE first a 9 PX 100",
        "SEAT.ACQUIRE second a 9 PX 200",
        // Long after, for two in one pool that are due in one turn are one event.
        "SEAT.ACQUIRE first b 9 PX 2400",
        "SEAT.ACQUIRE second b 9 EX 3600",
        "SEAT.ACQUIRE renewed a 9 PX 150",
        "SEAT.HEARTBEAT renewed a PX 2200",
        "SEAT.ACQUIRE shortened a 9 EX 3600",
        "SEAT.HEARTBEAT shortened a PX 50",
        "SEAT.ACQUIRE released a 9 PX 120",
        "SEAT.RELEASE released a",
    ]);
    let order = ["shortened", "first", "second", "third", "renewed", "first"];
    let expected = order.map(|pool| format!("seat.expired {pool}"));
    assert_eq!(events.take(6), expected);
    assert_eq!(total(&server, "seat_expired"), 6);
    dialog.expect("SEAT.SESSIONS second", r#"["b"]"#);
    dialog.expect("EXISTS long second", "2");
}

#[test]
fn an_expiry_is_one_effect_and_is_published_once() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let mut events = events(&server, "__keyevent@*");
    let effects = effects_of(&server, || {
        dialog.at_once(&[
            "SEAT.ACQUIRE pool a 9 PX 20",
            "SEAT.ACQUIRE pool b 9 PX 20",
            "SEAT.ACQUIRE pool c 9 PX 20",
            "SEAT.ACQUIRE pool stays 9",
            "SEAT.ACQUIRE other a 9 PX 20",
            // All have expired before the timer can come.
            "DEBUG SLEEP 0.05",
        ]);
        wait_for_reclaim(&server, 4);
    });
    let mut grants = effects.iter().take(5);
    assert!(
        grants.all(|effect| effect.contains(" GRANT ")),
        "{effects:?}"
    );
    let mut freed = effects[5..].to_vec();
    freed.sort();
    assert_eq!(
        freed,
        [
            "SEAT.EFFECT other FREE expired a",
            "SEAT.EFFECT pool FREE expired a",
            "SEAT.EFFECT pool FREE expired b",
            "SEAT.EFFECT pool FREE expired c"
        ]
    );
    let granted = events.take(5);
    let is_grant = |event: &String| event.starts_with("seat.acquired ");
    assert!(granted.iter().all(is_grant), "{granted:?}");
    let mut expiries = events.take(3);
    expiries.sort();
    assert_eq!(
        expiries,
        ["del other", "seat.expired other", "seat.expired pool"]
    );
    assert_eq!(total(&server, "seat_expired"), 4);
    // What was written by then is the same pool again.
    let copy = Server::builder().recording().data_of(&server).start();
    assert_eq!(copy.digest(), server.digest());
    assert_eq!(total(&copy, "seat_ignored_effects"), 0);
}

#[test]
fn the_end_of_a_pool_is_published_after_its_cause() {
    let server = Server::start();
    let mut events = events(&server, "__keyspace@0__:pool");
    Dialog::with(&server).ask("SEAT.ACQUIRE pool a 1 PX 1");
    assert_eq!(
        events.take(3),
        ["seat.acquired pool", "seat.expired pool", "del pool"]
    );
}

#[test]
fn a_reclaim_breaks_the_transaction_of_who_watched() {
    let (server, mut dialog) = Server::scene();
    dialog.ask("SEAT.ACQUIRE pool b 2");
    let mut watching = Dialog::with(&server);
    // Both in one turn of the event loop: it is watched before the lease is over.
    watching.pipeline(&["SEAT.ACQUIRE pool a 2 PX 20", "WATCH pool"]);
    wait_for_reclaim(&server, 1);
    watching.ask("MULTI");
    watching.ask("SEAT.COUNT pool");
    watching.expect("EXEC", "nil array");
    // And a look at it breaks nothing.
    watching.ask("WATCH pool");
    dialog.ask("SEAT.CLEANUP pool");
    dialog.ask("SEAT.PTTL pool b");
    dialog.ask("SEAT.HEARTBEAT pool nobody EX 5");
    assert_eq!(watching.at_once(&["SEAT.COUNT pool"]), ["1"]);
}

#[test]
fn a_script_that_runs_past_deadlines_sees_the_expiries() {
    // So that the server calls the script slow, and serves others in between.
    let server = Server::builder()
        .recording()
        .config("lua-time-limit 5")
        .start();
    let script = "
        redis.call('SEAT.ACQUIRE', KEYS[1], 'b', 2)
        redis.call('SEAT.ACQUIRE', KEYS[1], 'a', 2, 'PX', 60)
        local held = redis.call('SEAT.COUNT', KEYS[1])
        local looks = 0
        while redis.call('SEAT.COUNT', KEYS[1]) == 2 and looks < 100000000 do looks = looks + 1 end
        local late = redis.call('SEAT.HEARTBEAT', KEYS[1], 'a')[2]
        return {held, redis.call('SEAT.COUNT', KEYS[1]), late, redis.call('SEAT.SESSIONS', KEYS[1])}";
    let effects = effects_of(&server, || {
        let reply = Dialog::with(&server).value(&["EVAL", script, "1", "pool"]);
        let text = |text: &str| redis::Value::BulkString(text.into());
        let expected = [
            redis::Value::Int(2),
            redis::Value::Int(1),
            text("SESSION_NOT_ACTIVE"),
            redis::Value::Array(vec![text("b")]),
        ];
        assert_eq!(reply, redis::Value::Array(expected.into()));
        wait_for_reclaim(&server, 1);
    });
    assert_eq!(effects.len(), 3, "{effects:?}");
    assert_eq!(effects[2], "SEAT.EFFECT pool FREE expired a");
}

#[test]
fn a_replica_leaves_the_reclaim_to_its_primary() {
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    for n in 0..200 {
        let lease_ms = 1 + n % 50;
        dialog.ask(&format!(
            "SEAT.ACQUIRE pool{} s{n} 999 PX {lease_ms}",
            n % 7
        ));
    }
    dialog.ask("SEAT.ACQUIRE pool0 stays 999");
    wait_for_reclaim(&primary, 200);
    primary.replica_agrees(&replica);
    dialog.expect("DBSIZE", "1");
    assert_eq!(total(&replica, "seat_expired"), 0);
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
}

#[test]
fn a_promoted_replica_goes_on() {
    let (mut primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    dialog.at_once(&[
        "SEAT.ACQUIRE soon a 9 PX 100",
        "SEAT.ACQUIRE later a 9 PX 900",
        "SELECT 4",
        "SEAT.ACQUIRE elsewhere a 9 PX 900",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    let deadline_ms = dialog.now_ms() + 100;
    primary.wait_for_offset(&replica);
    primary.kill9();
    let mut dialog = Dialog::with(&replica);
    dialog.wait_until(deadline_ms + 50);
    assert_eq!(total(&replica, "seat_expired"), 0);
    dialog.expect("EXISTS soon", "1");
    // One expiry is overdue at the promotion, the other two come after it.
    dialog.expect("REPLICAOF NO ONE", "+OK");
    eventually("the overdue seat is reclaimed", || {
        dialog.ask("EXISTS soon") == "0"
    });
    wait_for_reclaim(&replica, 3);
    dialog.expect("DBSIZE", "0");
}

#[test]
fn a_demoted_primary_stops() {
    let primary = Server::builder().tcp().start();
    let (server, mut dialog) = Server::builder().tcp().scene();
    // What the old primary had is replaced; what it armed must not run against what came.
    let demote = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    let replies = dialog.pipeline(&["SEAT.ACQUIRE pool a 9 PX 500", &demote]);
    assert_eq!(replies, ["[1, ACQUIRED, 1, 9, 500]", "+OK"]);
    let deadline_ms = dialog.now_ms() + 500;
    Dialog::with(&primary).at_once(&["SEAT.ACQUIRE pool a 9 PX 1", "CLIENT PAUSE 600000 WRITE"]);
    primary.wait_for_offset(&server);
    dialog.wait_until(deadline_ms + 100);
    dialog.expect("EXISTS pool", "1");
    dialog.expect("SEAT.COUNT pool", "0");
    assert_eq!(total(&server, "seat_expired"), 0);
    assert_eq!(server.digest(), primary.digest());
    Dialog::with(&primary).ask("CLIENT UNPAUSE");
    wait_for_reclaim(&primary, 1);
    primary.wait_for_offset(&server);
    dialog.expect("EXISTS pool", "0");
    assert_eq!(total(&server, "seat_ignored_effects"), 0);
}

/// A replica keeps its deadlines until it is promoted, but not for ever: pools with names of
/// their own come and go.
#[test]
fn a_replica_keeps_nothing_of_pools_that_are_gone() {
    const POOLS: u64 = 20_000;
    // Newer servers would remember ten times as much of the replication as others.
    let base = || Server::builder().config("repl-backlog-size 1mb");
    let primary = base().tcp().start();
    let replica = base().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let used = |server: &Server| -> i64 {
        Dialog::with(server).ask("MEMORY PURGE");
        server.used_memory()
    };
    let before = [used(&primary), used(&replica)];
    let mut dialog = Dialog::with(&primary);
    dialog.ask_all((0..POOLS).map(|n| format!("SEAT.ACQUIRE pool:{n:0>200} a 1 PX 1")));
    wait_for_reclaim(&primary, POOLS);
    primary.wait_for_offset(&replica);
    assert_eq!(
        [primary.digest(), replica.digest()],
        ["0".repeat(40), "0".repeat(40)]
    );
    let kept = [used(&primary) - before[0], used(&replica) - before[1]];
    writeln!(
        io::stderr(),
        "reclaim: {kept:?} bytes kept by primary and replica"
    )
    .expect("stderr");
    assert!(
        kept.iter().all(|&kept| kept < 3_000_000),
        "after {POOLS} pools came and went, primary and replica keep {kept:?} bytes"
    );
}

/// A deadline of a lease that ended early, and those of a name in two databases, are forgotten with
/// their pools.
#[test]
fn nothing_is_kept_of_deleted_pools_with_leases() {
    const POOLS: u64 = 20_000;
    let (server, mut dialog) = Server::scene();
    let used = |dialog: &mut Dialog| -> i64 {
        dialog.ask("MEMORY PURGE");
        server.used_memory()
    };
    let before = used(&mut dialog);
    for round in [
        &[
            "SEAT.ACQUIRE # a 2 EX 1000000000",
            "SEAT.ACQUIRE # b 2",
            "SEAT.RELEASE # a",
            "DEL #",
        ][..],
        &[
            "SEAT.ACQUIRE # a 2 EX 1000000000",
            "SELECT 1",
            "SEAT.ACQUIRE # a 2 EX 1000000000",
            "DEL #",
            "SELECT 0",
            "DEL #",
        ],
    ] {
        for n in 0..POOLS / 100 {
            let commands = (0..100).flat_map(|m| {
                let name = format!("pool:{n}:{m}:{:0>150}", round.len());
                round.iter().map(move |command| command.replace('#', &name))
            });
            dialog.ask_all(commands);
        }
        eventually("the memory is given back", || {
            used(&mut dialog) - before < 1_000_000
        });
    }
}

/// A deadline so far away that the server's timers cannot count to it must not make them run at
/// once, over and over.
#[test]
fn a_lease_of_ages_does_not_keep_the_server_busy() {
    // The server counts in microseconds; the first of these is one with which 64 bits overflow by a
    // little.
    for length_ms in [
        "18446744073709551",
        "18446744073709552",
        "9223372036854775",
        "9223370000000000000",
    ] {
        let (server, mut dialog) = Server::scene();
        let acquire = format!("SEAT.ACQUIRE pool a 1 PX {length_ms}");
        assert_eq!(
            dialog.ask(&acquire),
            format!("[1, ACQUIRED, 1, 1, {length_ms}]")
        );
        let before = busy_seconds(&server);
        std::thread::sleep(OBSERVED);
        let spent = busy_seconds(&server) - before;
        assert!(
            spent < OBSERVED.as_secs_f64() / 3.0,
            "with a lease of {length_ms} ms an idle server was busy for {spent} s of {OBSERVED:?}"
        );
    }
}

const OBSERVED: Duration = Duration::from_millis(300);

/// Nothing is polled for the sake of leases that are far off.
#[test]
fn leases_that_run_cost_an_idle_server_nothing() {
    let (server, mut dialog) = Server::scene();
    dialog.ask_all((0..5000).map(|n| format!("SEAT.ACQUIRE pool:{n} a 1 EX 3600")));
    let before = busy_seconds(&server);
    std::thread::sleep(OBSERVED);
    let spent = busy_seconds(&server) - before;
    assert!(
        spent < OBSERVED.as_secs_f64() / 3.0,
        "busy for {spent} s of {OBSERVED:?}"
    );
}
