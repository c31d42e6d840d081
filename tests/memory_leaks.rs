//! No memory is lost by coming and going.

use crate::support::{Dialog, Server};

const SESSIONS: usize = 10_000;

fn carry_out(server: &Server, command: impl Fn(usize) -> String) {
    let mut dialog = Dialog::with(server);
    for start in (0..SESSIONS).step_by(500) {
        (start..start + 500).for_each(|n| dialog.send(&command(n)));
        for _ in 0..500 {
            let reply = dialog.read();
            assert!(reply.starts_with("[1, "), "{reply}");
        }
    }
}

fn acquire_all(server: &Server) {
    carry_out(server, |n| {
        format!(
            "SEAT.ACQUIRE pool session-{n} 100000 {{\"machine\":\"workstation-{n}\",\"x\":\"{}\"}}",
            "x".repeat(n % 200)
        )
    });
}

fn renew_all(server: &Server) {
    carry_out(server, |n| {
        format!("SEAT.HEARTBEAT pool session-{n} {{\"more\":{n}}}")
    });
}

fn release_all(server: &Server) {
    // In another order than they came.
    carry_out(server, |n| {
        format!("SEAT.RELEASE pool session-{}", n * 7919 % SESSIONS)
    });
}

#[test]
fn a_pool_that_was_filled_and_emptied_leaves_nothing_behind() {
    let server = Server::start();
    // The first round pays for what the server itself keeps.
    acquire_all(&server);
    let full = server.used_memory_alone();
    release_all(&server);
    let empty = server.used_memory_alone();
    for _ in 0..4 {
        acquire_all(&server);
        renew_all(&server);
        release_all(&server);
    }
    let now = server.used_memory_alone();
    assert!(
        now - empty < (full - empty) / 50,
        "{} bytes more than after the first round",
        now - empty
    );
}

#[test]
fn a_pool_that_lives_on_gives_back_what_its_sessions_took() {
    let (server, mut dialog) = Server::scene();
    dialog.acquire("pool", "stays", 100_000, "{}");
    drop(dialog);
    let before = server.used_memory_alone();
    acquire_all(&server);
    let full = server.used_memory_alone();
    release_all(&server);
    let left = server.used_memory_alone() - before;
    assert!(
        left * 10 < full - before,
        "{left} of {} bytes are left after all but one have gone",
        full - before
    );
    for _ in 0..3 {
        acquire_all(&server);
        release_all(&server);
    }
    let now = server.used_memory_alone() - before;
    assert!(
        now < left + (full - before) / 50,
        "{left} bytes left after the first round, {now} after the fourth"
    );
}

#[test]
fn refused_commands_keep_nothing() {
    let (server, dialog) = Server::full_pool();
    drop(dialog);
    let refuse = || {
        let mut dialog = Dialog::with(&server);
        let object = format!(r#"{{"heartbeat_count":null,"x":"{}"}}"#, "x".repeat(8000));
        for _ in 0..20 {
            for n in 0..50 {
                dialog.send(&format!("SEAT.ACQUIRE pool session-{n} 1 {object}"));
                dialog.send(&format!("SEAT.ACQUIRE pool session-{n} 9 {object}"));
                dialog.send(&format!("SEAT.ACQUIRE missing-{n} session 9 {object}"));
            }
            for _ in 0..50 {
                assert!(dialog.read().contains("NO_SEATS_AVAILABLE"));
                assert!(dialog.read().starts_with("!ERR"));
                assert!(dialog.read().starts_with("!ERR"));
            }
        }
    };
    refuse();
    let before = server.used_memory_alone();
    refuse();
    refuse();
    let grown = server.used_memory_alone() - before;
    assert!(grown < 100_000, "{grown} bytes");
}
