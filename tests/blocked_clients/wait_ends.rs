//! The wait itself ends: time, the client, an administrator, the server's role, the server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::two_waiters;
use crate::support::{Dialog, Server, Waiter, nobody_is_blocked, total};

/// A client that is blocked and will read all that comes until its connection is closed.
struct Doomed(UnixStream);

impl Doomed {
    fn of(server: &Server, session: &str) -> (Self, i64) {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.write_all(b"CLIENT ID\r\n").unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            reply.push(byte[0]);
        }
        let id = String::from_utf8(reply).unwrap().trim()[1..]
            .parse()
            .unwrap();
        write!(stream, "SEAT.ACQUIRE pool {session} 1 BLOCK 0\r\n").unwrap();
        let doomed = Self(stream);
        let mut observer = Dialog::with(server);
        crate::support::eventually("the client is blocked", || observer.is_blocked(id));
        (doomed, id)
    }

    /// What came before the end.
    fn last_words(mut self) -> String {
        let mut words = String::new();
        self.0
            .read_to_string(&mut words)
            .expect("the connection is closed in time");
        words
    }
}

const DENIED: &str = "[0, NO_SEATS_AVAILABLE, 1, 1]";

#[test]
fn a_wait_that_times_out_is_denied_and_leaves_the_queue() {
    let (server, mut dialog) = Server::full_pool();
    let mut other = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    let mut late = Dialog::with(&server);
    late.expect("SEAT.ACQUIRE pool b 1 BLOCK 1", DENIED);
    assert_eq!(dialog.queue("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    other.hears("[1, ACQUIRED, 1, 1]");
    late.expect("SEAT.ACQUIRE pool b 1 {} EX 5 BLOCK 1", DENIED);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
    assert_eq!(total(&server, "seat_left"), 2);
}

#[test]
fn a_long_poll_that_times_out_keeps_its_position_as_a_ticket() {
    let (server, mut dialog) = Server::full_pool();
    let mut late = Dialog::with(&server);
    let queued = "[0, QUEUED, 1, 1, 1]";
    late.expect("SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 1", queued);
    assert_eq!(dialog.queue("pool"), ["b"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool c 1", "[0, NO_SEATS_AVAILABLE, 0, 1]");
    late.expect(
        "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 1",
        "[1, ACQUIRED, 1, 1]",
    );
    dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

/// Case 5 of the prior art.
#[test]
fn a_seat_is_not_given_to_a_client_that_has_disconnected() {
    let (server, mut dialog) = Server::full_pool();
    drop(Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0"));
    dialog.queue_becomes("pool", &[]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool c 1", "[1, ACQUIRED, 1, 1]");
    assert_eq!(dialog.queue("pool"), [""; 0]);
    assert_eq!(dialog.sessions("pool"), ["c"]);
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn those_behind_a_disconnected_client_move_up() {
    let (server, mut dialog) = Server::full_pool();
    let [first, mut second] = two_waiters(&server);
    drop(first);
    dialog.queue_becomes("pool", &["c"]);
    dialog.expect("SEAT.POSITION pool c", "1");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    second.hears("[1, ACQUIRED, 1, 1]");
    assert_eq!(dialog.sessions("pool"), ["c"]);
}

#[test]
fn a_lost_long_poll_keeps_its_position_for_its_tickets_time() {
    let (server, mut dialog) = Server::full_pool();
    drop(Waiter::of(
        &server,
        "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0",
    ));
    nobody_is_blocked(&server);
    assert_eq!(dialog.queue("pool"), ["b"]);
    let short = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 QUEUE 20 BLOCK 0");
    // It outlives its ticket many times over while its client is there.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(100) {
        assert_eq!(dialog.queue("pool"), ["b", "c"]);
    }
    drop(short);
    dialog.queue_becomes("pool", &["b"]);
}

#[test]
fn a_killed_client_leaves_the_queue() {
    let (server, mut dialog) = Server::full_pool();
    let (doomed, id) = Doomed::of(&server, "b");
    let mut other = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 BLOCK 0");
    dialog.expect(&format!("CLIENT KILL ID {id}"), "1");
    assert_eq!(doomed.last_words(), "");
    dialog.queue_becomes("pool", &["c"]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
    other.is_granted();
    dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn all_clients_can_be_killed_at_once() {
    let (server, mut dialog) = Server::full_pool();
    let doomed: Vec<_> = (0..50)
        .map(|number| Doomed::of(&server, &format!("s{number}")).0)
        .collect();
    // Whoever looked on while they gathered may not be gone yet.
    let killed = dialog.number("CLIENT KILL TYPE normal SKIPME yes");
    assert!(killed >= 50, "{killed}");
    for client in doomed {
        assert_eq!(client.last_words(), "");
    }
    dialog.queue_becomes("pool", &[]);
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
}

#[test]
fn an_unblocked_client_leaves_the_queue_and_goes_on() {
    let (server, mut dialog) = Server::full_pool();
    for (how, reply) in [
        ("", DENIED),
        (" TIMEOUT", DENIED),
        (" ERROR", "!UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.expect(&format!("CLIENT UNBLOCK {}{how}", waiter.id()), "1");
        waiter.hears(reply);
        waiter.expect("PING", "+PONG");
        dialog.queue_becomes("pool", &[]);
        dialog.expect(&format!("CLIENT UNBLOCK {}{how}", waiter.id()), "0");
        waiter.waits_again(&server, "SEAT.ACQUIRE pool b 1 BLOCK 0");
        dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 1]");
        waiter.is_granted();
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
        dialog.acquire("pool", "a", 1, "{}");
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
    nobody_is_blocked(&server);
}

#[test]
fn an_unblocked_long_poll_keeps_its_position() {
    let (server, mut dialog) = Server::full_pool();
    for (how, reply) in [
        ("TIMEOUT", "[0, QUEUED, 1, 1, 1]"),
        ("ERROR", "!UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 QUEUE 60000 BLOCK 0");
        dialog.expect(&format!("CLIENT UNBLOCK {} {how}", waiter.id()), "1");
        waiter.hears(reply);
        nobody_is_blocked(&server);
        assert_eq!(dialog.queue("pool"), ["b"]);
    }
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool b 1", "[1, ACQUIRED, 1, 1]");
}

#[test]
fn an_expiry_during_a_pause_is_granted_after_it() {
    const PAUSE: Duration = Duration::from_millis(300);
    for mode in ["WRITE", "ALL"] {
        let (server, mut dialog) = Server::builder().recording().full_pool();
        let mut waiter = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 {} PX 60000 BLOCK 0");
        let mut poll = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 100");
        let mut late = Waiter::of(&server, "SEAT.ACQUIRE pool d 1 BLOCK 100");
        let start = Instant::now();
        let pause = format!("CLIENT PAUSE {} {mode}", PAUSE.as_millis());
        dialog.expect_at_once(&[
            ("SEAT.ACQUIRE pool a 1 PX 60", "[1, ALREADY_ACTIVE, 1, 60]"),
            (&pause, "+OK"),
        ]);
        assert!(poll.read().starts_with("[0, QUEUED, "));
        assert!(late.read().starts_with("[0, NO_SEATS_AVAILABLE, "));
        waiter.hears("[1, ACQUIRED, 1, 1, 60000]");
        assert!(start.elapsed() >= PAUSE, "{mode}");
        assert_eq!(dialog.queue("pool"), ["c"]);
        dialog.expect("SEAT.RELEASE pool b", "[1, RELEASED, 0]");
        dialog.expect("SEAT.ACQUIRE pool c 1", "[1, ACQUIRED, 1, 1]");
        dialog.expect("SEAT.RELEASE pool c", "[1, RELEASED, 0]");
        dialog.one_seat_is_free("pool");
    }
}

/// The replica's primary is nobody, so that it keeps its data.
#[test]
fn a_demotion_ends_all_waits_and_nobody_is_granted_a_seat_there() {
    let nobody = {
        let mut server = Server::builder().plain().tcp().start();
        server.shutdown();
        server.port()
    };
    let (server, mut dialog) = Server::builder().recording().full_pool();
    dialog.acquire("leased", "a", 1, "{}");
    let clients: Vec<_> = ["b", "c", "d"]
        .map(|session| Doomed::of(&server, session).0)
        .into();
    let poll = Waiter::of(&server, "SEAT.ACQUIRE pool e 1 QUEUE 60000 BLOCK 0");
    let mut leased = Waiter::of(&server, "SEAT.ACQUIRE leased b 1 BLOCK 0");
    dialog.expect(
        "SEAT.ACQUIRE leased a 1 PX 100",
        "[1, ALREADY_ACTIVE, 1, 100]",
    );
    dialog.expect(&format!("REPLICAOF 127.0.0.1 {nobody}"), "+OK");
    for client in clients {
        let words = client.last_words();
        assert!(words.starts_with("-UNBLOCKED"), "{words}");
    }
    let words = leased.read();
    // On a slow machine its turn may have come before.
    let granted = u64::from(words.starts_with("[1"));
    assert!(granted == 1 || words.starts_with("!UNBLOCKED"), "{words}");
    drop(poll);
    nobody_is_blocked(&server);
    crate::support::eventually("the lease has expired", || {
        dialog.sessions("leased").is_empty() || granted == 1
    });
    assert_eq!(total(&server, "seat_granted"), granted);
    assert_eq!(dialog.sessions("pool"), ["a"]);
    assert_eq!(dialog.queue("pool"), ["e"]);
    dialog.begins("SEAT.ACQUIRE pool x 1 BLOCK 0", "!READONLY");
    dialog.expect("REPLICAOF NO ONE", "+OK");
    dialog.expect("SEAT.RELEASE pool a", "[1, RELEASED, 0]");
    dialog.expect("SEAT.ACQUIRE pool e 1", "[1, ACQUIRED, 1, 1]");
    dialog.expect("SEAT.RELEASE pool e", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}

#[test]
fn a_demoted_primary_sends_its_waiters_away() {
    let other = Server::builder().tcp().start();
    let (server, mut dialog) = Server::builder().tcp().full_pool();
    let mut there = Dialog::with(&other);
    there.acquire("pool", "x", 5, "{}");
    let (doomed, _) = Doomed::of(&server, "b");
    dialog.expect(&format!("REPLICAOF 127.0.0.1 {}", other.port()), "+OK");
    let words = doomed.last_words();
    assert!(words.starts_with("-UNBLOCKED"), "{words}");
    other.wait_for_offset(&server);
    assert_eq!(dialog.sessions("pool"), ["x"]);
    assert_eq!(server.digest(), other.digest());
    there.expect("SEAT.RELEASE pool x", "[1, RELEASED, 0]");
    other.wait_for_offset(&server);
    dialog.expect("EXISTS pool", "0");
    assert_eq!(total(&server, "seat_granted"), 0);
    nobody_is_blocked(&server);
}

#[test]
fn a_server_shuts_down_while_clients_are_blocked() {
    let (mut server, _dialog) = Server::builder().recording().full_pool();
    let clients: Vec<_> = ["b", "c"]
        .map(|session| Doomed::of(&server, session).0)
        .into();
    let poll = Waiter::of(&server, "SEAT.ACQUIRE pool d 1 QUEUE 60000 BLOCK 0");
    server.shutdown();
    for client in clients {
        client.last_words();
    }
    drop(poll);
    server.restart();
    let mut dialog = Dialog::with(&server);
    assert_eq!(dialog.sessions("pool"), ["a"]);
    assert_eq!(dialog.queue("pool"), ["d"]);
    assert_eq!(total(&server, "seat_blocked_clients"), 0);
}

#[test]
fn a_time_out_at_an_expired_pool_harms_nobody() {
    let (server, mut dialog) = Server::builder().recording().full_pool();
    dialog.expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    let mut late = Waiter::of(&server, "SEAT.ACQUIRE pool b 1 BLOCK 40");
    let mut poll = Waiter::of(&server, "SEAT.ACQUIRE pool c 1 QUEUE 60000 BLOCK 60");
    let mut patient = Waiter::of(&server, "SEAT.ACQUIRE pool d 1 BLOCK 0");
    dialog.expect("PEXPIRE pool 1", "1");
    for waiter in [&mut late, &mut poll] {
        let reply = waiter.read();
        assert!(reply.starts_with('['), "{reply}");
    }
    // Whoever looks next finds the key expired; until then nobody could know.
    dialog.ask("EXISTS pool");
    loop {
        let holders = dialog.sessions("pool");
        if holders == ["d"] {
            break;
        }
        for holder in holders {
            dialog.ask(&format!("SEAT.RELEASE pool {holder}"));
        }
        dialog.ask("SEAT.REVOKE pool c");
    }
    patient.is_granted();
    dialog.expect("SEAT.RELEASE pool d", "[1, RELEASED, 0]");
    dialog.one_seat_is_free("pool");
}
