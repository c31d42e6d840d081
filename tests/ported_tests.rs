//! The tests that the documents themselves give, ported: the ADR's on the scripts' level, the
//! guide's on that of its client.

mod flow_script;
mod leased_guide;

use std::sync::Barrier;
use std::thread;

use redis::{Connection, RedisResult, Value};

use crate::support::Server;

fn acquire(
    client: &mut Connection,
    license: &str,
    session: &str,
    seats: i64,
    metadata: &str,
) -> Value {
    let mut command = redis::cmd("SEAT.ACQUIRE");
    command.arg(license).arg(session).arg(seats).arg(metadata);
    command.query(client).expect("an answer")
}

fn answer(done: i64, word: &str, numbers: &[i64]) -> Value {
    let mut elements = vec![
        Value::Int(done),
        Value::BulkString(word.as_bytes().to_vec()),
    ];
    elements.extend(numbers.iter().copied().map(Value::Int));
    Value::Array(elements)
}

mod adr {
    //! `backend/tests/test_redis_scripts.py` and `load_test_redis.py` of ADR-002.

    use super::*;

    #[test]
    fn acquire_seat_success() {
        let server = Server::builder().shipped_grace().start();
        let mut client = server.client();
        let metadata = r#"{"user_email": "test@example.com", "hardware_id": "hw-001", "project_root": "/home/user/project"}"#;
        let result = acquire(&mut client, "TEST-LICENSE-001", "session-001", 5, metadata);
        assert_eq!(result, answer(1, "ACQUIRED", &[1, 5]));

        let sessions: Vec<String> = redis::cmd("SEAT.SESSIONS")
            .arg("TEST-LICENSE-001")
            .query(&mut client)
            .unwrap();
        assert_eq!(sessions, ["session-001"]);
        let stored: String = redis::cmd("SEAT.GET")
            .arg("TEST-LICENSE-001")
            .arg("session-001")
            .query(&mut client)
            .unwrap();
        let stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
        assert_eq!(stored["user_email"], "test@example.com");
        assert_eq!(stored["hardware_id"], "hw-001");
        assert_eq!(stored["project_root"], "/home/user/project");
        assert_eq!(stored["acquired_at"], stored["last_heartbeat"]);
        assert!(stored["acquired_at"].is_u64());
    }

    #[test]
    fn acquire_seat_no_seats_available() {
        let server = Server::builder().shipped_grace().start();
        let mut client = server.client();
        for n in 0..2 {
            acquire(
                &mut client,
                "TEST-LICENSE-002",
                &format!("session-{n}"),
                2,
                "{}",
            );
        }
        let result = acquire(
            &mut client,
            "TEST-LICENSE-002",
            "new-session",
            2,
            r#"{"user_email": "test@example.com"}"#,
        );
        assert_eq!(result, answer(0, "NO_SEATS_AVAILABLE", &[2, 2]));
    }

    #[test]
    fn acquire_seat_idempotent() {
        let server = Server::builder().shipped_grace().start();
        let mut client = server.client();
        acquire(&mut client, "TEST-LICENSE-003", "session-001", 5, "{}");
        let result = acquire(&mut client, "TEST-LICENSE-003", "session-001", 5, "{}");
        assert_eq!(result, answer(1, "ALREADY_ACTIVE", &[1]));
    }

    #[test]
    fn a_hundred_clients_share_ten_seats() {
        let server = Server::builder().shipped_grace().start();
        let clients = 100;
        let barrier = Barrier::new(clients);
        let results: Vec<Value> = thread::scope(|scope| {
            let worker = |n: usize| {
                let (mut client, barrier) = (server.client(), &barrier);
                scope.spawn(move || {
                    let session = format!("session-{n}");
                    let metadata = format!(r#"{{"user_email": "{session}@example.com"}}"#);
                    barrier.wait();
                    acquire(&mut client, "LOAD-TEST-001", &session, 10, &metadata)
                })
            };
            let workers: Vec<_> = (0..clients).map(worker).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic"))
                .collect()
        });
        for used in 1..=10 {
            let granted = answer(1, "ACQUIRED", &[used, 10]);
            assert_eq!(
                results.iter().filter(|result| **result == granted).count(),
                1,
                "seat {used}"
            );
        }
        let denied = answer(0, "NO_SEATS_AVAILABLE", &[10, 10]);
        assert_eq!(
            results.iter().filter(|result| **result == denied).count(),
            90
        );
        let sessions: Vec<String> = redis::cmd("SEAT.SESSIONS")
            .arg("LOAD-TEST-001")
            .query(&mut server.client())
            .unwrap();
        assert_eq!(sessions.len(), 10);
    }
}

mod guide {
    //! The unit and load tests of the integration guide.

