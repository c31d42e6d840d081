//! What cannot join hears why, and leaves nothing behind.

use super::recording;
use crate::support::{Dialog, Server, Traces, Waiter};

const FULL: &str = "!ERR the queue of this pool is full";

#[test]
fn a_malformed_call_queues_nothing() {
    let (server, mut dialog) = recording().full_pool();
    dialog.expect("SET text x", "+OK");
    let before = Traces::of(&server);
    let long = format!("{{\"k\":\"{}\"}} QUEUE 9", "x".repeat(16_384));
    for (arguments, error) in [
        ("pool b 1 QUEUE", "!ERR QUEUE needs a value"),
        ("pool b 1 BLOCK", "!ERR BLOCK needs a value"),
        ("pool b 1 QUEUE 9 BLOCK", "!ERR BLOCK needs a value"),
        ("pool b 1 QUEUE 0", "!ERR QUEUE must be an integer"),
        ("pool b 1 QUEUE -1", "!ERR QUEUE must be an integer"),
        ("pool b 1 QUEUE 1.5", "!ERR QUEUE must be an integer"),
        ("pool b 1 QUEUE +5", "!ERR QUEUE must be an integer"),
        ("pool b 1 QUEUE soon", "!ERR QUEUE must be an integer"),
        ("pool b 1 QUEUE 86400001", "!ERR QUEUE must be an integer"),
        (
            "pool b 1 QUEUE 9223372036854775807",
            "!ERR QUEUE must be an integer",
        ),
        (
            "pool b 1 QUEUE 18446744073709551617",
            "!ERR QUEUE must be an integer",
        ),
        ("pool b 1 QUEUE BLOCK 0", "!ERR QUEUE must be an integer"),
        ("pool b 1 BLOCK -1", "!ERR BLOCK must be an integer"),
        ("pool b 1 BLOCK 0.5", "!ERR BLOCK must be an integer"),
        ("pool b 1 BLOCK ever", "!ERR BLOCK must be an integer"),
        (
            "pool b 1 BLOCK 9223372036854775807",
            "!ERR BLOCK must be an integer",
        ),
        (
            "pool b 1 BLOCK 9223372036854775808",
            "!ERR BLOCK must be an integer",
        ),
        ("pool b 1 QUEUE 9 QUEUE 9", "!ERR QUEUE is given twice"),
        ("pool b 1 BLOCK 9 block 9", "!ERR BLOCK is given twice"),
        (
            "pool b 1 QUEUE 9 BLOCK 9 queue 9",
            "!ERR QUEUE is given twice",
        ),
        ("pool b 1 {} QUEUE 9 {}", "!ERR syntax error"),
        ("pool b 1 QUEUE 9 {}", "!ERR syntax error"),
        ("pool b 1 QUEUE 9 WAIT 1", "!ERR syntax error"),
        ("pool b one QUEUE 9", "!ERR seats must be"),
        ("pool  1 QUEUE 9", "!ERR session must not be empty"),
        ("pool b 1 nonsense QUEUE 9", "!ERR metadata must be"),
        ("pool b 1 nonsense BLOCK 9", "!ERR metadata must be"),
        ("pool b 1 [1] QUEUE 9 BLOCK 9", "!ERR metadata must be"),
        (
            "pool b 1 {\"heartbeat_count\":null} QUEUE 9",
            "!ERR heartbeat_count in metadata",
        ),
        (
            &format!("pool b 1 {long}"),
            "!ERR metadata must be at most 16384 bytes",
        ),
        ("pool b 1 EX 0 BLOCK 9", "!ERR EX must be"),
        ("text b 1 QUEUE 9", "!WRONGTYPE"),
        ("text b 1 BLOCK 9", "!WRONGTYPE"),
    ] {
        dialog.begins(&format!("SEAT.ACQUIRE {arguments}"), error);
    }
    for (command, error) in [
        ("SEAT.HEARTBEAT pool a QUEUE 9", "!ERR syntax error"),
        ("SEAT.HEARTBEAT pool a {} BLOCK 9", "!ERR syntax error"),
    ] {
        dialog.begins(command, error);
    }
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(Traces::of(&server), before);
}

#[test]
fn the_extremes_are_accepted() {
    let (server, mut dialog) = Server::full_pool();
    let queued = "[0, QUEUED, 1, 1, 1]";
    dialog.expect("SEAT.ACQUIRE pool b 1 queue 86400000", queued);
    dialog.expect("SEAT.ACQUIRE pool b 1 QUEUE 60000 EX 9 bLoCk 1", queued);
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 4503599627370496");
    dialog.expect("SEAT.RESIZE pool 3", "1");
    waiter.hears("[1, ACQUIRED, 2, 3]");
}

