//! A holder does not lose its seat because the server was away, and a dead one does not keep it for
//! longer than the lease grace.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::cluster::alone_with;
use crate::support::{
    Builder, Dialog, Server, Waiter, effects_of, eventually, now_ms, number_after, staged, total,
    wait_for_reclaim,
};

/// What is left of the leases of those who hold the seats when the server goes away.
const LEASE_MS: i64 = 1500;

fn with_grace(grace_ms: i64) -> Builder {
    Server::builder().module_args(&format!("lease-grace {grace_ms}"))
}

fn floor_left_ms(server: &Server) -> u64 {
    total(server, "seat_lease_floor_ms")
}

/// A pool of two seats, one held by a client that lives and one by a client that is dead, and
/// somebody who waits.
struct Held<'a> {
    server: &'a Server,
    holder: Dialog,
    waiter: Waiter,
}

/// The last that is heard of both holders before the server goes away.
const LAST_HEARTBEATS: [&str; 2] = [
    "SEAT.HEARTBEAT pool alive PX 1500",
    "SEAT.HEARTBEAT pool dead PX 1500",
];

/// The heartbeat that is on its way while the server is away.
const HEARTBEAT: &str = "SEAT.HEARTBEAT pool alive PX 600000";

impl Held<'_> {
    fn of(server: &Server) -> Held<'_> {
        let mut holder = Dialog::with(server);
        for session in ["alive", "dead"] {
            let acquire = format!("SEAT.ACQUIRE pool {session} 2 PX 600000");
            holder.begins(&acquire, "[1, ACQUIRED, ");
        }
        let waiter = Waiter::of(server, "SEAT.ACQUIRE pool waiter 2 BLOCK 0");
        Held {
            server,
            holder,
            waiter,
        }
    }

    /// The last heartbeats, and in the same instant what takes the server away. Returns a time at
    /// which the leases are over.
    #[track_caller]
    fn until(&mut self, end: &[&str]) -> i64 {
        let commands = [&LAST_HEARTBEATS[..], end].concat();
        for (command, reply) in commands.iter().zip(self.holder.at_once(&commands)) {
            assert!(!reply.starts_with('!'), "{command}: {reply}");
        }
        now_ms() + LEASE_MS + 100
    }

    fn sends_a_heartbeat(&mut self) {
        self.holder.send(HEARTBEAT);
    }

    /// The live holder is heard and goes on. The waiter gets the dead one's seat, and not before
    /// that instant.
    #[track_caller]
    fn ends_well(mut self, what: &str, not_before: Instant) {
        let heard = self.holder.read();
        assert!(heard.contains("HEARTBEAT_UPDATED"), "{what}: {heard:?}");
        assert_eq!(self.waiter.read(), "[1, ACQUIRED, 2, 2]", "{what}");
        let early = not_before.saturating_duration_since(Instant::now());
        assert_eq!(early, Duration::ZERO, "{what}");
        let mut dialog = Dialog::with(self.server);
        assert_eq!(dialog.ask("SEAT.PTTL pool dead"), "-2", "{what}");
        assert_eq!(
            dialog.ask("SEAT.HEARTBEAT pool alive"),
            "[1, HEARTBEAT_UPDATED, 3]",
            "{what}"
        );
        wait_for_reclaim(self.server, 1);
    }
}

/// Waits until this machine's clock shows more.
fn wait_until(at_ms: i64) {
    eventually("the leases would be over", || now_ms() > at_ms);
}

#[test]
fn heartbeats_that_waited_for_a_stopped_server_are_in_time() {
    staged("the leases run when the server is stopped", || {
        let server = Server::builder().shipped_grace().start();
        let mut held = Held::of(&server);
        let begun_ms = now_ms();
        let over_ms = held.until(&[]);
        server.signal("STOP");
        let stopped = Instant::now();
        if now_ms() >= begun_ms + LEASE_MS {
            return None;
        }
        held.sends_a_heartbeat();
        wait_until(over_ms);
        eventually("the gap is one of more than a second", || {
            stopped.elapsed() > Duration::from_millis(1300)
        });
        let (back, gap) = (Instant::now(), stopped.elapsed());
        server.signal("CONT");
        held.ends_well("SIGSTOP", back + gap / 2);
        eventually("the floor is over", || floor_left_ms(&server) == 0);
        Some(())
    });
}

