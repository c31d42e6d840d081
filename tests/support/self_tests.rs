//! The fixture's own promises, for a test is only worth what it stands on.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::thread;
use std::time::Duration;

use super::{Builder, Server, default_binary, eventually, words};

fn recording() -> Builder {
    Server::builder().plain().recording()
}

fn set(server: &Server, key: &str, value: &str) {
    redis::cmd("SET")
        .arg(key)
        .arg(value)
        .exec(&mut server.client())
        .unwrap();
}

fn get(server: &Server, key: &str) -> Option<String> {
    redis::cmd("GET")
        .arg(key)
        .query(&mut server.client())
        .unwrap()
}

#[test]
fn a_wire_reads_exactly_one_reply_of_each_kind() {
    let server = Server::plain();
    let mut wire = server.wire();
    assert_eq!(wire.call(&["PING"]), b"+PONG\r\n");
    assert_eq!(wire.call(&["NOSUCH"])[..5], *b"-ERR ");
    assert_eq!(wire.call(&["GET", "missing"]), b"$-1\r\n");
    assert_eq!(
        wire.call(&[b"SET".as_slice(), b"k", b"a\r\n\0b"]),
        b"+OK\r\n"
    );
    assert_eq!(
        wire.call(&["EVAL", "return {1, {'x', redis.call('GET', 'k')}}", "0"]),
        b"*2\r\n:1\r\n*2\r\n$1\r\nx\r\n$5\r\na\r\n\0b\r\n"
    );
    wire.send(&["HSET", "h", "f", "v"]);
    wire.send(&["HGETALL", "h"]);
    assert_eq!(wire.read(), b":1\r\n");
    assert_eq!(wire.read(), b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    let mut wire = server.wire().resp3();
    assert_eq!(
        wire.call(&["HGETALL", "h"]),
        b"%1\r\n$1\r\nf\r\n$1\r\nv\r\n"
    );
    assert_eq!(wire.call(&["GET", "missing"]), b"_\r\n");
    assert_eq!(
        wire.value(&["GET", "k"]),
        redis::Value::BulkString(b"a\r\n\0b".to_vec())
    );
}

#[test]
fn the_clients_speak_the_protocol_they_are_named_for() {
    let server = Server::plain();
    redis::cmd("HSET")
        .arg("h")
        .arg("f")
        .arg("v")
        .exec(&mut server.client())
        .unwrap();
    let map: redis::Value = redis::cmd("HGETALL")
        .arg("h")
        .query(&mut server.client_resp3())
        .unwrap();
    assert!(matches!(map, redis::Value::Map(_)), "{map:?}");
    let flat: redis::Value = redis::cmd("HGETALL")
        .arg("h")
        .query(&mut server.client())
        .unwrap();
    assert!(matches!(flat, redis::Value::Array(_)), "{flat:?}");
}

#[test]
fn the_module_is_loaded_unless_the_server_is_plain() {
    // Redis 8 brings a module of its own.
    let has_module = |server: &Server| {
        let modules = server
            .wire()
            .call(&["MODULE", "LIST"])
            .escape_ascii()
            .to_string();
        modules.contains(r"$4\r\nname\r\n$4\r\nseat\r\n")
    };
    assert!(has_module(&Server::start()));
    assert!(!has_module(&Server::plain()));
}

#[test]
fn a_server_comes_back_with_its_data_and_its_port() {
    let mut server = recording().tcp().start();
    let port = server.port();
    set(&server, "k", "1");
    server.kill9();
    server.restart();
    assert_eq!(get(&server, "k").as_deref(), Some("1"));
    set(&server, "k", "2");
    server.restart();
    assert_eq!(get(&server, "k").as_deref(), Some("2"));
    assert_eq!(server.port(), port);
    let copy = recording().data_of(&server).start();
    assert_eq!(copy.digest(), server.digest());
    set(&copy, "k", "3");
    assert_ne!(copy.digest(), server.digest());
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let log = Server::builder()
        .plain()
        .config("nonsense yes")
        .try_start()
        .err()
        .expect("no start");
    assert!(log.contains("nonsense"), "{log}");
    let mut server = Server::plain();
    server.shutdown();
    std::fs::write(server.dir().join("dump.rdb"), "REDIS0009 and nothing good").unwrap();
    let log = server
        .try_restart()
        .expect_err("no start from a broken RDB");
    assert!(log.contains("RDB"), "{log}");
}

#[test]
#[should_panic(expected = "died by itself")]
fn a_server_that_dies_unnoticed_fails_the_test() {
    let server = Server::plain();
    server.wire().send(&["SHUTDOWN"]);
    eventually("it is gone", || !server.answers());
    eventually("the process ended", || !process_runs(server.pid()));
}

/// In a second process of this test: starts a server, prints its id, and ends in the way that the
/// variable names.
const END: &str = "SEAT_TEST_END";

#[test]
fn whatever_ends_a_process_ends_its_servers() {
    if let Ok(end) = env::var(END) {
        let gone = Server::plain();
        let server = Server::plain();
        drop(gone);
        println!("pid {}", server.pid());
        if end == "abort" {
            process::abort();
        }
        loop {
            thread::park();
        }
    }
    for end in ["TERM", "INT", "KILL", "abort"] {
        let mut own = process::Command::new(env::current_exe().expect("this program"));
        own.args([
            "--exact",
            "support::self_tests::whatever_ends_a_process_ends_its_servers",
        ]);
        own.arg("--nocapture").env(END, end);
        ends_with(&mut own, end);
    }
}

#[test]
fn whatever_ends_a_script_ends_its_server() {
    const SHORT_COMMANDS: &str = "while sleep 0.01; do :; done";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let server = default_binary();
    let begin = r#"
        set -euo pipefail
        . scripts/lib.sh
        private_dir
        printf 'save ""\n' >"$dir/redis.conf"
        start_server "$1" "$dir/redis.conf"
        echo "pid $server_pid"
    "#;
    for (end, rest) in [
        ("TERM", SHORT_COMMANDS),
        ("INT", SHORT_COMMANDS),
        ("KILL", SHORT_COMMANDS),
        ("exit", "exit 3"),
        ("failure", "false"),
    ] {
        let mut script = process::Command::new("bash");
        script.args(["-c", &format!("{begin}\n{rest}"), "script"]);
        script.arg(&server).current_dir(root);
        ends_with(&mut script, end);
    }
}

#[test]
fn whatever_a_script_runs_ends_with_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for end in ["TERM", "INT", "HUP"] {
        let mut script = process::Command::new("bash");
        let text = ". scripts/lib.sh; in_group sh -c 'sleep 1000 & echo pid $!; wait'";
        script.args(["-c", text]).current_dir(root);
        ends_with(&mut script, end);
    }
    let status = process::Command::new("bash")
        .args(["-c", ". scripts/lib.sh; in_group sh -c 'exit 3'"])
        .current_dir(root)
        .status();
    assert_eq!(status.expect("bash runs").code(), Some(3));
}

