//! What clients were answered, kept outside the servers, and held against what a server says after
//! a fault.
//!
//! A client knows of each of its sessions in which states it can be. An answer leaves one. A call
//! whose answer was lost, or that a failover may undo, leaves the state before it in addition to
//! those after it, and the session is left alone until an [`audit`] has looked. So an audit that
//! finds a state which is not on the list has found something lost, or something that came back.

mod audit;
mod client;
mod state;
mod work;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

pub use audit::{audit, judge};
pub use client::Client;
pub use work::{Link, Load, Socket, connect};

use crate::support::{Dialog, Server, eventually};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sessions without a lease, or with one of an hour.
    Lasting,
    /// Leases of a fraction of a second.
    Brief,
    /// As lasting, and whoever finds no seat gets a ticket.
    Queued,
    /// Leases of all lengths, weights, tokens, and owners whose sessions take over from each other.
    Owned,
    /// As owned, and as queued.
    OwnedQueued,
}

impl Kind {
    fn has_brief_leases(self) -> bool {
        matches!(self, Self::Brief) || self.has_owners()
    }

    fn has_queue(self) -> bool {
        matches!(self, Self::Queued | Self::OwnedQueued)
    }

    fn has_owners(self) -> bool {
        matches!(self, Self::Owned | Self::OwnedQueued)
    }
}

/// A pool for which the clients compete.
pub struct Pool {
    pub name: String,
    pub seats: i64,
    kind: Kind,
}

/// Pools of all kinds without a queue for owners by turns, each with fewer seats than its sessions
/// want.
pub fn pools(names: impl IntoIterator<Item: Into<String>>) -> Arc<[Pool]> {
    let kinds = [
        (Kind::Lasting, 24),
        (Kind::Brief, 12),
        (Kind::Queued, 5),
        (Kind::Owned, 16),
    ];
    by_turns(names, &kinds)
}

/// Pools of sessions with owners: where the seats are few, where there is a queue, and where only
/// the owners' limits matter.
pub fn pools_of_owners(names: impl IntoIterator<Item: Into<String>>) -> Arc<[Pool]> {
    let kinds = [
        (Kind::Owned, 40),
        (Kind::OwnedQueued, 150),
        (Kind::Owned, 2000),
    ];
    by_turns(names, &kinds)
}

fn by_turns(names: impl IntoIterator<Item: Into<String>>, kinds: &[(Kind, i64)]) -> Arc<[Pool]> {
    let pool = |(name, &(kind, seats)): (_, &(Kind, i64))| Pool { name, seats, kind };
    let names = names.into_iter().map(Into::into);
    names.zip(kinds.iter().cycle()).map(pool).collect()
}

/// A session with an owner whose seats no end of a lease is about to free.
fn of_an_owner(dialog: &mut Dialog) -> Option<String> {
    dialog.sessions("owned").into_iter().find(|session| {
        let details = dialog.ask(&format!("SEAT.GET owned {session} DETAILS"));
        let left_ms = dialog.number(&format!("SEAT.PTTL owned {session}"));
        details.contains("owner-") && (left_ms == -1 || left_ms > 60_000)
    })
}

/// Changes something of which no client knows.
type Meddle = fn(&mut Dialog);

/// Whether an audit notices a change of which no client knows.
fn is_noticed(meddle: Meddle) -> bool {
    let server = Server::start();
    let names = ["lasting", "brief", "queued", "owned"];
    let mut clients = Client::several(3, &pools(names), 1);
    let mut dialog = Dialog::with(&server);
    // More tickets than clients, so that one of these has two, whose order is known.
    let mut are_there = || {
        dialog.sessions("lasting").len() > 1
            && dialog.queue("queued").len() > 3
            && of_an_owner(&mut dialog).is_some()
    };
    // They come and go, so there may be none by the time that the load has stopped.
    loop {
        let load = Load::start(clients, &Socket(server.socket()));
        eventually("there are holders and tickets", &mut are_there);
        clients = load.stop();
        if are_there() {
            break;
        }
    }
    audit(&mut server.client(), &mut clients, "before");
    meddle(&mut dialog);
    panic::catch_unwind(AssertUnwindSafe(|| {
        audit(&mut server.client(), &mut clients, "after");
    }))
    .is_err()
}

#[test]
fn an_audit_sees_what_was_lost_and_what_came_back() {
    fn first(dialog: &mut Dialog) -> String {
        dialog.sessions("lasting").remove(0)
    }
    let meddlers: [(&str, Meddle); 8] = [
        ("a seat is lost", |dialog| {
            let session = first(dialog);
            dialog.expect(&format!("SEAT.REVOKE lasting {session}"), "1");
        }),
        ("a stranger holds one", |dialog| {
            dialog.acquire("lasting", "stranger", 1000, "{}");
        }),
        ("a heartbeat is one too many", |dialog| {
            let session = first(dialog);
            dialog.contains(
                &format!("SEAT.HEARTBEAT lasting {session}"),
                "HEARTBEAT_UPDATED",
            );
        }),
        ("a lease is longer", |dialog| {
            for session in dialog.sessions("lasting") {
                dialog.ask(&format!("SEAT.ACQUIRE lasting {session} 1 EX 90000"));
            }
        }),
        ("a session of an owner is gone by no takeover", |dialog| {
            let session = of_an_owner(dialog).expect("one is there");
            dialog.expect(&format!("SEAT.REVOKE owned {session}"), "1");
        }),
        ("a token is replaced", |dialog| {
            let session = of_an_owner(dialog).expect("one is there");
            let call = format!("SEAT.ACQUIRE owned {session} 16 WITHTOKEN");
            dialog.contains(&call, "ALREADY_ACTIVE");
        }),
        ("a ticket is lost", |dialog| {
            let session = dialog.queue("queued").remove(0);
            let lost = "[0, SESSION_NOT_FOUND]";
            dialog.expect(&format!("SEAT.RELEASE queued {session}"), lost);
        }),
        (
            "a ticket is behind one that its client took later",
            |dialog| {
                let queue = dialog.queue("queued");
                let client = |session: &str| {
                    session
                        .split_once("-session-")
                        .map(|(client, _)| client.to_owned())
                };
                let is_of_two = |at: usize| {
                    queue[at + 1..]
                        .iter()
                        .any(|later| client(later) == client(&queue[at]))
                };
                let at = (0..queue.len())
                    .find(|&at| is_of_two(at))
                    .expect("more tickets than clients");
                let session = &queue[at];
                dialog.ask(&format!("SEAT.RELEASE queued {session}"));
                let join = format!("SEAT.ACQUIRE queued {session} 5 QUEUE 600000");
                dialog.contains(&join, "QUEUED");
            },
        ),
    ];
    assert!(!is_noticed(|_| {}), "nothing has changed");
    for (what, meddle) in meddlers {
        assert!(is_noticed(meddle), "{what}");
    }
}
