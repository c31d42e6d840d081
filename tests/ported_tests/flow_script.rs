//! `tests/lua/flow_acquire.lua` on a plain server: it answers `{1, used, used}` and `{0, used,
//! seats}`.

use fastrand::Rng;
use redis::Value;

use crate::support::{Dialog, Server, eventually, total, wait_for_reclaim, workload};

const SCRIPT: &str = include_str!("../lua/flow_acquire.lua");

struct Flow(Dialog);

impl Flow {
    fn acquire(&mut self, license: &str, session: &str, seats: i64, ttl: i64) -> [i64; 3] {
        let (seats, ttl) = (seats.to_string(), ttl.to_string());
        match self
            .0
            .value(&["EVAL", SCRIPT, "1", license, session, &seats, &ttl])
        {
            Value::Array(reply) => match reply[..] {
                [Value::Int(done), Value::Int(used), Value::Int(last)] => [done, used, last],
                _ => panic!("the script answered {reply:?}"),
            },
            other => panic!("the script answered {other:?}"),
        }
    }

    /// The members of the script's set.
    fn held(&mut self, license: &str) -> i64 {
        self.0.number(&format!("SCARD license:{license}:sessions"))
    }
}

/// What the module must answer if the script answers so.
fn as_seat_reply(script: [i64; 3], seats: i64, ttl: i64) -> String {
    match script {
        [1, used, number] if used == number => {
            format!("[1, ACQUIRED, {used}, {seats}, {}]", 1000 * ttl)
        }
        [0, used, limit] if limit == seats => {
            format!("[0, NO_SEATS_AVAILABLE, {used}, {seats}]")
        }
        other => panic!("the script answered {other:?}"),
    }
}

#[test]
fn fresh_grants_and_denials_are_those_of_the_script() {
    let seed = workload::seed();
    let mut random = Rng::with_seed(seed);
    let (plain, server) = (Server::plain(), Server::start());
    let (mut flow, mut dialog) = (Flow(Dialog::with(&plain)), Dialog::with(&server));
    let mut outcomes = [0, 0];
    for n in 0..2000 {
        let license = format!("license-{}", random.u8(..20));
        let session = format!("session-{n}");
        let (seats, ttl) = (random.i64(-1..60), random.i64(300..=3600));
        let script = flow.acquire(&license, &session, seats, ttl);
        let line = format!("SEAT.ACQUIRE {license} {session} {seats} EX {ttl}");
        assert_eq!(
            dialog.ask(&line),
            as_seat_reply(script, seats, ttl),
            "{line}"
        );
        assert_eq!(
            dialog.number(&format!("SEAT.COUNT {license}")),
            flow.held(&license)
        );
        outcomes[usize::from(script[0] == 1)] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > 200), "{outcomes:?}");
    assert_eq!(total(&server, "seat_expired"), 0);
}

/// Listed difference: the script counts a session that it has already, and denies it when the rest
/// of the seats are taken.
#[test]
fn the_script_counts_a_repeated_acquire_twice() {
    let (plain, server) = (Server::plain(), Server::start());
    let (mut flow, mut dialog) = (Flow(Dialog::with(&plain)), Dialog::with(&server));
    assert_eq!(flow.acquire("license", "a", 2, 360), [1, 1, 1]);
    assert_eq!(flow.acquire("license", "a", 2, 360), [1, 2, 2]);
    assert_eq!(flow.held("license"), 1);
    assert_eq!(flow.acquire("license", "a", 1, 360), [0, 1, 1]);

    let acquire = "SEAT.ACQUIRE license a 2 EX 360";
    dialog.expect(acquire, "[1, ACQUIRED, 1, 2, 360000]");
    dialog.expect(acquire, "[1, ALREADY_ACTIVE, 1, 360000]");
    let full = "SEAT.ACQUIRE license a 1 EX 360";
    dialog.expect(full, "[1, ALREADY_ACTIVE, 1, 360000]");
}

/// Listed difference: the script's time to live is that of the whole set. The latest caller's
/// counts for all.
#[test]
fn the_script_frees_everybody_at_the_latest_callers_deadline() {
    let (plain, server) = (Server::plain(), Server::start());
    let (mut flow, mut dialog) = (Flow(Dialog::with(&plain)), Dialog::with(&server));
    for (session, ttl) in [("long", 360), ("short", 1)] {
        flow.acquire("freed", session, 2, ttl);
        dialog.ask(&format!("SEAT.ACQUIRE freed {session} 2 EX {ttl}"));
    }
    for (session, ttl) in [("short", 1), ("long", 360)] {
        flow.acquire("kept", session, 2, ttl);
        dialog.ask(&format!("SEAT.ACQUIRE kept {session} 2 EX {ttl}"));
    }
    wait_for_reclaim(&server, 2);
    eventually("the script's sessions with the short time are over", || {
        flow.0.ask("EXISTS session:short") == "0"
    });
    assert_eq!(
        flow.held("freed"),
        0,
        "the one with the long time is gone, too"
    );
    assert_eq!(
        flow.held("kept"),
        2,
        "the one with the short time is still there"
    );
    assert_eq!(flow.acquire("freed", "new", 1, 360), [1, 1, 1]);
    assert_eq!(flow.acquire("kept", "new", 2, 360), [0, 2, 2]);

    dialog.expect("SEAT.SESSIONS freed", r#"["long"]"#);
    dialog.expect("SEAT.SESSIONS kept", r#"["long"]"#);
    dialog.expect(
        "SEAT.ACQUIRE freed new 1 EX 360",
        "[0, NO_SEATS_AVAILABLE, 1, 1]",
    );
    dialog.expect(
        "SEAT.ACQUIRE kept new 2 EX 360",
        "[1, ACQUIRED, 2, 2, 360000]",
    );
}

/// And what a session of the script does to keep its seat reaches its own key only.
#[test]
fn the_script_lets_no_session_keep_its_seat() {
    let (plain, server) = (Server::plain(), Server::start());
    let (mut flow, mut dialog) = (Flow(Dialog::with(&plain)), Dialog::with(&server));
    flow.acquire("license", "a", 1, 1);
    flow.0.expect("EXPIRE session:a 360", "1");
    dialog.ask("SEAT.ACQUIRE license a 1 EX 1");
    dialog.expect(
        "SEAT.HEARTBEAT license a EX 360",
        "[1, HEARTBEAT_UPDATED, 1, 360000]",
    );
    eventually("the script's set has expired", || flow.held("license") == 0);
    flow.0.expect("EXISTS session:a", "1");
    dialog.expect("SEAT.SESSIONS license", r#"["a"]"#);
}
