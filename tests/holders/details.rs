//! All that a pool knows of a session.

use crate::support::{Dialog, Server};

/// A session with everything, and one with nothing.
fn two_sessions(server: &Server) -> Dialog {
    let mut dialog = Dialog::with(server);
    for effect in [
        "GRANT a '9 1700000000 1700000060 3 60000 9000000000000 4 77' {\"k\":[]} ann",
        "GRANT b '9 - - - 0 0' -",
    ] {
        dialog.expect(&format!("SEAT.EFFECT pool {effect}"), "1");
    }
    dialog
}

const A: &str = r#""owner", "ann", "weight", 4, "acquired_at", 1700000000, "last_heartbeat", 1700000060, "heartbeats", 3, "lease_ms", 60000, "expires_in_ms", LEFT, "token", 77, "metadata", "{"k":[]}""#;
const B: &str = r#""owner", nil, "weight", 1, "acquired_at", nil, "last_heartbeat", nil, "heartbeats", 0, "lease_ms", nil, "expires_in_ms", nil, "token", nil, "metadata", nil"#;

/// A reply with `LEFT` for what is left of a lease.
fn without_time(reply: &str) -> String {
    let mut words: Vec<&str> = reply.split(' ').collect();
    for at in 1..words.len() {
        if words[at - 1].starts_with("\"expires_in_ms\"") && words[at] != "nil," {
            words[at] = "LEFT,";
        }
    }
    words.join(" ")
}

#[test]
fn details_have_nil_for_what_a_session_does_not_have() {
    let server = super::recording().start();
    let mut dialog = two_sessions(&server);
    let reply = dialog.ask("SEAT.GET pool a DETAILS");
    assert_eq!(without_time(&reply), format!("[{A}]"));
    dialog.expect("SEAT.GET pool b details", &format!("[{B}]"));
    dialog.expect("SEAT.GET pool c DETAILS", "nil");
    dialog.expect("SEAT.GET missing c DETAILS", "nil");
    dialog.begins("SEAT.GET pool a ALL", "!ERR syntax error");
    dialog.begins("SEAT.GET pool a DETAILS DETAILS", "!ERR syntax error");
}

#[test]
fn lists_show_the_same_details() {
    let server = super::recording().start();
    let mut dialog = two_sessions(&server);
    let reply = dialog.ask("SEAT.SESSIONS pool WITHDETAILS");
    let both = format!(r#"["a", [{A}], "b", [{B}]]"#);
    assert_eq!(without_time(&reply), both);
    let reply = dialog.ask("SEAT.SCAN pool 0 WITHDETAILS COUNT 100");
    assert_eq!(without_time(&reply), format!(r#"["0", {both}]"#));
    let reply = dialog.ask("SEAT.SESSIONS pool WITHDETAILS OWNER ann");
    assert_eq!(without_time(&reply), format!(r#"["a", [{A}]]"#));
    dialog.expect(
        "SEAT.SESSIONS pool OWNER ann WITHMETADATA",
        r#"["a", "{"k":[],"acquired_at":1700000000,"last_heartbeat":1700000060,"heartbeat_count":3}"]"#,
    );
}

#[test]
fn details_are_maps_in_resp3() {
    let server = super::recording().start();
    two_sessions(&server);
    let mut modern = Dialog::in_resp3(&server);
    if server.version() >= (7, 0, 0) {
        let reply = modern.ask("SEAT.SESSIONS pool OWNER ann WITHDETAILS");
        assert!(
            reply.starts_with(r#"{"a": {"owner": "ann", "weight": 4, "#),
            "{reply}"
        );
    }
}

#[test]
fn options_of_lists_exclude_each_other() {
    let server = super::recording().start();
    let mut dialog = two_sessions(&server);
    for command in [
        "SEAT.SESSIONS pool WITHMETADATA WITHDETAILS",
        "SEAT.SESSIONS pool OWNER ann OWNER ann",
        "SEAT.SESSIONS pool DETAILS",
        "SEAT.SCAN pool 0 WITHMETADATA WITHDETAILS",
    ] {
        dialog.begins(command, "!ERR syntax error");
    }
    dialog.expect("SEAT.SESSIONS pool OWNER", "!ERR OWNER needs a value");
}

#[test]
fn memory_counts_what_sessions_have_beyond_a_seat() {
    let (_server, mut dialog) = Server::scene();
    dialog.acquire("plain", "a", 9, "{}");
    dialog.expect(
        "SEAT.ACQUIRE owned a 9 OWNER an-owner-of-a-long-name",
        "[1, ACQUIRED, 1, 9]",
    );
    let by_itself = |dialog: &mut Dialog, key| dialog.pool_info(key, "memory_bytes");
    assert!(by_itself(&mut dialog, "owned") > by_itself(&mut dialog, "plain"));
    let by_server = |dialog: &mut Dialog, key| dialog.number(&format!("MEMORY USAGE {key}"));
    assert!(by_server(&mut dialog, "owned") > by_server(&mut dialog, "plain"));
}
