//! A disk that fails: whoever waits is let in only once the server takes writes again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{Dialog, Server, Waiter, default_binary, eventually, total};

/// Has the lease of the only seat expire while the server answers `MISCONF`, then mends the disk.
#[track_caller]
fn nobody_is_let_in_before(mend: impl FnOnce(&mut Dialog), server: &Server, mut waiter: Waiter) {
    let mut dialog = Dialog::with(server);
    eventually("the server refuses", || {
        let reply = dialog.ask("SEAT.ACQUIRE other x 1");
        reply.starts_with("!MISCONF")
    });
    eventually("the lease has expired", || {
        dialog.ask("SEAT.COUNT pool") == "0"
    });
    // Many turns of its timer.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(total(server, "seat_granted"), 0);
    assert_eq!(dialog.queue("pool"), ["b"]);
    mend(&mut dialog);
    waiter.is_granted();
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

/// A client that waits for the seat of a session whose lease expires soon.
#[track_caller]
fn waiter_for_an_expiry(server: &Server) -> Waiter {
    Dialog::with(server).expect("SEAT.ACQUIRE pool a 1 PX 3000", "[1, ACQUIRED, 1, 1, 3000]");
    Waiter::of(server, "SEAT.ACQUIRE pool b 1 BLOCK 0")
}

#[test]
fn nobody_is_let_in_after_a_snapshot_failed_until_one_succeeds() {
    let (server, mut dialog) = Server::builder()
        .config("save 3600 1000000")
        .config("stop-writes-on-bgsave-error no")
        .full_pool();
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    // A file cannot replace a folder.
    let in_the_way = server.dir().join("dump.rdb");
    fs::create_dir(&in_the_way).expect("a folder");
    dialog.ask("BGSAVE");
    has_failed_to_save(&server);
    // The lease must not be over before the server refuses.
    dialog.expect_at_once(&[
        (
            "SEAT.ACQUIRE pool a 1 PX 500",
            "[1, ALREADY_ACTIVE, 1, 500]",
        ),
        ("CONFIG SET stop-writes-on-bgsave-error yes", "+OK"),
    ]);
    let mend = |dialog: &mut Dialog| {
        fs::remove_dir(&in_the_way).expect("a folder");
        dialog.ask("BGSAVE");
    };
    nobody_is_let_in_before(mend, &server, waiter);
}

#[test]
fn a_failed_snapshot_stops_nobody_if_the_server_does_not_mind() {
    for settings in [
        ["save 3600 1000000", "stop-writes-on-bgsave-error no"],
        ["save \"\"", "stop-writes-on-bgsave-error yes"],
    ] {
        let builder = Server::builder().config(settings[0]).config(settings[1]);
        let server = builder.start();
        let mut waiter = waiter_for_an_expiry(&server);
        fs::create_dir(server.dir().join("dump.rdb")).expect("a folder");
        Dialog::with(&server).ask("BGSAVE");
        has_failed_to_save(&server);
        waiter.is_granted();
    }
}

#[track_caller]
fn has_failed_to_save(server: &Server) {
    eventually("the snapshot has failed", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "err"
    });
}

#[test]
fn nobody_is_let_in_while_writes_to_the_aof_fail() {
    // A file that may not grow is an error to a server that ignores the signal for it.
    let folder = tempfile::tempdir().expect("a folder");
    let wrapper = folder.path().join("redis-server");
    let real = default_binary();
    let text = format!(
        "#!/bin/sh\ntrap '' XFSZ\nexec '{}' \"$@\"\n",
        real.display()
    );
    fs::write(&wrapper, text).expect("a script");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("permissions");
    let server = Server::builder().binary(&wrapper);
    let server = server.config("appendonly yes").start();
    let waiter = waiter_for_an_expiry(&server);
    let may_grow_to = |bytes: &str| {
        let limit = format!("--fsize={bytes}:unlimited");
        let pid = server.pid().to_string();
        let status = Command::new("prlimit")
            .args(["--pid", &pid, &limit])
            .status();
        assert!(status.expect("prlimit").success());
    };
    may_grow_to("1");
    nobody_is_let_in_before(|_| may_grow_to("unlimited"), &server, waiter);
}
