//! Options that cannot be: an error that names the option, and nothing changes.

use crate::support::{Dialog, Server, Traces};

#[track_caller]
fn refused(server: &Server, dialog: &mut Dialog, command: &str, error: &str) {
    let before = Traces::of(server);
    dialog.begins(command, error);
    assert_eq!(Traces::of(server), before, "{command}");
}

#[test]
fn an_impossible_option_is_an_error_that_names_it() {
    let (server, mut dialog) = super::recording().scene();
    dialog.acquire("pool", "a", 9, "{}");
    let long = format!("OWNER {}", "x".repeat(1025));
    for (options, error) in [
        ("WEIGHT 0", "WEIGHT must be an integer from 1 to 2147483647"),
        ("WEIGHT -1", "WEIGHT must be"),
        ("WEIGHT 2147483648", "WEIGHT must be"),
        ("WEIGHT 1.5", "WEIGHT must be"),
        ("WEIGHT x", "WEIGHT must be"),
        ("WEIGHT ", "WEIGHT must be"),
        ("WEIGHT", "WEIGHT needs a value"),
        ("WEIGHT 1 WEIGHT 1", "WEIGHT is given twice"),
        ("OWNER", "OWNER needs a value"),
        ("OWNER ", "OWNER must not be empty"),
        (&long, "OWNER must be at most 1024 bytes"),
        ("OWNER ann OWNER ann", "OWNER is given twice"),
        ("MAX 1", "MAX needs OWNER"),
        ("OWNER ann MAX", "MAX needs a value"),
        ("OWNER ann MAX 0", "MAX must be a positive integer"),
        ("OWNER ann MAX -1", "MAX must be"),
        ("OWNER ann MAX x", "MAX must be"),
        ("OWNER ann MAX 9223372036854775808", "MAX must be"),
        ("OWNER ann MAX 1 MAX 1", "MAX is given twice"),
        ("TAKEOVER", "TAKEOVER needs MAX"),
        ("OWNER ann TAKEOVER", "TAKEOVER needs MAX"),
        (
            "OWNER ann MAX 1 TAKEOVER TAKEOVER",
            "TAKEOVER is given twice",
        ),
        ("WITHTOKEN WITHTOKEN", "WITHTOKEN is given twice"),
        ("TOKEN 1", "syntax error"),
        ("WITHTOKEN {}", "syntax error"),
        ("EX 1 WEIGHT 2 PX 1", "EX and PX exclude each other"),
    ] {
        for session in ["a", "b"] {
            let command = format!("SEAT.ACQUIRE pool {session} 9 {options}");
            refused(&server, &mut dialog, &command, &format!("!ERR {error}"));
        }
    }
    for command in ["SEAT.HEARTBEAT pool a", "SEAT.RELEASE pool a"] {
        for (options, error) in [
            ("TOKEN", "TOKEN needs a value"),
            ("TOKEN 0", "TOKEN must be one that WITHTOKEN has returned"),
            ("TOKEN -1", "TOKEN must be"),
            ("TOKEN x", "TOKEN must be"),
            ("TOKEN 4503599627370496", "TOKEN must be"),
            ("TOKEN 1 TOKEN 1", "TOKEN is given twice"),
            ("WEIGHT 1", "syntax error"),
            ("WITHTOKEN", "syntax error"),
        ] {
            let command = format!("{command} {options}");
            refused(&server, &mut dialog, &command, &format!("!ERR {error}"));
        }
    }
}

#[test]
fn a_session_and_an_owner_may_be_called_as_an_option() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool OWNER 9 OWNER WEIGHT MAX 1",
        "[1, ACQUIRED, 1, 9]",
    );
    dialog.expect("SEAT.OWNERS pool", "[WEIGHT, [1, 1]]");
    dialog.expect("SEAT.REVOKE pool OWNER", "1");
}

#[test]
fn malformed_holders_in_effects_are_refused() {
    let (server, mut dialog) = super::recording().scene();
    dialog.acquire("pool", "a", 9, "{}");
    let long = "x".repeat(65_536);
    for effect in [
        // A plain session has the short form alone.
        "GRANT z '9 1 1 - 0 0 1 -' {}",
        "GRANT z '9 1 1 - 0 0' {} ann",
        "GRANT z '9 1 1 - 0 0 0 -' {} ann",
        "GRANT z '9 1 1 - 0 0 2147483648 -' {} ann",
        "GRANT z '9 1 1 - 0 0 -1 -' {} ann",
        "GRANT z '9 1 1 - 0 0 2' {} ann",
        "GRANT z '9 1 1 - 0 0 2 0' {} ann",
        "GRANT z '9 1 1 - 0 0 2 4503599627370496' {} ann",
        "GRANT z '9 1 1 - 0 0 2 - 3' {} ann",
        "GRANT z '9 1 1 - 0 0 2 -' {} ",
        "GRANT z '9 1 1 - 0 0 2 -' {} ann old more",
        // A session is replaced by another one of its owner.
        "GRANT z '9 1 1 - 0 0 1 -' {} ann z",
        "GRANT z '9 1 1 - 0 0 1 -' {} ann ",
        "GRANT z '9 1 1 - 0 0 2 -' {}  old",
        "GRANT z '9 1 1 - 0 0' {} ann old",
        "IMPORT z '9 1 1 - 0 0 1 -' {} ann old",
        "FREE replaced a",
        "JOIN z '9 1 1 1 9000000000000 1 1 1' ann old",
        &format!("GRANT z '9 1 1 - 0 0 2 -' {{}} {long}"),
        &format!("GRANT z '9 1 1 - 0 0 2 -' {{}} ann {long}"),
        "JOIN z '9 1 1 1 9000000000000 1 - 0'",
        "JOIN z '9 1 1 1 9000000000000' ann",
        "JOIN z '9 1 1 1 9000000000000 0 - 0' ann",
        "JOIN z '9 1 1 1 9000000000000 1 1 0'",
        "JOIN z '9 1 1 1 9000000000000 1 0 0' ann",
        "JOIN z '9 1 1 1 9000000000000 1 - 1' ann",
        "JOIN z '9 1 1 1 9000000000000 1 1 2' ann",
        "JOIN z '9 1 1 1 9000000000000 1 1 0 0' ann",
        "TOKEN a 0",
        "TOKEN a 4503599627370496",
        "TOKEN a x",
        "TOKEN a '1 2'",
        "TOKEN a",
    ] {
        for key in ["pool", "missing"] {
            let command = format!("SEAT.EFFECT {key} {effect}");
            refused(&server, &mut dialog, &command, "!ERR malformed effect");
        }
    }
}
