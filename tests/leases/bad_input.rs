//! What is refused, and where options may stand.

use crate::support::{Server, effects_of};

/// Options that cannot be, and the words that the error must have.
const BAD: [(&[&str], &[&str]); 34] = [
    (&["EX", "0"], &["EX"]),
    (&["PX", "0"], &["PX"]),
    (&["EX", "-1"], &["EX"]),
    (&["PX", "-9223372036854775808"], &["PX"]),
    (&["EX", "9223372036854775807"], &["EX"]),
    (&["EX", "9223372036854775"], &["EX"]),
    (&["EX", "18446744073709552"], &["EX"]),
    (&["PX", "9223372036854775807"], &["PX"]),
    (&["PX", "9223372036854775808"], &["PX"]),
    (&["PX", "18446744073709551616"], &["PX"]),
    (&["PX", "99999999999999999999999"], &["PX"]),
    (&["EX", "ten"], &["EX"]),
    (&["EX", ""], &["EX"]),
    (&["EX", "1.5"], &["EX"]),
    (&["EX", "5.0"], &["EX"]),
    (&["EX", "1e3"], &["EX"]),
    (&["EX", "0x10"], &["EX"]),
    (&["EX", "+5"], &["EX"]),
    (&["EX", "05"], &["EX"]),
    (&["PX", " 5"], &["PX"]),
    (&["PX", "5 "], &["PX"]),
    (&["PX", "5\n"], &["PX"]),
    (&["PX", "inf"], &["PX"]),
    (&["PX", "\u{665}"], &["PX"]),
    (&["EX"], &["EX"]),
    (&["PX"], &["PX"]),
    (&["EX", "PX", "5"], &["EX"]),
    (&["EX", "5", "EX"], &["EX"]),
    (&["EX", "5", "EX", "5"], &["EX"]),
    (&["PX", "5", "px", "6"], &["PX"]),
    (&["EX", "5", "PX", "5000"], &["EX", "PX"]),
    (&["PX", "5000", "EX", "5"], &["EX", "PX"]),
    (&["PX", "5", "EX"], &["EX", "PX"]),
    (&["EX", "5", "metadata"], &["syntax"]),
];

#[test]
fn a_bad_lease_is_refused_by_name_and_changes_nothing() {
    let (server, mut dialog) = Server::builder().recording().scene();
    dialog.ask("SEAT.ACQUIRE pool leased 3 EX 5000");
    dialog.ask("SEAT.ACQUIRE pool unleased 3");
    let before = (server.digest(), server.info("seat"));
    let stream = effects_of(&server, || {
        for (options, names) in BAD {
            for command in [
                &["SEAT.ACQUIRE", "pool", "new", "9"][..],
                &["SEAT.ACQUIRE", "pool", "new", "9", "{}"],
                &["SEAT.ACQUIRE", "pool", "new", "1"],
                &["SEAT.ACQUIRE", "pool", "leased", "9"],
                &["SEAT.ACQUIRE", "missing", "new", "9"],
                &["SEAT.HEARTBEAT", "pool", "leased"],
                &["SEAT.HEARTBEAT", "pool", "leased", "{}"],
                &["SEAT.HEARTBEAT", "pool", "unleased"],
                &["SEAT.HEARTBEAT", "pool", "new"],
                &["SEAT.HEARTBEAT", "missing", "new"],
            ] {
                let call = [command, options].concat();
                let reply = dialog.ask_args(&call);
                let named = names.iter().all(|name| reply.contains(name));
                assert!(reply.starts_with("!ERR ") && named, "{call:?}: {reply}");
            }
        }
        for value in ["-1", "ten", "1.5", "", "9223372036854775808"] {
            let call = ["SEAT.CLEANUP", "pool", "IDLE", value];
            let reply = dialog.ask_args(&call);
            assert!(
                reply.starts_with("!ERR ") && reply.contains("IDLE"),
                "{call:?}: {reply}"
            );
        }
        for line in [
            "SEAT.CLEANUP pool IDLE",
            "SEAT.CLEANUP pool 5",
            "SEAT.CLEANUP pool IDLE 5 IDLE 5",
            "SEAT.CLEANUP pool IDLE 5 5",
        ] {
            dialog.begins(line, "!ERR ");
        }
    });
    assert_eq!(stream, [""; 0]);
    assert_eq!((server.digest(), server.info("seat")), before);
}

#[test]
fn options_may_stand_where_metadata_would_in_any_case_of_letters() {
    let (_server, mut dialog) = Server::scene();
    for (line, reply) in [
        ("SEAT.ACQUIRE pool a 9 EX 60", "[1, ACQUIRED, 1, 9, 60000]"),
        (
            "SEAT.ACQUIRE pool b 9 px 60000",
            "[1, ACQUIRED, 2, 9, 60000]",
        ),
        (
            r#"SEAT.ACQUIRE pool c 9 {"EX":1} eX 60"#,
            "[1, ACQUIRED, 3, 9, 60000]",
        ),
        (r#"SEAT.ACQUIRE pool d 9 {"EX":1}"#, "[1, ACQUIRED, 4, 9]"),
        ("SEAT.ACQUIRE pool EX 9 Ex 60", "[1, ACQUIRED, 5, 9, 60000]"),
        (
            "SEAT.HEARTBEAT pool a ex 61",
            "[1, HEARTBEAT_UPDATED, 1, 61000]",
        ),
        (
            "SEAT.HEARTBEAT pool a EXTRA ex 62",
            "[1, HEARTBEAT_UPDATED, 2, 62000]",
        ),
        (
            "SEAT.HEARTBEAT pool EX EX 63",
            "[1, HEARTBEAT_UPDATED, 1, 63000]",
        ),
        ("SEAT.HEARTBEAT pool EX", "[1, HEARTBEAT_UPDATED, 2]"),
    ] {
        dialog.expect(line, reply);
    }
}

#[test]
fn the_words_that_are_options_are_never_metadata() {
    let (_server, mut dialog) = Server::scene();
    for line in [
        "SEAT.ACQUIRE pool a 9 QUEUE",
        "SEAT.ACQUIRE pool a 9 BLOCK",
        "SEAT.ACQUIRE pool a 9 EX",
        "SEAT.ACQUIRE pool a 9 EX 60 {}",
        "SEAT.ACQUIRE pool a 9 {} {}",
        "SEAT.ACQUIRE pool a 9 {} EX 60 {}",
    ] {
        let reply = dialog.ask(line);
        let named = reply.starts_with("!ERR ") && !reply.contains("JSON");
        assert!(named, "{line}: {reply}");
    }
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn a_lease_of_ages_is_kept_and_renewed() {
    let (server, mut dialog) = Server::scene();
    let length_ms = 9_223_370_000_000_000_000_i64;
    assert_eq!(
        dialog.ask(&format!("SEAT.ACQUIRE pool a 1 PX {length_ms}")),
        format!("[1, ACQUIRED, 1, 1, {length_ms}]")
    );
    dialog.expect("SEAT.HEARTBEAT pool a", "[1, HEARTBEAT_UPDATED, 1]");
    let left_ms = dialog.number("SEAT.PTTL pool a");
    assert!(
        (length_ms - 60_000..=length_ms).contains(&left_ms),
        "{left_ms}"
    );
    // Its timer is there, and does not come up early or in the way of another.
    dialog.ask("SEAT.ACQUIRE pool b 2 PX 1");
    crate::support::wait_for_reclaim(&server, 1);
    dialog.expect("SEAT.SESSIONS pool", r#"["a"]"#);
}
