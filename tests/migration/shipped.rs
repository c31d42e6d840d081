//! What the shipped redis.conf says of the scripts, and `make sha`.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{ACQUIRE, HEARTBEAT, RELEASE, load};
use crate::dialog::Dialog;
use crate::support::Server;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The arguments of loadmodule in the shipped configuration.
pub fn arguments() -> String {
    let conf = fs::read_to_string(root().join("redis.conf")).expect("redis.conf");
    let line = conf.lines().find(|line| line.starts_with("loadmodule "));
    let line = line.expect("the module is loaded");
    line.splitn(3, ' ').nth(2).expect("arguments").to_owned()
}

#[test]
fn the_originals_are_listed_with_and_without_newlines_around_them() {
    let server = Server::builder().module_args(&arguments()).start();
    let mut dialog = Dialog::with(&server);
    for (text, arguments, answer) in [
        (ACQUIRE, vec!["a", "2", "{}"], "ACQUIRED"),
        (HEARTBEAT, vec!["a", "{}"], "HEARTBEAT_UPDATED"),
        (RELEASE, vec!["a"], "RELEASED"),
    ] {
        let bare = text.trim_matches('\n');
        for before in ["", "\n"] {
            for after in ["", "\n"] {
                dialog.ask("DEL p");
                if answer != "ACQUIRED" {
                    dialog.acquire("p", "a", 2, "{}");
                }
                let variant = format!("{before}{bare}{after}");
                let sha = load(&mut dialog, &variant);
                let mut call = vec!["EVALSHA", &sha, "1", "p"];
                call.extend(&arguments);
                let reply = dialog.ask_args(&call);
                assert!(reply.contains(answer), "{variant:?}: {reply}");
            }
        }
    }
    assert!(!server.info("commandstats").contains_key("cmdstat_evalsha"));
}

#[test]
fn the_configuration_line_is_no_longer_than_the_server_rewrites() {
    let conf = fs::read_to_string(root().join("redis.conf")).expect("redis.conf");
    let longest = conf.lines().map(str::len).max();
    assert!(longest < Some(1024), "{longest:?}");
}

#[test]
fn make_sha_prints_the_hash_by_which_a_script_is_called() {
    for (file, sha) in ["acquire_seat", "release_seat", "update_heartbeat"]
        .iter()
        .zip(super::SHAS)
    {
        let printed = Command::new("scripts/sha")
            .arg(format!("tests/lua/{file}.lua"))
            .current_dir(root())
            .output()
            .expect("the script runs");
        assert!(printed.status.success(), "{printed:?}");
        assert_eq!(String::from_utf8_lossy(&printed.stdout).trim(), sha);
    }
    let printed = Command::new("scripts/sha")
        .current_dir(root())
        .output()
        .expect("the script runs");
    assert!(!printed.status.success());
    assert!(
        String::from_utf8_lossy(&printed.stderr).contains("make sha FILE="),
        "{printed:?}"
    );
}