#[test]
fn a_word_that_is_an_option_elsewhere_may_be_a_name() {
    let (_server, mut dialog) = Server::scene();
    dialog.acquire("QUEUE", "BLOCK", 1, "{}");
    dialog.expect(
        "SEAT.ACQUIRE QUEUE QUEUE 1 QUEUE 60000",
        "[0, QUEUED, 1, 1, 1]",
    );
    dialog.expect("SEAT.POSITION QUEUE QUEUE", "1");
}

#[test]
fn a_queue_at_its_configured_length_takes_nobody_else() {
    let (server, mut dialog) = Server::builder()
        .recording()
        .module_args("max-queue-length 2 max-queue-ms 60000")
        .full_pool();
    dialog.acquire("other", "a", 1, "{}");
    dialog.begins("SEAT.ACQUIRE pool t 1 QUEUE 60001", "!ERR QUEUE must be");
    let queued = "[0, QUEUED, 1, 1, 1]";
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
    let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let before = Traces::of(&server);
    for options in ["QUEUE 9", "BLOCK 9", "QUEUE 9 BLOCK 9"] {
        dialog.expect(&format!("SEAT.ACQUIRE pool c 1 {options}"), FULL);
        assert_eq!(Traces::of(&server), before, "{options}");
    }
    // Each pool has its own, and who is in the queue stays there.
    dialog.expect("SEAT.ACQUIRE other t 1 QUEUE 60000", queued);
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
    let mut newer = Dialog::with(&server);
    newer.send("SEAT.ACQUIRE pool b 1 BLOCK 0");
    waiter.hears("[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("SEAT.ACQUIRE pool c 1", "[0, NO_SEATS_AVAILABLE, 1, 1]");
    dialog.expect("SEAT.RELEASE pool t", "[0, SESSION_NOT_FOUND]");
    dialog.expect("SEAT.ACQUIRE pool c 1 QUEUE 60000", "[0, QUEUED, 1, 1, 2]");

    let (_server, mut dialog) = Server::builder()
        .module_args("max-queue-length 0")
        .full_pool();
    dialog.expect("SEAT.ACQUIRE pool b 1 QUEUE 9", FULL);
    dialog.expect("SEAT.ACQUIRE pool b 1 BLOCK 9", FULL);
}

#[test]
fn only_joining_is_refused_when_memory_is_full() {
    let (server, mut dialog) = recording().full_pool();
    let queued = "[0, QUEUED, 1, 1, 1]";
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    let before = Traces::of(&server);
    for options in ["QUEUE 9", "BLOCK 9", "QUEUE 9 BLOCK 9"] {
        dialog.begins(&format!("SEAT.ACQUIRE pool b 1 {options}"), "!OOM ");
    }
    assert_eq!(dialog.queue("pool"), ["t"]);
    assert_eq!(Traces::of(&server), before);
    dialog.expect("SEAT.POSITION pool t", "1");
    dialog.expect("SEAT.RESIZE pool 1", "0");
    dialog.expect("SEAT.RELEASE pool x", "[0, SESSION_NOT_FOUND]");
}

#[test]
fn a_poll_keeps_its_position_when_memory_is_full() {
    let (_server, mut dialog) = Server::full_pool();
    let queued = "[0, QUEUED, 1, 1, 1]";
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
    dialog.expect("CONFIG SET maxmemory 1", "+OK");
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 60000", queued);
}

#[test]
fn a_plain_denial_changes_nothing_while_others_wait() {
    let (server, mut dialog) = recording().scene();
    dialog.acquire_all("pool", &["a", "b"], 2);
    let queued = "[0, QUEUED, 2, 2, 1]";
    dialog.expect("SEAT.ACQUIRE pool t 2 QUEUE 60000", queued);
    let _waiter = Waiter::of(&server, "SEAT.ACQUIRE pool w 2 BLOCK 0");
    let before = Traces::without_totals(&server);
    for (command, reply) in [
        ("SEAT.ACQUIRE pool n 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ("SEAT.ACQUIRE pool n 1", "[0, NO_SEATS_AVAILABLE, 2, 1]"),
        (
            "SEAT.ACQUIRE pool n 0 nonsense",
            "[0, NO_SEATS_AVAILABLE, 2, 0]",
        ),
        ("SEAT.ACQUIRE pool t 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ("SEAT.ACQUIRE pool w 2", "[0, NO_SEATS_AVAILABLE, 2, 2]"),
        ("SEAT.ACQUIRE pool a 9", "[1, ALREADY_ACTIVE, 2]"),
        ("SEAT.RELEASE pool n", "[0, SESSION_NOT_FOUND]"),
        ("SEAT.REVOKE pool n", "0"),
        ("SEAT.HEARTBEAT pool t", "[0, SESSION_NOT_ACTIVE]"),
        ("SEAT.CLEANUP pool", "[0, 2]"),
        ("SEAT.RESIZE pool 2", "0"),
        ("SEAT.POSITION pool w", "2"),
    ] {
        dialog.expect(command, reply);
        assert_eq!(Traces::without_totals(&server), before, "{command}");
    }
    assert_eq!(dialog.queue("pool"), ["t", "w"]);
}
