//! Owners, weights and tokens wherever the pool goes.

use super::recording;
use crate::support::{Builder, Dialog, Server, effects_of, without_time};

/// Pools with all kinds of sessions and tickets.
fn fill(dialog: &mut Dialog) {
    for command in [
        "SEAT.ACQUIRE pool plain 9",
        "SEAT.ACQUIRE pool heavy 9 {\"k\":1} WEIGHT 3",
        "SEAT.ACQUIRE pool owned 9 OWNER ann",
        "SEAT.ACQUIRE pool all 9 {} EX 600 WEIGHT 4 OWNER bob MAX 2 WITHTOKEN",
        "SEAT.ACQUIRE pool t1 9 QUEUE 600000",
        "SEAT.ACQUIRE pool t2 9 WEIGHT 2 QUEUE 600000",
        "SEAT.ACQUIRE pool t3 9 OWNER ann MAX 5 TAKEOVER WEIGHT 3 QUEUE 600000",
        "SEAT.ACQUIRE pool t4 9 OWNER bob QUEUE 600000",
        "SEAT.ACQUIRE simple a 9",
    ] {
        dialog.succeeds(command);
    }
    dialog.token("SEAT.ACQUIRE pool owned 9 WITHTOKEN");
}

fn filled(builder: Builder) -> (Server, Dialog) {
    let (server, mut dialog) = builder.scene();
    fill(&mut dialog);
    (server, dialog)
}

/// What is so wherever the pool is.
#[track_caller]
fn is_all_there(dialog: &mut Dialog) {
    assert_eq!(dialog.pool_info("pool", "used"), 9);
    assert_eq!(dialog.pool_info("pool", "sessions"), 4);
    let mut owners: Vec<(String, (u64, u64))> = dialog.query("SEAT.OWNERS pool");
    owners.sort();
    let expected = [("ann", (1, 1)), ("bob", (1, 4))];
    assert_eq!(
        owners,
        expected.map(|(owner, held)| (owner.to_owned(), held))
    );
    assert_eq!(dialog.queue("pool"), ["t1", "t2", "t3", "t4"]);
}

#[test]
fn reloads_and_rewrites_leave_everything_the_same() {
    let (server, mut dialog) = filled(recording());
    server.reloads_the_same("DEBUG RELOAD");
    is_all_there(&mut dialog);
    server.reloads_the_same("DEBUG LOADAOF");
    is_all_there(&mut dialog);
    server.rewrite_aof();
    server.reloads_the_same("DEBUG LOADAOF");
    is_all_there(&mut dialog);
}

#[test]
fn a_restart_brings_everything_back() {
    for rewrites in [false, true] {
        let (mut server, _) = filled(recording());
        let digest = server.digest();
        if rewrites {
            server.rewrite_aof();
        }
        server.restart();
        assert_eq!(server.digest(), digest);
        is_all_there(&mut Dialog::with(&server));
    }
}

#[test]
fn copies_and_payloads_have_everything() {
    let (_server, mut dialog) = filled(Server::builder());
    dialog.expect("COPY pool copy", "1");
    assert_eq!(dialog.digest_of("copy"), dialog.digest_of("pool"));
    let payload = dialog.bytes(&["DUMP", "pool"]);
    let (_other, mut elsewhere) = Server::scene();
    assert_eq!(elsewhere.restore("pool", &payload, &[]), "+OK");
    assert_eq!(elsewhere.digest_of("pool"), dialog.digest_of("pool"));
    is_all_there(&mut elsewhere);
}

#[test]
fn a_replica_holds_what_its_primary_holds() {
    let (primary, mut dialog) = Server::builder().tcp().scene();
    dialog.succeeds("SEAT.ACQUIRE pool before 20 WEIGHT 2 OWNER ann WITHTOKEN");
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    primary.replica_agrees(&replica);
    dialog.expect("SEAT.RELEASE pool before", "[1, RELEASED, 0]");
    fill(&mut dialog);
    primary.wait_for_offset(&replica);
    primary.replica_agrees(&replica);
    let mut reader = Dialog::with(&replica);
    is_all_there(&mut reader);
    // A takeover, and what follows from it.
    dialog.begins(
        "SEAT.ACQUIRE pool next 9 OWNER bob MAX 1 TAKEOVER WITHTOKEN",
        "[1, ACQUIRED, 6, 9, ",
    );
    dialog.expect("SEAT.REVOKEOWNER pool ann", "1");
    primary.wait_for_offset(&replica);
    primary.replica_agrees(&replica);
    for command in [
        "SEAT.ACQUIRE pool x 9 OWNER ann MAX 1",
        "SEAT.REVOKEOWNER pool bob",
        "SEAT.RELEASE pool next TOKEN 1",
    ] {
        reader.begins(command, "!READONLY");
    }
}

