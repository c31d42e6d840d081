//! Other modules hear of a waiter before it is blocked.

use tempfile::TempDir;

use crate::clock::compile;
use crate::support::{Dialog, Server, nobody_is_blocked};

/// A server with another module that listens, made in `dir`.
pub fn listened_to(dir: &TempDir, module_args: &str) -> Server {
    let listener = dir.path().join("listener.so");
    compile("tests/blocked_clients/listener.c", &listener);
    Server::builder()
        .recording()
        .config(&format!("loadmodule {}", listener.display()))
        .module_args(module_args)
        .start()
}

#[test]
fn a_client_granted_a_seat_before_it_is_blocked_hears_it() {
    let dir = TempDir::new().expect("a directory");
    let server = listened_to(&dir, "");
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 1, "{}");
    dialog.expect("SEAT.ACQUIRE pool b 1 BLOCK 0", "[1, ACQUIRED, 1, 1]");
    assert_eq!(dialog.sessions("pool"), ["b"]);
    nobody_is_blocked(&server);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}
