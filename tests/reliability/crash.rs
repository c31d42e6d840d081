//! `kill -9` under `appendfsync always`, at any moment, and logs that end anywhere.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::ledger::{Client, Load, Socket, audit, judge, pools, pools_of_owners};
use super::{figure, scale};
use crate::support::{Dialog, Server, Waiter, eventually, now_ms, total, workload};

const CLIENTS: usize = 4;

/// Who compete for few pools with owners, and how many calls they have answered between two looks
/// at how far they are.
const CROWD: usize = 64;
const STRETCH: usize = 1000;

/// What a child of the server is at when the server is killed: what starts it, and the field of
/// INFO that shows it.
type Chore = (&'static str, &'static str);

const SNAPSHOT: Chore = ("BGSAVE", "rdb_bgsave_in_progress");

/// Up to 6.2 such a child waits five seconds for its parent, and keeps the clients' connections
/// open meanwhile.
const REWRITE: Chore = ("BGREWRITEAOF", "aof_rewrite_in_progress");

/// By turns.
const CHORES: [Option<Chore>; 6] = [None, Some(SNAPSHOT), None, Some(REWRITE), None, None];

/// Keys that keep the server's child busy for a while.
const BALLAST: usize = 100;

/// Of which each takes so long.
const BALLAST_DELAY: &str = "rdb-key-save-delay 400";

fn crash_again_and_again(preamble: &str) {
    let seed = workload::seed();
    let context = format!("SEAT_TEST_SEED={seed}, {preamble}");
    let mut random = Rng::with_seed(seed);
    let (mut server, mut dialog) = Server::builder()
        .recording()
        .config(preamble)
        .config(BALLAST_DELAY)
        .scene();
    for n in 0..BALLAST {
        dialog.expect(&format!("SET ballast-{n} x"), "+OK");
    }
    let mut clients = Client::several(
        CLIENTS,
        &pools(["lasting", "brief", "queued", "owned"]),
        seed,
    );
    let kills = scale(6, 60);
    let mut calls = 0;
    let (mut rewrites, mut snapshots) = (0, 0);
    for kill in 0..kills {
        let load = Load::start(clients, &Socket(server.socket()));
        load.goes_on(random.usize(50..300));
        let chore = CHORES[kill % CHORES.len()];
        match chore {
            None => thread::sleep(Duration::from_micros(random.u64(..20_000))),
            Some(chore) => amid(chore, &server, &mut random),
        }
        server.kill9();
        rewrites += usize::from(chore == Some(REWRITE));
        snapshots += usize::from(chore == Some(SNAPSHOT));
        calls += load.answered();
        clients = load.stop();
        server.restart();
        let context = format!("{context}, kill {kill}");
        audit(&mut server.client(), &mut clients, &context);
        assert_eq!(total(&server, "seat_ignored_effects"), 0, "{context}");
    }
    let tenures = judge(&clients, &context);
    figure(&format!(
        "kills survived: {kills}, {rewrites} amid a rewrite, {snapshots} amid a snapshot ({calls} calls, {tenures} tenures, {preamble})"
    ));
}