/// Starts a program that prints the id of a process of its own, ends the program by a signal,
/// unless it ends by itself, and waits until that process has ended.
#[track_caller]
fn ends_with(program: &mut process::Command, signal: &str) {
    // What a shell or nohup starts in the background ignores some signals, and so do its children
    // unless they are told not to.
    let heed = |signal| {
        // SAFETY: there is no handler that would have to meet any conditions.
        match unsafe { libc::signal(signal, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: between fork and exec it calls nothing but `signal`, which may be called there.
    unsafe { program.pre_exec(move || signals.into_iter().try_for_each(heed)) };
    let mut program = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let output = BufReader::new(program.stdout.take().expect("its output"));
    let pid = output.lines().find_map(|line| {
        let line = line.expect("text");
        line.split_once("pid ")?.1.parse().ok()
    });
    let pid: u32 = pid.expect("the id of its process");
    if signal.chars().all(char::is_uppercase) {
        let killed = process::Command::new("kill")
            .args(["-s", signal, &program.id().to_string()])
            .status();
        assert!(killed.expect("kill runs").success());
    }
    eventually("its process ended", || !process_runs(pid));
    let status = program.wait().expect("its status");
    assert!(!status.success(), "{signal}: {status}");
}

/// Dead but not yet waited for counts as ended.
fn process_runs(pid: u32) -> bool {
    let status = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&status.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

#[test]
#[should_panic(expected = "not within")]
fn waiting_for_what_never_comes_fails() {
    super::wait::eventually_within(std::time::Duration::from_millis(20), "never", || false);
}

#[test]
fn a_scene_is_played_until_it_takes_place() {
    let mut played = 0;
    let took_place = super::staged("the third", || {
        played += 1;
        (played == 3).then_some(played)
    });
    assert_eq!((took_place, played), (3, 3));
}

#[test]
#[should_panic(expected = "too late 10 times: it is early")]
fn a_scene_that_never_takes_place_fails() {
    super::staged("it is early", || None::<()>);
}

#[test]
fn what_is_late_now_and_then_is_mostly_in_time() {
    let bound = Duration::from_millis(100);
    let mut late_ms = [900, 0, 0, 0, 900, 0, 0, 0].into_iter();
    let seen = super::mostly_within(bound, || {
        Duration::from_millis(late_ms.next().expect("no more turns"))
    });
    assert_eq!(seen.len(), 8);
}

#[test]
#[should_panic(expected = "later than 100ms")]
fn what_is_late_as_often_as_not_fails() {
    let mut turns = 0;
    super::mostly_within(Duration::from_millis(100), || {
        turns += 1;
        Duration::from_millis(200 * (turns % 2))
    });
}

#[test]
fn a_replica_has_applied_what_the_primary_wrote() {
    let primary = Server::builder().plain().tcp().start();
    let replica = Server::builder().plain().replica_of(&primary).start();
    for round in 0..50 {
        set(&primary, &format!("k{round}"), &round.to_string());
        primary.wait_for_offset(&replica);
        assert_eq!(get(&replica, &format!("k{round}")), Some(round.to_string()));
    }
    assert_eq!(primary.digest(), replica.digest());
}

#[test]
fn the_stream_is_what_was_replicated_and_nothing_else() {
    let server = recording().start();
    let stream = server.stream_of(|| {
        set(&server, "k", "v\0\r\n");
        get(&server, "k");
    });
    assert_eq!(
        stream.iter().map(words).collect::<Vec<_>>(),
        [["SET", "k", r"v\x00\r\n"]]
    );
    assert_eq!(server.stream_of(|| drop(get(&server, "k"))).len(), 0);
    server.rewrite_aof();
    let whole = server.commands_in_aof();
    assert_eq!(
        whole.iter().map(words).next_back().unwrap(),
        ["SET", "k", r"v\x00\r\n"]
    );
    let stream = server.stream_of(|| set(&server, "k", "w"));
    assert_eq!(
        stream.iter().map(words).collect::<Vec<_>>(),
        [["SET", "k", "w"]]
    );
}

#[test]
fn the_version_is_the_running_servers() {
    let server = Server::plain();
    let info = server.info("server");
    let own = match info.get("valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", info["redis_version"]),
    };
    assert_eq!(server.product().to_string(), own);
    let (major, minor, patch) = server.version();
    assert_eq!(info["redis_version"], format!("{major}.{minor}.{patch}"));
}

#[test]
fn module_arguments_reach_the_module() {
    let server = Server::builder().module_args("max-session-bytes 3").start();
    let mut wire = server.wire();
    assert!(
        wire.call(&["SEAT.ACQUIRE", "pool", "abc", "1"])
            .starts_with(b"*4\r\n")
    );
    assert!(
        wire.call(&["SEAT.ACQUIRE", "pool", "abcd", "2"])
            .starts_with(b"-ERR session ")
    );
}
