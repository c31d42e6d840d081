//! Very many leases: what their end costs whoever else uses the server, and what they cost while
//! they run.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::leases::grants_until;
use crate::support::{Dialog, Server, eventually, total, total_becomes};

/// The longest of all round trips until the server's clock shows `until_ms` and `done` agrees,
/// which is asked now and then.
fn longest_round_trip(
    dialog: &mut Dialog,
    until_ms: i64,
    mut done: impl FnMut(&mut Dialog) -> bool,
) -> Duration {
    let mut longest = Duration::ZERO;
    for turn in 0_u64.. {
        let began = Instant::now();
        let reply = dialog.ask("PING");
        longest = longest.max(began.elapsed());
        assert_eq!(reply, "+PONG");
        if turn.is_multiple_of(100) && dialog.now_ms() >= until_ms && done(dialog) {
            break;
        }
    }
    longest
}

#[test]
fn a_hundred_thousand_expiries_at_once_hold_nobody_up() {
    const MANY: usize = 100_000;
    /// One in which this machine was busy with nothing else must be among them.
    const ROUNDS: usize = 10;
    const BOUND: Duration = Duration::from_millis(50);
    let (server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    let mut pauses = Vec::new();
    let mut ends_ms = Vec::new();
    let mut lead_ms = 2000;
    let mut is_good = false;
    while !is_good {
        assert!(
            pauses.len() < ROUNDS,
            "each of {ROUNDS} reclaims took long or held the server up for longer than {BOUND:?}: {ends_ms:?} ms, {pauses:?}"
        );
        let deadline_ms = dialog.now_ms() + lead_ms;
        let before = total(&server, "seat_expired");
        dialog.ask_all(grants_until(deadline_ms, MANY));
        let count = dialog.number("SEAT.COUNT pool");
        if dialog.now_ms() >= deadline_ms {
            // Too slow a machine: some have expired while others were still coming.
            assert!(
                lead_ms < 30_000,
                "{MANY} leases are not granted within {lead_ms} ms"
            );
            lead_ms *= 2;
            longest_round_trip(&mut dialog, 0, |dialog| dialog.ask("EXISTS pool") == "0");
            continue;
        }
        assert_eq!(count, MANY as i64);
        let idle = longest_round_trip(&mut dialog, deadline_ms - 20, |_| true);
        let mut ended_ms = 0;
        let pause = longest_round_trip(&mut dialog, deadline_ms, |dialog| {
            assert_eq!(dialog.number("SEAT.COUNT pool"), 0);
            ended_ms = dialog.now_ms();
            dialog.ask("EXISTS pool") == "0"
        });
        assert_eq!(total(&server, "seat_expired"), before + MANY as u64);
        pauses.push((pause, idle));
        ends_ms.push(ended_ms - deadline_ms);
        is_good = pause < BOUND && ended_ms - deadline_ms < 2000;
    }
    writeln!(
        io::stderr(),
        "reclaim of {MANY}: done after {ends_ms:?} ms; longest pause, and without expiries: {pauses:?}"
    )
    .expect("stderr");
}

#[test]
fn a_pool_with_many_expired_leases_holds_up_no_other() {
    const MANY: usize = 20_000;
    let (server, mut dialog) = Server::builder()
        .recording()
        .module_args("allow-effects yes")
        .scene();
    let deadline_ms = dialog.now_ms() + 3000;
    let [seconds, later_ms] = [deadline_ms / 1000, deadline_ms + 5];
    for (database, pool) in [(0, "same"), (1, "other")] {
        dialog.ask(&format!("SELECT {database}"));
        dialog.ask(&format!(
            "SEAT.EFFECT {pool} GRANT a '1 {seconds} {seconds} - 60000 {later_ms}' {{}}"
        ));
    }
    dialog.ask("SELECT 0");
    dialog.ask_all(grants_until(deadline_ms, MANY));
    total_becomes(&server, "seat_expired", MANY as u64 + 2);
    let freed: Vec<Vec<u8>> = server
        .commands_in_aof()
        .into_iter()
        .filter(|command| command.get(2).is_some_and(|form| form == b"FREE"))
        .map(|mut command| command.swap_remove(1))
        .collect();
    assert_eq!(freed.len(), MANY + 2);
    for pool in ["same", "other"] {
        let position = freed.iter().position(|name| name == pool.as_bytes());
        let position = position.expect("its seat was taken back");
        assert!(position < MANY / 2, "{pool} came after {position} others");
    }
}

#[test]
fn a_lease_costs_little_memory_and_gives_it_back() {
    const MANY: usize = 200_000;
    let (server, mut dialog) = Server::scene();
    let metadata = format!(r#"{{"machine":"{}"}}"#, "m".repeat(136));
    let used = || usize::try_from(server.used_memory()).expect("bytes");
    let mut acquire = |key: &str, lease: &str| {
        let acquire = |n| format!("SEAT.ACQUIRE {key} {n:0>36} 1000000 {metadata}{lease}");
        dialog.ask_all((0..MANY).map(acquire));
        (
            usize::try_from(dialog.pool_info(key, "memory_bytes")).expect("bytes"),
            dialog.number(&format!("SEAT.COUNT {key}")),
        )
    };
    let empty = used();
    let (plain, count) = acquire("plain", "");
    assert_eq!(count, MANY as i64);
    let between = used();
    let (leased, count) = acquire("leased", " EX 3600");
    assert_eq!(count, MANY as i64);
    let (taken_plain, taken_leased) = (between - empty, used() - between);
    let each = |bytes: usize| bytes as f64 / MANY as f64;
    writeln!(
        io::stderr(),
        "memory per session: {:.1} bytes, with a lease {:.1} (of the server's count {:.1} and {:.1})",
        each(plain),
        each(leased),
        each(taken_plain),
        each(taken_leased)
    )
    .expect("stderr");
    // An entry of 24 bytes in an ordered index, with some room to grow.
    assert!(
        each(leased - plain) < 36.0,
        "{} bytes for each lease",
        each(leased - plain)
    );
    for (reported, taken) in [(plain, taken_plain), (leased, taken_leased)] {
        let ratio = taken as f64 / reported as f64;
        assert!(
            (0.9..1.1).contains(&ratio),
            "{reported} bytes reported, {taken} taken"
        );
    }
    dialog.ask("SEAT.CLEANUP leased IDLE 0");
    let calls = ["SEAT.CLEANUP plain IDLE 0", "SEAT.CLEANUP leased IDLE 0"];
    eventually("all sessions have been silent for a second", || {
        calls.iter().all(|call| dialog.ask(call).ends_with(", 0]"))
    });
    dialog.expect("DBSIZE", "0");
    eventually("the memory is given back", || {
        used() < empty + (between - empty) / 20
    });
}
