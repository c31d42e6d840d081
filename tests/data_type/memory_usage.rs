//! MEMORY USAGE against what the server's allocator says, and what is given back.

use crate::support::{Dialog, Server, eventually};

/// Nothing but the pools may move used_memory: nor those that are gone, which Valkey frees later
/// unless it is asked not to.
fn quiet_server() -> Server {
    let at_once = "lazyfree-lazy-user-del no";
    let server = Server::builder().config(at_once).start();
    // What a server sets aside once, with the first commands, is no pool's.
    let metadata = format!(r#"{{"a":"{}"}}"#, "x".repeat(1000));
    carry_out(
        &server,
        (0..300).map(|n| format!("SEAT.ACQUIRE warm {n} 300 {metadata}")),
    );
    Dialog::with(&server).expect("DEL warm", "1");
    server
}

/// Sends all commands at once and checks that each was carried out.
fn carry_out(server: &Server, commands: impl Iterator<Item = String>) {
    let mut dialog = Dialog::with(server);
    let commands: Vec<_> = commands.collect();
    for chunk in commands.chunks(500) {
        chunk.iter().for_each(|command| dialog.send(command));
        for command in chunk {
            let reply = dialog.read();
            let done = reply.starts_with("[1, ") || reply == "+OK";
            assert!(done, "{command}: {reply}");
        }
    }
}

fn usage(server: &Server, key: &str) -> i64 {
    Dialog::with(server).number(&format!("MEMORY USAGE {key} SAMPLES 0"))
}

#[track_caller]
fn within_ten_percent(what: &str, said: i64, truth: i64) {
    assert!(
        (said - truth).abs() * 10 <= truth,
        "{what}: MEMORY USAGE says {said}, used_memory grew by {truth} ({:+.1} %)",
        (said - truth) as f64 * 100.0 / truth as f64
    );
}

/// An id of 36 bytes, as a UUID is.
fn id(n: usize) -> String {
    format!("{n:08x}-7c3a-4f1e-9b2d-{:012x}", n * 7919)
}

/// About 150 bytes of metadata.
fn metadata(n: usize) -> String {
    let text = format!(
        r#"{{"user":"user-{n}","machine":"workstation-{n}.example.org","ip":"10.0.{}.{}","product":"modeller","version":"12.4.1","os":"linux","pid":{n},"x":"yyyyyyyy"}}"#,
        n / 256 % 256,
        n % 256
    );
    assert!((130..=180).contains(&text.len()), "{}", text.len());
    text
}

fn fill(server: &Server, sessions: usize) {
    carry_out(
        server,
        (0..sessions).map(|n| format!("SEAT.ACQUIRE pool {} {sessions} {}", id(n), metadata(n))),
    );
}

/// The server's table of keys is large enough for `more` keys and has stopped moving.
fn prepare_table(server: &Server, keys: usize) {
    carry_out(server, (0..keys).map(|n| format!("SET filler-{n} x")));
    eventually("the table of keys is at rest", || {
        !Dialog::with(server)
            .ask("DEBUG HTSTATS 0")
            .contains("rehashing target")
    });
}

#[test]
fn of_tiny_pools() {
    let server = quiet_server();
    // 4,096 slots in the server's own table, both before and after.
    prepare_table(&server, 2100);
    let before = server.used_memory_alone();
    carry_out(
        &server,
        (0..1900).map(|n| format!("SEAT.ACQUIRE pool-{n} {} 5 {}", id(n), metadata(n))),
    );
    let truth = server.used_memory_alone() - before;
    let said = (0..1900)
        .map(|n| usage(&server, &format!("pool-{n}")))
        .sum();
    within_ten_percent("1,900 pools of one session", said, truth);
}

#[test]
fn of_a_large_pool_before_and_after_half_have_left() {
    let server = quiet_server();
    let before = server.used_memory_alone();
    fill(&server, 10_000);
    let truth = server.used_memory_alone() - before;
    within_ten_percent("10,000 sessions", usage(&server, "pool"), truth);
    let own = Dialog::with(&server).pool_info("pool", "memory_bytes");
    within_ten_percent("SEAT.INFO of 10,000 sessions", own, truth);
    carry_out(
        &server,
        (0..10_000)
            .filter(|n| n % 2 == 0)
            .map(|n| format!("SEAT.RELEASE pool {}", id(n))),
    );
    let truth = server.used_memory_alone() - before;
    within_ten_percent("5,000 of 10,000 sessions", usage(&server, "pool"), truth);
}

#[test]
fn of_sessions_without_metadata() {
    let server = quiet_server();
    let before = server.used_memory_alone();
    carry_out(
        &server,
        (0..20_000).map(|n| format!("SEAT.ACQUIRE pool s{n} 20000 {{}}")),
    );
    let truth = server.used_memory_alone() - before;
    within_ten_percent(
        "20,000 sessions with short ids",
        usage(&server, "pool"),
        truth,
    );
}

#[test]
fn of_large_metadata() {
    let server = quiet_server();
    for bytes in [700, 5_000, 16_000] {
        let before = server.used_memory_alone();
        let object = format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes));
        carry_out(
            &server,
            (0..300).map(|n| format!("SEAT.ACQUIRE pool {} 300 {object}", id(n))),
        );
        let truth = server.used_memory_alone() - before;
        within_ten_percent(
            &format!("300 sessions with {bytes} bytes each"),
            usage(&server, "pool"),
            truth,
        );
        Dialog::with(&server).expect("DEL pool", "1");
    }
}

#[test]
fn of_leased_sessions() {
    let server = Server::builder().module_args("allow-effects yes").start();
    let before = server.used_memory_alone();
    let mut dialog = Dialog::with(&server);
    for n in 0..10_000 {
        let deadline = 4_000_000_000_000_i64 + n as i64 * 7919 % 100_000;
        dialog.send(&format!(
            "SEAT.EFFECT pool GRANT {} '10000 7 7 - 30000 {deadline}' {}",
            id(n),
            metadata(n)
        ));
        dialog.hears("1");
    }
    drop(dialog);
    let truth = server.used_memory_alone() - before;
    within_ten_percent("10,000 leased sessions", usage(&server, "pool"), truth);
}

#[test]
fn a_large_pool_is_given_back_however_it_goes() {
    let server = quiet_server();
    // The first round pays for what the server keeps.
    fill(&server, 20_000);
    Dialog::with(&server).expect("DEL pool", "1");
    let before = server.used_memory_alone();
    for end in [
        "UNLINK pool",
        "FLUSHALL ASYNC",
        "FLUSHALL SYNC",
        "DEL pool",
        "SET pool x",
        "PEXPIREAT pool 1",
        "RENAME other pool",
    ] {
        fill(&server, 20_000);
        Dialog::with(&server).expect("SET other x", "+OK");
        let grown = server.used_memory_alone() - before;
        assert!(grown > 4_000_000, "{grown}");
        let reply = Dialog::with(&server).ask(end);
        assert!(!reply.starts_with('!'), "{end}: {reply}");
        eventually(&format!("{end} gives the memory back"), || {
            server.used_memory_alone() - before < grown / 20
        });
        Dialog::with(&server).ask("DEL pool other");
    }
}