/// Returns at a random moment of the chore.
fn amid((start, field): Chore, server: &Server, random: &mut Rng) {
    loop {
        let reply = Dialog::with(server).ask(start);
        assert!(reply.starts_with('+'), "{start}: {reply}");
        thread::sleep(Duration::from_micros(random.u64(..60_000)));
        if server.info("persistence")[field] == "1" {
            return;
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_released_comes_back() {
    crash_again_and_again("aof-use-rdb-preamble no");
}

#[test]
fn nor_with_an_rdb_at_the_head_of_the_file() {
    crash_again_and_again("aof-use-rdb-preamble yes");
}

#[test]
fn owners_and_weights_keep_to_their_limits_through_kills() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let mut primary = Server::builder().recording().tcp().start();
    let replica = Server::builder().replica_of(&primary).start();
    let pools = pools_of_owners(["few", "queued", "many"]);
    let mut clients = Client::several(CROWD, &pools, seed);
    let kills = scale(2, 20);
    let mut calls = 0;
    for kill in 0..kills {
        let context = format!("SEAT_TEST_SEED={seed}, kill {kill}");
        let load = Load::start(clients, &Socket(primary.socket()));
        for _ in 0..scale(2, 10) {
            load.goes_on(STRETCH);
        }
        thread::sleep(Duration::from_micros(random.u64(..20_000)));
        primary.kill9();
        calls += load.answered();
        clients = load.stop();
        primary.restart();
        audit(&mut primary.client(), &mut clients, &context);
        for node in [&primary, &replica] {
            assert_eq!(total(node, "seat_ignored_effects"), 0, "{context}");
        }
    }
    let context = format!("SEAT_TEST_SEED={seed}");
    let tenures = judge(&clients, &context);
    let takeovers: usize = clients.iter().map(Client::takeovers).sum();
    assert!(
        takeovers > 100,
        "{context}: {takeovers} takeovers prove little"
    );
    let are_alike = |primary: &Server| {
        primary.wait_for_offset(&replica);
        primary.digest() == replica.digest()
    };
    // From here on time changes nothing: what is left has leases of an hour or none.
    let mut dialog = Dialog::with(&primary);
    for pool in pools.iter() {
        eventually("the last brief lease is over", || {
            let reply = dialog.ask(&format!("SEAT.CLEANUP {}", pool.name));
            assert!(!reply.starts_with('!'), "{reply}");
            let next_ms = dialog.pool_info(&pool.name, "next_deadline_ms");
            next_ms == -1 || next_ms > now_ms() + 60_000
        });
    }
    drop(dialog);
    eventually("the replica holds the same", || are_alike(&primary));
    let digest = replica.digest();
    primary.kill9();
    primary.restart();
    assert_eq!(primary.digest(), digest, "{context}: the AOF");
    eventually("the replica still does", || are_alike(&primary));
    figure(&format!(
        "kills survived by sessions with owners, weights and tokens: {kills} ({CROWD} connections, {calls} calls, {tenures} tenures, {takeovers} takeovers)"
    ));
}

/// The log's length and the digest after each change.
struct Moments<'a> {
    server: &'a Server,
    log: PathBuf,
    known: Vec<(u64, String)>,
}

impl Moments<'_> {
    fn note(&mut self) {
        let length = fs::metadata(&self.log).expect("a log").len();
        self.known.push((length, self.server.digest()));
    }

    /// Leases, tickets, and a seat that goes from its holder to a blocked client in one change.
    fn queue_step(&mut self, dialog: &mut Dialog, step: usize) {
        let pool = format!("queue-{}", step % 2);
        let rest = match step % 5 {
            0 => format!("a{step} 3 EX 3600"),
            1 | 2 => format!("t{step} 2 {{\"n\":{step}}} QUEUE 600000"),
            3 => format!("t{} 9 QUEUE 500000", step - 2),
            _ => return self.hand_over(dialog, &format!("lone-{step}")),
        };
        dialog.begins(&format!("SEAT.ACQUIRE {pool} {rest}"), "[");
        self.note();
    }

    fn hand_over(&mut self, dialog: &mut Dialog, pool: &str) {
        dialog.acquire(pool, "first", 1, "{}");
        self.note();
        let wait = format!("SEAT.ACQUIRE {pool} second 1 EX 3600 BLOCK 0");
        let mut waiter = Waiter::of(self.server, &wait);
        self.note();
        let release = format!("SEAT.RELEASE {pool} first");
        dialog.expect(&release, "[1, RELEASED, 1]");
        waiter.is_granted();
        self.note();
    }
}

#[test]
fn a_log_that_ends_anywhere_gives_the_pools_of_one_moment() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let (mut server, mut dialog) = Server::builder().recording().scene();
    let log = server.aof_files().pop().expect("a log");
    let mut moments = Moments {
        server: &server,
        log: log.clone(),
        known: vec![(0, "0".repeat(40))],
    };
    for step in 0..scale(60, 400) {
        if step % 3 == 0 {
            moments.queue_step(&mut dialog, step / 3);
        } else {
            workload::run(&mut dialog, &mut random, 1);
            moments.note();
        }
    }
    let moments = moments.known;
    server.kill9();
    let bytes = fs::read(&log).expect("a log");
    let last = moments.last().expect("a moment").0;
    assert_eq!(bytes.len() as u64, last, "SEAT_TEST_SEED={seed}");

    let cuts = scale(12, 120);
    let mut digests = Vec::new();
    for _ in 0..cuts {
        let cut = random.usize(..bytes.len());
        let kept = moments.partition_point(|&(length, _)| length <= cut as u64);
        let digest = &moments[kept - 1].1;
        fs::write(&log, &bytes[..cut]).expect("a shorter log");
        server.restart();
        assert_eq!(
            &server.digest(),
            digest,
            "SEAT_TEST_SEED={seed}, cut at {cut} of {}",
            bytes.len()
        );
        server.kill9();
        digests.push(digest);
    }
    digests.sort();
    digests.dedup();
    assert!(
        digests.len() > cuts / 4,
        "{} of {cuts} differ",
        digests.len()
    );
    figure(&format!(
        "logs cut: {cuts}, with {} different data sets found",
        digests.len()
    ));
}
