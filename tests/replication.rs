//! What is replicated, and that replicas come to hold the same.

mod nodes;
mod writable;

use crate::support::{Server, replicated, units, without_time};

/// What a server replicated while `actions` ran, MULTI and EXEC included, the present time as `T`.
#[track_caller]
fn lines(server: &Server, actions: impl FnOnce()) -> Vec<String> {
    let lines = replicated(server, actions);
    lines.iter().map(|line| without_time(line)).collect()
}

#[test]
fn each_change_is_replicated_as_what_it_did() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let nothing: &[&str] = &[];
    for (command, expected) in [
        (
            "SEAT.ACQUIRE pool a 3",
            &["pool GRANT a 3 T T - 0 0 {}"][..],
        ),
        (
            "SEAT.ACQUIRE pool b 4 {\"k\":1}",
            &["pool GRANT b 4 T T - 0 0 {\"k\":1}"],
        ),
        (
            "SEAT.ACQUIRE pool c 5 {\"acquired_at\":1,\"k\":2,\"heartbeat_count\":7}",
            &["pool GRANT c 5 T T 7 0 0 {\"k\":2}"],
        ),
        ("SEAT.ACQUIRE pool a 9", nothing),
        ("SEAT.ACQUIRE pool d 3", nothing),
        ("SEAT.ACQUIRE pool d 9 nonsense", nothing),
        ("SEAT.HEARTBEAT pool a", &["pool BEAT a T 1 0 0"]),
        (
            "SEAT.HEARTBEAT pool a {\"large\":\"metadata\"}",
            &["pool BEAT a T 2 0 0"],
        ),
        ("SEAT.HEARTBEAT pool c", &["pool BEAT c T 8 0 0"]),
        ("SEAT.HEARTBEAT pool d", nothing),
        ("SEAT.RELEASE pool d", nothing),
        ("SEAT.REVOKE pool d e", nothing),
        ("SEAT.CLEANUP pool", nothing),
        ("SEAT.PTTL pool a", nothing),
        ("SEAT.COUNT pool", nothing),
        ("SEAT.SESSIONS pool WITHMETADATA", nothing),
        ("SEAT.SCAN pool 0", nothing),
        ("SEAT.GET pool a", nothing),
        ("SEAT.INFO pool", nothing),
        ("SEAT.RELEASE pool a", &["pool FREE released a"]),
        ("SEAT.REVOKE pool x b", &["pool FREE revoked b"]),
        // The last session takes the key along on every node, without a DEL of its own.
        ("SEAT.RELEASE pool c", &["pool FREE released c"]),
        ("SEAT.RELEASE pool c", nothing),
    ] {
        let sent = units(&server, || {
            dialog.ask(command);
        });
        assert_eq!(sent.concat(), expected, "{command}");
    }
}

#[test]
fn metadata_are_replicated_as_they_were_sent() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let metadata = " \t{ \"n\": 1.50, \"big\": 12345678901234567890, \"e\": [] , \"t\":\"\u{fc}\\u00fc\\/\" }\r\n";
    let stream = server.stream_of(|| {
        dialog.acquire("pool", "a", 3, metadata);
    });
    let granted = stream
        .iter()
        .find(|command| command[0] == b"SEAT.EFFECT")
        .expect("an effect");
    assert_eq!(granted.len(), 6);
    assert_eq!(String::from_utf8_lossy(&granted[5]), metadata.trim());
}

#[test]
fn a_revocation_of_many_is_one_unit() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.acquire_all("pool", &["a", "b", "c"], 3);
    let lines = replicated(&server, || dialog.expect("SEAT.REVOKE pool a x b a", "2"));
    let revoked: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("SEAT.EFFECT pool FREE revoked "))
        .flat_map(|sessions| sessions.split(' '))
        .collect();
    assert_eq!(revoked, ["a", "b"]);
    if lines.len() > 1 {
        let (first, last) = (&lines[0], &lines[lines.len() - 1]);
        assert_eq!(
            (first.as_str(), last.as_str()),
            ("MULTI", "EXEC"),
            "{lines:?}"
        );
        assert_eq!(
            lines.iter().filter(|line| *line == "EXEC").count(),
            1,
            "{lines:?}"
        );
    }
}

