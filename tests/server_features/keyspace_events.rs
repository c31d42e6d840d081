//! Keyspace events.

use crate::support::{Events, Server};

/// Each command must cause these events, in this order, on a server with these classes.
#[track_caller]
fn causes(classes: &str, commands: &[(&str, &[&str])]) {
    let (server, mut dialog) = Server::builder().module_args("allow-effects yes").scene();
    let mut events = Events::matching(&server, classes, "__keyevent@*__:*");
    for (command, expected) in commands {
        dialog.ask(command);
        assert_eq!(events.until_now(), *expected, "{command}");
    }
}

#[test]
fn each_change_has_its_event_and_the_last_one_a_del() {
    let commands: [(&str, &[&str]); 22] = [
        ("SEAT.ACQUIRE pool a 3 {}", &["seat.acquired pool"]),
        ("SEAT.ACQUIRE pool b 3 {}", &["seat.acquired pool"]),
        ("SEAT.ACQUIRE pool b 3 {}", &[]),
        ("SEAT.ACQUIRE pool c 2 {}", &[]),
        ("SEAT.ACQUIRE pool c 3 nonsense", &[]),
        ("SEAT.HEARTBEAT pool a", &["seat.heartbeat pool"]),
        ("SEAT.HEARTBEAT pool c", &[]),
        ("SEAT.RELEASE pool c", &[]),
        ("SEAT.COUNT pool", &[]),
        ("SEAT.SCAN pool 0", &[]),
        ("SEAT.RELEASE pool a", &["seat.released pool"]),
        ("SEAT.RELEASE pool b", &["seat.released pool", "del pool"]),
        ("SEAT.RELEASE pool b", &[]),
        ("SEAT.ACQUIRE pool a 3 {}", &["seat.acquired pool"]),
        ("SEAT.ACQUIRE pool b 3 {}", &["seat.acquired pool"]),
        ("SEAT.ACQUIRE pool c 3 {}", &["seat.acquired pool"]),
        ("SEAT.REVOKE pool x", &[]),
        ("SEAT.REVOKE pool a", &["seat.revoked pool"]),
        ("SEAT.REVOKE pool b c", &["seat.revoked pool", "del pool"]),
        (
            "SEAT.EFFECT pool GRANT a '3 9 9 - 0 0' {}",
            &["seat.acquired pool"],
        ),
        (
            "SEAT.EFFECT pool FREE expired a",
            &["seat.expired pool", "del pool"],
        ),
        ("SEAT.EFFECT pool FREE expired a", &[]),
    ];
    causes("EA", &commands);
}

#[test]
fn the_events_are_of_the_module_class() {
    let [acquire, release] = ["SEAT.ACQUIRE pool a 3 {}", "SEAT.RELEASE pool a"];
    causes(
        "Ed",
        &[
            (acquire, &["seat.acquired pool"]),
            (release, &["seat.released pool"]),
        ],
    );
    causes("Eg", &[(acquire, &[]), (release, &["del pool"])]);
}

#[test]
fn transactions_and_scripts_notify_in_command_order() {
    let (server, mut dialog) = Server::scene();
    let mut events = Events::of(&server);
    dialog.transaction(&[
        "SEAT.ACQUIRE one a 1 {}",
        "SEAT.ACQUIRE two a 1 {}",
        "SEAT.RELEASE one a",
    ]);
    assert_eq!(
        events.until_now(),
        [
            "seat.acquired one",
            "seat.acquired two",
            "seat.released one",
            "del one"
        ]
    );
    let script = "redis.call('SEAT.HEARTBEAT','two','a');redis.call('SEAT.RELEASE','two','a')";
    dialog.ask(&format!("EVAL {script} 0"));
    assert_eq!(
        events.until_now(),
        ["seat.heartbeat two", "seat.released two", "del two"]
    );
}
