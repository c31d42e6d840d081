//! Whose turn it is: each session is judged by the figure that it stated itself.

use super::{NOTHING, recording};
use crate::support::{Dialog, Server, Waiter, eventually, units};

/// A pool of two seats, both held, and Bob who waits for one of them.
fn with_bob_waiting(server: &Server) -> (Dialog, Waiter) {
    let mut dialog = Dialog::with(server);
    dialog.acquire_all("pool", &["a", "b"], 2);
    let bob = Waiter::of(server, "SEAT.ACQUIRE pool bob 2 BLOCK 0");
    (dialog, bob)
}

/// A seat falls free, and Bob has it in the same step.
#[track_caller]
fn bob_is_served(dialog: &mut Dialog, bob: &mut Waiter) {
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 2]");
    bob.hears("[1, ACQUIRED, 2, 2]");
    assert_eq!(dialog.sessions("pool"), ["b", "bob"]);
    assert_eq!(dialog.pool_info("pool", "seats"), 2);
}

#[test]
fn a_wrong_figure_of_a_client_that_left_holds_nobody_up() {
    let server = Server::start();
    let (mut dialog, mut bob) = with_bob_waiting(&server);
    let mut wrong = Dialog::with(&server);
    wrong.expect(
        "SEAT.ACQUIRE pool wrong 1 BLOCK 1",
        "[0, NO_SEATS_AVAILABLE, 2, 1]",
    );
    bob_is_served(&mut dialog, &mut bob);
}

#[test]
fn a_wrong_figure_of_a_client_that_was_killed_holds_nobody_up() {
    let server = Server::start();
    let (mut dialog, mut bob) = with_bob_waiting(&server);
    let wrong = Waiter::of(&server, "SEAT.ACQUIRE pool wrong 1 BLOCK 0");
    drop(wrong);
    eventually("the client is gone", || dialog.queue("pool") == ["bob"]);
    bob_is_served(&mut dialog, &mut bob);
}

#[test]
fn a_wrong_figure_ahead_keeps_its_position_and_holds_nobody_up() {
    for figure in [1, 0, -1] {
        let (server, mut dialog) = Server::scene();
        dialog.acquire_all("pool", &["a", "b"], 2);
        let _wrong = Waiter::of(
            &server,
            &format!("SEAT.ACQUIRE pool wrong {figure} BLOCK 0"),
        );
        let mut bob = Waiter::of(&server, "SEAT.ACQUIRE pool bob 2 BLOCK 0");
        assert_eq!(dialog.queue("pool"), ["wrong", "bob"]);
        bob_is_served(&mut dialog, &mut bob);
        assert_eq!(dialog.queue("pool"), ["wrong"]);
    }
}

#[test]
fn a_ticket_with_a_wrong_figure_keeps_no_seat() {
    for figure in [1, 0] {
        let (server, mut dialog) = Server::scene();
        dialog.acquire_all("pool", &["a", "b"], 2);
        dialog.expect(
            &format!("SEAT.ACQUIRE pool wrong {figure} QUEUE 60000"),
            &format!("[0, QUEUED, 2, {figure}, 1]"),
        );
        let mut bob = Waiter::of(&server, "SEAT.ACQUIRE pool bob 2 BLOCK 0");
        bob_is_served(&mut dialog, &mut bob);
        assert_eq!(dialog.pool_info("pool", "kept"), 0);
        // The right figure has the ticket count again.
        dialog.expect(
            "SEAT.ACQUIRE pool wrong 2 QUEUE 60000",
            "[0, QUEUED, 2, 2, 1]",
        );
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 1]");
        assert_eq!(dialog.pool_info("pool", "kept"), 1);
    }
}

