//! A holder does not lose its seat because the server was away, and a dead one does not keep it for
//! longer than the lease grace.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::cluster::alone_with;
use crate::support::{
    Builder, Dialog, Server, Waiter, effects_of, eventually, now_ms, total, wait_for_reclaim,
};

/// The lease of those who hold the seats when the server goes away.
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
    deadline_ms: i64,
}

impl Held<'_> {
    fn of(server: &Server) -> Held<'_> {
        let mut holder = Dialog::with(server);
        let replies = holder.at_once(&[
            &format!("SEAT.ACQUIRE pool alive 2 PX {LEASE_MS}"),
            &format!("SEAT.ACQUIRE pool dead 2 PX {LEASE_MS}"),
        ]);
        let deadline_ms = now_ms() + LEASE_MS;
        assert!(
            replies[1].starts_with("[1, ACQUIRED, 2, 2, "),
            "{replies:?}"
        );
        let waiter = Waiter::of(server, "SEAT.ACQUIRE pool waiter 2 BLOCK 0");
        Held {
            server,
            holder,
            waiter,
            deadline_ms,
        }
    }

    /// The heartbeat that is on its way while the server is away.
    fn sends_a_heartbeat(&mut self) {
        self.holder.send("SEAT.HEARTBEAT pool alive PX 600000");
    }

    fn lets_the_deadline_pass(&self) {
        eventually("the leases would be over", || {
            now_ms() > self.deadline_ms + 100
        });
    }

    /// The live holder is heard and goes on. The waiter gets the dead one's seat, and not before
    /// `at_least` from now on.
    fn ends_well(mut self, what: &str, at_least: Duration) {
        let back = Instant::now();
        let heard = self.holder.read();
        assert!(heard.contains("HEARTBEAT_UPDATED"), "{what}: {heard:?}");
        self.waiter.hears("[1, ACQUIRED, 2, 2]");
        assert!(back.elapsed() >= at_least, "{what}: {:?}", back.elapsed());
        let mut dialog = Dialog::with(self.server);
        assert_eq!(dialog.ask("SEAT.PTTL pool dead"), "-2", "{what}");
        assert_eq!(
            dialog.ask("SEAT.HEARTBEAT pool alive"),
            "[1, HEARTBEAT_UPDATED, 2]",
            "{what}"
        );
        wait_for_reclaim(self.server, 1);
    }
}

#[test]
fn heartbeats_that_waited_for_a_stopped_server_are_in_time() {
    let server = Server::builder().shipped_grace().start();
    let mut held = Held::of(&server);
    server.signal("STOP");
    let stopped = Instant::now();
    held.sends_a_heartbeat();
    held.lets_the_deadline_pass();
    eventually("the gap is one of more than a second", || {
        stopped.elapsed() > Duration::from_millis(1300)
    });
    let gap = stopped.elapsed();
    server.signal("CONT");
    held.ends_well("SIGSTOP", gap / 2);
    assert_eq!(floor_left_ms(&server), 0);
}

/// A script that goes on for as long as somebody waits at `clock`, whose own commands are no sign
/// of life.
const LONG_SCRIPT: &str = "
    while redis.call('SEAT.QUEUE', 'clock')[1][2] < 1700 do end
    return redis.call('SEAT.ACQUIRE', 'pool', 'newcomer', 2)[2]";

