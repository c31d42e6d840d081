//! Whatever way a pool comes under a name, its leases expire there.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::support::{
    Dialog, Server, eventually, mostly_within, staged, total, wait_for_reclaim, workload,
};

/// Runs the steps without the timers in between, a lease of 30 ms among them, and waits for that
/// many expiries.
#[track_caller]
fn expires_after(steps: &[&str], seats: u64) {
    let (server, mut dialog) = Server::scene();
    let replies = dialog.at_once(steps);
    let refused = replies.iter().find(|reply| reply.starts_with('!'));
    assert_eq!(refused, None, "{steps:?}");
    wait_for_reclaim(&server, seats);
    for database in 0..4 {
        dialog.ask(&format!("SELECT {database}"));
        assert_eq!(
            dialog.ask("DBSIZE"),
            "0",
            "database {database} after {steps:?}"
        );
    }
}

const ACQUIRE: &str = "SEAT.ACQUIRE pool a 9 PX 30";

#[test]
fn after_rename() {
    expires_after(&[ACQUIRE, "RENAME pool other"], 1);
    expires_after(&[ACQUIRE, "RENAME pool other", "RENAMENX other third"], 1);
}

#[test]
fn after_rename_onto_another_pool() {
    let other = "SEAT.ACQUIRE other a 9 EX 3600";
    expires_after(&[other, ACQUIRE, "RENAME pool other"], 1);
}

#[test]
fn after_copy() {
    expires_after(&[ACQUIRE, "COPY pool other"], 2);
    expires_after(&[ACQUIRE, "COPY pool other DB 3", "COPY pool pool DB 2"], 3);
}

#[test]
fn after_copy_over_another_pool() {
    let other = "SEAT.ACQUIRE other a 9 EX 3600";
    expires_after(&[other, ACQUIRE, "COPY pool other REPLACE", "DEL pool"], 1);
}

#[test]
fn after_move() {
    expires_after(&[ACQUIRE, "MOVE pool 3"], 1);
}

#[test]
fn after_swapdb() {
    expires_after(&[ACQUIRE, "SWAPDB 0 2"], 1);
    expires_after(&[ACQUIRE, "SWAPDB 0 2", "SWAPDB 2 3", "SWAPDB 1 3"], 1);
    expires_after(&["SELECT 2", ACQUIRE, "SELECT 0", ACQUIRE, "SWAPDB 0 2"], 2);
}

#[test]
fn after_swapdb_of_a_database_with_itself() {
    expires_after(&[ACQUIRE, "SWAPDB 0 0"], 1);
}

#[test]
fn after_restore() {
    let restore = "return redis.call('RESTORE',KEYS[2],0,redis.call('DUMP',KEYS[1]),'REPLACE')";
    for steps in [&["DEL pool"][..], &["SEAT.ACQUIRE pool b 9"], &[]] {
        let (server, mut dialog) = Server::scene();
        dialog.ask("MULTI");
        dialog.ask("SEAT.ACQUIRE other b 9 EX 3600");
        dialog.ask(ACQUIRE);
        dialog.eval(restore, &["pool", "other"]);
        for step in steps {
            dialog.ask(step);
        }
        dialog.ask("EXEC");
        let pools = if steps == ["DEL pool"] { 1 } else { 2 };
        wait_for_reclaim(&server, pools);
        dialog.expect("EXISTS other", "0");
    }
}

#[test]
fn after_the_key_was_deleted_and_made_anew() {
    for deletion in [
        "DEL pool",
        "UNLINK pool",
        "FLUSHDB",
        "FLUSHALL",
        "SET pool x",
        "PEXPIRE pool 0",
    ] {
        let (server, mut dialog) = Server::scene();
        dialog.at_once(&["SEAT.ACQUIRE pool a 9 PX 10", deletion]);
        // The old pool's deadline comes up while a pool whose leases are longer has the name.
        dialog.at_once(&[
            "DEL pool",
            "SEAT.ACQUIRE pool a 9 PX 60",
            "SEAT.ACQUIRE pool b 9 PX 90",
        ]);
        wait_for_reclaim(&server, 2);
        assert_eq!(dialog.ask("EXISTS pool"), "0", "after {deletion}");
    }
}

