//! After what may have lost grants, a server that is configured to holds its own back until the
//! leases of those grants are over.

use std::time::{Duration, Instant};

use crate::support::{
    Builder, Dialog, Server, Waiter, eventually, staged, total, total_becomes, wait_for_reclaim,
};

fn with_hold(hold_ms: i64) -> Builder {
    Server::builder().module_args(&format!("grant-hold {hold_ms}"))
}

const DENIED: &str = "[0, NO_SEATS_AVAILABLE, ";

/// All goes on but grants.
fn is_held(server: &Server, dialog: &mut Dialog, what: &str) {
    let before = total(server, "seat_acquired");
    assert!(
        dialog.ask("SEAT.ACQUIRE pool new 9").starts_with(DENIED),
        "{what}"
    );
    assert_eq!(
        dialog.ask("SEAT.ACQUIRE other new 9"),
        "[0, NO_SEATS_AVAILABLE, 0, 9]",
        "{what}"
    );
    assert_eq!(dialog.ask("EXISTS other"), "0", "{what}");
    let joined = dialog.ask("SEAT.ACQUIRE pool poller 9 QUEUE 600000");
    assert!(joined.starts_with("[0, QUEUED"), "{what}: {joined}");
    assert_eq!(total(server, "seat_acquired"), before, "{what}");
}

fn is_served(dialog: &mut Dialog, what: &str) {
    eventually("grants are given again", || {
        dialog.ask("SEAT.ACQUIRE other new 9").starts_with("[1, ")
    });
    let polled = dialog.ask("SEAT.ACQUIRE pool poller 9 QUEUE 600000");
    assert!(polled.starts_with("[1, ACQUIRED"), "{what}: {polled}");
    dialog.ask("DEL other");
}

#[test]
fn a_load_holds_grants_and_nothing_else() {
    for reload in ["restart", "DEBUG RELOAD"] {
        let (mut server, mut dialog) = with_hold(4000).config("appendonly yes").scene();
        total_becomes(&server, "seat_grant_hold_ms", 0);
        dialog.acquire_all("pool", &["a", "b"], 9);
        if reload == "restart" {
            server.restart();
            dialog = Dialog::with(&server);
        } else {
            dialog.ask(reload);
        }
        is_held(&server, &mut dialog, reload);
        assert_eq!(
            dialog.ask("SEAT.ACQUIRE pool a 9"),
            "[1, ALREADY_ACTIVE, 2]",
            "{reload}"
        );
        assert_eq!(
            dialog.ask("SEAT.HEARTBEAT pool a"),
            "[1, HEARTBEAT_UPDATED, 1]",
            "{reload}"
        );
        assert_eq!(
            dialog.ask("SEAT.RELEASE pool b"),
            "[1, RELEASED, 1]",
            "{reload}"
        );
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool waiter 9 BLOCK 0");
        let mut elsewhere = Waiter::of(&server, "SEAT.ACQUIRE empty waiter 3 BLOCK 0");
        assert_eq!(dialog.ask("SEAT.RESIZE pool 20"), "0", "{reload}");
        assert!(total(&server, "seat_grant_hold_ms") > 0, "{reload}");
        waiter.is_granted();
        elsewhere.hears("[1, ACQUIRED, 1, 3]");
        assert_eq!(total(&server, "seat_grant_hold_ms"), 0, "{reload}");
        is_served(&mut dialog, reload);
    }
}

#[test]
fn a_denied_call_changes_nothing_while_grants_are_held() {
    let (server, mut dialog) = with_hold(600_000).scene();
    dialog.ask("FLUSHALL");
    assert!(
        dialog
            .ask("SEAT.ACQUIRE pool poller 2 QUEUE 600000")
            .starts_with("[0, QUEUED, 0, 2, 1]")
    );
    let digest = server.digest();
    assert!(dialog.ask("SEAT.ACQUIRE pool new 5").starts_with(DENIED));
    assert_eq!(server.digest(), digest);
    assert_eq!(dialog.pool_info("pool", "seats"), 2);
}

