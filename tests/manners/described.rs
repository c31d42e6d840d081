//! What the server says about the commands: COMMAND INFO, DOCS, GETKEYS and GETKEYSANDFLAGS.

use std::collections::BTreeSet;

use redis::Value;

use super::NAMES;
use crate::commands::COMMANDS;
use crate::dialog::Dialog;
use crate::support::Server;

fn query<T: redis::FromRedisValue>(server: &Server, command: &str) -> T {
    let mut words = command.split(' ');
    let mut call = redis::cmd(words.next().expect("a name"));
    for word in words {
        call.arg(word);
    }
    call.query(&mut server.client())
        .unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// The fields of COMMAND INFO for one command.
fn described(server: &Server, name: &str) -> Vec<Value> {
    let mut all: Vec<Vec<Value>> = query(server, &format!("COMMAND INFO {name}"));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn strings(value: &Value) -> BTreeSet<String> {
    redis::from_redis_value(value.clone()).expect("a list of strings")
}

#[test]
fn flags_keys_and_arity() {
    let server = Server::start();
    let expected: [(&str, &[&str], i64); 24] = [
        ("seat.acquire", &["write", "fast"], -4),
        ("seat.release", &["write", "fast"], 3),
        ("seat.heartbeat", &["write", "fast"], -3),
        ("seat.revoke", &["write"], -3),
        ("seat.count", &["readonly", "fast"], 2),
        ("seat.sessions", &["readonly"], -2),
        ("seat.scan", &["readonly"], -3),
        ("seat.get", &["readonly", "fast"], 3),
        ("seat.info", &["readonly"], 2),
        ("seat.pttl", &["readonly", "fast"], 3),
        ("seat.cleanup", &["write"], -2),
        ("seat.resize", &["write"], 3),
        ("seat.queue", &["readonly"], 2),
        ("seat.position", &["readonly", "fast"], 3),
        ("seat.import", &["write"], 4),
        ("seat.export", &["write"], 4),
        ("seat.sismember", &["readonly", "fast"], 3),
        ("seat.smembers", &["readonly"], 2),
        ("seat.scard", &["readonly", "fast"], 2),
        ("seat.hget", &["readonly", "fast"], 3),
        ("seat.hgetall", &["readonly"], 2),
        ("seat.hexists", &["readonly", "fast"], 3),
        ("seat.hlen", &["readonly", "fast"], 2),
        ("seat.hkeys", &["readonly"], 2),
    ];
    for (name, flags, arity) in expected {
        let fields = described(&server, name);
        assert_eq!(fields[0], Value::BulkString(name.into()));
        let mut actual = strings(&fields[2]);
        actual.remove("module");
        let mut flags: BTreeSet<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        // A module's command can be told to block since 7.0.
        if name == "seat.acquire" && server.version() >= (7, 0, 0) {
            flags.insert("blocking".to_owned());
        }
        assert_eq!(actual, flags, "{name}");
        let keys = if ["seat.import", "seat.export"].contains(&name) {
            3
        } else {
            1
        };
        assert_eq!(
            fields[3..6],
            [1, keys, 1].map(Value::Int),
            "{name}: its keys"
        );
        // A module states the arity since 7.0; before, only the module itself knows it.
        let arity = if server.version() >= (7, 0, 0) {
            arity
        } else {
            -1
        };
        assert_eq!(fields[1], Value::Int(arity), "{name}");
    }
    let flags = strings(&described(&server, "seat.effect")[2]);
    assert!(
        flags.contains("write") && !flags.contains("denyoom"),
        "{flags:?}"
    );
}

#[test]
fn the_module_has_these_commands_and_no_others() {
    let server = Server::start();
    let expected: BTreeSet<String> = NAMES.map(str::to_owned).into();
    let all: BTreeSet<String> = if server.version() >= (7, 0, 0) {
        query(&server, "COMMAND LIST FILTERBY MODULE seat")
    } else {
        let all: Vec<Vec<Value>> = query(&server, "COMMAND");
        let name = |fields: &Vec<Value>| -> String {
            redis::from_redis_value(fields[0].clone()).expect("a name")
        };
        all.iter()
            .map(name)
            .filter(|name| name.starts_with("seat."))
            .collect()
    };
    assert_eq!(all, expected);
}

#[test]
fn getkeys_finds_the_key_and_nothing_else() {
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
    for command in COMMANDS
        .iter()
        .chain(&["SEAT.REVOKE key a b c", "SEAT.EFFECT key FREE released s"])
    {
        dialog.expect(&format!("COMMAND GETKEYS {command}"), r#"["key"]"#);
    }
}

#[test]
fn getkeysandflags_tells_readers_from_writers() {
    let server = Server::start();
    let mut dialog = Dialog::with(&server);
    for command in COMMANDS {
        let command = format!("COMMAND GETKEYSANDFLAGS {command}");
        if server.version() < (7, 0, 0) {
            let reply = dialog.ask(&command);
            assert!(reply.starts_with("!ERR"), "{reply}");
            continue;
        }
        let reply: Vec<(String, BTreeSet<String>)> = query(&server, &command);
        assert_eq!(reply.len(), 1);
        let (key, flags) = &reply[0];
        assert_eq!(key, "key");
        let must: &[&str] = match command.split(' ').nth(2).expect("the command's name") {
            "SEAT.ACQUIRE" => &["RW", "insert"],
            "SEAT.RELEASE" | "SEAT.REVOKE" | "SEAT.CLEANUP" => &["RW", "delete"],
            "SEAT.HEARTBEAT" => &["RW", "update"],
            _ => &["RO", "access"],
        };
        let must: BTreeSet<String> = must.iter().map(|&flag| flag.to_owned()).collect();
        let mut besides = &flags.clone() - &must;
        // Writers may answer from what they find.
        besides.remove("access");
        assert!(
            flags.is_superset(&must) && besides.is_empty(),
            "{command}: {flags:?}"
        );
    }
}

#[test]
fn each_command_is_documented() {
    let server = Server::start();
    if server.version() < (7, 0, 0) {
        let reply = Dialog::with(&server).ask("COMMAND DOCS seat.acquire");
        assert!(reply.starts_with("!ERR"), "{reply}");
        return;
    }
    for name in NAMES {
        let docs: Value = query(&server, &format!("COMMAND DOCS {name}"));
        let docs: Vec<(String, Vec<(String, Value)>)> =
            redis::from_redis_value(docs).expect("pairs");
        assert_eq!(docs[0].0, name);
        let field = |wanted: &str| {
            let found = docs[0].1.iter().find(|(field, _)| field == wanted);
            &found.unwrap_or_else(|| panic!("{name} has no {wanted}")).1
        };
        let text = |wanted: &str| -> String {
            redis::from_redis_value(field(wanted).clone()).expect("text")
        };
        assert!(
            text("summary").len() > 10 && text("summary").ends_with('.'),
            "{name}"
        );
        assert_eq!(text("since"), "0.1.0", "{name}");
        assert_eq!(
            (text("group").as_str(), text("module").as_str()),
            ("module", "seat")
        );
        assert!(text("complexity").starts_with("O("), "{name}");
        let arguments = format!("{:?}", field("arguments"));
        assert!(arguments.contains("key_spec_index"), "{name}: {arguments}");
    }
    let mut dialog = Dialog::with(&server);
    for (name, arguments) in [
        (
            "seat.acquire",
            &[
                "key", "session", "seats", "metadata", "EX", "PX", "QUEUE", "BLOCK", "optional",
            ][..],
        ),
        ("seat.release", &["key", "session"]),
        (
            "seat.heartbeat",
            &["key", "session", "metadata", "EX", "PX", "optional"],
        ),
        ("seat.sessions", &["key", "WITHMETADATA", "optional"]),
        (
            "seat.scan",
            &["key", "cursor", "COUNT", "WITHMETADATA", "optional"],
        ),
        ("seat.revoke", &["key", "session", "multiple"]),
        ("seat.resize", &["key", "seats"]),
        ("seat.position", &["key", "session"]),
    ] {
        let docs = dialog.ask(&format!("COMMAND DOCS {name}"));
        for argument in arguments {
            assert!(
                docs.contains(&format!("{argument}\"")) || docs.contains(&format!("+{argument}")),
                "{name} lacks {argument}: {docs}"
            );
        }
    }
}
