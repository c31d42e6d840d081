//! The server's clock steps, or differs from its replica's. Leases go by the clock, as EXPIRE does:
//! forward they expire, backward they last longer. A library that is preloaded into the server
//! moves its clock, and not the monotonic one, by which its timers run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{
    Builder, Dialog, Events, Server, Waiter, eventually, mostly_within, now_ms, staged, total,
    wait_for_reclaim,
};

const HOUR: i64 = 3600;
const HOUR_MS: i64 = 1000 * HOUR;

/// How far a server's clock is ahead of the machine's, changeable while it runs.
pub struct Clock {
    dir: TempDir,
    ahead: File,
}

impl Clock {
    pub fn ahead_by(seconds: i64) -> Clock {
        let dir = TempDir::new().expect("a directory");
        let ahead = File::create(dir.path().join("ahead")).expect("a file");
        let clock = Clock { dir, ahead };
        clock.set_ahead_by(seconds);
        clock
    }

    /// In one write, for the server looks at the same bytes.
    fn set_ahead_by(&self, seconds: i64) {
        let bytes = (seconds * 1_000_000).to_ne_bytes();
        self.ahead.write_all_at(&bytes, 0).expect("eight bytes");
    }

    /// As [`Clock::set_ahead_by`], and returns when the server itself has looked: Valkey 9.1 goes
    /// by one look for a millisecond.
    #[track_caller]
    pub fn step_ahead_to(&self, seconds: i64, dialog: &mut Dialog) {
        self.set_ahead_by(seconds);
        eventually("the server has looked at its clock", || {
            let before_ms = now_ms();
            is_ahead(dialog.now_ms() - before_ms, seconds)
        });
    }

    pub fn of(&self, builder: Builder) -> Builder {
        builder
            .env("LD_PRELOAD", library())
            .env("SEAT_TEST_AHEAD", self.dir.path().join("ahead"))
    }
}

/// Makes a library of a C file of this repository, with the compiler that linking this test took.
pub fn compile(source: &str, library: &Path) {
    let compiled = Command::new("cc")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", source, "-o",
        ])
        .arg(library)
        .status()
        .expect("cc, to make a library for a server: apt-get install gcc libc6-dev");
    assert!(compiled.success(), "{source} does not compile");
}

/// `clock/ahead.c`, compiled.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = dir.join(format!("ahead-{}.so", std::process::id()));
        compile("tests/clock/ahead.c", &library);
        // One name for all runs, so that they do not pile up; another run's server keeps the file
        // that it has mapped.
        let shared = dir.join("ahead.so");
        fs::rename(library, &shared).expect("a name");
        shared
    })
}

/// Whether a clock that is ahead by so many milliseconds was set ahead by so many seconds less than
/// a minute ago.
fn is_ahead(ahead_ms: i64, seconds: i64) -> bool {
    // Whole milliseconds are compared, and the server's may be one that has just gone by.
    let least_ms = 1000 * seconds - 2;
    (least_ms..least_ms + 60_000).contains(&ahead_ms)
}

#[track_caller]
fn assert_ahead(dialog: &mut Dialog, seconds: i64) {
    let before_ms = now_ms();
    let ahead_ms = dialog.now_ms() - before_ms;
    assert!(
        is_ahead(ahead_ms, seconds),
        "the clock is {ahead_ms} ms ahead, not {seconds} s: this server does not take its time from the preloaded library"
    );
}