#[test]
fn a_wrong_figure_of_a_grant_holds_nobody_up() {
    let server = Server::start();
    let (mut dialog, mut bob) = with_bob_waiting(&server);
    dialog.expect("SEAT.REVOKE pool a", "1");
    bob.hears("[1, ACQUIRED, 2, 2]");
    let mut carol = Waiter::of(&server, "SEAT.ACQUIRE pool carol 2 BLOCK 0");
    dialog.expect("SEAT.ACQUIRE pool d 3", "[1, ACQUIRED, 3, 3]");
    for session in ["b", "bob"] {
        dialog.ask(&format!("SEAT.RELEASE pool {session}"));
    }
    carol.hears("[1, ACQUIRED, 2, 2]");
}

#[test]
fn resize_lets_those_in_who_waited_by_the_old_figure() {
    let server = recording().start();
    let (mut dialog, mut bob) = with_bob_waiting(&server);
    dialog.expect("SEAT.ACQUIRE pool t 2 QUEUE 60000", "[0, QUEUED, 2, 2, 2]");
    // The licence has grown, and a newcomer knows it first.
    dialog.expect("SEAT.ACQUIRE pool c 5", "[1, ACQUIRED, 3, 5]");
    assert_eq!(dialog.queue("pool"), ["bob", "t"]);
    let sent = units(&server, || dialog.expect("SEAT.RESIZE pool 5", "1"));
    assert_eq!(
        sent,
        [["pool RESIZE 5", "pool GRANT bob 5 T T - 0 0 {}"]],
        "the pool has the figure already, and its ticket has not"
    );
    bob.hears("[1, ACQUIRED, 4, 5]");
    assert_eq!(dialog.pool_info("pool", "kept"), 1);
    dialog.expect("SEAT.ACQUIRE pool d 5", "[0, NO_SEATS_AVAILABLE, 4, 5]");
    let sent = units(&server, || dialog.expect("SEAT.RESIZE pool 5", "0"));
    assert_eq!(sent, NOTHING, "all state it");
}

#[test]
fn resize_of_a_missing_pool_serves_those_who_wait_there() {
    let (server, mut dialog) = recording().scene();
    let mut bob = Waiter::of(&server, "SEAT.ACQUIRE pool bob 0 BLOCK 0");
    let sent = units(&server, || dialog.expect("SEAT.RESIZE pool 1", "1"));
    assert_eq!(sent, [["pool GRANT bob 1 T T - 0 0 {}"]]);
    bob.hears("[1, ACQUIRED, 1, 1]");
}

#[test]
fn a_ninth_figure_is_refused_and_a_poll_keeps_the_one_it_has() {
    let (server, mut dialog) = recording().full_pool();
    for figure in -6..=1 {
        dialog.contains(
            &format!("SEAT.ACQUIRE pool t{figure} {figure} QUEUE 60000"),
            "QUEUED",
        );
    }
    for option in ["QUEUE 60000", "BLOCK 0"] {
        dialog.begins(
            &format!("SEAT.ACQUIRE pool ninth 0x {option}"),
            "!ERR seats",
        );
        let reply = dialog.ask(&format!("SEAT.ACQUIRE pool ninth -7 {option}"));
        let error = "!ERR the sessions in the queue state 8 different numbers of seats";
        assert!(reply.starts_with(error), "{reply}");
        dialog.expect("SEAT.POSITION pool ninth", "nil");
    }
    // A call that does not wait is judged by whatever it states.
    dialog.expect(
        "SEAT.ACQUIRE pool ninth -7",
        "[0, NO_SEATS_AVAILABLE, 1, -7]",
    );
    dialog.expect("SEAT.ACQUIRE pool tenth 2", "[1, ACQUIRED, 2, 2]");
    dialog.expect(
        "SEAT.ACQUIRE pool more 1 QUEUE 60000",
        "[0, QUEUED, 2, 1, 9]",
    );
    // It shares its figure, so another of its own would be one more.
    let sent = units(&server, || {
        dialog.expect(
            "SEAT.ACQUIRE pool more -7 QUEUE 60000",
            "[0, QUEUED, 2, -7, 9]",
        );
    });
    assert_eq!(sent, [["pool JOIN more 1 9 T 60000 T"]]);
}
