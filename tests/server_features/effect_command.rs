//! SEAT.EFFECT is the server's own; a setting lets an operator pipe an AOF by hand.

use crate::support::{Dialog, Server, Traces, arguments, line, replicated, total};

const WELL_FORMED: [&str; 4] = [
    "SEAT.EFFECT pool GRANT z '9 1700000000 1700000000 - 0 0' {}",
    "SEAT.EFFECT new GRANT z '9 1700000000 1700000000 - 0 0' {}",
    "SEAT.EFFECT pool BEAT a '1700000000 7 0 0'",
    "SEAT.EFFECT pool FREE released a",
];

fn prepared(arguments: &str) -> (Server, Dialog) {
    let (server, mut dialog) = Server::builder().recording().module_args(arguments).scene();
    dialog.acquire_all("pool", &["a", "b"], 9);
    (server, dialog)
}

#[test]
fn clients_may_not_send_effects() {
    let (server, mut dialog) = prepared("");
    let digest = server.digest();
    for command in WELL_FORMED {
        let before = Traces::of(&server);
        let reply = dialog.ask(command);
        let is_refused = reply.starts_with("!ERR ") && reply.contains("allow-effects");
        assert!(is_refused, "{command}: {reply}");
        assert_eq!(Traces::of(&server), before, "{command}");
        // Servers before 7.0 pass on an empty transaction.
        let replicated = replicated(&server, || {
            let words = arguments(command).into_iter();
            let quoted: Vec<_> = words.map(|word| format!("'{word}'")).collect();
            let script = format!("return redis.call({})", quoted.join(","));
            let reply = dialog.eval(&script, &[]);
            assert!(
                reply.starts_with('!') && reply.contains("allow-effects"),
                "{script}: {reply}"
            );
            dialog.expect("MULTI", "+OK");
            dialog.ask(command);
            dialog.contains("EXEC", "!ERR ");
        });
        assert!(
            !replicated.iter().any(|line| line.contains("SEAT")),
            "{replicated:?}"
        );
        assert_eq!(server.digest(), digest, "{command}");
    }
}

#[test]
fn malformed_effects_are_refused_and_change_nothing() {
    let (server, mut dialog) = prepared("allow-effects yes");
    let lines = [
        "NOSUCH a",
        "GRANT a",
        "GRANT z '9 1 1 - 0 0'",
        "GRANT z '9 1 1 - 0' {}",
        "GRANT z '9 1 1 - 0 0 ' {}",
        "GRANT z '9 1 1 - 0 0 0' {}",
        "GRANT z 9 1 1 - 0 0 {}",
        "GRANT z '9 1 1 - 0 0' {} more",
        "GRANT z 'x 1 1 - 0 0' {}",
        "GRANT z '9 x 1 - 0 0' {}",
        "GRANT z '9 1 x - 0 0' {}",
        "GRANT z '9 -1 1 - 0 0' {}",
        "GRANT z '9 1 1 x 0 0' {}",
        "GRANT z '9 1 1 1.5 0 0' {}",
        "GRANT z '9 1 1 - x 0' {}",
        "GRANT z '9 1 1 - 0 x' {}",
        "GRANT z '9 1 1 - -5 99' {}",
        "GRANT z '9 1 1 - 0 0' []",
        "GRANT z '9 1 1 - 0 0' nonsense",
        "GRANT z '9 1 1 - 0 0' {",
        "GRANT z '9 1 1 - 0 0' {\"acquired_at\":5}",
        "GRANT z '9 1 1 - 0 0' {\"heartbeat_count\":5}",
        "GRANT z '9223372036854775808 1 1 - 0 0' {}",
        "BEAT a",
        "BEAT a '1 1 0'",
        "BEAT a '1 1 0 0 0'",
        "BEAT a 1 1 0 0",
        "BEAT a '1 1 0 0' more",
        "BEAT a 'x 1 0 0'",
        "BEAT a '1 x 0 0'",
        "BEAT a '1 - 0 0'",
        "BEAT a '1 1 x 0'",
        "BEAT a '1 1 -1 5'",
        "FREE released",
        "FREE a",
        "FREE nonsense a",
    ];
    for fields in lines {
        for key in ["pool", "missing"] {
            let command = format!("SEAT.EFFECT {key} {fields}");
            let before = Traces::of(&server);
            dialog.begins(&command, "!ERR ");
            assert_eq!(Traces::of(&server), before, "{command}");
        }
    }
    let endless = "x".repeat(70_000);
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let [long, deep] = [endless, deep].map(String::into_bytes);
    let numbers = b"9 1 1 - 0 0".as_slice();
    let odd: [&[&[u8]]; 6] = [
        &[b"GRANT", b"", numbers, b"{}"],
        &[b"GRANT", &long, numbers, b"{}"],
        &[b"GRANT", b"z", numbers, &deep],
        &[b"GRANT", b"z", numbers, b"{\"a\":\"\xff\"}"],
        &[b"BEAT", b"", b"1 1 0 0"],
        &[b"FREE", b"released", b""],
    ];
    for fields in odd {
        let before = Traces::of(&server);
        let words = [&[b"SEAT.EFFECT".as_slice(), b"pool"], fields].concat();
        let reply = dialog.ask_args(&words);
        assert!(reply.starts_with("!ERR "), "{reply}");
        assert_eq!(Traces::of(&server), before);
    }
    for command in ["SEAT.EFFECT", "SEAT.EFFECT pool", "SEAT.EFFECT pool FREE"] {
        dialog.begins(command, "!ERR ");
    }
    dialog.expect("SET text x", "+OK");
    for fields in [
        "GRANT z '9 1 1 - 0 0' {}",
        "BEAT a '1 1 0 0'",
        "FREE released a",
    ] {
        dialog.begins(&format!("SEAT.EFFECT text {fields}"), "!WRONGTYPE");
    }
}