#[test]
fn forward_all_expire_and_the_timer_notices_by_itself() {
    let clock = Clock::ahead_by(0);
    let server = clock.of(Server::builder()).start();
    let mut events = Events::matching(&server, "Ed", "*:seat.expired");
    let mut step = 0;
    let noticed = mostly_within(Duration::from_secs(1), || {
        step += 1;
        let mut dialog = Dialog::with(&server);
        for session in ["a", "b", "c"] {
            dialog.ask(&format!("SEAT.ACQUIRE pool {session} 9 EX {HOUR}"));
        }
        drop(dialog);
        let stepped = Instant::now();
        clock.set_ahead_by(step * (HOUR + 1));
        // Nobody sends anything until the event is there.
        events.next();
        let noticed = stepped.elapsed();
        assert_ahead(&mut Dialog::with(&server), step * (HOUR + 1));
        noticed
    });
    writeln!(
        io::stderr(),
        "clock: a step forward is noticed after {noticed:?}"
    )
    .expect("stderr");
    wait_for_reclaim(&server, 3 * noticed.len() as u64);
    Dialog::with(&server).expect("DBSIZE", "0");
}

#[test]
fn a_step_of_the_clock_is_no_absence() {
    staged("the server cannot have been away for a second", || {
        let begun = Instant::now();
        let clock = Clock::ahead_by(0);
        let (server, mut dialog) = clock.of(Server::builder()).shipped_grace().scene();
        dialog.ask("SEAT.ACQUIRE pool a 9 EX 600");
        dialog.ask("SEAT.ACQUIRE pool b 9 EX 7200");
        clock.step_ahead_to(HOUR, &mut dialog);
        let sessions = dialog.sessions("pool");
        let floor_ms = total(&server, "seat_lease_floor_ms");
        if begun.elapsed() >= Duration::from_secs(1) {
            return None;
        }
        assert_eq!(sessions, ["b"]);
        assert_eq!(floor_ms, 0);
        wait_for_reclaim(&server, 1);
        Some(())
    });
}

#[test]
fn a_floor_does_not_outlast_its_length_when_the_clock_steps_back() {
    let clock = Clock::ahead_by(HOUR);
    let builder = Server::builder().module_args("lease-grace 4000 grant-hold 4000");
    let mut server = clock.of(builder).config("appendonly yes").start();
    Dialog::with(&server).ask("SEAT.ACQUIRE pool a 0 QUEUE 600000");
    server.restart();
    assert!(total(&server, "seat_lease_floor_ms") > 0);
    assert!(total(&server, "seat_grant_hold_ms") > 0);
    clock.set_ahead_by(0);
    eventually("the floor and the hold are over", || {
        total(&server, "seat_lease_floor_ms") == 0 && total(&server, "seat_grant_hold_ms") == 0
    });
    let mut dialog = Dialog::with(&server);
    dialog.expect("SEAT.ACQUIRE pool b 9", "[1, ACQUIRED, 1, 9]");
}

#[test]
fn forward_by_less_than_the_lease_takes_that_much_of_it() {
    let clock = Clock::ahead_by(0);
    let (server, mut dialog) = clock.of(Server::builder()).scene();
    dialog.ask("SEAT.ACQUIRE pool a 9 EX 7200");
    clock.step_ahead_to(HOUR, &mut dialog);
    let left_ms = dialog.number("SEAT.PTTL pool a");
    assert!(
        (HOUR_MS - 60_000..=HOUR_MS).contains(&left_ms),
        "{left_ms} ms left"
    );
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    let left_ms = dialog.number("SEAT.PTTL pool a");
    assert!(
        (2 * HOUR_MS - 60_000..=2 * HOUR_MS).contains(&left_ms),
        "{left_ms} ms left"
    );
    clock.step_ahead_to(3 * HOUR + 1, &mut dialog);
    dialog.expect("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]");
    wait_for_reclaim(&server, 1);
}

#[test]
fn every_command_sees_a_step_at_once() {
    let clock = Clock::ahead_by(0);
    let (server, mut dialog) = clock.of(Server::builder()).scene();
    dialog.ask(&format!("SEAT.ACQUIRE pool a 1 EX {HOUR}"));
    // So that the session stays while it is looked at. The pause goes by the same clock.
    dialog.ask(&format!("CLIENT PAUSE {} WRITE", 10 * HOUR_MS));
    for (ahead, count) in [(HOUR + 1, "0"), (0, "1"), (2 * HOUR, "0"), (-HOUR, "1")] {
        clock.step_ahead_to(ahead, &mut dialog);
        assert_eq!(dialog.ask("SEAT.COUNT pool"), count, "{ahead} s ahead");
        assert_eq!(
            dialog.ask("SEAT.PTTL pool a") == "-2",
            count == "0",
            "{ahead} s ahead"
        );
    }
    dialog.ask("CLIENT UNPAUSE");
    assert_eq!(total(&server, "seat_expired"), 0);
}

