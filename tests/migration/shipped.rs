//! What the shipped redis.conf says of the scripts, `make sha`, and the shell commands of
//! docs/migration.md.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{ACQUIRE, HEARTBEAT, METADATA, RELEASE, SESSIONS, fill, load};
use crate::support::{Dialog, Server, default_binary};

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
fn the_originals_are_listed_with_and_without_newlines() {
    let (server, mut dialog) = Server::builder().module_args(&arguments()).scene();
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

/// Runs the block of the guide that has these words in it, with others instead of what is each
/// machine's own, and returns what it prints.
#[track_caller]
fn run_block(words: &str, folder: &Path, own: &[(&str, String)]) -> String {
    let guide = fs::read_to_string(root().join("docs/migration.md")).expect("the guide");
    let mut blocks = guide.split("```sh\n").skip(1);
    let block =
        blocks.find_map(|rest| rest.split("```").next().filter(|text| text.contains(words)));
    let mut block = block.expect("the block is there").to_owned();
    for (shown, real) in own {
        assert!(block.contains(shown), "{shown} is not in: {block}");
        block = block.replace(shown, real);
    }
    let output = Command::new("sh")
        .args(["-c", &block])
        .current_dir(folder)
        .output();
    let output = output.expect("sh runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(complaints.is_empty(), "{complaints}\nof: {block}");
    printed
}

#[test]
fn the_guides_way_back_leaves_no_pool_in_any_database() {
    let with_settings = Server::builder().module_args(&arguments()).start();
    // Up to 6.2 the settings end with a restart.
    let is_settable = with_settings.version() >= (7, 0, 0);
    let server = if is_settable {
        with_settings
    } else {
        Server::start()
    };
    let mut dialog = Dialog::with(&server);
    let names: Vec<String> = (0..300).map(|n| format!("pool {n}")).collect();
    for database in [0, 3, 15] {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        for name in &names {
            let grant = ["SEAT.ACQUIRE", name, "a", "1", "{}"];
            assert_eq!(dialog.ask_args(&grant), "[1, ACQUIRED, 1, 1]");
        }
    }
    // Something else is where one pool's sessions are to go.
    dialog.expect("SET license:p:active_sessions text", "+OK");
    dialog.expect("SEAT.ACQUIRE p a 1", "[1, ACQUIRED, 1, 1]");

    let cli = format!("redis-cli -s '{}'", server.socket().display());
    let setting = "CONFIG SET seat.acquire-sha \"\" seat.script-keys no seat.script-view no\n";
    let mut own = vec![("redis-cli", cli)];
    if !is_settable {
        own.push((setting, String::new()));
    }
    let printed = run_block("roll-back.lua", root(), &own);
    assert!(printed.contains("\n900\n"), "{printed}");
    assert!(printed.contains("database 15, p: WRONGTYPE "), "{printed}");
    dialog.expect("DEL license:p:active_sessions", "1");
    let again = run_block("roll-back.lua", root(), &own);
    assert!(again.contains("\n1\n"), "{again}");
    assert!(!again.contains("database"), "{again}");
    for (database, pools) in [(0, 300), (3, 300), (15, 301)] {
        dialog.expect(&format!("SELECT {database}"), "+OK");
        dialog.expect("SCAN 0 COUNT 10000 TYPE seat-pool", r#"["0", []]"#);
        dialog.expect("DBSIZE", &(2 * pools).to_string());
        let session = ["SISMEMBER", "license:pool 7:active_sessions", "a"];
        assert_eq!(dialog.ask_args(&session), "1");
        // The scripts go on from there.
        let acquire = ["EVAL", ACQUIRE, "1", "pool 7", "b", "1", "{}"];
        assert_eq!(dialog.ask_args(&acquire), "[0, NO_SEATS_AVAILABLE, 1, 1]");
    }
}

#[test]
fn the_guides_trial_names_invalid_entries_and_no_others() {
    let old = Server::plain();
    let mut dialog = Dialog::with(&old);
    fill(&mut dialog, &["a", "b"]);
    dialog.expect("SADD license:bad:active_sessions c", "1");
    dialog.expect("HSET license:bad:session_metadata c nonsense", "1");
    dialog.expect("SAVE", "+OK");
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(root().join("redis.conf"), folder.path().join("redis.conf")).expect("a copy");
    let module = std::env::var("REDIS_SEAT_MODULE").expect("scripts/cargo names it");
    let own = [
        (
            "/var/lib/redis/dump.rdb",
            format!("'{}'", old.dir().join("dump.rdb").display()),
        ),
        (
            "redis-server --port 6390",
            format!("'{}' --port 0 --unixsocket s", default_binary().display()),
        ),
        ("-p 6390", "-s trial/s".to_owned()),
        ("/usr/lib/redis/modules/libredis_seat.so", module),
    ];
    let printed = run_block("trial", folder.path(), &own);
    let lines: Vec<&str> = printed.lines().collect();
    let [line] = lines[..] else {
        panic!("{printed}")
    };
    assert!(
        line.starts_with("bad: ERR session c cannot be imported: "),
        "{line}"
    );
    // The live server is as it was.
    dialog.expect(&format!("EXISTS {SESSIONS} {METADATA}"), "2");
}
