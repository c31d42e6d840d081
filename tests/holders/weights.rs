//! `used` is the sum of the weights of the live sessions.

use crate::support::{Dialog, Server, Waiter, replicated, wait_for_reclaim};

#[test]
fn used_is_the_sum_of_the_weights_in_every_reply() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 9 WEIGHT 4", "[1, ACQUIRED, 4, 9]");
    dialog.expect("SEAT.ACQUIRE pool b 9 {} weight 3", "[1, ACQUIRED, 7, 9]");
    dialog.expect("SEAT.ACQUIRE pool c 9", "[1, ACQUIRED, 8, 9]");
    dialog.expect("SEAT.ACQUIRE pool a 9", "[1, ALREADY_ACTIVE, 8]");
    dialog.expect(
        "SEAT.ACQUIRE pool d 9 WEIGHT 2",
        "[0, NO_SEATS_AVAILABLE, 8, 9]",
    );
    dialog.expect("SEAT.ACQUIRE pool d 9", "[1, ACQUIRED, 9, 9]");
    dialog.expect("SEAT.COUNT pool", "4");
    for (field, value) in [
        ("used", 9),
        ("available", 0),
        ("sessions", 4),
        ("denied", 1),
        ("peak_used", 9),
    ] {
        assert_eq!(dialog.pool_info("pool", field), value, "{field}");
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 5]");
    dialog.expect("SEAT.REVOKE pool b", "1");
    dialog.expect("SEAT.CLEANUP pool", "[0, 2]");
    assert_eq!(dialog.pool_info("pool", "peak_used"), 9);
}

#[test]
fn already_active_changes_neither_weight_nor_owner() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 WEIGHT 2 OWNER ann",
        "[1, ACQUIRED, 2, 9]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool a 9 WEIGHT 5 OWNER bob",
        "[1, ALREADY_ACTIVE, 2]",
    );
    dialog.expect("SEAT.OWNERS pool", r#"["ann", [1, 2]]"#);
}

#[test]
fn a_weight_above_the_limit_never_gets_in() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 3 WEIGHT 4",
        "[0, NO_SEATS_AVAILABLE, 0, 3]",
    );
    dialog.expect("EXISTS pool", "0");
    dialog.expect(
        "SEAT.ACQUIRE pool a 2147483647 WEIGHT 2147483647",
        "[1, ACQUIRED, 2147483647, 2147483647]",
    );
    dialog.expect(
        "SEAT.ACQUIRE pool b 9223372036854775807 WEIGHT 2147483647",
        "[1, ACQUIRED, 4294967294, 9223372036854775807]",
    );
}

#[test]
fn an_expired_lease_frees_all_the_seats_it_had_at_once() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool stays 9 WEIGHT 2", "[1, ACQUIRED, 2, 9]");
    dialog.expect(
        "SEAT.ACQUIRE pool goes 9 WEIGHT 7 PX 30",
        "[1, ACQUIRED, 9, 9, 30]",
    );
    let deadline_ms = dialog.now_ms() + 30;
    dialog.wait_until(deadline_ms);
    assert_eq!(dialog.pool_info("pool", "used"), 2);
    dialog.expect("SEAT.ACQUIRE pool next 9 WEIGHT 7", "[1, ACQUIRED, 9, 9]");
    wait_for_reclaim(&server, 1);
}

#[test]
fn a_heavy_waiter_is_served_when_its_seats_are_free() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 4 WEIGHT 2", "[1, ACQUIRED, 2, 4]");
    dialog.expect("SEAT.ACQUIRE pool b 4", "[1, ACQUIRED, 3, 4]");
    let mut heavy = Waiter::of(&server, "SEAT.ACQUIRE pool heavy 4 WEIGHT 3 BLOCK 0");
    let mut light = Waiter::of(&server, "SEAT.ACQUIRE pool light 4 BLOCK 0");
    // The light one does not pass, so a seat stands idle.
    assert_eq!(dialog.queue("pool"), ["heavy", "light"]);
    assert_eq!(dialog.pool_info("pool", "available"), 1);
    dialog.expect(
        "SEAT.ACQUIRE pool newcomer 4",
        "[0, NO_SEATS_AVAILABLE, 3, 4]",
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 4]");
    heavy.hears("[1, ACQUIRED, 4, 4]");
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 4]");
    light.hears("[1, ACQUIRED, 4, 4]");
}