#[test]
fn what_a_command_decides_and_says_is_of_one_moment() {
    let clock = Clock::ahead_by(0);
    let (server, mut dialog) = clock
        .of(Server::builder())
        .env("SEAT_TEST_HURRY", "1000")
        .scene();
    for lease_ms in 1..=60 {
        let pool = format!("pool:{lease_ms}");
        for holder in ["a", "b", "c"] {
            dialog.ask(&format!("SEAT.ACQUIRE {pool} {holder} 3"));
        }
        let _waiters = ["d", "e"].map(|session| {
            Waiter::of(&server, &format!("SEAT.ACQUIRE {pool} {session} 3 BLOCK 0"))
        });
        // In one turn of the event loop, so that no timer comes between. For some length the lease
        // ends amid the second command.
        let replies = dialog.at_once(&[
            &format!("SEAT.ACQUIRE {pool} a 3 PX {lease_ms}"),
            &format!("SEAT.RELEASE {pool} b"),
        ]);
        let used = replies[1]
            .strip_prefix("[1, RELEASED, ")
            .and_then(|used| used.strip_suffix(']')?.parse().ok());
        let within = used.is_some_and(|used: u32| used <= 3);
        assert!(within, "{lease_ms} ms: {replies:?}");
    }
}

#[test]
fn backward_all_last_longer_and_still_end() {
    let clock = Clock::ahead_by(0);
    let (server, mut dialog) = clock.of(Server::builder()).scene();
    dialog.ask("SEAT.ACQUIRE pool a 9 PX 2000");
    clock.step_ahead_to(-HOUR, &mut dialog);
    let left_ms = dialog.number("SEAT.PTTL pool a");
    assert!(
        (HOUR_MS - 60_000..=HOUR_MS + 2000).contains(&left_ms),
        "{left_ms} ms left"
    );
    // The timer comes up after two seconds of the clock that does not step, and finds nothing to
    // do.
    let stepped = Instant::now();
    eventually("the timer has come up", || {
        stepped.elapsed() > Duration::from_millis(2300)
    });
    assert_eq!(total(&server, "seat_expired"), 0);
    dialog.expect(
        "SEAT.HEARTBEAT pool a PX 500",
        "[1, HEARTBEAT_UPDATED, 1, 500]",
    );
    dialog.ask("SEAT.ACQUIRE pool b 9 PX 100");
    dialog.ask(&format!("SEAT.ACQUIRE pool c 9 EX {HOUR}"));
    // Leases of the time after the step end in their own time.
    wait_for_reclaim(&server, 2);
    dialog.expect("SEAT.SESSIONS pool", r#"["c"]"#);
    // And what lasts longer ends when the clock has come to it.
    clock.set_ahead_by(1);
    wait_for_reclaim(&server, 3);
    dialog.expect("DBSIZE", "0");
}

#[test]
fn a_restart_keeps_the_deadline_whatever_the_clock_did_meanwhile() {
    let clock = Clock::ahead_by(0);
    for (configuration, ahead) in [
        ("save 3600 1", 0),
        ("appendonly yes", -HOUR),
        ("save 3600 1", HOUR),
    ] {
        clock.set_ahead_by(0);
        let (mut server, mut dialog) = clock.of(Server::builder()).config(configuration).scene();
        dialog.ask("SEAT.ACQUIRE pool a 9 EX 7200");
        let deadline_ms = dialog.pool_info("pool", "next_deadline_ms");
        server.shutdown();
        clock.set_ahead_by(ahead);
        server.restart();
        let mut dialog = Dialog::with(&server);
        assert_ahead(&mut dialog, ahead);
        assert_eq!(dialog.pool_info("pool", "next_deadline_ms"), deadline_ms);
        clock.set_ahead_by(2 * HOUR + 1);
        wait_for_reclaim(&server, 1);
    }
}

#[test]
fn a_lease_that_a_restart_finds_over_is_loaded_and_reclaimed() {
    for configuration in ["save 3600 1", "appendonly yes"] {
        let clock = Clock::ahead_by(0);
        let (mut server, mut dialog) = clock.of(Server::builder()).config(configuration).scene();
        dialog.ask(&format!("SEAT.ACQUIRE pool a 9 EX {HOUR}"));
        dialog.ask("SEAT.ACQUIRE pool b 9");
        server.shutdown();
        clock.set_ahead_by(HOUR + 1);
        server.restart();
        wait_for_reclaim(&server, 1);
        Dialog::with(&server).expect("SEAT.SESSIONS pool", r#"["b"]"#);
        assert_eq!(total(&server, "seat_ignored_effects"), 0);
    }
}

#[test]
fn a_replica_ahead_shows_an_expiry_early_and_reclaims_nothing() {
    let mut primary = Server::builder().tcp().start();
    let clock = Clock::ahead_by(HOUR);
    let replica = clock.of(Server::builder().replica_of(&primary)).start();
    primary.wait_for_offset(&replica);
    let (mut dialog, mut ahead) = (Dialog::with(&primary), Dialog::with(&replica));
    assert_ahead(&mut ahead, HOUR);
    dialog.ask("SEAT.ACQUIRE pool a 9 EX 600");
    dialog.ask("SEAT.ACQUIRE pool b 9 EX 7200");
    for _ in 0..3 {
        primary.wait_for_offset(&replica);
        ahead.expect("SEAT.SESSIONS pool", r#"["b"]"#);
        ahead.expect("SEAT.PTTL pool a", "-2");
        assert_eq!(primary.digest(), replica.digest());
        // On the primary the session lives, and its heartbeats reach a session that the replica
        // thinks over.
        dialog.begins("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED");
    }
    let watched = Instant::now();
    eventually("some turns of the replica's cron", || {
        watched.elapsed() > Duration::from_millis(400)
    });
    ahead.expect("EXISTS pool", "1");
    assert_eq!(primary.digest(), replica.digest());
    assert_eq!(total(&replica, "seat_expired"), 0);
    // A release of what has expired there arrives like any other.
    dialog.ask("SEAT.RELEASE pool a");
    dialog.ask("SEAT.ACQUIRE pool c 9 EX 600");
    primary.replica_agrees(&replica);
    assert_eq!(total(&replica, "seat_ignored_effects"), 0);
    // Once it is the primary, its clock is the one that counts.
    primary.kill9();
    ahead.expect("REPLICAOF NO ONE", "+OK");
    wait_for_reclaim(&replica, 1);
    ahead.expect("SEAT.SESSIONS pool", r#"["b"]"#);
}

#[test]
fn a_replica_behind_lets_go_when_its_primary_does() {
    let primary = Server::builder().tcp().start();
    let clock = Clock::ahead_by(-HOUR);
    let replica = clock.of(Server::builder().replica_of(&primary)).start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.at_once(&[
        "SEAT.ACQUIRE pool a 9 PX 1",
        "SEAT.ACQUIRE pool b 9",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    primary.wait_for_offset(&replica);
    let left_ms = Dialog::with(&replica).number("SEAT.PTTL pool a");
    assert!(left_ms > HOUR_MS - 60_000, "{left_ms} ms left");
    dialog.ask("CLIENT UNPAUSE");
    wait_for_reclaim(&primary, 1);
    primary.wait_for_offset(&replica);
    Dialog::with(&replica).expect("SEAT.SESSIONS pool", r#"["b"]"#);
    assert_eq!(primary.digest(), replica.digest());
}
