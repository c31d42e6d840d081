//! maxmemory with each policy: a pool is evicted whole or not at all.

use super::{figure, scale};
use crate::support::{Dialog, Server, Waiter, eventually, total};

const POOLS: usize = 40;
const SESSIONS: usize = 30;
const TICKETS: usize = 5;

const EVICTING: [&str; 7] = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// Pools that may be evicted, whatever the policy, each with all its sessions and tickets and with
/// somebody blocked at the first.
fn filled(server: &Server) -> Dialog {
    let mut dialog = Dialog::with(server);
    for pool in 0..POOLS {
        for session in 0..SESSIONS {
            dialog.acquire(
                &format!("pool-{pool}"),
                &format!("s{session}"),
                SESSIONS as i64,
                "{}",
            );
        }
        for ticket in 0..TICKETS {
            dialog.begins(
                &format!("SEAT.ACQUIRE pool-{pool} t{ticket} {SESSIONS} QUEUE 80000000"),
                "[0, QUEUED",
            );
        }
        dialog.expect(&format!("EXPIRE pool-{pool} 80000"), "1");
    }
    dialog
}

/// The pools that are left, each of which must be whole.
fn whole_pools(dialog: &mut Dialog, policy: &str) -> usize {
    let mut left = 0;
    for pool in 0..POOLS {
        let name = format!("pool-{pool}");
        let mut sessions = dialog.sessions(&name);
        let mut queue = dialog.queue(&name);
        // The server may evict the pool between the two, to make room for the replies.
        while dialog.sessions(&name) != sessions {
            sessions = dialog.sessions(&name);
            queue = dialog.queue(&name);
        }
        queue.retain(|session| session != "blocked");
        // Whoever was blocked at a pool that is evicted holds a seat of a new one soon after.
        if sessions != ["blocked"] {
            let figures = (sessions.len(), queue.len());
            assert!(
                [(0, 0), (SESSIONS, TICKETS)].contains(&figures),
                "{policy}: {name} has {figures:?} sessions and tickets"
            );
            left += usize::from(!sessions.is_empty());
        }
    }
    left
}

#[test]
fn a_pool_is_evicted_whole_or_not_at_all() {
    let policies = scale(&EVICTING[2..4], &EVICTING[..]);
    for policy in policies {
        let primary = Server::builder()
            .config(&format!("maxmemory-policy {policy}"))
            .tcp()
            .start();
        let replica = Server::builder().replica_of(&primary).start();
        primary.wait_for_offset(&replica);
        let mut dialog = filled(&primary);
        let mut waiter = Waiter::of(
            &primary,
            &format!("SEAT.ACQUIRE pool-0 blocked {SESSIONS} BLOCK 0"),
        );
        assert_eq!(whole_pools(&mut dialog, policy), POOLS);

        let memory = primary.info("memory");
        let mut limit: u64 = memory["used_memory"].parse().expect("bytes");
        // Little by little, so that a pool that is evicted in parts would be seen.
        while whole_pools(&mut dialog, policy) > POOLS / 2 {
            limit = limit
                .checked_sub(10_000)
                .expect("pools are evicted in time");
            dialog.expect(&format!("CONFIG SET maxmemory {limit}"), "+OK");
        }
        // The last to go is the one that somebody waits at.
        if dialog.sessions("pool-0").len() == SESSIONS {
            dialog.expect("CONFIG SET maxmemory 0", "+OK");
            dialog.expect("DEL pool-0", "1");
        }
        waiter.is_granted();
        dialog.expect("CONFIG SET maxmemory 0", "+OK");
        eventually("the tickets of evicted pools are not counted", || {
            let queued: usize = (0..POOLS)
                .map(|pool| dialog.queue(&format!("pool-{pool}")).len())
                .sum();
            total(&primary, "seat_tickets") == queued as u64
        });
        eventually("the replica has evicted the same", || {
            primary.wait_for_offset(&replica);
            primary.digest() == replica.digest()
        });
        assert_eq!(total(&replica, "seat_ignored_effects"), 0, "{policy}");
        let left = whole_pools(&mut dialog, policy);
        figure(&format!(
            "pools evicted whole: {} of {POOLS} ({policy})",
            POOLS - left
        ));
    }
}

#[test]
fn under_noeviction_a_full_server_keeps_all_and_grants_none() {
    let server = Server::builder()
        .config("maxmemory-policy noeviction")
        .start();
    let mut dialog = filled(&server);
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    let before = server.digest();
    for pool in 0..POOLS {
        let reply = dialog.ask(&format!("SEAT.ACQUIRE pool-{pool} new 1000 {{}}"));
        // Tickets are ahead, and a seat for somebody new needs memory.
        assert!(reply.starts_with("!OOM"), "{reply}");
        dialog.begins(
            &format!("SEAT.ACQUIRE pool-{pool} new 1000 QUEUE 1000"),
            "!OOM",
        );
    }
    assert_eq!(server.digest(), before);
    assert_eq!(whole_pools(&mut dialog, "noeviction"), POOLS);
    for pool in 0..POOLS {
        for session in 0..SESSIONS {
            dialog.begins(
                &format!("SEAT.RELEASE pool-{pool} s{session}"),
                "[1, RELEASED",
            );
        }
    }
}
