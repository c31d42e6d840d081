//! The settings, at start and at run time.

use super::{entries_of, nothing_failed, with_feed};
use crate::support::{Dialog, Server, cluster};

const SETTINGS: [&str; 5] = [
    "seat.feed",
    "seat.denial-feed",
    "seat.feed-maxlen",
    "seat.denial-feed-maxlen",
    "seat.feed-metadata",
];

#[test]
fn off_is_the_default_and_the_lengths_are_sane() {
    let (server, mut dialog) = Server::scene();
    if server.version() < (7, 0, 0) {
        // Without settings the log names them.
        assert!(server.log().contains(r#"feed """#), "{}", server.log());
        return;
    }
    for (setting, value) in SETTINGS.iter().zip(["", "", "1000000", "100000", "no"]) {
        let reply = dialog.ask(&format!("CONFIG GET {setting}"));
        assert_eq!(reply, format!(r#"["{setting}", "{value}"]"#));
    }
}

#[test]
fn a_feed_is_switched_on_renamed_and_off_at_run_time() {
    let (server, mut dialog) = Server::builder().recording().scene();
    if server.version() < (7, 0, 0) {
        dialog.begins("CONFIG SET seat.feed feed", "!ERR");
        return;
    }
    dialog.acquire("pool", "before", 9, "{}");
    dialog.expect("CONFIG SET seat.feed feed", "+OK");
    dialog.acquire("pool", "a", 9, "{}");
    dialog.expect("CONFIG SET seat.feed-metadata yes", "+OK");
    dialog.expect("CONFIG SET seat.denial-feed denials", "+OK");
    dialog.acquire("pool", "b", 9, "{}");
    dialog.expect("SEAT.ACQUIRE pool c 3", "[0, NO_SEATS_AVAILABLE, 3, 3]");
    dialog.expect("CONFIG SET seat.feed other", "+OK");
    dialog.expect("SEAT.RELEASE pool before", "[1, RELEASED, 2]");
    dialog.expect("CONFIG SET seat.feed ''", "+OK");
    dialog.expect("CONFIG SET seat.denial-feed ''", "+OK");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
    dialog.expect("SEAT.ACQUIRE pool c 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("DEL pool", "1");
    let mut lines = |stream| -> Vec<String> {
        let seen = entries_of(&mut dialog, stream);
        seen.iter().map(super::Entry::line).collect()
    };
    assert_eq!(
        lines("feed"),
        [
            "acquired pool a 2/9 user=default",
            "acquired pool b 3/9 metadata={} user=default",
        ]
    );
    assert_eq!(
        lines("other"),
        ["released pool before 2/9 held_s=_ heartbeats=0 user=default"]
    );
    assert_eq!(lines("denials").len(), 1);
    nothing_failed(&server);
    // What the log says goes where it went, whatever is set by now.
    dialog.expect("CONFIG SET seat.feed another", "+OK");
    server.reloads_the_same("DEBUG LOADAOF");
    dialog.expect("EXISTS another", "0");
}

#[test]
fn one_stream_cannot_be_both() {
    let error = Server::builder()
        .module_args("feed one denial-feed one")
        .try_start()
        .map(|_| ())
        .expect_err("it does not start");
    assert!(
        error.contains("must not be the stream of the other feed"),
        "{error}"
    );
    let (server, mut dialog) = with_feed().scene();
    if server.version() >= (7, 0, 0) {
        let reply = dialog.ask("CONFIG SET seat.denial-feed feed");
        assert!(
            reply.contains("must not be the stream of the other feed"),
            "{reply}"
        );
        // Both off is no conflict.
        dialog.expect("CONFIG SET seat.feed ''", "+OK");
        dialog.expect("CONFIG SET seat.denial-feed feed", "+OK");
        dialog.contains("CONFIG SET seat.feed feed", "other feed");
    }
}

/// What the names are between two that are set together is no conflict, and what is refused leaves
/// nothing behind.
#[test]
fn names_are_compared_once_all_are_set() {
    let (server, mut dialog) = Server::builder()
        .module_args("feed a denial-feed b")
        .scene();
    if server.version() < (7, 0, 0) {
        return;
    }
    let names = |dialog: &mut Dialog| {
        ["seat.feed", "seat.denial-feed"].map(|name| dialog.ask(&format!("CONFIG GET {name}")))
    };
    let before = names(&mut dialog);
    let refused = "CONFIG SET seat.feed c seat.denial-feed a maxmemory-policy nonsense";
    dialog.begins(refused, "!ERR");
    assert_eq!(names(&mut dialog), before);
    dialog.expect("CONFIG SET seat.feed b seat.denial-feed a", "+OK");
    let swapped = names(&mut dialog);
    // As CONFIG REWRITE leaves it behind.
    let (_rewritten, mut dialog) = Server::builder()
        .module_args("feed a denial-feed b")
        .config("seat.feed b")
        .config("seat.denial-feed a")
        .scene();
    assert_eq!(names(&mut dialog), swapped);
}

#[test]
fn a_name_that_is_no_text_is_refused() {
    let server = Server::start();
    if server.version() >= (7, 0, 0) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("seat.feed").arg(&b"\xff\xfe"[..]);
        let refused = set.exec(&mut server.client()).expect_err("it is no text");
        assert!(refused.to_string().contains("must be UTF-8"), "{refused}");
    }
}

#[test]
fn lengths_and_switches_have_bounds() {
    for arguments in [
        "feed-maxlen 0",
        "feed-maxlen x",
        "denial-feed-maxlen -1",
        "denial-feed-maxlen 1099511627777",
        "feed-metadata maybe",
    ] {
        let started = Server::builder().module_args(arguments).try_start();
        let error = started.map(|_| ()).expect_err(arguments);
        let name = arguments.split(' ').next().expect("a name");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_node_of_a_cluster_refuses_a_feed_and_says_why() {
    const REASON: &str = "must be empty in a cluster";
    for name in ["feed", "denial-feed"] {
        let error = cluster::node()
            .module_args(&format!("{name} x"))
            .try_start()
            .map(|_| ())
            .expect_err("it does not start");
        assert!(error.contains(REASON), "{error}");
    }
    let server = cluster::node().start();
    let mut dialog = Dialog::with(&server);
    if server.version() >= (7, 0, 0) {
        for name in ["feed", "denial-feed"] {
            dialog.contains(&format!("CONFIG SET seat.{name} x"), REASON);
            dialog.expect(&format!("CONFIG SET seat.{name} ''"), "+OK");
        }
    }
}
