//! An owner has no more live sessions than MAX says.

use crate::support::{Dialog, Server, Waiter, total};

#[test]
fn max_is_checked_before_the_seats_and_after_already_active() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 1 OWNER ann MAX 1",
        "[1, ACQUIRED, 1, 1]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool a 1 OWNER ann MAX 1",
        "[1, ALREADY_ACTIVE, 1]",
    );
    // The pool is full as well.
    dialog.expect(
        "SEAT.ACQUIRE pool b 1 OWNER ann MAX 1",
        "[0, OWNER_LIMIT, 1, 1]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool b 1 OWNER bob MAX 1",
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    // Nothing is limited by an owner alone.
    dialog.expect("SEAT.ACQUIRE pool b 2 OWNER ann", "[1, ACQUIRED, 2, 2]");
    dialog.expect(
        "SEAT.ACQUIRE pool c 9 OWNER ann MAX 1",
        "[0, OWNER_LIMIT, 2, 1]",
    );
}

#[test]
fn a_limit_refuses_at_once_also_with_queue_and_block() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 9 OWNER ann", "[1, ACQUIRED, 1, 9]");
    for options in ["QUEUE 60000", "BLOCK 0", "QUEUE 60000 BLOCK 0"] {
        dialog.expect(
            &format!("SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 {options}"),
            "[0, OWNER_LIMIT, 1, 1]",
        );
    }
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(total(&server, "seat_denied"), 3);
    assert_eq!(total(&server, "seat_owner_limit"), 3);
}

#[test]
fn an_expired_session_counts_for_its_owner_no_longer() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 OWNER ann MAX 1 PX 40",
        "[1, ACQUIRED, 1, 9, 40]",
    );
    let deadline_ms = dialog.now_ms() + 40;
    dialog.wait_until(deadline_ms);
    dialog.expect(
        "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1",
        "[1, ACQUIRED, 1, 9]",
    );
    dialog.expect("SEAT.OWNERS pool", r#"["ann", [1, 1]]"#);
}

#[test]
fn a_blocked_client_hears_of_the_limit_when_its_turn_comes() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]");
    let mut second = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 OWNER ann MAX 1 BLOCK 0");
    let mut behind = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    // By a higher figure it passes those who wait.
    dialog.expect(
        "SEAT.ACQUIRE pool first 2 OWNER ann MAX 1",
        "[1, ACQUIRED, 2, 2]",
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.RESIZE pool 2", "1");
    second.hears("[0, OWNER_LIMIT, 1, 1]");
    behind.hears("[1, ACQUIRED, 2, 2]");
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(total(&server, "seat_owner_limit"), 1);
    assert_eq!(total(&server, "seat_left"), 1);
    assert_eq!(total(&server, "seat_denied"), 0);
}

#[test]
fn a_ticket_leaves_at_its_turn_and_its_poll_hears_of_the_limit() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect(
        "SEAT.ACQUIRE pool t 1 OWNER ann MAX 1 QUEUE 60000",
        "[0, QUEUED, 1, 1, 1]",
    );
    dialog.expect("SEAT.ACQUIRE pool other 2 OWNER ann", "[1, ACQUIRED, 2, 2]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.RESIZE pool 2", "0");
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(dialog.pool_info("pool", "kept"), 0);
    dialog.expect(
        "SEAT.ACQUIRE pool t 2 OWNER ann MAX 1 QUEUE 60000",
        "[0, OWNER_LIMIT, 1, 1]",
    );
    assert_eq!(total(&server, "seat_owner_limit"), 2);
}

