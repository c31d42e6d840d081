//! What survives a restart, and what a damaged file does.

mod damaged;

use fastrand::Rng;

use crate::data_type::{exercise, grant_shapes};
use crate::support::{Builder, Dialog, Server, eventually, replicated, workload};

/// The append-only file, with an RDB at its head or without.
const AOF: [&str; 2] = ["aof-use-rdb-preamble yes", "aof-use-rdb-preamble no"];

/// A server that takes effects from clients, so that a pool can be made of any contents.
fn with_effects() -> Builder {
    Server::builder().module_args("allow-effects yes")
}

/// Pools of all shapes, some databases, and what a random workload leaves behind.
fn fill(server: &Server) -> u64 {
    let seed = workload::seed();
    let mut dialog = Dialog::with(server);
    workload::run(&mut dialog, &mut Rng::with_seed(seed), 800);
    grant_shapes(&mut dialog, "shapes");
    dialog.expect("SELECT 9", "+OK");
    grant_shapes(&mut dialog, "shapes");
    for n in 0..2000 {
        dialog.send(&format!(
            "SEAT.ACQUIRE large session-{n} 2000 {{\"n\":{n},\"text\":\"{}\"}}",
            "t".repeat(n % 97)
        ));
    }
    for _ in 0..2000 {
        assert!(dialog.read().contains("ACQUIRED"));
    }
    seed
}

#[track_caller]
fn works_again(server: &Server) {
    let mut dialog = Dialog::with(server);
    exercise(&mut dialog, "shapes", "after a restart");
    dialog.expect("SELECT 9", "+OK");
    exercise(&mut dialog, "large", "after a restart");
}

#[test]
fn an_rdb_file_brings_everything_back() {
    for compression in ["rdbcompression yes", "rdbcompression no"] {
        let mut server = with_effects()
            .config("save 3600 1")
            .config(compression)
            .start();
        let seed = fill(&server);
        let digest = server.digest();
        server.shutdown();
        assert!(server.dir().join("dump.rdb").exists());
        server.restart();
        assert_eq!(
            server.digest(),
            digest,
            "SEAT_TEST_SEED={seed}, {compression}"
        );
        works_again(&server);
    }
}

#[test]
fn an_append_only_file_brings_everything_back() {
    for preamble in AOF {
        let mut server = with_effects().recording().config(preamble).start();
        let seed = fill(&server);
        let digest = server.digest();
        server.kill9();
        server.restart();
        assert_eq!(server.digest(), digest, "SEAT_TEST_SEED={seed}, {preamble}");
        server.rewrite_aof();
        assert_eq!(
            server.digest(),
            digest,
            "SEAT_TEST_SEED={seed}, {preamble}, rewritten"
        );
        let mut dialog = Dialog::with(&server);
        dialog.expect("DEBUG LOADAOF", "+OK");
        assert_eq!(
            server.digest(),
            digest,
            "SEAT_TEST_SEED={seed}, {preamble}, loaded again"
        );
        dialog.acquire("after", "a", 9, "{}");
        let digest = server.digest();
        server.kill9();
        server.restart();
        assert_eq!(
            server.digest(),
            digest,
            "SEAT_TEST_SEED={seed}, {preamble}, rewritten and restarted"
        );
        works_again(&server);
    }
}

#[test]
fn a_rewritten_file_has_one_grant_for_each_session() {
    let (server, mut dialog) = with_effects().recording().scene();
    for _ in 0..20 {
        dialog.acquire("pool", "passing", 9, "{}");
        dialog.expect("SEAT.RELEASE pool passing", "[1, RELEASED, 0]");
    }
    grant_shapes(&mut dialog, "pool");
    dialog.expect("SEAT.HEARTBEAT pool counted", "[1, HEARTBEAT_UPDATED, -6]");
    dialog.expect("EXPIRE pool 100000", "1");
    server.rewrite_aof();
    let commands = server.commands_in_aof();
    let mut granted = Vec::new();
    for command in &commands {
        match command[0].to_ascii_uppercase().as_slice() {
            b"SEAT.EFFECT" => {
                assert_eq!(
                    (command[2].as_slice(), command.len()),
                    (b"GRANT".as_slice(), 6)
                );
                granted.push(command[3].clone());
            }
            b"SELECT" | b"PEXPIREAT" | b"FUNCTION" => {}
            other => panic!("{} in a rewritten file", other.escape_ascii()),
        }
    }
    granted.sort();
    assert_eq!(
        granted,
        [
            b"\0\xff\r\n".to_vec(),
            b"bare".to_vec(),
            b"counted".to_vec(),
            b"leased".to_vec(),
            b"plain".to_vec()
        ]
    );
}

#[test]
fn writes_while_the_file_is_rewritten_are_not_lost() {
    let mut server = with_effects().recording().start();
    fill(&server);
    let mut dialog = Dialog::with(&server);
    dialog.begins("BGREWRITEAOF", "+");
    let mut random = Rng::with_seed(1);
    while server.info("persistence")["aof_rewrite_in_progress"] == "1" {
        workload::run(&mut dialog, &mut random, 20);
    }
    workload::run(&mut dialog, &mut random, 20);
    let digest = server.digest();
    server.kill9();
    server.restart();
    assert_eq!(server.digest(), digest);
}

#[test]
fn save_points_see_the_seats() {
    let (server, mut dialog) = Server::builder().config("save 3600 1000").scene();
    let changes = || -> u64 {
        server.info("persistence")["rdb_changes_since_last_save"]
            .parse()
            .expect("a number")
    };
    for (command, at_least) in [
        ("SEAT.ACQUIRE pool a 2 {}", 1),
        ("SEAT.ACQUIRE pool b 2 {}", 1),
        ("SEAT.ACQUIRE pool c 2 {}", 0),
        ("SEAT.ACQUIRE pool a 2 {}", 0),
        ("SEAT.HEARTBEAT pool a", 1),
        ("SEAT.HEARTBEAT pool x", 0),
        ("SEAT.RELEASE pool x", 0),
        ("SEAT.REVOKE pool x", 0),
        ("SEAT.COUNT pool", 0),
        ("SEAT.RELEASE pool a", 1),
        ("SEAT.REVOKE pool b", 1),
    ] {
        let before = changes();
        dialog.ask(command);
        let counted = changes() - before;
        assert_eq!(
            counted > 0,
            at_least > 0,
            "{command} counts as {counted} changes"
        );
    }
}

#[test]
fn a_save_point_fires_from_seats_alone() {
    let (server, mut dialog) = Server::builder().config("save 1 3").scene();
    dialog.acquire("pool", "a", 2, "{}");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 2]");
    eventually("the server saves", || {
        server.dir().join("dump.rdb").exists()
    });
    let copy = Server::builder().data_of(&server).start();
    assert_eq!(copy.digest(), server.digest());
}

#[test]
fn a_saved_pool_needs_the_module() {
    let mut server = Server::builder().config("save 3600 1").start();
    Dialog::with(&server).acquire("pool", "a", 2, "{}");
    server.shutdown();
    let log = Server::builder()
        .plain()
        .data_of(&server)
        .try_start()
        .err()
        .expect("no start without the module");
    assert!(log.contains("seat-pool"), "{log}");
}

#[test]
fn loading_replicates_nothing() {
    let (mut server, mut dialog) = Server::builder().recording().scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    let before = server.commands_in_aof();
    server.restart();
    assert_eq!(server.commands_in_aof(), before);
    let mut dialog = Dialog::with(&server);
    let lines = replicated(&server, || dialog.expect("SEAT.COUNT pool", "2"));
    assert!(lines.is_empty(), "{lines:?}");
}