#[test]
fn a_transaction_is_replicated_as_one() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let lines = lines(&server, || {
        dialog.expect("MULTI", "+OK");
        for command in [
            "SEAT.ACQUIRE pool a 1",
            "SEAT.ACQUIRE pool b 1",
            "SET between x",
            "SEAT.HEARTBEAT pool a",
            "SEAT.RELEASE pool a",
            "SEAT.COUNT pool",
            "SEAT.ACQUIRE pool b 1 {\"k\":1}",
        ] {
            dialog.expect(command, "+QUEUED");
        }
        dialog.begins("EXEC", "[[");
    });
    assert_eq!(
        lines,
        [
            "MULTI",
            "SEAT.EFFECT pool GRANT a 1 T T - 0 0 {}",
            "SET between x",
            "SEAT.EFFECT pool BEAT a T 1 0 0",
            "SEAT.EFFECT pool FREE released a",
            "SEAT.EFFECT pool GRANT b 1 T T - 0 0 {\"k\":1}",
            "EXEC"
        ]
    );
    let sent = units(&server, || {
        assert_eq!(
            dialog.transaction(&["SEAT.ACQUIRE pool c 1", "SEAT.RELEASE pool c"]),
            "[[0, NO_SEATS_AVAILABLE, 1, 1], [0, SESSION_NOT_FOUND]]"
        );
    });
    assert!(sent.is_empty(), "{sent:?}");
}

#[test]
fn a_script_is_replicated_by_its_effects() {
    let (server, mut dialog) = Server::builder().recording().scene();
    let script = "redis.call('SEAT.ACQUIRE', KEYS[1], 'a', 1)
        redis.call('SEAT.ACQUIRE', KEYS[1], 'b', 1)
        redis.pcall('SEAT.ACQUIRE', KEYS[1], 'b', 'x')
        redis.call('SEAT.HEARTBEAT', KEYS[1], 'a')
        return redis.call('SEAT.RELEASE', KEYS[1], 'a')";
    let lines = lines(&server, || {
        assert_eq!(dialog.eval(script, &["pool"]), "[1, RELEASED, 0]");
    });
    assert_eq!(
        lines,
        [
            "MULTI",
            "SEAT.EFFECT pool GRANT a 1 T T - 0 0 {}",
            "SEAT.EFFECT pool BEAT a T 1 0 0",
            "SEAT.EFFECT pool FREE released a",
            "EXEC"
        ]
    );
    let sent = units(&server, || {
        let script = "return redis.call('SEAT.RELEASE', KEYS[1], 'a')";
        assert_eq!(dialog.eval(script, &["pool"]), "[0, SESSION_NOT_FOUND]");
    });
    assert!(sent.is_empty(), "{sent:?}");
}

#[test]
fn effects_carry_bytes_and_go_to_the_callers_database() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.expect("SELECT 5", "+OK");
    let reply = dialog.ask_args(&[b"SEAT.ACQUIRE", b"p\0l".as_slice(), b"\xff \r\n", b"1"]);
    assert_eq!(reply, "[1, ACQUIRED, 1, 1]");
    let commands = server.commands_in_aof();
    let granted = commands
        .iter()
        .position(|command| command[0] == b"SEAT.EFFECT")
        .expect("an effect");
    assert_eq!(
        (
            commands[granted][1].as_slice(),
            commands[granted][3].as_slice()
        ),
        (b"p\0l".as_slice(), b"\xff \r\n".as_slice())
    );
    let select = commands[..granted]
        .iter()
        .rev()
        .find(|command| command[0].eq_ignore_ascii_case(b"select"));
    assert_eq!(select.expect("a SELECT")[1], b"5");
}