    use super::*;

    /// The guide's client, each method one command.
    struct RedisClient(Connection);

    /// The guide's `RedisSeatAcquisitionError`.
    #[derive(Debug, PartialEq)]
    struct AllSeatsTaken;

    impl RedisClient {
        /// `success`, seats used, seats remaining.
        fn acquire_seat(
            &mut self,
            license: &str,
            session: &str,
            max_seats: i64,
            metadata: Option<&str>,
        ) -> Result<(&'static str, i64, i64), AllSeatsTaken> {
            let mut command = redis::cmd("SEAT.ACQUIRE");
            command
                .arg(license)
                .arg(session)
                .arg(max_seats)
                .arg(metadata);
            let (done, _, used): (bool, String, i64) =
                first_three(command.query(&mut self.0)).expect("an answer");
            if done {
                Ok(("success", used, max_seats - used))
            } else {
                Err(AllSeatsTaken)
            }
        }

        fn refresh_heartbeat(&mut self, license: &str, session: &str) -> &'static str {
            let (done, word, _): (bool, String, i64) = first_three(
                redis::cmd("SEAT.HEARTBEAT")
                    .arg(license)
                    .arg(session)
                    .query(&mut self.0),
            )
            .expect("an answer");
            match word.as_str() {
                "HEARTBEAT_UPDATED" if done => "success",
                "SESSION_NOT_ACTIVE" if !done => "expired",
                other => panic!("not an answer of HEARTBEAT: {other}"),
            }
        }

        /// `success` or `not_found`, seats used.
        fn release_seat(&mut self, license: &str, session: &str) -> (&'static str, i64) {
            let (done, _, used): (bool, String, i64) = first_three(
                redis::cmd("SEAT.RELEASE")
                    .arg(license)
                    .arg(session)
                    .query(&mut self.0),
            )
            .expect("an answer");
            (if done { "success" } else { "not_found" }, used)
        }
    }

    /// Replies are longer or shorter than the three elements of interest.
    fn first_three(reply: RedisResult<Vec<Value>>) -> RedisResult<(bool, String, i64)> {
        let mut reply = reply?;
        reply.resize(3, Value::Int(0));
        redis::from_redis_value(Value::Array(reply)).map_err(Into::into)
    }

    fn set_up() -> (Server, RedisClient) {
        let server = Server::builder().shipped_grace().start();
        let client = RedisClient(server.client());
        (server, client)
    }

    #[test]
    fn acquire_seat_success() {
        let (_server, mut redis_client) = set_up();
        let result = redis_client.acquire_seat(
            "license",
            "session",
            3,
            Some(r#"{"machine_id": "test-machine"}"#),
        );
        assert_eq!(result, Ok(("success", 1, 2)));
    }

    #[test]
    fn acquire_seat_all_taken() {
        let (_server, mut redis_client) = set_up();
        for n in 0..3 {
            redis_client
                .acquire_seat("license", &format!("session-{n}"), 3, None)
                .expect("a seat");
        }
        assert_eq!(
            redis_client.acquire_seat("license", "session-3", 3, None),
            Err(AllSeatsTaken)
        );
    }

    #[test]
    fn heartbeat_refresh() {
        let (_server, mut redis_client) = set_up();
        redis_client
            .acquire_seat("license", "session", 3, None)
            .expect("a seat");
        assert_eq!(
            redis_client.refresh_heartbeat("license", "session"),
            "success"
        );
        assert_eq!(
            redis_client.refresh_heartbeat("license", "other"),
            "expired"
        );
    }

    #[test]
    fn release_seat() {
        let (_server, mut redis_client) = set_up();
        redis_client
            .acquire_seat("license", "session", 3, None)
            .expect("a seat");
        assert_eq!(
            redis_client.release_seat("license", "session"),
            ("success", 0)
        );
        assert_eq!(
            redis_client.release_seat("license", "session"),
            ("not_found", 0)
        );
    }

    #[test]
    fn ten_threads_share_three_seats() {
        let (server, _) = set_up();
        let barrier = Barrier::new(10);
        let results: Vec<Result<_, AllSeatsTaken>> = thread::scope(|scope| {
            let worker = |n: usize| {
                let (mut client, barrier) = (RedisClient(server.client()), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    client.acquire_seat("license", &format!("session-{n}"), 3, None)
                })
            };
            let workers: Vec<_> = (0..10).map(worker).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic"))
                .collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 7);
    }
}