#[test]
fn an_effect_without_its_session_is_counted_and_creates_nothing() {
    let (server, mut dialog) = prepared("allow-effects yes");
    let before = Traces::without_totals(&server);
    for (n, command) in [
        "SEAT.EFFECT pool BEAT x '1 1 0 0'",
        "SEAT.EFFECT pool FREE expired x",
        "SEAT.EFFECT missing BEAT a '1 1 0 0'",
        "SEAT.EFFECT missing FREE released a",
    ]
    .iter()
    .enumerate()
    {
        dialog.succeeds(command);
        assert_eq!(total(&server, "seat_ignored_effects"), n as u64 + 1);
    }
    assert_eq!(Traces::without_totals(&server), before);
    let log = server.log();
    assert!(
        log.lines()
            .any(|line| line.contains("<seat>") && line.contains("diverged")),
        "{log}"
    );
}

#[test]
fn an_aof_piped_by_hand_makes_the_same_data() {
    let (server, mut dialog) = prepared("");
    dialog.acquire("pool", "c", 4, r#"{"k":"ü", "heartbeat_count":5}"#);
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    dialog.expect("SEAT.HEARTBEAT pool c", "[1, HEARTBEAT_UPDATED, 6]");
    dialog.expect("SEAT.REVOKE pool b", "1");
    dialog.acquire("gone", "x", 1, "{}");
    dialog.expect("SEAT.RELEASE gone x", "[1, RELEASED, 0]");
    dialog.expect("SELECT 3", "+OK");
    dialog.acquire("pool", "d", 1, "{}");
    let other = Server::builder()
        .recording()
        .module_args("allow-effects yes")
        .start();
    let mut piped = Dialog::with(&other);
    let commands = server.commands_in_aof();
    for command in &commands {
        let reply = piped.ask_args(command);
        assert!(!reply.starts_with('!'), "{}: {reply}", line(command));
    }
    assert_eq!(other.digest(), server.digest());
    let effects = |server: &Server| -> Vec<String> {
        let all = server.commands_in_aof();
        all.iter()
            .map(line)
            .filter(|line| line.starts_with("SEAT."))
            .collect()
    };
    assert_eq!(
        effects(&other),
        effects(&server),
        "what was piped is passed on as it came"
    );
}
