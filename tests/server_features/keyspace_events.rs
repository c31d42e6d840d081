//! Keyspace events.

use crate::support::{Dialog, Server};

/// The events that `command` causes, as `event key`, in order. `end` closes the list.
fn events(listener: &mut Dialog, client: &mut Dialog, command: &str) -> Vec<String> {
    client.ask(command);
    client.expect("PUBLISH __keyevent@0__:end here", "1");
    let mut events = Vec::new();
    loop {
        let message = listener.read();
        let fields: Vec<_> = message.split('"').collect();
        let event = fields[5]
            .strip_prefix("__keyevent@0__:")
            .expect("an event of database 0");
        if event == "end" {
            return events;
        }
        events.push(format!("{event} {}", fields[7]));
    }
}

fn listening(classes: &str) -> (Server, Dialog, Dialog) {
    let server = Server::builder()
        .config(&format!("notify-keyspace-events {classes}"))
        .module_args("allow-effects yes")
        .start();
    let mut listener = Dialog::with(&server);
    let reply = listener.ask("PSUBSCRIBE __key*__:*");
    assert!(reply.contains("psubscribe"), "{reply}");
    let client = Dialog::with(&server);
    (server, listener, client)
}

#[test]
fn each_change_has_its_event_and_the_last_one_a_del() {
    let (_server, mut listener, mut client) = listening("EA");
    for (command, expected) in [
        ("SEAT.ACQUIRE pool a 3 {}", &["seat.acquired pool"][..]),
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
            "SEAT.EFFECT pool GRANT a 3 9 9 - 0 0 {}",
            &["seat.acquired pool"],
        ),
        (
            "SEAT.EFFECT pool FREE expired a",
            &["seat.expired pool", "del pool"],
        ),
        ("SEAT.EFFECT pool FREE expired a", &[]),
    ] {
        assert_eq!(
            events(&mut listener, &mut client, command),
            expected,
            "{command}"
        );
    }
}

#[test]
fn the_events_are_of_the_module_class() {
    let (_server, mut listener, mut client) = listening("Ed");
    for (command, expected) in [
        ("SEAT.ACQUIRE pool a 3 {}", &["seat.acquired pool"][..]),
        ("SEAT.RELEASE pool a", &["seat.released pool"]),
    ] {
        assert_eq!(
            events(&mut listener, &mut client, command),
            expected,
            "{command}"
        );
    }
    let (_server, mut listener, mut client) = listening("Eg");
    for (command, expected) in [
        ("SEAT.ACQUIRE pool a 3 {}", &[][..]),
        ("SEAT.RELEASE pool a", &["del pool"]),
    ] {
        assert_eq!(
            events(&mut listener, &mut client, command),
            expected,
            "{command}"
        );
    }
}

#[test]
fn transactions_and_scripts_notify_in_command_order() {
    let (_server, mut listener, mut client) = listening("EA");
    client.expect("MULTI", "+OK");
    for command in [
        "SEAT.ACQUIRE one a 1 {}",
        "SEAT.ACQUIRE two a 1 {}",
        "SEAT.RELEASE one a",
    ] {
        client.expect(command, "+QUEUED");
    }
    assert_eq!(
        events(&mut listener, &mut client, "EXEC"),
        [
            "seat.acquired one",
            "seat.acquired two",
            "seat.released one",
            "del one"
        ]
    );
    client.expect("SELECT 0", "+OK");
    let script = "redis.call('SEAT.HEARTBEAT','two','a');redis.call('SEAT.RELEASE','two','a')";
    assert_eq!(
        events(&mut listener, &mut client, &format!("EVAL {script} 0")),
        ["seat.heartbeat two", "seat.released two", "del two"]
    );
}