#[test]
fn owners_lists_live_sessions_and_their_seats() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.OWNERS pool", "[]");
    dialog.expect("SEAT.ACQUIRE pool nobody 9", "[1, ACQUIRED, 1, 9]");
    dialog.expect("SEAT.OWNERS pool", "[]");
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 OWNER ann WEIGHT 3",
        "[1, ACQUIRED, 4, 9]",
    );
    dialog.expect("SEAT.ACQUIRE pool b 9 OWNER ann", "[1, ACQUIRED, 5, 9]");
    dialog.expect("SEAT.OWNERS pool", r#"["ann", [2, 4]]"#);
    assert_eq!(dialog.pool_info("pool", "owners"), 1);
    if server.version() >= (7, 0, 0) {
        let mut modern = Dialog::in_resp3(&server);
        modern.expect("SEAT.OWNERS pool", r#"{"ann": [2, 4]}"#);
    }
    dialog.expect("SEAT.SESSIONS pool OWNER nobody", "[]");
    let mut owned: Vec<String> = dialog.query("SEAT.SESSIONS pool OWNER ann");
    owned.sort();
    assert_eq!(owned, ["a", "b"]);
    dialog.expect("SEAT.REVOKE pool a b", "2");
    dialog.expect("SEAT.OWNERS pool", "[]");
    assert_eq!(dialog.pool_info("pool", "owners"), 0);
}

#[test]
fn revokeowner_ends_all_that_an_owner_has_and_waits_for() {
    let (server, mut dialog) = super::recording().scene();
    dialog.expect("SEAT.ACQUIRE pool a 3 OWNER ann", "[1, ACQUIRED, 1, 3]");
    dialog.expect("SEAT.ACQUIRE pool b 3 OWNER ann", "[1, ACQUIRED, 2, 3]");
    dialog.expect("SEAT.ACQUIRE pool c 3 OWNER bob", "[1, ACQUIRED, 3, 3]");
    let mut blocked = Waiter::of(&server, "SEAT.ACQUIRE pool d 3 OWNER ann BLOCK 0");
    dialog.expect(
        "SEAT.ACQUIRE pool e 3 OWNER ann QUEUE 60000",
        "[0, QUEUED, 3, 3, 2]",
    );
    let mut other = Waiter::of(&server, "SEAT.ACQUIRE pool f 3 OWNER bob BLOCK 0");
    dialog.expect("SEAT.REVOKEOWNER pool nobody", "0");
    dialog.expect("SEAT.REVOKEOWNER pool ann", "2");
    blocked.hears("[0, NO_SEATS_AVAILABLE, 2, 3]");
    other.hears("[1, ACQUIRED, 2, 3]");
    assert_eq!(dialog.sessions("pool"), ["c", "f"]);
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(total(&server, "seat_revoked"), 2);
}

#[test]
fn a_grant_from_the_queue_has_the_waiters_owner_and_weight() {
    let (server, mut dialog) = Server::full_pool();
    let mut waiter = Waiter::of(
        &server,
        "SEAT.ACQUIRE pool b 3 WEIGHT 3 OWNER ann MAX 2 BLOCK 0",
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 3]");
    waiter.hears("[1, ACQUIRED, 3, 3]");
    dialog.expect("SEAT.OWNERS pool", r#"["ann", [1, 3]]"#);
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.expect("EXISTS pool", "0");
}

#[test]
fn limits_hold_in_transactions_and_scripts() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect_at_once(&[
        (
            "SEAT.ACQUIRE pool a 9 OWNER ann MAX 1 BLOCK 0",
            "[1, ACQUIRED, 1, 9]",
        ),
        (
            "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 BLOCK 0",
            "[0, OWNER_LIMIT, 1, 1]",
        ),
        (
            "SEAT.ACQUIRE pool b 9 OWNER ann MAX 1 TAKEOVER",
            r#"[1, ACQUIRED, 1, 9, "a"]"#,
        ),
    ]);
    let script = "return redis.call('SEAT.ACQUIRE', KEYS[1], 'c', 9, 'OWNER', 'ann', 'MAX', 1)";
    assert_eq!(dialog.eval(script, &["pool"]), "[0, OWNER_LIMIT, 1, 1]");
}
