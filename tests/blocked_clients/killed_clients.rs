//! Grants to clients that go away in the same instant: case 12 of the prior art.

use super::two_waiters;
use crate::support::{Dialog, Product, Server, Waiter, eventually, nobody_is_blocked, replicated};

#[test]
fn a_seat_granted_to_a_client_killed_before_is_taken_back() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let stream = replicated(&server, || {
        dialog.transaction(&[&waiter.kill(), "SEAT.RELEASE pool a"]);
        eventually("the seat is free", || dialog.ask("SEAT.COUNT pool") == "0");
    });
    assert!(
        stream
            .iter()
            .any(|line| line == "SEAT.EFFECT pool FREE released a"),
        "{stream:?}"
    );
    assert_eq!(dialog.sessions("pool"), [""; 0]);
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
}

#[test]
fn a_seat_granted_to_a_killed_client_goes_on_to_the_next() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    let [first, mut second] = two_waiters(&server);
    dialog.transaction(&[&first.kill(), "SEAT.RELEASE pool a"]);
    second.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn a_seat_granted_to_a_client_killed_after_is_taken_back() {
    let (server, mut dialog) = Server::full_pool();
    let [first, mut second] = two_waiters(&server);
    dialog.transaction(&["SEAT.RELEASE pool a", &first.kill()]);
    second.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn a_seat_granted_just_before_its_client_hangs_up_is_taken_back() {
    let (server, mut dialog) = Server::full_pool();
    let [first, mut second] = two_waiters(&server);
    server.stands_still(|| {
        dialog.send("SEAT.RELEASE pool a");
        drop(first);
    });
    assert!(dialog.read().starts_with("[1, RELEASED, "));
    second.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn a_client_that_hangs_up_before_a_release_is_not_granted() {
    let (server, mut dialog) = Server::full_pool();
    let [first, mut second] = two_waiters(&server);
    server.stands_still(|| {
        drop(first);
        dialog.send("SEAT.RELEASE pool a");
    });
    assert!(dialog.read().starts_with("[1, RELEASED, "));
    second.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
}

#[test]
fn what_confirms_the_session_in_between_keeps_its_seat() {
    for confirming in [
        "SEAT.ACQUIRE pool b 1",
        "SEAT.ACQUIRE pool b 1 EX 60",
        "SEAT.HEARTBEAT pool b",
    ] {
        let (server, mut dialog) = Server::full_pool();
        let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.transaction(&[&waiter.kill(), "SEAT.RELEASE pool a", confirming]);
        nobody_is_blocked(&server);
        // The turn in which an unconfirmed seat is taken back is over when a later waiter has been
        // served by the timer.
        turn_of_the_timer(&server);
        assert_eq!(dialog.sessions("pool"), ["b"], "{confirming}");
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    }
}

/// Returns after the module's timer has done what it had to do when this was called.
fn turn_of_the_timer(server: &Server) {
    let mut dialog = Dialog::with(server);
    dialog.acquire("clock", "a", 1, "{}");
    let mut waiter = Waiter::of(server, "SEAT.ACQUIRE clock b 1 BLOCK 0");
    dialog.expect("DEL clock", "1");
    waiter.is_granted();
}

#[test]
fn whoever_took_the_seat_anew_in_between_keeps_it() {
    let (server, mut dialog) = Server::full_pool();
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.transaction(&[
        &waiter.kill(),
        "SEAT.RELEASE pool a",
        "SEAT.RELEASE pool b",
        "SEAT.ACQUIRE pool b 1",
    ]);
    nobody_is_blocked(&server);
    turn_of_the_timer(&server);
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn a_seat_of_a_killed_client_is_taken_back_after_a_pause_too() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    let [first, mut second] = two_waiters(&server);
    dialog.transaction(&[
        &first.kill(),
        "SEAT.RELEASE pool a",
        "CLIENT PAUSE 100 WRITE",
    ]);
    second.is_granted();
    assert_eq!(dialog.sessions("pool"), ["c"]);
}

#[test]
fn a_killed_clients_seat_is_taken_back_where_the_pool_moved() {
    for moving in [
        &["RENAME pool moved"][..],
        &["RENAME pool moved", "SEAT.ACQUIRE pool x 1"],
        &["RENAME pool between", "RENAME between moved"],
    ] {
        let (server, mut dialog) = Server::full_pool();
        let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        let kill = format!("CLIENT KILL ID {}", waiter.id());
        let unit: Vec<&str> = [&[kill.as_str(), "SEAT.RELEASE pool a"], moving].concat();
        dialog.transaction(&unit);
        nobody_is_blocked(&server);
        turn_of_the_timer(&server);
        assert_eq!(dialog.sessions("moved"), [""; 0], "{moving:?}");
    }
}

#[test]
fn a_killed_clients_seat_is_taken_back_after_swapdb() {
    let (server, mut dialog) = Server::full_pool();
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    let kill = format!("CLIENT KILL ID {}", waiter.id());
    dialog.transaction(&[&kill, "SEAT.RELEASE pool a", "SWAPDB 0 1"]);
    nobody_is_blocked(&server);
    turn_of_the_timer(&server);
    dialog.expect("SELECT 1", "+OK");
    assert_eq!(dialog.sessions("pool"), [""; 0]);
}

#[test]
fn a_namesake_in_a_pool_that_came_between_keeps_its_seat() {
    let (server, mut dialog) = Server::full_pool();
    dialog.acquire("other", "b", 1, "{}");
    let waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
    dialog.transaction(&[&waiter.kill(), "SEAT.RELEASE pool a", "RENAME other pool"]);
    nobody_is_blocked(&server);
    turn_of_the_timer(&server);
    assert_eq!(dialog.sessions("pool"), ["b"]);
}

#[test]
fn many_clients_that_go_at_once_leave_no_seat_behind() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    let waiters: Vec<_> = (0..100)
        .map(|number| Waiter::of(&server, &format!("SEAT.ACQUIRE pool s{number} 1 BLOCK 0")))
        .collect();
    let mut unit: Vec<String> = waiters
        .iter()
        .map(|waiter| format!("CLIENT KILL ID {}", waiter.id()))
        .collect();
    unit.push("SEAT.RESIZE pool 200".to_owned());
    let unit: Vec<&str> = unit.iter().map(String::as_str).collect();
    dialog.transaction(&unit);
    nobody_is_blocked(&server);
    eventually("only the first holder is left", || {
        dialog.sessions("pool") == ["a"]
    });
    assert_eq!(dialog.queue("pool"), [""; 0]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

/// Reads one reply, and no more may come: the client's session is the pool's only one if that is a
/// grant, and none is otherwise.
#[track_caller]
fn holds_what_its_reply_says(server: &Server, waiter: &mut Waiter, how: &str) {
    let reply = waiter.read();
    waiter.expect("PING", "+PONG");
    turn_of_the_timer(server);
    let held = Dialog::with(server).sessions("pool").len();
    assert_eq!(held, usize::from(reply.starts_with("[1")), "{how}: {reply}");
}

#[test]
fn a_client_unblocked_at_its_grant_hears_one_reply() {
    // Before 7.4 Redis itself answers once more when ERROR meets a client that has just been
    // answered.
    let ways: &[&str] = match Server::start().product() {
        Product::Redis(version) if version < (7, 4, 0) => &["TIMEOUT"],
        _ => &["TIMEOUT", "ERROR"],
    };
    for how in ways {
        let (server, mut dialog) = Server::full_pool();
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        let unblock = format!("CLIENT UNBLOCK {} {how}", waiter.id());
        dialog.transaction(&["SEAT.RELEASE pool a", &unblock]);
        holds_what_its_reply_says(&server, &mut waiter, how);
    }
}

#[test]
fn a_time_out_in_the_instant_of_the_grant_answers_what_is_held() {
    for wait in ["BLOCK 100", "QUEUE 60000 BLOCK 100"] {
        let (server, mut dialog) = Server::full_pool();
        let mut waiter = Waiter::of(&server, &format!("SEAT.ACQUIRE pool b 1 {wait}"));
        // The time passes within the unit; the server looks at its clock after that.
        dialog.transaction(&["SEAT.RELEASE pool a", "DEBUG SLEEP 0.2"]);
        holds_what_its_reply_says(&server, &mut waiter, wait);
    }
}

/// 6.2 and 7.0 take a client that they woke for a new key, and that was not served, for the one
/// whose command runs.
#[test]
fn a_client_passed_over_that_goes_leaves_nothing_behind() {
    // Two rounds each, since what the server has freed may not be used again in the first. Some
    // keys have a brace, but no tag.
    for key in ["pool", "a}b", "{}x}", "}", ""] {
        let server = Server::builder().recording().start();
        for _ in 0..2 {
            passes_over_a_client_that_goes(&server, key);
        }
    }
}

fn passes_over_a_client_that_goes(server: &Server, key: &str) {
    let mut dialog = Dialog::with(server);
    dialog.acquire(key, "a", 1, "{}");
    let [mut first, second] = ["b", "c"]
        .map(|session| Waiter::of(server, &format!("SEAT.ACQUIRE {key} {session} 1 BLOCK 0")));
    // The timer makes a new pool, with one seat for the two.
    dialog.expect(&format!("DEL {key}"), "1");
    first.is_granted();
    dialog.expect(&second.kill(), "1");
    // What the server has freed is used for something else.
    let text = "x".repeat(2500);
    dialog.expect("MULTI", "+OK");
    for n in 0..2000 {
        let set = ["SET", &format!("text-{n}"), &text[..500 + n]];
        assert_eq!(dialog.ask_args(&set), "+QUEUED");
    }
    assert!(dialog.ask("EXEC").starts_with('['));
    // Several changes in one turn of the timer.
    let leases = ["a", "b", "c"].map(|session| format!("SEAT.ACQUIRE other {session} 3 PX 20"));
    dialog.transaction(&leases.each_ref().map(String::as_str));
    eventually("the leases have ended", || {
        dialog.ask("EXISTS other") == "0"
    });
    nobody_is_blocked(server);
    dialog.expect(&format!("SEAT.RELEASE {key} b"), "[1, RELEASED, 0]");
    dialog.one_seat_is_free(key);
}
