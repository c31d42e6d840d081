//! The ADR's own tests, whose text is unmodified, on a server with the shipped settings.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::shipped;
use crate::support::Server;

#[test]
fn the_adrs_own_tests_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let server = Server::builder()
        .tcp()
        .module_args(&shipped::arguments())
        .start();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let python = target.join("venv/bin/python");
    // They name localhost:6379; a plugin leads them to the private server.
    let output = Command::new(&python)
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "private_server",
            "-p",
            "no:cacheprovider",
        ])
        .args(["test_redis_scripts.py", "test_load.py"])
        .env("PRIVATE_PORT", server.port().to_string())
        .env("PYTHONPATH", root.join("tests/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(root.join("tests/adr"))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; run scripts/setup", python.display()));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("4 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let calls: u64 = server.info("seat")["seat_script_calls"]
        .parse()
        .expect("a number");
    assert!(calls >= 104, "{calls} calls were carried out as commands");
    writeln!(
        io::stderr(),
        "the ADR's own tests: {}",
        said.trim().lines().last().unwrap_or_default()
    )
    .expect("stderr");
}