/// A script that goes on for as long as somebody waits at `clock`, whose own commands are no sign
/// of life.
const LONG_SCRIPT: &str = "
    while redis.call('SEAT.QUEUE', 'clock')[1][2] < 1700 do end
    return redis.call('SEAT.ACQUIRE', 'pool', 'newcomer', 2)[2]";

#[test]
fn heartbeats_that_waited_for_a_busy_server_are_in_time() {
    let script = format!("EVAL '{}' 2 clock pool", LONG_SCRIPT.replace('\'', "\""));
    for (what, command, reply) in [
        ("DEBUG SLEEP", "DEBUG SLEEP 1.7", "+OK"),
        ("a script", &script, "NO_SEATS_AVAILABLE"),
    ] {
        let server = Server::builder().shipped_grace().start();
        let mut held = Held::of(&server);
        let mut other = server.accepted();
        let begun = Instant::now();
        // In one turn of the event loop: the leases run when the command begins, and are over when
        // it ends.
        let (first, second) = (LAST_HEARTBEATS[0], LAST_HEARTBEATS[1]);
        let clock = "SEAT.ACQUIRE clock x 0 QUEUE 600000";
        other.send_all(&[first, second, clock, command]);
        held.sends_a_heartbeat();
        for start in ["[1, HEARTBEAT_", "[1, HEARTBEAT_", "[0, QUEUED, ", reply] {
            let heard = other.read();
            assert!(heard.starts_with(start), "{what}: {heard}");
        }
        held.ends_well(what, begun + Duration::from_millis(1700 + 1500));
    }
}

/// A script in which a lease ends, its seat is given to another, and that then goes on for long
/// enough to be an absence.
const GIVES_ON: &str = "
    local function wait(ms) while redis.call('SEAT.QUEUE', 'clock')[1][2] < ms do end end
    redis.call('SEAT.ACQUIRE', 'pool', 'silent', 2, 'PX', 50)
    redis.call('SEAT.ACQUIRE', 'pool', 'other', 2, 'PX', 50)
    wait(100)
    redis.call('SEAT.ACQUIRE', 'pool', 'next', 1)
    wait(1700)";

#[test]
fn a_floor_revives_nobody_whose_seat_was_given_on() {
    let (server, mut dialog) = Server::builder().shipped_grace().recording().scene();
    let mut floor_ms = 0;
    let effects = effects_of(&server, || {
        let replies = dialog.pipeline(&[
            "SEAT.ACQUIRE clock x 0 QUEUE 600000",
            &format!("EVAL '{}' 2 clock pool", GIVES_ON.replace('\'', "\"")),
            "INFO seat",
        ]);
        floor_ms = number_after(&replies[2], "seat_lease_floor_ms:");
    });
    // The two are out before the third is in: so no other server revives them either.
    let kinds: Vec<_> = effects.iter().map(|effect| &effect[..24]).collect();
    assert_eq!(
        kinds,
        [
            "SEAT.EFFECT clock JOIN x",
            "SEAT.EFFECT pool GRANT s",
            "SEAT.EFFECT pool GRANT o",
            "SEAT.EFFECT pool FREE ex",
            "SEAT.EFFECT pool FREE ex",
            "SEAT.EFFECT pool GRANT n",
        ]
    );
    assert!(floor_ms > 0);
    assert_eq!(dialog.sessions("pool"), ["next"]);
    dialog.expect("SEAT.HEARTBEAT pool silent", "[0, SESSION_NOT_ACTIVE]");
}

