//! A token tells a session from its predecessor with the same id.

use super::recording;
use crate::support::{Dialog, Server, Waiter, effects_of, now_ms, units};

/// The largest token that there can be.
const LARGEST: u64 = (1 << 52) - 1;

#[test]
fn each_token_is_new_and_larger() {
    let (_server, mut dialog) = Server::scene();
    let micros = u64::try_from(dialog.now_ms()).expect("after 1970") * 1000;
    let first = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    assert!(first > micros && first < LARGEST, "{first}");
    let again = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    let other = dialog.token("SEAT.ACQUIRE other b 9 WITHTOKEN");
    assert!(first < again && again < other, "{first} {again} {other}");
}

#[test]
fn a_token_that_is_not_the_present_one_changes_nothing() {
    let (server, mut dialog) = recording().scene();
    let void = dialog.token("SEAT.ACQUIRE pool a 9 EX 60 WITHTOKEN");
    let present = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    let digest = server.digest();
    let sent = effects_of(&server, || {
        for token in [void, 1, LARGEST] {
            dialog.expect(
                &format!("SEAT.HEARTBEAT pool a TOKEN {token}"),
                "[0, SESSION_NOT_ACTIVE]",
            );
            dialog.expect(
                &format!("SEAT.RELEASE pool a TOKEN {token}"),
                "[0, SESSION_NOT_FOUND]",
            );
        }
    });
    assert_eq!(sent, [""; 0]);
    assert_eq!(server.digest(), digest);
    dialog.expect(
        &format!("SEAT.HEARTBEAT pool a {{}} PX 70000 TOKEN {present}"),
        "[1, HEARTBEAT_UPDATED, 1, 70000]",
    );
    // Without a token all is as ever.
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 2]");
    dialog.expect(
        &format!("SEAT.RELEASE pool a TOKEN {present}"),
        "[1, RELEASED, 0]",
    );
}

#[test]
fn a_successor_of_the_same_id_is_safe_from_its_predecessor() {
    let (_server, mut dialog) = Server::scene();
    let predecessor = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    dialog.expect("SEAT.REVOKE pool a", "1");
    // The successor has none, and no token is its own.
    dialog.expect("SEAT.ACQUIRE pool a 9", "[1, ACQUIRED, 1, 9]");
    let with = |command: &str| format!("{command} pool a TOKEN {predecessor}");
    dialog.expect(&with("SEAT.HEARTBEAT"), "[0, SESSION_NOT_ACTIVE]");
    dialog.expect(&with("SEAT.RELEASE"), "[0, SESSION_NOT_FOUND]");
    let successor = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    dialog.expect(&with("SEAT.RELEASE"), "[0, SESSION_NOT_FOUND]");
    dialog.expect(
        &format!("SEAT.RELEASE pool a TOKEN {successor}"),
        "[1, RELEASED, 0]",
    );
}

#[test]
fn a_void_token_leaves_a_waiters_position() {
    let (_server, mut dialog) = Server::full_pool();
    dialog.expect("SEAT.ACQUIRE pool b 1 QUEUE 60000", "[0, QUEUED, 1, 1, 1]");
    dialog.expect("SEAT.RELEASE pool b TOKEN 7", "[0, SESSION_NOT_FOUND]");
    assert_eq!(dialog.queue("pool"), ["b"]);
}

#[test]
fn a_blocked_client_gets_its_token_with_the_grant() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 WITHTOKEN BLOCK 0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    let reply = waiter.read();
    let token = reply.strip_prefix("[1, ACQUIRED, 1, 1, ");
    let token = token.expect("a grant").trim_end_matches(']');
    dialog.expect(
        &format!("SEAT.RELEASE pool b TOKEN {token}"),
        "[1, RELEASED, 0]",
    );
}

#[test]
fn a_new_token_is_an_effect_of_its_own() {
    let (server, mut dialog) = recording().scene();
    dialog.expect("SEAT.ACQUIRE pool a 9", "[1, ACQUIRED, 1, 9]");
    let mut token = 0;
    let sent = units(&server, || {
        token = dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN");
    });
    assert_eq!(sent, [[format!("pool TOKEN a {token}")]]);
    let sent = units(&server, || {
        token = dialog.token("SEAT.ACQUIRE pool b 9 WITHTOKEN");
    });
    assert_eq!(sent, [[format!("pool GRANT b 9 T T - 0 0 1 {token} {{}}")]]);
}