#[test]
fn while_another_type_has_the_name() {
    let (server, mut dialog) = Server::scene();
    dialog.at_once(&[ACQUIRE, "RENAME pool other", "SET pool x"]);
    wait_for_reclaim(&server, 1);
    dialog.expect("GET pool", r#""x""#);
    dialog.at_once(&[
        "DEL pool",
        "SEAT.ACQUIRE pool a 9 PX 1",
        "RENAME pool third",
        "LPUSH pool x",
    ]);
    wait_for_reclaim(&server, 2);
    dialog.expect("LLEN pool", "1");
}

#[test]
fn in_every_database() {
    let steps: Vec<String> = (0..16)
        .flat_map(|database| [format!("SELECT {database}"), ACQUIRE.to_owned()])
        .collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    expires_after(&steps, 16);
}

#[test]
fn on_a_key_that_expires_itself() {
    expires_after(&[ACQUIRE, "EXPIRE pool 1000"], 1);
    // The key goes before the lease does: nothing is left to reclaim, and nothing breaks.
    let (server, mut dialog) = Server::scene();
    dialog.at_once(&[
        "SEAT.ACQUIRE pool a 9 PX 30",
        "PEXPIRE pool 5",
        "SEAT.ACQUIRE other a 9 PX 40",
    ]);
    wait_for_reclaim(&server, 1);
    dialog.expect("DBSIZE", "0");
}

#[test]
fn after_a_reload() {
    // On a machine that stood still the lease may have expired before the reload; that would prove
    // nothing.
    staged("the leases run when the data is loaded again", || {
        let (server, mut dialog) = Server::scene();
        dialog.at_once(&[
            "SEAT.ACQUIRE pool a 9 PX 300",
            "SELECT 3",
            "SEAT.ACQUIRE pool a 9 PX 300",
        ]);
        dialog.expect("DEBUG RELOAD", "+OK");
        let in_time = total(&server, "seat_expired") == 0;
        wait_for_reclaim(&server, 2);
        dialog.expect("DBSIZE", "0");
        in_time.then_some(())
    });
}

#[test]
fn after_loading_an_rdb_or_an_aof() {
    for builder in [
        Server::builder().config("save 3600 1"),
        Server::builder().recording(),
        Server::builder().config("appendonly yes"),
    ] {
        let (mut server, mut dialog) = builder.scene();
        // The pause keeps this process from reclaiming them.
        dialog.at_once(&[
            "SEAT.ACQUIRE pool a 9 PX 1",
            "SEAT.ACQUIRE other a 9 PX 600",
            "RENAME other third",
            "CLIENT PAUSE 600000 WRITE",
        ]);
        server.restart();
        // The totals begin with the process, so what they count came after the loading.
        wait_for_reclaim(&server, 2);
        Dialog::with(&server).expect("DBSIZE", "0");
        assert_eq!(total(&server, "seat_ignored_effects"), 0);
    }
}

/// One random thing that happens to the pools of three databases.
fn step(random: &mut Rng) -> String {
    let mut key = || format!("k{}", random.u8(..4));
    let (one, other) = (key(), key());
    let session = random.u8(..6);
    let lease_ms = random.u32(1..150);
    let database = random.u8(..3);
    match random.u8(..20) {
        0..8 => format!("SEAT.ACQUIRE {one} s{session} 4 PX {lease_ms}"),
        8..10 => format!("SEAT.HEARTBEAT {one} s{session} PX {lease_ms}"),
        10 => format!("SEAT.HEARTBEAT {one} s{session}"),
        11 => format!("SEAT.RELEASE {one} s{session}"),
        12 => format!("RENAME {one} {other}"),
        13 => format!("COPY {one} {other} DB {database} REPLACE"),
        14 => format!("MOVE {one} {database}"),
        15 => format!("SWAPDB {} {database}", random.u8(..3)),
        16 => match random.u8(..6) {
            0 => "FLUSHDB".to_owned(),
            1 => "DEBUG RELOAD".to_owned(),
            2 => format!("SEAT.CLEANUP {one}"),
            _ => format!("DEL {one}"),
        },
        17 => format!("DUMP {one} {other}"),
        _ => format!("SELECT {database}"),
    }
}

#[test]
fn after_anything_in_any_order() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let (primary, replica) = Server::with_replica();
    let mut dialog = Dialog::with(&primary);
    let restore = "local d = redis.call('DUMP', KEYS[1])
        return d and redis.call('RESTORE', KEYS[2], 0, d, 'REPLACE')";
    for _ in 0..3000 {
        let step = step(&mut random);
        match step
            .strip_prefix("DUMP ")
            .and_then(|keys| keys.split_once(' '))
        {
            Some((from, to)) => drop(dialog.eval(restore, &[from, to])),
            // A missing key, the same database: an error is as good as any.
            None => drop(dialog.ask(&step)),
        }
    }
    eventually("all leases have expired and all pools are gone", || {
        keys(&mut dialog) == 0
    });
    primary.wait_for_offset(&replica);
    assert_eq!(keys(&mut Dialog::with(&replica)), 0);
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
    assert_eq!(total(&replica, "seat_expired"), 0);
    assert!(total(&primary, "seat_expired") > 0, "nothing expired");
}

fn keys(dialog: &mut Dialog) -> i64 {
    let size = |database| {
        dialog.ask(&format!("SELECT {database}"));
        dialog.number("DBSIZE")
    };
    (0..3).map(size).sum()
}

/// The pools of the previous test must not have waited for something else to wake them.
#[test]
fn what_is_moved_is_not_late() {
    let (server, mut dialog) = Server::builder()
        .config("hz 1")
        .config("dynamic-hz no")
        .scene();
    let mut events = super::events(&server, "__keyevent@*__:seat.expired");
    for moving in [
        "RENAME pool other",
        "MOVE pool 3",
        "SWAPDB 0 3",
        "COPY pool other DB 1",
    ] {
        mostly_within(Duration::from_millis(200), || {
            let begun = Instant::now();
            dialog.at_once(&[
                "SELECT 0",
                "SEAT.ACQUIRE pool a 9 PX 100",
                moving,
                "SELECT 0",
                "DEL pool",
            ]);
            events.next();
            begun.elapsed()
        });
    }
}