#[test]
fn heartbeats_that_waited_for_a_busy_server_are_in_time() {
    for (what, command, reply) in [
        ("DEBUG SLEEP", vec!["DEBUG", "SLEEP", "1.7"], "+OK"),
        (
            "a script",
            vec!["EVAL", LONG_SCRIPT, "2", "clock", "pool"],
            "NO_SEATS_AVAILABLE",
        ),
    ] {
        let server = Server::builder().shipped_grace().start();
        let mut held = Held::of(&server);
        let mut other = Dialog::with(&server);
        other.ask("SEAT.ACQUIRE clock x 0 QUEUE 600000");
        other.send_args(&command);
        held.sends_a_heartbeat();
        assert_eq!(other.read(), reply, "{what}");
        assert!(now_ms() > held.deadline_ms, "{what} was too short");
        held.ends_well(what, Duration::from_millis(500));
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
    dialog.ask("SEAT.ACQUIRE clock x 0 QUEUE 600000");
    let mut floor_ms = 0;
    let effects = effects_of(&server, || {
        dialog.eval(GIVES_ON, &["clock", "pool"]);
        floor_ms = floor_left_ms(&server);
    });
    // The two are out before the third is in: so no other server revives them either.
    let kinds: Vec<_> = effects.iter().map(|effect| &effect[..24]).collect();
    assert_eq!(
        kinds,
        [
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
        other.ask(pause);
        held.sends_a_heartbeat();
        held.lets_the_deadline_pass();
        if pause.ends_with("WRITE") {
            // Readers are served meanwhile, and see the holders whose heartbeats wait.
            other.expect("SEAT.COUNT pool", "2");
            other.ask("CLIENT UNPAUSE");
        }
        held.ends_well(pause, Duration::from_millis(200));
    }
}

#[test]
fn nobody_is_lost_while_writes_are_refused_or_soon_after() {
    let server = with_grace(1500).start();
    let held = Held::of(&server);
    let mut dialog = Dialog::with(&server);
    dialog.ask("CONFIG SET min-replicas-to-write 1");
    dialog.contains("SEAT.HEARTBEAT pool alive", "NOREPLICAS");
    held.lets_the_deadline_pass();
    dialog.expect("SEAT.COUNT pool", "2");
    assert_eq!(total(&server, "seat_expired"), 0);
    dialog.ask("CONFIG SET min-replicas-to-write 0");
    let mut held = held;
    held.sends_a_heartbeat();
    held.ends_well("NOREPLICAS", Duration::from_millis(700));
}

#[test]
fn nobody_is_lost_while_the_disk_is_full() {
    let (server, mut dialog) = with_grace(1500).config("save 3600 1000000").scene();
    // A file cannot replace a folder.
    let in_the_way = server.dir().join("dump.rdb");
    fs::create_dir(&in_the_way).expect("a folder");
    let held = Held::of(&server);
    dialog.ask("BGSAVE");
    eventually("the snapshot has failed", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "err"
    });
    dialog.contains("SEAT.HEARTBEAT pool alive", "MISCONF");
    held.lets_the_deadline_pass();
    dialog.expect("SEAT.COUNT pool", "2");
    fs::remove_dir(&in_the_way).expect("it is removed");
    dialog.ask("BGSAVE");
    eventually("the snapshot is done", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "ok"
    });
    let mut held = held;
    held.sends_a_heartbeat();
    held.ends_well("MISCONF", Duration::from_millis(500));
}

