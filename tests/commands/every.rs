//! What holds for every command: what the server says about it, and what it answers to a wrong
//! number of arguments, to another type, to a missing key and on a replica.

use std::collections::BTreeSet;

use redis::Value;

use super::table::{self, Kind, Row, TABLE};
use crate::support::{Builder, Dialog, Server, Traces};

fn strings(value: &Value) -> BTreeSet<String> {
    redis::from_redis_value(value.clone()).expect("a list of strings")
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A server with the pool that the table's calls are about.
fn prepared(builder: Builder) -> (Server, Dialog) {
    let (server, mut dialog) = builder.scene();
    dialog.acquire("pool", "a", 9, r#"{"k":1}"#);
    dialog.acquire("pool", "b", 9, r#"{"k":2}"#);
    (server, dialog)
}

#[test]
fn the_table_has_all_commands_of_the_module_and_no_others() {
    let (server, mut dialog) = Server::scene();
    let all: BTreeSet<String> = if server.version() >= (7, 0, 0) {
        dialog.query("COMMAND LIST FILTERBY MODULE seat")
    } else {
        let all: Vec<Vec<Value>> = dialog.query("COMMAND");
        let names = all
            .into_iter()
            .map(|mut fields| redis::from_redis_value::<String>(fields.swap_remove(0)));
        let names = names.map(|name| name.expect("a name"));
        names.filter(|name| name.starts_with("seat.")).collect()
    };
    let rows: Vec<String> = TABLE.iter().map(|row| row.name().to_lowercase()).collect();
    assert_eq!(all, rows.iter().cloned().collect());
    assert_eq!(all.len(), rows.len(), "a command has two rows");
}

#[test]
fn command_info_has_the_flags_the_keys_and_the_arity() {
    let (server, mut dialog) = Server::scene();
    // A module states its arity, and which command may block, since 7.0.
    let states_all = server.version() >= (7, 0, 0);
    for row in &TABLE {
        let name = row.name().to_lowercase();
        let mut all: Vec<Vec<Value>> = dialog.query(&format!("COMMAND INFO {name}"));
        let fields = all.remove(0);
        assert_eq!(fields[0], Value::BulkString(name.clone().into()));
        let mut flags = strings(&fields[2]);
        flags.remove("module");
        let mut expected = words(if row.reads() { "readonly" } else { "write" });
        if row.is_fast {
            expected.insert("fast".to_owned());
        }
        if name == "seat.acquire" && states_all {
            expected.insert("blocking".to_owned());
        }
        assert_eq!(flags, expected, "{name}");
        let last_key = row.keys.len() as i64;
        assert_eq!(fields[3..6], [1, last_key, 1].map(Value::Int), "{name}");
        let arity = if states_all { row.arity } else { -1 };
        assert_eq!(fields[1], Value::Int(arity), "{name}");
    }
}

#[test]
fn getkeys_finds_the_keys_and_nothing_else() {
    let (_server, mut dialog) = Server::scene();
    for row in &TABLE {
        for call in row.calls() {
            let keys: Vec<String> = dialog.query(&format!("COMMAND GETKEYS {call}"));
            let expected: Vec<&str> = call.split(' ').skip(1).take(row.keys.len()).collect();
            assert_eq!(keys, expected, "{call}");
        }
    }
}

#[test]
fn getkeysandflags_separates_readers_from_writers() {
    let (server, mut dialog) = Server::scene();
    for row in &TABLE {
        let command = format!("COMMAND GETKEYSANDFLAGS {}", row.call);
        if server.version() < (7, 0, 0) {
            let reply = dialog.ask(&command);
            assert!(reply.starts_with("!ERR"), "{reply}");
            continue;
        }
        let reply: Vec<(String, BTreeSet<String>)> = dialog.query(&command);
        assert_eq!(reply.len(), row.keys.len(), "{command}");
        let expected = row.call.split(' ').skip(1).zip(row.keys);
        for ((key, mut flags), (expected_key, must)) in reply.into_iter().zip(expected) {
            assert_eq!(key, expected_key, "{command}");
            if !row.reads() {
                // Writers may answer from what they find.
                flags.remove("access");
            }
            assert_eq!(flags, words(must), "{command}: {key}");
        }
    }
}

#[test]
fn command_docs_describes_each_command() {
    let (server, mut dialog) = Server::scene();
    for row in &TABLE {
        let name = row.name().to_lowercase();
        if server.version() < (7, 0, 0) {
            let reply = dialog.ask(&format!("COMMAND DOCS {name}"));
            assert!(reply.starts_with("!ERR"), "{reply}");
            continue;
        }
        let mut docs: Vec<(String, Vec<(String, Value)>)> =
            dialog.query(&format!("COMMAND DOCS {name}"));
        let (documented, fields) = docs.remove(0);
        assert_eq!(documented, name);
        let field = |wanted: &str| {
            let found = fields.iter().find(|(field, _)| field == wanted);
            &found.unwrap_or_else(|| panic!("{name} has no {wanted}")).1
        };
        let text = |wanted: &str| -> String {
            redis::from_redis_value(field(wanted).clone()).expect("text")
        };
        let summary = text("summary");
        assert!(summary.len() > 10 && summary.ends_with('.'), "{name}");
        assert_eq!(text("since"), "0.1.0", "{name}");
        assert_eq!([text("group"), text("module")], ["module", "seat"]);
        assert!(text("complexity").starts_with("O("), "{name}");
        let arguments = format!("{:?}", field("arguments"));
        assert!(arguments.contains("key_spec_index"), "{name}: {arguments}");
        let shown = dialog.ask(&format!("COMMAND DOCS {name}"));
        for word in row.documents.split(' ') {
            let forms = [
                format!("\"{word}\""),
                format!(", {word},"),
                format!(", {word}]"),
                format!("+{word}"),
            ];
            let is_named = forms.iter().any(|form| shown.contains(form));
            assert!(is_named, "{name} lacks {word}: {shown}");
        }
    }
}

#[test]
fn a_wrong_number_of_arguments_is_refused() {
    let (server, mut dialog) = prepared(Server::builder().recording());
    for row in table::public() {
        let words: Vec<&str> = row.call.split(' ').collect();
        let least = row.arity.unsigned_abs() as usize;
        assert_eq!(words.len(), least, "the table's call of {}", row.name());
        let too_few = (1..least).map(|length| words[..length].join(" "));
        let is_fixed = row.arity > 0;
        let too_many = is_fixed.then(|| format!("{} more", row.call));
        for call in too_few.chain(too_many) {
            let before = Traces::of(&server);
            // Servers before 7.0 repeat the name as it was sent.
            assert_eq!(
                dialog.ask(&call).to_lowercase(),
                format!(
                    "!err wrong number of arguments for '{}' command",
                    row.name().to_lowercase()
                ),
                "{call}"
            );
            assert_eq!(Traces::of(&server), before, "{call} changed something");
        }
    }
}

#[test]
fn another_type_at_the_key_is_refused() {
    let (server, mut dialog) = Server::builder().recording().scene();
    for (kind, maker) in [
        ("string", "SET # v"),
        ("list", "RPUSH # v"),
        ("set", "SADD # v"),
        ("zset", "ZADD # 1 v"),
        ("hash", "HSET # f v"),
        ("stream", "XADD # * f v"),
    ] {
        dialog.expect("FLUSHALL", "+OK");
        for key in ["pool", "pool:set", "pool:hash"] {
            dialog.succeeds(&maker.replace('#', key));
        }
        let before = Traces::without_totals(&server);
        for row in table::public().filter(|row| row.kind != Kind::ReadLegacyKey(kind)) {
            for call in row.calls() {
                dialog.expect(
                    call,
                    "!WRONGTYPE Operation against a key holding the wrong kind of value",
                );
            }
        }
        assert_eq!(Traces::without_totals(&server), before, "{kind}");
    }
}

#[test]
fn at_a_missing_key_each_answers_and_acquire_alone_makes_one() {
    let (server, mut dialog) = Server::builder().recording().scene();
    for row in table::public() {
        let before = Traces::without_totals(&server);
        dialog.expect(row.call, row.without_key);
        if row.name() == "SEAT.ACQUIRE" {
            dialog.expect("DEL pool", "1");
        } else {
            let now = Traces::without_totals(&server);
            assert_eq!(now, before, "{} changed something", row.call);
        }
        dialog.expect("DBSIZE", "0");
    }
}

#[test]
fn readers_leave_no_trace() {
    let (server, mut dialog) = prepared(Server::builder().recording());
    let before = Traces::without_totals(&server);
    for call in table::readers().flat_map(Row::calls) {
        dialog.succeeds(call);
        assert_eq!(Traces::without_totals(&server), before, "{call}");
    }
}

#[test]
fn a_replica_answers_readers_and_refuses_writers() {
    let (primary, mut dialog) = prepared(Server::builder().tcp());
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let digest = replica.digest();
    let mut there = Dialog::with(&replica);
    for row in &TABLE {
        for call in row.calls() {
            let reply = there.ask(call);
            if row.reads() {
                // How much memory a pool takes depends on how it came.
                let known =
                    |reply: &str| reply.split(r#""memory_bytes""#).next().map(str::to_owned);
                assert!(!reply.starts_with('!'), "{call}: {reply}");
                assert_eq!(known(&reply), known(&dialog.ask(call)), "{call}");
                let elsewhere = call.replace("pool", "missing");
                assert_eq!(there.ask(&elsewhere), dialog.ask(&elsewhere));
            } else {
                assert!(reply.starts_with("!READONLY"), "{call}: {reply}");
            }
        }
    }
    assert_eq!(there.pool_info("pool", "used"), 2);
    assert_eq!(replica.digest(), digest);
}