#[test]
fn heartbeats_that_a_pause_kept_waiting_are_in_time() {
    for pause in ["CLIENT PAUSE 1900 ALL", "CLIENT PAUSE 600000 WRITE"] {
        let server = Server::builder().shipped_grace().start();
        let mut held = Held::of(&server);
        let mut other = Dialog::with(&server);
        let begun = Instant::now();
        let over_ms = held.until(&[pause]);
        let paused = Instant::now();
        held.sends_a_heartbeat();
        let not_before = if pause.ends_with("WRITE") {
            wait_until(over_ms);
            // Readers are served meanwhile, and see the holders whose heartbeats wait.
            other.expect("SEAT.COUNT pool", "2");
            let back = Instant::now();
            other.ask("CLIENT UNPAUSE");
            back + paused.elapsed() / 2
        } else {
            begun + Duration::from_millis(1900 + 1500)
        };
        held.ends_well(pause, not_before);
    }
}

#[test]
fn nobody_is_lost_while_writes_are_refused_or_soon_after() {
    let server = with_grace(1500).start();
    let mut held = Held::of(&server);
    let over_ms = held.until(&["CONFIG SET min-replicas-to-write 1"]);
    let mut dialog = Dialog::with(&server);
    dialog.contains("SEAT.HEARTBEAT pool alive", "NOREPLICAS");
    wait_until(over_ms);
    dialog.expect("SEAT.COUNT pool", "2");
    assert_eq!(total(&server, "seat_expired"), 0);
    let back = Instant::now();
    held.holder
        .send_all(&["CONFIG SET min-replicas-to-write 0", HEARTBEAT]);
    held.holder.hears("+OK");
    held.ends_well("NOREPLICAS", back + Duration::from_millis(1000));
}

#[test]
fn nobody_is_lost_while_the_disk_is_full() {
    let (server, mut dialog) = with_grace(3000)
        .config("save 3600 1000000")
        .config("stop-writes-on-bgsave-error no")
        .scene();
    // A file cannot replace a folder.
    let in_the_way = server.dir().join("dump.rdb");
    fs::create_dir(&in_the_way).expect("a folder");
    let mut held = Held::of(&server);
    dialog.ask("BGSAVE");
    eventually("the snapshot has failed", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "err"
    });
    let over_ms = held.until(&["CONFIG SET stop-writes-on-bgsave-error yes"]);
    dialog.contains("SEAT.HEARTBEAT pool alive", "MISCONF");
    wait_until(over_ms);
    dialog.expect("SEAT.COUNT pool", "2");
    fs::remove_dir(&in_the_way).expect("it is removed");
    let back = Instant::now();
    dialog.ask("BGSAVE");
    eventually("the snapshot is done", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "ok"
    });
    held.sends_a_heartbeat();
    held.ends_well("MISCONF", back + Duration::from_millis(1500));
}

