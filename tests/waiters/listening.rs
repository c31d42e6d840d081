//! Other modules hear of a waiter before it is blocked.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::nobody_is_blocked;
use crate::dialog::Dialog;
use crate::support::Server;

/// `listener.c`, compiled into `dir` by the C compiler that linking this test took.
fn compile_listener(dir: &Path) -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waiters/listener.c");
    let module = dir.join("listener.so");
    let compiled = Command::new("cc")
        .args([
            "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", source, "-o",
        ])
        .arg(&module)
        .status()
        .expect("cc, to make a module: apt-get install gcc libc6-dev");
    assert!(compiled.success(), "{source} does not compile");
    module.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn a_client_that_is_granted_a_seat_before_it_is_blocked_is_told() {
    let dir = TempDir::new().expect("a directory");
    let listener = compile_listener(dir.path());
    let server = Server::builder()
        .recording()
        .config(&format!("loadmodule {listener}"))
        .start();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("pool", "a", 1, "{}");
    dialog.expect("SEAT.ACQUIRE pool b 1 BLOCK 0", r#"[1, "ACQUIRED", 1, 1]"#);
    assert_eq!(dialog.sessions("pool"), ["b"]);
    nobody_is_blocked(&server);
    dialog.expect("SEAT.RELEASE pool b", r#"[1, "RELEASED", 0]"#);
    dialog.one_seat_is_free("pool");
}
