//! A ticket whose poller falls silent is lost after its time, by timer, and its seat goes on at
//! once.

use super::poll;
use crate::queue::recording;
use crate::support::{Server, Waiter, eventually, now_ms, units};

/// Whether the server removed the lost ticket of `session`; to readers it is lost before.
pub fn has_left(server: &Server, session: &str) -> bool {
    let leave = [b"LEAVE", session.as_bytes()].map(<[u8]>::to_vec);
    let commands = server.commands_in_aof();
    commands.iter().any(|command| command.ends_with(&leave))
}

#[test]
fn its_seat_goes_to_the_blocked_client_behind_it_in_one_unit() {
    let (server, mut dialog) = recording().scene();
    let sent = units(&server, || {
        dialog.acquire("pool", "a", 1, "{}");
        let joined_ms = now_ms();
        let queued = "[0, QUEUED, 1, 1, 1]";
        assert_eq!(poll(&mut dialog, "pool", "t", 1), queued);
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        let replies = dialog.pipeline(&["SEAT.ACQUIRE pool t 1 QUEUE 500", "SEAT.RELEASE pool a"]);
        assert_eq!(replies, [queued, "[1, RELEASED, 0]"]);
        waiter.hears("[1, ACQUIRED, 1, 1]");
        assert!(now_ms() - joined_ms >= 500);
    });
    let expected = [
        vec!["pool GRANT a 1 T T - 0 0 {}"],
        vec!["pool JOIN t 1 1 T 600000 T"],
        vec!["pool JOIN t 1 1 T 500 T"],
        vec!["pool FREE released a"],
        vec!["pool LEAVE t", "pool GRANT b 1 T T - 0 0 {}"],
    ];
    assert_eq!(sent, expected);
    dialog.expect("SEAT.POSITION pool t", "nil");
    // Whoever comes back later joins anew.
    assert_eq!(poll(&mut dialog, "pool", "t", 1), "[0, QUEUED, 1, 1, 1]");
}

#[test]
fn its_seat_is_kept_for_the_ticket_behind_it() {
    let (server, mut dialog) = recording().full_pool();
    dialog.expect("SEAT.ACQUIRE pool t1 1 QUEUE 200", "[0, QUEUED, 1, 1, 1]");
    let second = poll(&mut dialog, "pool", "t2", 1);
    assert!(second.contains("QUEUED"), "{second}");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    eventually("t1 is lost", || has_left(&server, "t1"));
    assert_eq!(dialog.queue("pool"), ["t2"]);
    assert_eq!(dialog.pool_info("pool", "kept"), 1);
    assert_eq!(poll(&mut dialog, "pool", "t1", 1), "[0, QUEUED, 0, 1, 2]");
    assert_eq!(poll(&mut dialog, "pool", "t2", 1), "[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_ticket_is_lost_for_every_command_from_its_deadline_on() {
    let (_server, mut dialog) = Server::full_pool();
    let second = "[0, QUEUED, 1, 1, 2]";
    dialog.expect_at_once(&[
        ("SEAT.ACQUIRE pool t1 1 QUEUE 30", "[0, QUEUED, 1, 1, 1]"),
        ("SEAT.ACQUIRE pool t2 1 QUEUE 600000", second),
        ("SEAT.RELEASE pool a", "[1, RELEASED, 0]"),
        // No timer runs within a transaction.
        ("DEBUG SLEEP 0.05", "+OK"),
        ("SEAT.POSITION pool t1", "nil"),
        ("SEAT.POSITION pool t2", "1"),
        ("SEAT.ACQUIRE pool n 1", "[0, NO_SEATS_AVAILABLE, 0, 1]"),
        (
            "SEAT.ACQUIRE pool t1 1 QUEUE 600000",
            "[0, QUEUED, 0, 1, 2]",
        ),
        ("SEAT.ACQUIRE pool t2 1", "[1, ACQUIRED, 1, 1]"),
        ("SEAT.POSITION pool t1", "1"),
    ]);
}

#[test]
fn polls_put_the_loss_off() {
    let (server, mut dialog) = recording().full_pool();
    let queued = "[0, QUEUED, 1, 1, 1]";
    eventually("it has waited longer than a ticket lasts", || {
        dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 2500", queued);
        dialog.queue_with_times("pool")[0].1 > 2600
    });
    assert!(!has_left(&server, "t"));
    // The latest poll counts, also when it asks for less.
    dialog.expect("SEAT.ACQUIRE pool t 1 QUEUE 1", queued);
    eventually("it is lost", || has_left(&server, "t"));
}

#[test]
fn many_tickets_lost_at_once_remove_the_pool() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SELECT 4", "+OK");
    let joins: Vec<String> = (0..1000)
        .map(|n| format!("SEAT.ACQUIRE pool t{n} 0 QUEUE 1500"))
        .collect();
    let replies = dialog.at_once(&joins.iter().map(String::as_str).collect::<Vec<_>>());
    for (n, reply) in replies.iter().enumerate() {
        assert_eq!(*reply, format!("[0, QUEUED, 0, 0, {}]", n + 1));
    }
    eventually("all are lost", || dialog.ask("EXISTS pool") == "0");
    assert_eq!(crate::support::total(&server, "seat_left"), 1000);
}