#[test]
fn nobody_is_lost_while_the_cluster_is_down() {
    let server = alone_with("lease-grace 2500");
    let mut dialog = Dialog::with(&server);
    let state = |wanted: &str| {
        eventually(wanted, || {
            let info = Dialog::with(&server).ask("CLUSTER INFO");
            info.contains(wanted)
        });
    };
    dialog.ask("CONFIG SET cluster-require-full-coverage yes");
    let other_slot = (dialog.number("CLUSTER KEYSLOT pool") + 1) % 16384;
    dialog.ask("SEAT.ACQUIRE pool alive 2 PX 2000");
    dialog.ask("SEAT.ACQUIRE pool dead 2 PX 2000");
    let deadline_ms = now_ms() + 2000;
    dialog.ask(&format!("CLUSTER DELSLOTS {other_slot}"));
    state("cluster_state:fail");
    dialog.contains("SEAT.HEARTBEAT pool alive", "CLUSTERDOWN");
    eventually("the leases would be over", || now_ms() > deadline_ms);
    dialog.ask(&format!("CLUSTER ADDSLOTS {other_slot}"));
    state("cluster_state:ok");
    let beat = dialog.ask("SEAT.HEARTBEAT pool alive EX 600");
    assert_eq!(beat, "[1, HEARTBEAT_UPDATED, 1, 600000]");
    dialog.expect("SEAT.COUNT pool", "2");
    wait_for_reclaim(&server, 1);
    dialog.expect("SEAT.SESSIONS pool", r#"["alive"]"#);
}

#[test]
fn holders_find_their_way_back_after_a_crash() {
    for configuration in ["save 3600 1", "appendonly yes"] {
        let (mut server, mut dialog) = with_grace(2500).config(configuration).scene();
        for session in ["alive", "dead"] {
            dialog.ask(&format!("SEAT.ACQUIRE pool {session} 2 PX 400"));
        }
        dialog.ask("SEAT.ACQUIRE pool first 2 QUEUE 400");
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
        eventually("the leases would be over", || now_ms() > deadline_ms);
        server.restart();
        let started = Instant::now();
        let mut dialog = Dialog::with(&server);
        let reply = dialog.ask("SEAT.ACQUIRE pool late 2");
        assert_eq!(reply, "[0, NO_SEATS_AVAILABLE, 2, 2]", "{configuration}");
        assert_eq!(
            dialog.ask("SEAT.POSITION pool first"),
            "1",
            "{configuration}"
        );
        let left_ms = dialog.number("SEAT.PTTL pool dead");
        assert!((1..=2500).contains(&left_ms), "{left_ms}");
        let next_ms = dialog.pool_info("pool", "next_deadline_ms") - dialog.now_ms();
        assert!((1..=2500).contains(&next_ms), "{next_ms}");
        let beat = dialog.ask("SEAT.HEARTBEAT pool alive EX 600");
        assert_eq!(beat, "[1, HEARTBEAT_UPDATED, 1, 600000]", "{configuration}");
        wait_for_reclaim(&server, 1);
        assert!(
            started.elapsed() >= Duration::from_millis(1000),
            "{configuration}"
        );
        assert_eq!(
            dialog.ask("SEAT.SESSIONS pool"),
            r#"["alive"]"#,
            "{configuration}"
        );
        assert_eq!(floor_left_ms(&server), 0);
    }
}

#[test]
fn a_promoted_replica_gives_holders_the_time_to_reconnect() {
    let mut primary = with_grace(2500).tcp().start();
    let replica = with_grace(2500).replica_of(&primary).start();
    // It may take longer to follow than the leases last.
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    for session in ["alive", "dead"] {
        dialog.ask(&format!("SEAT.ACQUIRE pool {session} 2 PX 3000"));
    }
    let deadline_ms = dialog.now_ms() + 3000;
    // A replica reports how far it is once a second: the primary must not expire them before.
    primary.wait_for_offset(&replica);
    primary.kill9();
    let mut dialog = Dialog::with(&replica);
    dialog.wait_until(deadline_ms);
    // As a replica it goes by the deadlines that it was sent.
    dialog.expect("SEAT.COUNT pool", "0");
    assert_eq!(floor_left_ms(&replica), 0);
    dialog.expect("REPLICAOF NO ONE", "+OK");
    dialog.expect("SEAT.ACQUIRE pool late 2", "[0, NO_SEATS_AVAILABLE, 2, 2]");
    dialog.expect(
        "SEAT.HEARTBEAT pool alive EX 600",
        "[1, HEARTBEAT_UPDATED, 1, 600000]",
    );
    wait_for_reclaim(&replica, 1);
    dialog.expect("SEAT.SESSIONS pool", r#"["alive"]"#);
}

#[test]
fn a_demoted_primary_goes_by_the_deadlines_it_is_sent() {
    let primary = with_grace(600_000).tcp().start();
    let other = with_grace(600_000).tcp().start();
    let mut dialog = Dialog::with(&other);
    dialog.ask(&format!("SEAT.ACQUIRE own x 1 PX {LEASE_MS}"));
    other.signal("STOP");
    thread::sleep(Duration::from_millis(LEASE_MS as u64 + 100));
    other.signal("CONT");
    dialog.expect("SEAT.COUNT own", "1");
    dialog.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    Dialog::with(&primary).ask("SEAT.ACQUIRE pool a 1 PX 200");
    let deadline_ms = dialog.now_ms() + 200;
    primary.wait_for_offset(&other);
    dialog.wait_until(deadline_ms);
    dialog.expect("SEAT.COUNT pool", "0");
    assert_eq!(floor_left_ms(&other), 0);
}

#[test]
fn what_is_no_absence_prolongs_nothing() {
    // A first start, an idle server whose cron runs once a second, and one that is asked often.
    let (server, mut dialog) = Server::builder().shipped_grace().config("hz 1").scene();
    dialog.ask("SEAT.ACQUIRE pool keeps 9 EX 600");
    for lease_ms in [300, 1200, 2300] {
        dialog.ask(&format!("SEAT.ACQUIRE pool a 9 PX {lease_ms}"));
        let deadline_ms = dialog.now_ms() + lease_ms;
        eventually("the lease is over", || now_ms() >= deadline_ms);
        assert_eq!(dialog.ask("SEAT.COUNT pool"), "1", "{lease_ms}");
        assert_eq!(floor_left_ms(&server), 0, "{lease_ms}");
    }
}

#[test]
fn without_a_grace_deadlines_count_as_they_stand() {
    let (_server, mut dialog) = with_grace(0).scene();
    dialog.ask("SEAT.ACQUIRE pool a 1 PX 1000");
    dialog.ask("DEBUG SLEEP 1.5");
    dialog.expect("SEAT.HEARTBEAT pool a", "[0, SESSION_NOT_ACTIVE]");
}

#[test]
fn an_absence_prolongs_by_no_more_than_the_grace() {
    let (server, mut dialog) = with_grace(1000).scene();
    dialog.ask("SEAT.ACQUIRE pool a 1 PX 1000");
    // In one turn of the event loop, the first after the absence.
    let replies = dialog.pipeline(&["DEBUG SLEEP 2.5", "SEAT.PTTL pool a"]);
    let left_ms: i64 = replies[1].parse().expect("milliseconds");
    assert!((1..=1000).contains(&left_ms), "{left_ms}");
    wait_for_reclaim(&server, 1);
}