#[test]
fn a_promoted_replica_gives_larger_tokens() {
    let (primary, mut dialog) = Server::builder()
        .tcp()
        .module_args("allow-effects yes")
        .scene();
    let far = (dialog.now_ms() as u64) * 1000 + (1 << 48);
    dialog.expect(
        &format!("SEAT.EFFECT pool GRANT s '9 1 1 - 0 0 1 {far}' {{}}"),
        "1",
    );
    let replica = Server::builder().replica_of(&primary).start();
    primary.wait_for_offset(&replica);
    let token = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    assert_eq!(token, far + 1);
    primary.wait_for_offset(&replica);
    let mut promoted = Dialog::with(&replica);
    promoted.expect("REPLICAOF NO ONE", "+OK");
    assert_eq!(promoted.token("SEAT.ACQUIRE pool a 9 WITHTOKEN"), far + 2);
}

#[test]
fn effects_say_more_only_of_sessions_that_have_more() {
    let (server, mut dialog) = recording().scene();
    for (command, expected) in [
        ("SEAT.ACQUIRE pool a 9", "GRANT a 9 T T - 0 0 {}"),
        ("SEAT.ACQUIRE pool b 9 WEIGHT 1", "GRANT b 9 T T - 0 0 {}"),
        (
            "SEAT.ACQUIRE pool c 9 WEIGHT 2",
            "GRANT c 9 T T - 0 0 2 - {}",
        ),
        (
            "SEAT.ACQUIRE pool d 9 {} OWNER ann MAX 3",
            "GRANT d 9 T T - 0 0 1 - {} ann",
        ),
        (
            "SEAT.ACQUIRE pool e 9 {} OWNER ann MAX 3 TAKEOVER",
            "GRANT e 9 T T - 0 0 1 - {} ann",
        ),
        (
            "SEAT.ACQUIRE pool f 9 {} OWNER bob MAX 1 TAKEOVER",
            "GRANT f 9 T T - 0 0 1 - {} bob",
        ),
        (
            "SEAT.ACQUIRE pool g 9 {} OWNER bob MAX 1 TAKEOVER",
            "GRANT g 9 T T - 0 0 1 - {} bob f",
        ),
    ] {
        let sent = effects_of(&server, || dialog.succeeds(command));
        let sent: Vec<String> = sent.iter().map(|line| without_time(line)).collect();
        assert_eq!(sent, [format!("SEAT.EFFECT pool {expected}")], "{command}");
    }
    for (options, expected) in [
        ("", ""),
        ("WEIGHT 2", " 2 - 0"),
        ("OWNER ann", " 1 - 0 ann"),
        ("OWNER ann MAX 3 WEIGHT 4", " 4 3 0 ann"),
        ("OWNER ann MAX 3 TAKEOVER", " 1 3 1 ann"),
    ] {
        let command = format!("SEAT.ACQUIRE pool t 0 QUEUE 60000 {options}");
        let command = command.trim_end();
        let sent = effects_of(&server, || dialog.succeeds(command));
        // The numbers before it are times, but for the figure and the arrival.
        let words: Vec<&str> = sent[0].split(' ').collect();
        assert_eq!(words[..5], ["SEAT.EFFECT", "pool", "JOIN", "t", "0"]);
        let rest: String = words[9..].iter().map(|word| format!(" {word}")).collect();
        assert_eq!(rest, expected, "{command}");
    }
}

#[test]
fn a_digest_sees_each_of_them() {
    let (_server, mut dialog) = recording().scene();
    let mut seen = std::collections::HashMap::new();
    for effect in [
        "GRANT s '9 1 1 - 0 0' {}",
        "GRANT s '9 1 1 - 0 0 2 -' {}",
        "GRANT s '9 1 1 - 0 0 3 -' {}",
        "GRANT s '9 1 1 - 0 0 1 2' {}",
        "GRANT s '9 1 1 - 0 0 1 3' {}",
        "GRANT s '9 1 1 - 0 0 1 -' {} ann",
        "GRANT s '9 1 1 - 0 0 1 -' {} bob",
        "GRANT s '9 1 1 - 0 0 2 3' {} ann",
        "JOIN s '9 1 1 1 9000000000000'",
        "JOIN s '9 1 1 1 9000000000000 2 - 0'",
        "JOIN s '9 1 1 1 9000000000000 1 - 0' ann",
        "JOIN s '9 1 1 1 9000000000000 1 - 0' bob",
        "JOIN s '9 1 1 1 9000000000000 1 1 0' ann",
        "JOIN s '9 1 1 1 9000000000000 1 2 0' ann",
        "JOIN s '9 1 1 1 9000000000000 1 2 1' ann",
    ] {
        dialog.expect(&format!("SEAT.EFFECT pool {effect}"), "1");
        let other = seen.insert(dialog.digest_of("pool"), effect);
        assert_eq!(other, None, "{effect}");
        dialog.expect("DEL pool", "1");
    }
}