#[test]
fn a_waiter_heavier_than_its_figure_holds_nobody_up() {
    let (server, mut dialog) = Server::full_pool();
    let _heavy = Waiter::of(&server, "SEAT.ACQUIRE pool heavy 1 WEIGHT 2 BLOCK 0");
    let mut light = Waiter::of(&server, "SEAT.ACQUIRE pool light 1 BLOCK 0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    light.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(dialog.queue("pool"), ["heavy"]);
}

#[test]
fn kept_counts_the_seats_of_the_tickets_in_turn() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 5 WEIGHT 5", "[1, ACQUIRED, 5, 5]");
    dialog.expect(
        "SEAT.ACQUIRE pool t 5 WEIGHT 3 QUEUE 60000",
        "[0, QUEUED, 5, 5, 1]",
    );
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    assert_eq!(dialog.pool_info("pool", "kept"), 3);
    dialog.expect("SEAT.ACQUIRE pool b 5 WEIGHT 2", "[1, ACQUIRED, 2, 5]");
    dialog.expect("SEAT.ACQUIRE pool c 5", "[0, NO_SEATS_AVAILABLE, 2, 5]");
    // A poll that states a smaller weight lets others in.
    dialog.expect(
        "SEAT.ACQUIRE pool t 5 WEIGHT 2 QUEUE 60000",
        "[1, ACQUIRED, 4, 5]",
    );
}

#[test]
fn resize_lets_in_by_weight_and_evicts_nobody() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 4 WEIGHT 4", "[1, ACQUIRED, 4, 4]");
    let mut heavy = Waiter::of(&server, "SEAT.ACQUIRE pool heavy 4 WEIGHT 3 BLOCK 0");
    dialog.expect("SEAT.RESIZE pool 6", "0");
    dialog.expect("SEAT.RESIZE pool 7", "1");
    heavy.hears("[1, ACQUIRED, 7, 7]");
    dialog.expect("SEAT.RESIZE pool 1", "0");
    assert_eq!(dialog.pool_info("pool", "used"), 7);
    assert_eq!(dialog.pool_info("pool", "available"), 0);
}

#[test]
fn legacy_keys_take_no_session_of_more_than_one_seat() {
    let (_server, mut dialog) = Server::scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 4 WEIGHT 2 OWNER ann",
        "[1, ACQUIRED, 2, 4]",
    );
    dialog.expect("SEAT.ACQUIRE pool b 4 OWNER ann", "[1, ACQUIRED, 3, 4]");
    let digest = dialog.digest_of("pool");
    dialog.begins(
        "SEAT.EXPORT pool set hash",
        "!ERR a session weighs more than one seat",
    );
    assert_eq!(dialog.digest_of("pool"), digest);
    dialog.expect("EXISTS set hash", "0");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    dialog.expect("SEAT.EXPORT pool set hash", "1");
    dialog.expect("SEAT.IMPORT pool set hash", "1");
    dialog.expect("SEAT.OWNERS pool", "[]");
}

#[test]
fn readers_of_legacy_keys_count_sessions() {
    let (_server, mut dialog) = crate::migration::with_migration().scene();
    dialog.expect("SEAT.ACQUIRE pool a 4 WEIGHT 3", "[1, ACQUIRED, 3, 4]");
    dialog.expect("SCARD license:pool:active_sessions", "1");
    dialog.expect("HLEN license:pool:session_metadata", "1");
}

#[test]
fn a_denial_with_options_disturbs_no_watch_and_no_stream() {
    let (server, mut dialog) = super::recording().scene();
    dialog.expect(
        "SEAT.ACQUIRE pool a 2 WEIGHT 2 OWNER ann",
        "[1, ACQUIRED, 2, 2]",
    );
    let digest = server.digest();
    let sent = replicated(&server, || {
        let mut watcher = Dialog::with(&server);
        watcher.expect("WATCH pool", "+OK");
        dialog.expect(
            "SEAT.ACQUIRE pool b 2 WEIGHT 1",
            "[0, NO_SEATS_AVAILABLE, 2, 2]",
        );
        dialog.expect(
            "SEAT.ACQUIRE pool b 3 OWNER ann MAX 1",
            "[0, OWNER_LIMIT, 1, 1]",
        );
        watcher.expect("MULTI", "+OK");
        watcher.expect("PING", "+QUEUED");
        watcher.expect("EXEC", "[+PONG]");
    });
    assert_eq!(sent, [""; 0]);
    assert_eq!(server.digest(), digest);
    assert_eq!(dialog.pool_info("pool", "denied"), 2);
}

#[test]
fn denials_and_the_peak_are_of_the_value_as_it_was_made() {
    let (server, mut dialog) = Server::scene();
    dialog.expect("SEAT.ACQUIRE pool a 3 WEIGHT 3", "[1, ACQUIRED, 3, 3]");
    dialog.expect("SEAT.ACQUIRE pool b 3", "[0, NO_SEATS_AVAILABLE, 3, 3]");
    dialog.expect("SEAT.ACQUIRE pool b 4", "[1, ACQUIRED, 4, 4]");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    server.reloads_the_same("DEBUG RELOAD");
    assert_eq!(dialog.pool_info("pool", "denied"), 0);
    assert_eq!(dialog.pool_info("pool", "peak_used"), 1);
}
