//! `script-view`: readers of the legacy keys are answered from the pool.

use super::{METADATA, SESSIONS, with_migration};
use crate::support::{Builder, Dialog, Server, Traces, total};

fn viewing() -> Builder {
    Server::builder().module_args("script-view yes")
}

fn sorted(reply: &str) -> Vec<String> {
    let inner = reply
        .trim_start_matches("set ")
        .trim_matches(['[', ']', '{', '}']);
    let mut items: Vec<String> = inner
        .split("\", \"")
        .map(|item| item.trim_matches('"').to_owned())
        .collect();
    items.sort();
    items
}

#[test]
fn the_eight_readers_see_the_pool() {
    let (server, mut dialog) = viewing().scene();
    dialog.acquire("p", "a", 9, r#"{"m":1}"#);
    dialog.acquire("p", "b", 9, "{}");
    let (a, b) = (dialog.ask("SEAT.GET p a"), dialog.ask("SEAT.GET p b"));
    dialog.expect(&format!("SISMEMBER {SESSIONS} a"), "1");
    dialog.expect(&format!("SISMEMBER {SESSIONS} x"), "0");
    dialog.expect(&format!("scard {SESSIONS}"), "2");
    assert_eq!(
        sorted(&dialog.ask(&format!("SMEMBERS {SESSIONS}"))),
        ["a", "b"]
    );
    dialog.expect(&format!("HGET {METADATA} a"), &a);
    dialog.expect(&format!("HGET {METADATA} x"), "nil");
    dialog.expect(&format!("HEXISTS {METADATA} b"), "1");
    dialog.expect(&format!("HEXISTS {METADATA} x"), "0");
    dialog.expect(&format!("HLEN {METADATA}"), "2");
    assert_eq!(
        sorted(&dialog.ask(&format!("HKEYS {METADATA}"))),
        ["a", "b"]
    );
    let all = dialog.ask(&format!("HGETALL {METADATA}"));
    assert!(
        all == format!(r#"["a", {a}, "b", {b}]"#) || all == format!(r#"["b", {b}, "a", {a}]"#),
        "{all}"
    );
    assert_eq!(total(&server, "seat_script_reads"), 11);
}

#[test]
fn resp3_readers_get_sets_and_maps_where_modules_have_them() {
    let server = viewing().start();
    let mut dialog = Dialog::in_resp3(&server);
    dialog.expect("SADD license:q:active_sessions x", "1");
    dialog.acquire("p", "a", 9, "{}");
    let json = dialog.ask("SEAT.GET p a");
    let has_sets = server.version() >= (7, 0, 0);
    let members = if has_sets { r#"set ["a"]"# } else { r#"["a"]"# };
    dialog.expect(&format!("SMEMBERS {SESSIONS}"), members);
    let fields = if has_sets {
        format!(r#"{{"a": {json}}}"#)
    } else {
        format!(r#"["a", {json}]"#)
    };
    dialog.expect(&format!("HGETALL {METADATA}"), &fields);
    dialog.expect(&format!("HKEYS {METADATA}"), r#"["a"]"#);
    dialog.expect(&format!("HGET {METADATA} x"), "null");
    // Without a pool the key itself is read.
    let own = if has_sets { r#"set ["x"]"# } else { r#"["x"]"# };
    dialog.expect("SMEMBERS license:q:active_sessions", own);
}

#[test]
fn without_a_pool_the_keys_are_read_as_they_are() {
    let (_server, mut dialog) = viewing().scene();
    for (fill, read, reply) in [
        (
            "SADD license:p:active_sessions s",
            "SMEMBERS license:p:active_sessions",
            r#"["s"]"#,
        ),
        (
            "SADD license:p:active_sessions t",
            "SCARD license:p:active_sessions",
            "2",
        ),
        (
            "HSET license:p:session_metadata s v",
            "HGETALL license:p:session_metadata",
            r#"["s", "v"]"#,
        ),
        ("PING", "HGET license:p:session_metadata s", "\"v\""),
        ("PING", "HGET license:p:session_metadata x", "nil"),
        ("PING", "SISMEMBER license:p:active_sessions s", "1"),
        ("PING", "HLEN license:nobody:session_metadata", "0"),
        ("PING", "SMEMBERS license:nobody:active_sessions", "[]"),
    ] {
        dialog.ask(fill);
        dialog.expect(read, reply);
    }
    dialog.expect("SET license:r:active_sessions text", "+OK");
    dialog.begins("SCARD license:r:active_sessions", "!WRONGTYPE");
    // Nor does a value of another type at the pool's name matter.
    dialog.expect("SET p text", "+OK");
    dialog.expect(&format!("SCARD {SESSIONS}"), "2");
}

#[test]
fn other_commands_names_and_arguments_are_not_touched() {
    let (server, mut dialog) = viewing().scene();
    dialog.acquire("p", "a", 9, "{}");
    for (command, reply) in [
        ("SISMEMBER other:p:active_sessions a", "0"),
        ("SCARD license:p:active_sessionsx", "0"),
        ("HLEN license:p:active_sessions", "0"),
        ("SCARD license:p:session_metadata", "0"),
        ("HGET license:p:active_sessions a", "nil"),
        ("EXISTS license:p:active_sessions", "0"),
        ("TYPE license:p:active_sessions", "+none"),
        ("SRANDMEMBER license:p:active_sessions", "nil"),
        ("HSTRLEN license:p:session_metadata a", "0"),
        ("GET license:p:session_metadata", "nil"),
    ] {
        dialog.expect(command, reply);
    }
    for command in [
        format!("SISMEMBER {SESSIONS}"),
        format!("HGET {METADATA}"),
        format!("SCARD {SESSIONS} x"),
        "HLEN".to_owned(),
        "SMEMBERS".to_owned(),
    ] {
        let reply = dialog.ask(&command);
        let name = command.split(' ').next().expect("a name").to_lowercase();
        assert_eq!(
            reply,
            format!("!ERR wrong number of arguments for '{name}' command")
        );
    }
    assert_eq!(total(&server, "seat_script_reads"), 0);
}

#[test]
fn what_others_put_into_the_keys_counts_until_it_is_adopted() {
    let (_server, mut dialog) = with_migration().scene();
    dialog.acquire("p", "a", 9, r#"{"pools":1}"#);
    dialog.expect(&format!("SADD {SESSIONS} a b"), "2");
    dialog.expect(&format!("HSET {METADATA} a x b y"), "2");
    dialog.expect(&format!("SCARD {SESSIONS}"), "2");
    dialog.expect(&format!("SISMEMBER {SESSIONS} b"), "1");
    assert_eq!(
        sorted(&dialog.ask(&format!("SMEMBERS {SESSIONS}"))),
        ["a", "b"]
    );
    assert!(dialog.ask(&format!("HGET {METADATA} a")).contains("pools"));
    dialog.expect(&format!("HGET {METADATA} b"), "\"y\"");
    dialog.expect(&format!("HEXISTS {METADATA} b"), "1");
    dialog.expect(&format!("HLEN {METADATA}"), "2");
    assert_eq!(
        sorted(&dialog.ask(&format!("HKEYS {METADATA}"))),
        ["a", "b"]
    );
    assert!(
        dialog
            .ask(&format!("HGETALL {METADATA}"))
            .ends_with(r#""b", "y"]"#)
    );
}

#[test]
fn sessions_without_metadata_are_members_without_a_field() {
    let (_server, mut dialog) = with_migration().scene();
    dialog.expect(&format!("SADD {SESSIONS} bare"), "1");
    dialog.acquire("p", "a", 9, "{}");
    dialog.expect(&format!("SISMEMBER {SESSIONS} bare"), "1");
    dialog.expect(&format!("SCARD {SESSIONS}"), "2");
    dialog.expect(&format!("HEXISTS {METADATA} bare"), "0");
    dialog.expect(&format!("HGET {METADATA} bare"), "nil");
    dialog.expect(&format!("HLEN {METADATA}"), "1");
    dialog.expect(&format!("HKEYS {METADATA}"), r#"["a"]"#);
}

#[test]
fn a_expired_session_is_gone_here_too() {
    let (_server, mut dialog) = viewing().scene();
    dialog.expect("SEAT.ACQUIRE p a 1 PX 1", "[1, ACQUIRED, 1, 1, 1]");
    while dialog.number("SEAT.PTTL p a") != -2 {}
    dialog.expect(&format!("SISMEMBER {SESSIONS} a"), "0");
    dialog.expect(&format!("SCARD {SESSIONS}"), "0");
}

#[test]
fn readers_work_in_units_and_on_replicas_and_change_nothing() {
    let server = with_migration().recording().tcp().start();
    let replica = with_migration().replica_of(&server).start();
    let mut dialog = Dialog::with(&server);
    dialog.acquire("p", "a", 9, "{}");
    let before = Traces::without_totals(&server);
    assert_eq!(
        dialog.transaction(&[
            &format!("SCARD {SESSIONS}"),
            &format!("SISMEMBER {SESSIONS} a")
        ]),
        "[1, 1]"
    );
    let script = format!(
        "return {{redis.call('SCARD', '{SESSIONS}'), #redis.call('HGETALL', '{METADATA}')}}"
    );
    assert_eq!(dialog.eval(&script, &[]), "[1, 2]");
    server.wait_for_offset(&replica);
    let mut on_replica = Dialog::with(&replica);
    on_replica.expect(&format!("SMEMBERS {SESSIONS}"), r#"["a"]"#);
    assert_eq!(on_replica.eval(&script, &[]), "[1, 2]");
    if server.version() < (7, 0, 0) {
        // There a transaction leaves an empty one behind, whatever its commands are.
        assert_eq!(server.digest(), replica.digest());
    } else {
        assert_eq!(Traces::without_totals(&server), before);
    }
}