#[test]
fn nobody_is_lost_while_the_cluster_is_down() {
    let server = alone_with("lease-grace 2500");
    let mut dialog = Dialog::with(&server);
    dialog.ask("CONFIG SET cluster-require-full-coverage yes");
    let other_slot = (dialog.number("CLUSTER KEYSLOT pool") + 1) % 16384;
    dialog.at_once(&[
        "SEAT.ACQUIRE pool alive 2 PX 2000",
        "SEAT.ACQUIRE pool dead 2 PX 2000",
        &format!("CLUSTER DELSLOTS {other_slot}"),
    ]);
    let over_ms = now_ms() + 2000;
    eventually("the cluster is down", || {
        dialog.ask("CLUSTER INFO").contains("cluster_state:fail")
    });
    dialog.contains("SEAT.HEARTBEAT pool alive", "CLUSTERDOWN");
    wait_until(over_ms);
    dialog.ask(&format!("CLUSTER ADDSLOTS {other_slot}"));
    // As a holder does, whose heartbeat meets an error.
    let mut beat = String::new();
    eventually("the cluster is up", || {
        beat = dialog.ask("SEAT.HEARTBEAT pool alive EX 600");
        !beat.contains("CLUSTERDOWN")
    });
    assert_eq!(beat, "[1, HEARTBEAT_UPDATED, 1, 600000]");
    dialog.expect("SEAT.COUNT pool", "2");
    wait_for_reclaim(&server, 1);
    dialog.expect("SEAT.SESSIONS pool", r#"["alive"]"#);
}

/// Leases that a server must lose before they are over: they cannot expire while writes are paused.
const LEASES_THAT_STAY: [&str; 3] = [
    "SEAT.ACQUIRE pool alive 2 PX 400",
    "SEAT.ACQUIRE pool dead 2 PX 400",
    "CLIENT PAUSE 600000 WRITE",
];

#[test]
fn holders_find_their_way_back_after_a_crash() {
    const GRACE_MS: i64 = 3500;
    for configuration in ["save 3600 1", "appendonly yes"] {
        let (mut server, mut dialog) = with_grace(GRACE_MS).config(configuration).scene();
        let [alive, dead, pause] = LEASES_THAT_STAY;
        dialog.at_once(&[alive, dead, "SEAT.ACQUIRE pool first 2 QUEUE 400", pause]);
        let deadline_ms = dialog.now_ms() + 400;
        dialog.ask(if configuration.starts_with("save") {
            "SAVE"
        } else {
            "PING"
        });
        eventually("the AOF has it", || {
            server
                .info("persistence")
                .get("aof_pending_bio_fsync")
                .is_none_or(|jobs| jobs == "0")
        });
        server.kill9();
        wait_until(deadline_ms);
        let restarted = Instant::now();
        server.restart();
        let mut dialog = Dialog::with(&server);
        let replies = dialog.at_once(&[
            "SEAT.ACQUIRE pool late 2",
            "SEAT.POSITION pool first",
            "SEAT.PTTL pool dead",
            "SEAT.INFO pool",
            "TIME",
            "SEAT.HEARTBEAT pool alive EX 600",
        ]);
        let beat = "[1, HEARTBEAT_UPDATED, 1, 600000]";
        let denied = "[0, NO_SEATS_AVAILABLE, 2, 2]";
        assert_eq!(
            [&*replies[0], &*replies[1], &*replies[5]],
            [denied, "1", beat],
            "{configuration}"
        );
        let left_ms: i64 = replies[2].parse().expect("milliseconds");
        assert!((1..=GRACE_MS).contains(&left_ms), "{left_ms}");
        let next_ms = number_after(&replies[3], "\"next_deadline_ms\", ")
            - 1000 * number_after(&replies[4], "[\"");
        // The time of the server is taken in whole seconds.
        assert!((1..=GRACE_MS + 1000).contains(&next_ms), "{next_ms}");
        wait_for_reclaim(&server, 1);
        assert!(
            restarted.elapsed() >= Duration::from_millis(3000),
            "{configuration}"
        );
        assert_eq!(
            dialog.ask("SEAT.SESSIONS pool"),
            r#"["alive"]"#,
            "{configuration}"
        );
        eventually("the floor is over", || floor_left_ms(&server) == 0);
    }
}

#[test]
fn a_promoted_replica_gives_holders_the_time_to_reconnect() {
    let mut primary = with_grace(2500).tcp().start();
    let replica = with_grace(2500).replica_of(&primary).start();
    // It may take longer to follow than the leases last.
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    dialog.at_once(&LEASES_THAT_STAY);
    let deadline_ms = dialog.now_ms() + 400;
    primary.wait_for_offset(&replica);
    primary.kill9();
    let mut dialog = Dialog::with(&replica);
    dialog.wait_until(deadline_ms);
    // As a replica it goes by the deadlines that it was sent.
    dialog.expect("SEAT.COUNT pool", "0");
    assert_eq!(floor_left_ms(&replica), 0);
    let replies = dialog.pipeline(&[
        "REPLICAOF NO ONE",
        "SEAT.ACQUIRE pool late 2",
        "SEAT.HEARTBEAT pool alive EX 600",
    ]);
    let [denied, beat] = [
        "[0, NO_SEATS_AVAILABLE, 2, 2]",
        "[1, HEARTBEAT_UPDATED, 1, 600000]",
    ];
    assert_eq!(replies, ["+OK", denied, beat]);
    wait_for_reclaim(&replica, 1);
    dialog.expect("SEAT.SESSIONS pool", r#"["alive"]"#);
}

#[test]
fn a_demoted_primary_goes_by_the_deadlines_it_is_sent() {
    let primary = with_grace(600_000).tcp().start();
    let (other, mut dialog) = staged("the lease runs when the server is stopped", || {
        let (other, mut dialog) = with_grace(600_000).tcp().scene();
        let begun_ms = now_ms();
        dialog.ask(&format!("SEAT.ACQUIRE own x 1 PX {LEASE_MS}"));
        let over_ms = now_ms() + LEASE_MS + 100;
        other.signal("STOP");
        let in_time = now_ms() < begun_ms + LEASE_MS;
        wait_until(over_ms);
        dialog.send("SEAT.COUNT own");
        other.signal("CONT");
        let count = dialog.read();
        in_time.then(|| {
            assert_eq!(count, "1");
            (other, dialog)
        })
    });
    dialog.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    Dialog::with(&primary).at_once(&LEASES_THAT_STAY);
    let deadline_ms = dialog.now_ms() + 400;
    primary.wait_for_offset(&other);
    dialog.wait_until(deadline_ms);
    dialog.expect("EXISTS pool", "1");
    dialog.expect("SEAT.COUNT pool", "0");
    assert_eq!(floor_left_ms(&other), 0);
}

#[test]
fn what_is_no_absence_prolongs_nothing() {
    for lease_ms in [300, 1200, 2300] {
        staged("the machine lets the server run all the time", || {
            expires_on_time_at_one_turn_a_second(lease_ms)
        });
    }
}

/// On a server that has just started and is asked often. None if it was away.
fn expires_on_time_at_one_turn_a_second(lease_ms: i64) -> Option<()> {
    let (server, mut dialog) = Server::builder().shipped_grace().config("hz 1").scene();
    let mut seen = Instant::now();
    let mut longest = Duration::ZERO;
    dialog.ask("SEAT.ACQUIRE pool keeps 9 EX 600");
    dialog.ask(&format!("SEAT.ACQUIRE pool a 9 PX {lease_ms}"));
    let deadline_ms = dialog.now_ms() + lease_ms;
    eventually("the lease is over", || {
        // No command of the module, which finds no absence by it.
        dialog.expect("PING", "+PONG");
        longest = longest.max(seen.elapsed());
        seen = Instant::now();
        now_ms() >= deadline_ms
    });
    let count = dialog.ask("SEAT.COUNT pool");
    let floor_ms = floor_left_ms(&server);
    if longest.max(seen.elapsed()) > Duration::from_millis(950) {
        return None;
    }
    assert_eq!((&*count, floor_ms), ("1", 0), "{lease_ms}");
    Some(())
}

#[test]
fn without_a_grace_deadlines_count_as_they_stand() {
    let (_server, mut dialog) = with_grace(0).scene();
    let replies = dialog.pipeline(&[
        "SEAT.ACQUIRE pool a 1 PX 1000",
        "DEBUG SLEEP 1.5",
        "SEAT.HEARTBEAT pool a",
    ]);
    assert_eq!(replies[2], "[0, SESSION_NOT_ACTIVE]");
}

#[test]
fn an_absence_prolongs_by_no_more_than_the_grace() {
    let (server, mut dialog) = with_grace(1000).scene();
    // In one turn of the event loop, the first after the absence.
    let replies = dialog.pipeline(&[
        "SEAT.ACQUIRE pool a 1 PX 1000",
        "DEBUG SLEEP 2.5",
        "SEAT.PTTL pool a",
    ]);
    let left_ms: i64 = replies[2].parse().expect("milliseconds");
    assert!((1..=1000).contains(&left_ms), "{left_ms}");
    wait_for_reclaim(&server, 1);
}
