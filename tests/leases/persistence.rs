//! Leases belong to the value: wherever it goes, their lengths and their deadlines go, to the
//! millisecond.

use redis::Value;

use crate::support::{Builder, Command, Dialog, Server, total, wait_for_reclaim, words};

/// Deadlines and lengths that a lossy encoding would not bring through, all of them far from now.
const LEASES: [(&str, i64); 5] = [
    ("a", 3_600_001),
    ("b", 86_400_007),
    ("c", 31_536_000_000),
    ("d", 4_102_444_800_123),
    ("e", 9_223_370_000_000_000_000),
];

fn fill(dialog: &mut Dialog) {
    for (session, length_ms) in LEASES {
        dialog.ask(&format!(
            "SEAT.ACQUIRE pool {session} 9 {{\"m\":1}} PX {length_ms}"
        ));
    }
    dialog.ask("SEAT.ACQUIRE pool unleased 9");
    dialog.ask("SEAT.HEARTBEAT pool b");
}

/// The deadline of each session of the pool at `key`, found by releasing one after the other in a
/// copy.
fn deadlines(dialog: &mut Dialog, key: &str) -> Vec<i64> {
    let copy = format!("SEAT.INFO {key}:copy");
    dialog.expect(&format!("COPY {key} {key}:copy REPLACE"), "1");
    let mut found = Vec::new();
    for (session, _) in LEASES {
        found.push(dialog.pool_info(&format!("{key}:copy"), "next_deadline_ms"));
        dialog.ask(&format!("SEAT.RELEASE {key}:copy {session}"));
    }
    dialog.contains(&copy, r#""used", 1,"#);
    dialog.contains(&copy, r#""leased", 0,"#);
    dialog.ask(&format!("DEL {key}:copy"));
    found
}

/// That a renewal lasts as long as the lease was first asked for.
fn assert_lengths(dialog: &mut Dialog, key: &str) {
    for (session, length_ms) in LEASES {
        let (beat, pttl) = (
            format!("SEAT.HEARTBEAT {key} {session}"),
            format!("SEAT.PTTL {key} {session}"),
        );
        let began_ms = dialog.now_ms();
        let left_ms: i64 = dialog.at_once(&[&beat, &pttl])[1].parse().expect("ms");
        let passed_ms = dialog.now_ms() - began_ms;
        assert!(
            (length_ms - passed_ms..=length_ms).contains(&left_ms),
            "{session}: {left_ms} ms left of {length_ms}"
        );
    }
    dialog.expect(&format!("SEAT.PTTL {key} unleased"), "-1");
}

#[track_caller]
fn survives(builder: Builder, what: impl FnOnce(&mut Server)) {
    let (mut server, mut dialog) = builder.scene();
    fill(&mut dialog);
    let before = (deadlines(&mut dialog, "pool"), server.digest());
    what(&mut server);
    let mut dialog = Dialog::with(&server);
    assert_eq!((deadlines(&mut dialog, "pool"), server.digest()), before);
    assert_lengths(&mut dialog, "pool");
}

#[test]
fn in_an_rdb() {
    survives(Server::builder().config("save 3600 1"), Server::restart);
}

#[test]
fn in_an_aof_that_nobody_closed() {
    survives(Server::builder().recording(), |server| {
        server.kill9();
        server.restart();
    });
}

#[test]
fn in_an_aof_that_was_rewritten_as_commands() {
    survives(Server::builder().recording(), |server| {
        server.rewrite_aof();
        let grants: Vec<Command> = server.commands_in_aof();
        let grants = grants
            .iter()
            .map(words)
            .filter(|words| words[0] == "SEAT.EFFECT");
        let mut lengths: Vec<String> = grants.map(|words| words[8].clone()).collect();
        lengths.sort();
        let mut expected: Vec<String> = LEASES.iter().map(|(_, ms)| ms.to_string()).collect();
        expected.push("0".to_owned());
        expected.sort();
        assert_eq!(lengths, expected);
        server.kill9();
        server.restart();
    });
}

#[test]
fn in_an_aof_that_begins_as_an_rdb() {
    let builder = Server::builder()
        .config("appendonly yes")
        .config("aof-use-rdb-preamble yes");
    survives(builder, |server| {
        server.rewrite_aof();
        server.restart();
    });
}

#[test]
fn in_a_reload() {
    survives(Server::builder(), |server| {
        Dialog::with(server).expect("DEBUG RELOAD", "+OK");
    });
}

#[test]
fn in_a_copy_under_another_name_and_in_another_database() {
    survives(Server::builder(), |server| {
        let mut dialog = Dialog::with(server);
        for line in [
            "RENAME pool other",
            "MOVE other 3",
            "SWAPDB 3 2",
            "SELECT 2",
            "COPY other copy DB 0",
            "DEL other",
            "SELECT 0",
            "RENAME copy pool",
        ] {
            let reply = dialog.ask(line);
            assert!(reply == "+OK" || reply == "1", "{line}: {reply}");
        }
    });
}

#[test]
fn in_a_dump() {
    survives(Server::builder(), |server| {
        let mut dialog = Dialog::with(server);
        let Value::BulkString(dump) = dialog.value(&["DUMP", "pool"]) else {
            panic!("no dump");
        };
        dialog.ask("DEL pool");
        dialog.restore("pool", &dump, &[]);
    });
}

#[test]
fn in_a_failover_by_each_way_of_reaching_the_replica() {
    // The leases reach one replica in the first synchronisation and the other in the stream.
    for streamed in [false, true] {
        let (mut primary, mut dialog) = Server::builder().tcp().scene();
        if !streamed {
            fill(&mut dialog);
        }
        let replica = Server::builder().replica_of(&primary).start();
        primary.wait_for_offset(&replica);
        if streamed {
            fill(&mut dialog);
        }
        let before = deadlines(&mut dialog, "pool");
        primary.wait_for_offset(&replica);
        let digest = primary.digest();
        primary.kill9();
        let mut dialog = Dialog::with(&replica);
        assert_eq!(replica.digest(), digest);
        dialog.expect("REPLICAOF NO ONE", "+OK");
        assert_eq!(deadlines(&mut dialog, "pool"), before);
        assert_eq!(replica.digest(), digest);
        assert_lengths(&mut dialog, "pool");
    }
}

#[test]
fn a_digest_sees_lengths_and_deadlines() {
    let (_server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    let mut seen = Vec::new();
    for lease in [
        "0 0",
        "60000 4102444800000",
        "60001 4102444800000",
        "60000 4102444800001",
    ] {
        dialog.ask("DEL pool");
        dialog.ask(&format!(
            "SEAT.EFFECT pool GRANT a '1 1700000000 1700000000 - {lease}' {{}}"
        ));
        let digest = dialog.ask("DEBUG DIGEST-VALUE pool");
        assert!(
            !seen.contains(&digest),
            "{lease}: the digest is that of another lease"
        );
        seen.push(digest);
    }
    // The same by other effects.
    dialog.ask("SEAT.EFFECT pool RENEW a '60001 4102444800000'");
    assert_eq!(dialog.ask("DEBUG DIGEST-VALUE pool"), seen[2]);
    dialog.ask("SEAT.EFFECT pool GRANT a '1 1700000000 1700000000 - 0 0' {}");
    assert_eq!(dialog.ask("DEBUG DIGEST-VALUE pool"), seen[0]);
}

/// What expired while no server ran is loaded, is gone for every command, and is then reclaimed
/// with an effect like any other.
#[test]
fn a_lease_that_ends_while_the_server_is_down_is_reclaimed() {
    for builder in [
        Server::builder().config("save 3600 1"),
        Server::builder().recording(),
    ] {
        let (mut server, mut dialog) = builder.scene();
        // The pause keeps this process from reclaiming it.
        dialog.at_once(&[
            "SEAT.ACQUIRE pool a 2 PX 1",
            "SEAT.ACQUIRE pool b 2",
            "CLIENT PAUSE 600000 WRITE",
        ]);
        server.restart();
        Dialog::with(&server).expect("SEAT.SESSIONS pool", r#"["b"]"#);
        wait_for_reclaim(&server, 1);
        Dialog::with(&server).expect("SEAT.SESSIONS pool", r#"["b"]"#);
        assert_eq!(total(&server, "seat_ignored_effects"), 0);
    }
}
