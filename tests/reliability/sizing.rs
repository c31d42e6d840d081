//! What a session, a queue entry and a client cost: the figures of docs/operations.md.

use super::{figure, scale};
use crate::support::{Dialog, Server, eventually};

/// What one of them costs when there are `count` of them, in bytes.
fn cost(server: &Server, count: usize, command: impl Fn(usize) -> String) -> i64 {
    let before = server.used_memory();
    let mut dialog = Dialog::with(server);
    for start in (0..count).step_by(500) {
        let numbers = start..count.min(start + 500);
        numbers.clone().for_each(|n| dialog.send(&command(n)));
        for _ in numbers {
            let reply = dialog.read();
            assert!(!reply.starts_with('!'), "{reply}");
        }
    }
    drop(dialog);
    eventually("the connection is gone", || {
        server.info("clients")["connected_clients"] == "1"
    });
    (server.used_memory() - before) / count as i64
}

/// An id of 36 bytes, as a UUID is.
fn id(n: usize) -> String {
    format!("{n:08x}-7c3a-4f1e-9b2d-{:012x}", n * 7919)
}

#[test]
fn a_session_a_ticket_and_a_client_cost_what_the_docs_say() {
    let server = Server::builder().config("maxclients 2000").start();
    let sessions = scale(20_000, 90_000);
    let metadata = format!("{{\"user\":\"{}\"}}", "x".repeat(139));
    assert_eq!(metadata.len(), 150);
    let session = cost(&server, sessions, |n| {
        format!("SEAT.ACQUIRE plain {} 1000000 {metadata}", id(n))
    });
    let leased = cost(&server, sessions, |n| {
        format!("SEAT.ACQUIRE leased {} 1000000 {metadata} EX 3600", id(n))
    });
    let ticket = cost(&server, sessions, |n| {
        format!("SEAT.ACQUIRE queued {} 0 QUEUE 80000000", id(n))
    });
    let pool = cost(&server, 5_000, |n| {
        format!("SEAT.ACQUIRE pool-{n} {} 10 {{}} EX 3600", id(n))
    });

    let clients = 300;
    let before = server.used_memory();
    let mut waiting: Vec<Dialog> = (0..clients).map(|_| Dialog::with(&server)).collect();
    waiting
        .iter_mut()
        .for_each(|dialog| dialog.expect("PING", "+PONG"));
    // The server takes a new connection's buffers back when it has been idle for a moment.
    let mut connection = 0;
    let most = if server.version() < (7, 0, 0) {
        22_000
    } else {
        3_000
    };
    eventually(
        &format!("idle connections cost {most} bytes each at most"),
        || {
            connection = (server.used_memory() - before) / clients as i64;
            connection <= most
        },
    );
    for (n, dialog) in waiting.iter_mut().enumerate() {
        dialog.send(&format!("SEAT.ACQUIRE full {} 0 {metadata} BLOCK 0", id(n)));
    }
    eventually("all are blocked", || {
        server.info("seat")["seat_blocked_clients"] == clients.to_string()
    });
    let mut blocked = 0;
    eventually("blocked clients cost 45 kB each at most", || {
        blocked = (server.used_memory() - before) / clients as i64;
        blocked <= 45_000
    });
    figure(&format!(
        "bytes for a session: {session}, leased: {leased}, a ticket: {ticket}, a pool of one: {pool}, \
         an idle connection: {connection}, a blocked client, connection included: {blocked}"
    ));
    let documented = [
        (session, 230..=270),
        (leased, 250..=290),
        (ticket, 130..=170),
        (pool, 1_100..=1_500),
        (blocked, 30_000..=45_000),
    ];
    for (bytes, range) in documented {
        assert!(range.contains(&bytes), "{bytes} bytes are not in {range:?}");
    }
}