/// Has the server hold a session `s` at `made`, whose token is far above the clock.
type Arrival = fn(&mut Dialog, token: u64);

#[test]
fn tokens_rise_above_those_that_come_from_elsewhere() {
    let by_effect: Arrival = |dialog, token| {
        dialog.expect(
            &format!("SEAT.EFFECT made GRANT s '1 1 1 - 0 0 1 {token}' {{}}"),
            "1",
        );
    };
    let by_token_effect: Arrival = |dialog, token| {
        dialog.expect("SEAT.EFFECT made GRANT s '1 1 1 - 0 0' {}", "1");
        dialog.expect(&format!("SEAT.EFFECT made TOKEN s {token}"), "1");
    };
    let by_restore: Arrival = |dialog, token| {
        let other = recording().start();
        let mut elsewhere = Dialog::with(&other);
        elsewhere.expect(
            &format!("SEAT.EFFECT made GRANT s '1 1 1 - 0 0 1 {token}' {{}}"),
            "1",
        );
        let payload = elsewhere.bytes(&["DUMP", "made"]);
        assert_eq!(dialog.restore("made", &payload, &[]), "+OK");
    };
    let far = (now_ms() as u64) * 1000 + (1 << 48);
    for arrival in [by_effect, by_token_effect, by_restore] {
        let (server, mut dialog) = recording().scene();
        arrival(&mut dialog, far);
        assert_eq!(dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN"), far + 1);
        dialog.expect("DEL pool", "1");
        server.reloads_the_same("DEBUG RELOAD");
        assert!(dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN") > far + 1);
    }
}

#[test]
fn tokens_rise_over_a_restart_with_the_pool() {
    let (mut server, mut dialog) = recording().scene();
    let far = (now_ms() as u64) * 1000 + (1 << 48);
    dialog.expect(
        &format!("SEAT.EFFECT made GRANT s '1 1 1 - 0 0 1 {far}' {{}}"),
        "1",
    );
    server.restart();
    let mut dialog = Dialog::with(&server);
    assert_eq!(dialog.token("SEAT.ACQUIRE pool a 9 WITHTOKEN"), far + 1);
}

#[test]
fn without_a_larger_token_a_call_for_one_is_an_error() {
    let (server, mut dialog) = recording().scene();
    dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]");
    let mut waiting = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 WITHTOKEN BLOCK 0");
    let mut behind = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    dialog.expect(
        &format!("SEAT.EFFECT made GRANT s '1 1 1 - 0 0 1 {LARGEST}' {{}}"),
        "1",
    );
    let digest = server.digest();
    for command in [
        "SEAT.ACQUIRE pool a 1 WITHTOKEN",
        "SEAT.ACQUIRE new a 1 WITHTOKEN",
        "SEAT.ACQUIRE pool d 1 WITHTOKEN",
    ] {
        dialog.begins(command, "!ERR WITHTOKEN cannot be served");
    }
    assert_eq!(server.digest(), digest);
    // Who waits for one hears the same, and holds nobody up.
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    let reply = waiting.read();
    assert!(
        reply.starts_with("!ERR WITHTOKEN cannot be served"),
        "{reply}"
    );
    behind.hears("[1, ACQUIRED, 1, 1]");
    dialog.expect(
        &format!("SEAT.RELEASE made s TOKEN {LARGEST}"),
        "[1, RELEASED, 0]",
    );
}

#[test]
fn an_invalid_entry_has_no_token() {
    let (_server, mut dialog) = crate::migration::with_migration().scene();
    dialog.succeeds("SADD license:pool:active_sessions s");
    dialog.succeeds("HSET license:pool:session_metadata s nonsense");
    dialog.expect("SEAT.ACQUIRE pool s 9", "[1, ALREADY_ACTIVE, 1]");
    dialog.begins(
        "SEAT.ACQUIRE pool s 9 WITHTOKEN",
        "!ERR session s cannot be imported",
    );
    dialog.expect("SEAT.HEARTBEAT pool s TOKEN 5", "[0, SESSION_NOT_ACTIVE]");
    dialog.expect("SEAT.RELEASE pool s TOKEN 5", "[0, SESSION_NOT_FOUND]");
    dialog.expect("SISMEMBER license:pool:active_sessions s", "1");
    dialog.expect("SEAT.RELEASE pool s", "[1, RELEASED, 0]");
}