#[test]
fn a_flush_holds_grants_in_its_database_alone() {
    let (server, mut dialog) = with_hold(4000).scene();
    total_becomes(&server, "seat_grant_hold_ms", 0);
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE empty waiter 0 BLOCK 0");
    dialog.ask("SELECT 1");
    dialog.ask("FLUSHDB");
    is_held(&server, &mut dialog, "FLUSHDB");
    dialog.ask("SELECT 0");
    dialog.expect("SEAT.ACQUIRE pool new 9", "[1, ACQUIRED, 1, 9]");
    dialog.ask("SWAPDB 0 1");
    assert!(dialog.ask("SEAT.ACQUIRE pool new 9").starts_with(DENIED));
    dialog.ask("SELECT 1");
    dialog.expect("SEAT.ACQUIRE pool newer 9", "[1, ACQUIRED, 2, 9]");
    dialog.ask("FLUSHALL");
    for database in [0, 1] {
        dialog.ask(&format!("SELECT {database}"));
        is_held(&server, &mut dialog, "FLUSHALL");
    }
    is_served(&mut dialog, "FLUSHALL");
    dialog.ask("SELECT 0");
    // With another limit for all, whoever waited through the flush is let in.
    let mut last = Waiter::of(&server, "SEAT.ACQUIRE empty last 0 BLOCK 0");
    dialog.expect("SEAT.RESIZE empty 3", "2");
    waiter.is_granted();
    last.is_granted();
}

#[test]
fn a_hold_ends_with_its_setting() {
    let server = with_hold(600_000).start();
    if server.version() < (7, 0, 0) {
        return;
    }
    let mut dialog = Dialog::with(&server);
    dialog.ask("FLUSHALL");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool waiter 3 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool new 3", "[0, NO_SEATS_AVAILABLE, 0, 3]");
    dialog.ask("CONFIG SET seat.grant-hold 0");
    waiter.hears("[1, ACQUIRED, 1, 3]");
}

/// How many hold a seat by what they themselves know: they were granted it, and their lease,
/// counted from before they asked, is not over.
struct Believers(Vec<Instant>);

impl Believers {
    fn holding(&self) -> usize {
        self.0.iter().filter(|end| **end > Instant::now()).count()
    }

    fn asks(&mut self, dialog: &mut Dialog, session: &str, lease: Duration) {
        let end = Instant::now() + lease;
        let call = format!("SEAT.ACQUIRE pool {session} 2 PX {}", lease.as_millis());
        if dialog.ask(&call).starts_with("[1, ACQUIRED") {
            self.0.push(end);
        }
    }
}

/// Grants that a failover loses, and the most who held seats at one time by what they knew. None if
/// the failover took longer than their leases.
fn most_after_lost_grants(hold_ms: i64) -> Option<usize> {
    let lease = Duration::from_millis(1500);
    let mut primary = with_hold(hold_ms).tcp().start();
    let replica = with_hold(hold_ms).replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let mut dialog = Dialog::with(&primary);
    total_becomes(&primary, "seat_grant_hold_ms", 0);
    replica.signal("STOP");
    // What stands in the replica's socket would reach it yet.
    assert_eq!(dialog.number("CLIENT KILL TYPE replica"), 1);
    let mut believers = Believers(Vec::new());
    for session in ["a", "b", "c"] {
        believers.asks(&mut dialog, session, lease);
    }
    assert_eq!(believers.0.len(), 2);
    primary.kill9();
    replica.signal("CONT");
    let mut dialog = Dialog::with(&replica);
    dialog.ask("REPLICAOF NO ONE");
    if believers.holding() < 2 {
        return None;
    }
    let mut most = 0;
    for attempt in 0.. {
        believers.asks(&mut dialog, &format!("n{attempt}"), lease);
        most = most.max(believers.holding());
        if believers.0.len() == 4 {
            break;
        }
    }
    wait_for_reclaim(&replica, 2);
    Some(most)
}

#[test]
fn a_hold_of_a_leases_length_makes_lost_grants_harmless() {
    let most = |hold_ms| {
        staged("the failover comes before the leases end", || {
            most_after_lost_grants(hold_ms)
        })
    };
    assert_eq!(most(1500), 2);
    // That the hold is what does it.
    assert!(most(0) > 2);
}
