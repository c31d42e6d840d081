//! In a cluster the legacy keys belong to a pool only if they are in its slot.

use std::time::{Duration, Instant};

use super::all_settings;
use crate::support::cluster::alone_with;
use crate::support::{Dialog, Waiter, eventually, total};

const TAGGED: &str = "{acme}";

#[test]
fn only_keys_in_the_pools_slot_are_adopted_and_read() {
    let server = alone_with(&all_settings());
    let mut dialog = Dialog::with(&server);
    for pool in [TAGGED, "acme"] {
        dialog.expect(&format!("SADD license:{pool}:active_sessions a"), "1");
    }
    dialog.expect("SEAT.ACQUIRE {acme} b 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("SEAT.ACQUIRE acme b 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect("SCARD license:{acme}:active_sessions", "1");
    dialog.expect("SMEMBERS license:{acme}:active_sessions", r#"["a"]"#);
    dialog.expect("EXISTS license:{acme}:active_sessions", "0");
    assert_eq!(total(&server, "seat_script_reads"), 2);
    // Here the key itself is read, which still has its own.
    dialog.expect("SMEMBERS license:acme:active_sessions", r#"["a"]"#);
    assert_eq!(total(&server, "seat_script_reads"), 2);
}

#[test]
fn own_calls_go_by_the_pools_slot() {
    let server = alone_with(&all_settings());
    let mut dialog = Dialog::with(&server);
    let acquire = super::SHAS[0];
    dialog.expect(
        &format!("EVALSHA {acquire} 1 acme a 1 {{}}"),
        "[1, ACQUIRED, 1, 1]",
    );
    let slot = dialog.number("CLUSTER KEYSLOT acme");
    dialog.expect(&format!("CLUSTER DELSLOTS {slot}"), "+OK");
    dialog.begins(
        &format!("EVALSHA {acquire} 1 acme b 1 {{}}"),
        "!CLUSTERDOWN",
    );
}

#[test]
fn invalid_entries_are_looked_at_now_and_then_and_not_in_a_loop() {
    let server = alone_with(&all_settings());
    let mut dialog = Dialog::with(&server);
    dialog.expect("SEAT.ACQUIRE {p} a 1", "[1, ACQUIRED, 1, 1]");
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE {p} w 1 BLOCK 0");
    dialog.expect("SADD license:{p}:active_sessions s", "1");
    dialog.expect("HSET license:{p}:session_metadata s nonsense", "1");
    dialog.expect("SEAT.RELEASE {p} a", "[1, RELEASED, 1]");
    // Each look asks whether the slot is still this node's, by a command of the module's own.
    let looks = || {
        let stats = server.info("commandstats");
        let stats = stats
            .get("cmdstat_seat.count")
            .map_or("calls=0", |stats| stats);
        let calls = stats.split(&['=', ','][..]).nth(1);
        let calls = calls.and_then(|calls| calls.parse::<u32>().ok());
        calls.expect("a number of calls")
    };
    let before = looks();
    eventually("the timer has looked a few times", || looks() >= before + 3);
    let watched = Instant::now();
    let before = looks();
    eventually("two seconds are over", || {
        watched.elapsed() >= Duration::from_secs(2)
    });
    let more = looks() - before;
    assert!(more < 20, "{more} looks in two seconds");
    dialog.expect("DEL license:{p}:active_sessions", "1");
    waiter.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn importing_and_exporting_stay_within_a_slot() {
    let server = alone_with(&all_settings());
    let mut dialog = Dialog::with(&server);
    dialog.expect("SADD {p}:set a", "1");
    for command in [
        "SEAT.IMPORT {p} {p}:set elsewhere",
        "SEAT.EXPORT {p} {p}:set elsewhere",
    ] {
        dialog.begins(command, "!CROSSSLOT");
    }
    dialog.expect("SEAT.IMPORT {p} {p}:set {p}:hash", "1");
    dialog.expect("SEAT.EXPORT {p} {p}:set {p}:hash", "1");
}
