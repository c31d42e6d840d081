//! The integration guide's client with its time to live, each method one command; its unit tests
//! where they are about that; and the flow document's script, which the guide's `acquire_seat` grew
//! from, as oracle.

use redis::{Connection, Value};

use crate::support::{Dialog, Server, wait_for_reclaim};

/// The guide's six minutes.
const TTL_SECONDS: i64 = 360;

/// The guide's `redis_client`.
struct RedisClient(Connection);

/// The guide's `RedisSeatAcquisitionError`.
#[derive(Debug, PartialEq)]
struct AllSeatsTaken;

impl RedisClient {
    fn of(server: &Server) -> RedisClient {
        RedisClient(server.client())
    }

    /// `success`, seats used, seats remaining.
    fn acquire_seat(
        &mut self,
        license: &str,
        session: &str,
        max_seats: i64,
        ttl_seconds: i64,
    ) -> Result<(&'static str, i64, i64), AllSeatsTaken> {
        let reply = self.call(
            redis::cmd("SEAT.ACQUIRE")
                .arg(license)
                .arg(session)
                .arg(max_seats)
                .arg("EX")
                .arg(ttl_seconds),
        );
        match &reply[..] {
            [Value::Int(1), _, Value::Int(used), ..] => Ok(("success", *used, max_seats - used)),
            [Value::Int(0), ..] => Err(AllSeatsTaken),
            other => panic!("not an answer of ACQUIRE: {other:?}"),
        }
    }

    /// `success` and the seconds from now in which the session expires, or `expired`.
    fn refresh_heartbeat(
        &mut self,
        license: &str,
        session: &str,
        ttl_seconds: i64,
    ) -> (&'static str, i64) {
        let reply = self.call(
            redis::cmd("SEAT.HEARTBEAT")
                .arg(license)
                .arg(session)
                .arg("EX")
                .arg(ttl_seconds),
        );
        match &reply[..] {
            [Value::Int(1), _, _, Value::Int(lease_ms)] => ("success", lease_ms / 1000),
            [Value::Int(0), ..] => ("expired", 0),
            other => panic!("not an answer of HEARTBEAT: {other:?}"),
        }
    }

    /// Seats used and by whom.
    fn get_active_sessions(&mut self, license: &str) -> (usize, Vec<String>) {
        let mut sessions: Vec<String> = redis::cmd("SEAT.SESSIONS")
            .arg(license)
            .query(&mut self.0)
            .expect("ids");
        sessions.sort();
        (sessions.len(), sessions)
    }

    /// Sessions cleaned, sessions remaining.
    fn cleanup_expired_sessions(&mut self, license: &str) -> (i64, i64) {
        redis::cmd("SEAT.CLEANUP")
            .arg(license)
            .query(&mut self.0)
            .expect("two numbers")
    }

    fn call(&mut self, command: &redis::Cmd) -> Vec<Value> {
        command.query(&mut self.0).expect("an answer")
    }
}

#[test]
fn acquire_seat_success() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    assert_eq!(
        redis_client.acquire_seat("license", "session", 3, TTL_SECONDS),
        Ok(("success", 1, 2))
    );
    let left_ms = Dialog::with(&server).number("SEAT.PTTL license session");
    assert!((1..=1000 * TTL_SECONDS).contains(&left_ms), "{left_ms}");
}

/// In the guide's interface a retry is a success like any other.
#[test]
fn acquire_seat_again_is_a_success_and_renews() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    for ttl_seconds in [10, TTL_SECONDS] {
        assert_eq!(
            redis_client.acquire_seat("license", "session", 1, ttl_seconds),
            Ok(("success", 1, 0))
        );
    }
    assert!(Dialog::with(&server).number("SEAT.PTTL license session") > 10_000);
}

#[test]
fn acquire_seat_all_taken_until_one_expires() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    for (session, ttl_seconds) in [("a", TTL_SECONDS), ("b", 1), ("c", TTL_SECONDS)] {
        redis_client
            .acquire_seat("license", session, 3, ttl_seconds)
            .expect("a seat");
    }
    assert_eq!(
        redis_client.acquire_seat("license", "d", 3, TTL_SECONDS),
        Err(AllSeatsTaken)
    );
    wait_for_reclaim(&server, 1);
    assert_eq!(
        redis_client.acquire_seat("license", "d", 3, TTL_SECONDS),
        Ok(("success", 3, 0))
    );
}

#[test]
fn heartbeat_refresh() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    redis_client
        .acquire_seat("license", "session", 3, 10)
        .expect("a seat");
    assert_eq!(
        redis_client.refresh_heartbeat("license", "session", TTL_SECONDS),
        ("success", 360)
    );
    assert!(Dialog::with(&server).number("SEAT.PTTL license session") > 10_000);
}

#[test]
fn heartbeat_of_an_expired_session() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    assert_eq!(
        redis_client.refresh_heartbeat("license", "session", TTL_SECONDS),
        ("expired", 0)
    );
    Dialog::with(&server).ask("SEAT.ACQUIRE license session 3 PX 1");
    wait_for_reclaim(&server, 1);
    assert_eq!(
        redis_client.refresh_heartbeat("license", "session", TTL_SECONDS),
        ("expired", 0)
    );
    assert_eq!(redis_client.get_active_sessions("license"), (0, vec![]));
}

#[test]
fn active_sessions_are_listed() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    assert_eq!(redis_client.get_active_sessions("license"), (0, vec![]));
    for session in ["b", "a"] {
        redis_client
            .acquire_seat("license", session, 3, TTL_SECONDS)
            .expect("a seat");
    }
    let ids = ["a", "b"].map(str::to_owned).to_vec();
    assert_eq!(redis_client.get_active_sessions("license"), (2, ids));
}

#[test]
fn expired_sessions_are_cleaned_by_hand_or_by_themselves() {
    let server = Server::start();
    let mut redis_client = RedisClient::of(&server);
    redis_client
        .acquire_seat("license", "stays", 9, TTL_SECONDS)
        .expect("a seat");
    let mut dialog = Dialog::with(&server);
    // By hand, in the instant in which they expire.
    let replies = dialog.at_once(&[
        "SEAT.ACQUIRE license a 9 PX 1",
        "SEAT.ACQUIRE license b 9 PX 1",
        "DEBUG SLEEP 0.005",
        "SEAT.CLEANUP license",
    ]);
    assert_eq!(replies[3], "[2, 1]");
    // By themselves, after which there is nothing left to clean.
    dialog.ask("SEAT.ACQUIRE license c 9 PX 1");
    wait_for_reclaim(&server, 3);
    assert_eq!(redis_client.cleanup_expired_sessions("license"), (0, 1));
    assert_eq!(redis_client.cleanup_expired_sessions("missing"), (0, 0));
}
