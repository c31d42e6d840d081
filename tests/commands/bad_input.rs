//! Bad input: a clear error, and nothing changes.

use crate::support::{Dialog, Server, Traces};

/// A server that records, and what is refused there.
struct Refusing {
    server: Server,
    dialog: Dialog,
}

impl Refusing {
    /// With a pool of two holders and a free seat.
    fn prepared() -> Self {
        let (server, mut dialog) = Server::builder().recording().scene();
        dialog.acquire("pool", "a", 3, r#"{"k":1}"#);
        dialog.acquire("pool", "b", 3, r#"{"k":2}"#);
        Self { server, dialog }
    }

    /// Sends each command and expects an error that contains `meaning` and leaves no trace.
    #[track_caller]
    fn refuses(&mut self, meaning: &str, commands: &[Vec<Vec<u8>>]) {
        for command in commands {
            let before = Traces::of(&self.server);
            let reply = self.dialog.ask_args(command);
            let shown = |argument: &Vec<u8>| {
                let start = &argument[..argument.len().min(60)];
                start.escape_ascii().to_string()
            };
            let shown: Vec<_> = command.iter().map(shown).collect();
            assert!(
                reply.starts_with("!ERR ") && reply.contains(meaning),
                "{shown:?} answers {reply} instead of an error about {meaning:?}"
            );
            let after = Traces::of(&self.server);
            assert_eq!(after, before, "{shown:?} changed something");
        }
    }
}

fn command(arguments: &[impl AsRef<[u8]>]) -> Vec<Vec<u8>> {
    arguments
        .iter()
        .map(|argument| argument.as_ref().to_vec())
        .collect()
}

/// ACQUIREs of a free seat with each of the metadata.
fn acquires_with(metadata: &[impl AsRef<[u8]>]) -> Vec<Vec<Vec<u8>>> {
    let acquire =
        |metadata: &[u8]| command(&[b"SEAT.ACQUIRE", b"pool".as_slice(), b"c", b"3", metadata]);
    metadata
        .iter()
        .map(|metadata| acquire(metadata.as_ref()))
        .collect()
}

#[test]
fn more_arguments_than_a_command_has() {
    let mut refusing = Refusing::prepared();
    let lines = [
        "SEAT.ACQUIRE pool c 3 {} more",
        "SEAT.ACQUIRE pool c 3 {} {} {}",
        "SEAT.ACQUIRE pool a 3 {} more",
        "SEAT.HEARTBEAT pool a {} more",
        "SEAT.SESSIONS pool more",
        "SEAT.SESSIONS pool WITHMETADATA more",
        "SEAT.SESSIONS pool WITHMETADATA WITHMETADATA",
        "SEAT.SCAN pool 0 more",
        "SEAT.CLEANUP pool more",
    ];
    let commands = lines.map(|line| command(&line.split(' ').collect::<Vec<_>>()));
    refusing.refuses("syntax error", &commands);
}

#[test]
fn seats_that_are_no_integer_of_64_bits() {
    let mut refusing = Refusing::prepared();
    let spellings = [
        "",
        " ",
        "x",
        "5.7",
        "5.0",
        "0x10",
        " 5",
        "5 ",
        "1e3",
        "+5",
        "007",
        "00",
        "-0",
        "--1",
        "-",
        "inf",
        "nan",
        "1,000",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551617",
        "5\0",
        "\u{665}",
    ];
    for session in ["c", "a"] {
        let commands =
            spellings.map(|seats| command(&["SEAT.ACQUIRE", "pool", session, seats, "{}"]));
        refusing.refuses("seats must be a 64-bit integer", &commands);
    }
    let missing = spellings.map(|seats| command(&["SEAT.ACQUIRE", "missing", "c", seats]));
    refusing.refuses("seats must be a 64-bit integer", &missing);
}

#[test]
fn a_session_id_that_is_empty_or_too_long() {
    let mut refusing = Refusing::prepared();
    refusing.refuses(
        "session must not be empty",
        &[
            command(&["SEAT.ACQUIRE", "pool", "", "3", "{}"]),
            command(&["SEAT.ACQUIRE", "pool", "", "0", "{}"]),
            command(&["SEAT.ACQUIRE", "missing", "", "3"]),
        ],
    );
    let long = "x".repeat(1025);
    let endless = "x".repeat(1 << 20);
    refusing.refuses(
        "session must be at most 1024 bytes",
        &[
            command(&["SEAT.ACQUIRE", "pool", &long, "3", "{}"]),
            command(&["SEAT.ACQUIRE", "pool", &endless, "3", "{}"]),
            command(&["SEAT.ACQUIRE", "missing", &long, "3", "{}"]),
        ],
    );
    // Elsewhere such an id is one that holds no seat.
    for id in ["", &long, &endless] {
        let before = Traces::of(&refusing.server);
        assert_eq!(
            refusing.dialog.ask_args(&["SEAT.RELEASE", "pool", id]),
            "[0, SESSION_NOT_FOUND]"
        );
        assert_eq!(
            refusing.dialog.ask_args(&["SEAT.HEARTBEAT", "pool", id]),
            "[0, SESSION_NOT_ACTIVE]"
        );
        assert_eq!(refusing.dialog.ask_args(&["SEAT.GET", "pool", id]), "nil");
        assert_eq!(refusing.dialog.ask_args(&["SEAT.REVOKE", "pool", id]), "0");
        assert_eq!(Traces::of(&refusing.server), before);
    }
}

#[test]
fn metadata_that_are_no_json_object() {
    let mut refusing = Refusing::prepared();
    let texts: [&[u8]; 40] = [
        b"",
        b" ",
        b"x",
        b"1",
        b"\"x\"",
        b"null",
        b"true",
        b"[]",
        b"[{}]",
        b"{",
        b"}",
        b"{}{}",
        b"{} x",
        b"{},",
        b"{]",
        b"{'a':1}",
        b"{a:1}",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{,}",
        b"{\"a\":01}",
        b"{\"a\":+1}",
        b"{\"a\":.5}",
        b"{\"a\":1.}",
        b"{\"a\":0x1}",
        b"{\"a\":NaN}",
        b"{\"a\":Infinity}",
        b"{\"a\":1e400}",
        b"{\"a\":-1e400}",
        b"{\"a\":\"\n\"}",
        b"{\"a\":\"\0\"}",
        b"{}\0",
        b"{\"a\":\"\\x\"}",
        b"{\"a\":\"\\ud800\"}",
        b"{\"a\":\"\\udc00\\ud800\"}",
        b"{\"a\":1 /* why */}",
        b"{\"a\":tru}",
        b"{1:2}",
        b"\xef\xbb\xbf{}",
    ];
    refusing.refuses("metadata must be a JSON object", &acquires_with(&texts));
    let missing: Vec<_> = texts
        .iter()
        .map(|text| command(&[b"SEAT.ACQUIRE", b"missing".as_slice(), b"c", b"3", text]))
        .collect();
    refusing.refuses("metadata must be a JSON object", &missing);
}

#[test]
fn metadata_that_are_no_utf8() {
    let mut refusing = Refusing::prepared();
    let texts: [&[u8]; 7] = [
        b"{\"a\":\"\xff\"}",
        b"{\"\x80\":1}",
        b"{\"a\":\"\xc3\"}",
        b"{\"a\":\"\xc0\xaf\"}",
        b"{\"a\":\"\xed\xa0\x80\"}",
        b"{\"a\":\"\xf4\x90\x80\x80\"}",
        b"{}\xff",
    ];
    refusing.refuses("metadata must be a JSON object", &acquires_with(&texts));
}

/// An object of exactly this many bytes.
fn object_of(bytes: usize) -> String {
    let text = format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - r#"{"a":""}"#.len()));
    assert_eq!(text.len(), bytes);
    text
}

#[test]
fn metadata_that_are_too_large() {
    let mut refusing = Refusing::prepared();
    let texts = [
        object_of(16_385),
        object_of(1 << 20),
        format!("{{}}{}", " ".repeat(16_383)),
    ];
    refusing.refuses(
        "metadata must be at most 16384 bytes",
        &acquires_with(&texts),
    );
    refusing.dialog.acquire("pool", "c", 3, &object_of(16_384));
}

/// An object whose values nest until it is `depth` levels deep.
fn nested(depth: usize, open: &str, close: &str) -> String {
    format!(
        r#"{{"a":{}{}}}"#,
        open.repeat(depth - 1),
        close.repeat(depth - 1)
    )
}

#[test]
fn metadata_that_nest_too_deep() {
    let (server, mut dialog) = Server::builder()
        .recording()
        .module_args("max-metadata-bytes 1000000")
        .scene();
    dialog.acquire("pool", "a", 9, "{}");
    let mut refusing = Refusing { server, dialog };
    let object = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let texts = [
        nested(1001, "[", "]"),
        nested(10_000, "[", "]"),
        object(1001),
        object(10_000),
        format!(r#"{{"a":{}"#, "[".repeat(500_000)),
        r#"{"a":"#.repeat(100_000),
    ];
    refusing.refuses(
        "metadata must not nest deeper than 1000 levels",
        &acquires_with(&texts),
    );
    for (session, text) in [("d", nested(1000, "[", "]")), ("e", object(1000))] {
        refusing.dialog.acquire("pool", session, 9, &text);
        let stored = refusing.dialog.bytes(&["SEAT.GET", "pool", session]);
        assert!(stored.starts_with(text.trim_end_matches('}').as_bytes()));
    }
    refusing.server.reloads_the_same("DEBUG RELOAD");
}

#[test]
fn a_heartbeat_count_that_is_no_integer() {
    let mut refusing = Refusing::prepared();
    let values = [
        "null",
        "\"1\"",
        "1.5",
        "1.0",
        "1e3",
        "false",
        "true",
        "{}",
        "[]",
        "[1]",
        "9223372036854775808",
        "-9223372036854775809",
    ];
    let plain = values.map(|value| format!(r#"{{"k":1,"heartbeat_count":{value}}}"#));
    refusing.refuses(
        "heartbeat_count in metadata must be an integer",
        &acquires_with(&plain),
    );
    let escaped = values
        .map(|value| format!(r#"{{"heartbeat\u005fcount":1,"heartbeat_\u0063ount":{value}}}"#));
    refusing.refuses(
        "heartbeat_count in metadata must be an integer",
        &acquires_with(&escaped),
    );
    // Of duplicates the last counts; deeper down the name is anybody's.
    refusing.dialog.acquire(
        "pool",
        "c",
        3,
        r#"{"heartbeat_count":false,"heartbeat_count":7,"k":{"heartbeat_count":null}}"#,
    );
    refusing
        .dialog
        .expect("SEAT.HEARTBEAT pool c", "[1, HEARTBEAT_UPDATED, 8]");
}

#[test]
fn commands_of_other_types_refuse_a_pool() {
    let mut refusing = Refusing::prepared();
    let before = Traces::of(&refusing.server);
    for line in [
        "GET pool",
        "LPUSH pool x",
        "SADD pool x",
        "HGET pool a",
        "APPEND pool x",
        "INCR pool",
        "ZCARD pool",
    ] {
        refusing.dialog.begins(line, "!WRONGTYPE");
    }
    assert_eq!(Traces::of(&refusing.server), before);
}

#[test]
fn answers_that_change_nothing_leave_no_trace_but_their_totals() {
    let mut refusing = Refusing::prepared();
    let before = Traces::without_totals(&refusing.server);
    for line in [
        "SEAT.ACQUIRE pool a 3 {}",
        "SEAT.ACQUIRE pool a 99 {}",
        "SEAT.ACQUIRE pool c 2 {}",
        "SEAT.ACQUIRE pool c -7 {}",
        "SEAT.ACQUIRE missing c 0 {}",
        "SEAT.RELEASE pool c",
        "SEAT.RELEASE missing c",
        "SEAT.HEARTBEAT pool c",
        "SEAT.HEARTBEAT missing c",
        "SEAT.REVOKE pool c d e",
        "SEAT.REVOKE missing a",
        "SEAT.CLEANUP pool",
        "SEAT.CLEANUP pool IDLE 1000",
        "SEAT.CLEANUP missing",
    ] {
        refusing.dialog.succeeds(line);
        assert_eq!(
            Traces::without_totals(&refusing.server),
            before,
            "{line} changed something"
        );
    }
}

#[test]
fn a_pool_lives_by_its_type_alone_whatever_its_name() {
    let (_server, mut dialog) = Server::scene();
    for key in ["", " ", "{", "license:x:active_sessions"] {
        let reply = dialog.ask_args(&["SEAT.ACQUIRE", key, "s", "1"]);
        assert_eq!(reply, "[1, ACQUIRED, 1, 1]", "{key:?}");
        assert_eq!(dialog.ask_args(&["SEAT.COUNT", key]), "1");
    }
}
