//! Sessions, tickets and blocked clients that come and go for long leave no memory behind.

use super::{figure, scale};
use crate::support::{Dialog, Server, eventually, total};

/// Each round has names of its own, as a server does that sees new customers every day.
const POOLS: usize = 40;

/// Who waits in each round with a connection of their own, and how.
const WAITERS: usize = 24;

/// How many of a pool's sessions have a short lease and keep silent.
const EXPIRING: usize = 7;

/// The server keeps the helper clients of those that were blocked, for others, and has buffers of
/// its own. One small allocation that is lost in each cycle would exceed it.
const SLACK: i64 = WAITERS as i64 * 45_000 + 200_000;

fn used_memory(server: &Server) -> i64 {
    eventually("only this connection is left", || {
        server.info("clients")["connected_clients"] == "1"
    });
    eventually("no key is left", || {
        Dialog::with(server).ask("DBSIZE") == "0"
    });
    eventually("nobody waits", || {
        let seat = server.info("seat");
        seat["seat_tickets"] == "0" && seat["seat_blocked_clients"] == "0"
    });
    server.used_memory()
}

/// Sends all at once and reads the replies, each of which must be an array or an integer.
fn all(dialog: &mut Dialog, commands: &[String]) {
    for chunk in commands.chunks(400) {
        chunk.iter().for_each(|command| dialog.send(command));
        for command in chunk {
            let reply = dialog.read();
            assert!(!reply.starts_with('!'), "{command}: {reply}");
        }
    }
}

/// One cycle of everything that can become of a session: released, revoked, cleaned up, expired; of
/// a ticket: taken up, given up, lost; of a blocked client: granted, timed out, gone. Returns how
/// many there were.
fn round(server: &Server, number: usize) -> usize {
    let mut dialog = Dialog::with(server);
    let expired = total(server, "seat_expired");
    let pools: Vec<String> = (0..POOLS)
        .map(|pool| format!("pool-{number}-{pool}"))
        .collect();
    let mut commands = Vec::new();
    for pool in &pools {
        for session in 0..20 {
            let lease = ["", " PX 30", " EX 600"][session % 3];
            let x = "x".repeat(session * 9);
            commands.push(format!(
                "SEAT.ACQUIRE {pool} s{session} 20 {{\"x\":\"{x}\"}}{lease}"
            ));
        }
        for session in 0..6 {
            let ticket_ms = if session % 2 == 0 { 25 } else { 80_000_000 };
            commands.push(format!(
                "SEAT.ACQUIRE {pool} t{session} 20 QUEUE {ticket_ms}"
            ));
        }
        commands.push(format!("SEAT.HEARTBEAT {pool} s2"));
    }
    all(&mut dialog, &commands);

    let waiters: Vec<Dialog> = (0..WAITERS)
        .map(|waiter| {
            let mut dialog = Dialog::with(server);
            let pool = &pools[waiter % POOLS];
            let how = ["BLOCK 20", "BLOCK 0", "QUEUE 20 BLOCK 0", "PX 20 BLOCK 0"][waiter % 4];
            dialog.send(&format!(
                "SEAT.ACQUIRE {pool} w{waiter} 20 {{\"w\":1}} {how}"
            ));
            dialog
        })
        .collect();
    let mut commands = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        commands.push(format!("SEAT.RELEASE {pool} s0"));
        commands.push(format!("SEAT.REVOKE {pool} s3 s5 s6 t1"));
        commands.push(format!("SEAT.ACQUIRE {pool} t3 20"));
        if index % 5 == 0 {
            commands.push(format!("RENAME {pool} {pool}-renamed"));
            commands.push(format!("COPY {pool}-renamed {pool}"));
        }
    }
    all(&mut dialog, &commands);
    for (waiter, mut dialog) in waiters.into_iter().enumerate() {
        // The others hang up.
        if matches!(waiter % 4, 0 | 3) {
            let reply = dialog.read();
            assert!(!reply.starts_with('!'), "{reply}");
        }
    }
    eventually("the leases of 30 ms have expired", || {
        total(server, "seat_expired") >= expired + (POOLS * EXPIRING) as u64
    });
    let mut commands = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        match index % 4 {
            0 => commands.push(format!("DEL {pool} {pool}-renamed")),
            1 => commands.push(format!("PEXPIRE {pool} 1")),
            2 => commands.push(format!("SEAT.CLEANUP {pool} IDLE 0")),
            _ => {}
        }
    }
    all(&mut dialog, &commands);
    dialog.expect("FLUSHALL", "+OK");
    POOLS * 26 + WAITERS
}

#[test]
fn what_comes_and_goes_leaves_no_memory_behind() {
    let server = Server::start();
    // The first rounds pay for what the server itself keeps.
    for number in 0..3 {
        round(&server, number);
    }
    let before = used_memory(&server);
    let rounds = scale(30, 300);
    let cycles: usize = (3..rounds + 3).map(|number| round(&server, number)).sum();
    let left = used_memory(&server) - before;
    figure(&format!(
        "sessions, tickets and waiters that came and went: {cycles}, bytes left: {left}"
    ));
    assert!(left < SLACK, "{left} bytes are left of {cycles} cycles");
}
