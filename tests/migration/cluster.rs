//! In a cluster the scripts' keys belong to a pool only if they are in its slot.

use super::all_settings;
use crate::cluster::alone_with;
use crate::dialog::{Dialog, total};

const TAGGED: &str = "{acme}";

#[test]
fn keys_in_the_pools_slot_are_taken_over_and_read_and_others_are_not() {
    let server = alone_with(&all_settings());
    let mut dialog = Dialog::with(&server);
    for pool in [TAGGED, "acme"] {
        dialog.expect(&format!("SADD license:{pool}:active_sessions a"), "1");
    }
    dialog.expect(
        "SEAT.ACQUIRE {acme} b 1",
        r#"[0, "NO_SEATS_AVAILABLE", 1, 1]"#,
    );
    dialog.expect("SEAT.ACQUIRE acme b 1", r#"[1, "ACQUIRED", 1, 1]"#);
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
        r#"[1, "ACQUIRED", 1, 1]"#,
    );
    let slot = dialog.number("CLUSTER KEYSLOT acme");
    dialog.expect(&format!("CLUSTER DELSLOTS {slot}"), "+OK");
    let reply = dialog.ask(&format!("EVALSHA {acquire} 1 acme b 1 {{}}"));
    assert!(reply.starts_with("!CLUSTERDOWN"), "{reply}");
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
        let reply = dialog.ask(command);
        assert!(reply.starts_with("!CROSSSLOT"), "{command}: {reply}");
    }
    dialog.expect("SEAT.IMPORT {p} {p}:set {p}:hash", "1");
    dialog.expect("SEAT.EXPORT {p} {p}:set {p}:hash", "1");
}
