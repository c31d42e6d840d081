//! What the clients know, held against what a server says and against each other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redis::{ConnectionLike, cmd};

use super::Kind;
use super::client::{Client, SESSIONS, Tenure};
use super::state::{Found, ROUNDING_MS, State, millis};
use crate::overbooking::{highest, steps};
use crate::support::now_ms;

/// Holds all ledgers against what the server says, and settles what was left open. No client may be
/// at work.
pub fn audit(connection: &mut dyn ConnectionLike, clients: &mut [Client], context: &str) {
    let pools = Arc::clone(&clients[0].pools);
    for (number, pool) in pools.iter().enumerate() {
        let name = &pool.name;
        let sessions: HashMap<String, String> = cmd("SEAT.SESSIONS")
            .arg(name)
            .arg("WITHMETADATA")
            .query(connection)
            .expect("the sessions");
        let queue: Vec<(String, i64)> = cmd("SEAT.QUEUE")
            .arg(name)
            .query(connection)
            .expect("the queue");
        let waiting: HashSet<&str> = queue.iter().map(|(session, _)| &**session).collect();
        let count: i64 = cmd("SEAT.COUNT")
            .arg(name)
            .query(connection)
            .expect("a count");
        assert!(
            count <= sessions.len() as i64
                && (count == sessions.len() as i64 || pool.kind == Kind::Brief),
            "{context}: {name} counts {count}, and shows {sessions:?}"
        );
        assert!(
            sessions.len() as i64 <= pool.seats,
            "{context}: {name} has {} seats: {sessions:?}",
            pool.seats
        );

        let mut joined: HashMap<String, (Instant, Instant)> = HashMap::new();
        let mut known = HashSet::new();
        for client in clients.iter_mut() {
            for n in 0..SESSIONS {
                let session = client.session(n);
                let asked = Instant::now();
                let found = match sessions.get(&session) {
                    Some(json) => holder(connection, name, &session, json, n),
                    None if waiting.contains(&*session) => Found::Waiting,
                    None => Found::Free,
                };
                let entry = &mut client.entries[number][n];
                let fits = |state: &&State| state.allows(&found, now_ms());
                let Some(state) = entry.states.iter().find(fits) else {
                    panic!(
                        "{context}: {session} in {name} can be {:?}, but is {found:?}",
                        entry.states
                    );
                };
                let now = Instant::now();
                let state = match (*state, found) {
                    (State::Held { .. }, Found::Free) => State::Free,
                    (State::Waiting { asked, answered }, _) => State::Waiting {
                        asked,
                        answered: answered.or(Some(now)),
                    },
                    (state, _) => state,
                };
                entry.states = vec![state];
                match (state, found, entry.tenure) {
                    (State::Held { .. }, _, Some(_)) => {}
                    (State::Held { .. }, Found::Held { deadline_ms, .. }, None) => {
                        let left = |(low, _): (i64, i64)| asked + millis(low - now_ms());
                        let until = deadline_ms.map(left);
                        entry.tenure = Some(client.tenures[number].len());
                        client.tenures[number].push(Tenure { from: now, until });
                    }
                    _ => entry.tenure = None,
                }
                if let State::Waiting {
                    asked,
                    answered: Some(answered),
                } = state
                {
                    joined.insert(session.clone(), (asked, answered));
                }
                known.insert(session);
            }
        }
        let strangers: Vec<_> = sessions
            .keys()
            .map(|session| &**session)
            .chain(waiting)
            .filter(|session| !known.contains(*session))
            .collect();
        assert!(strangers.is_empty(), "{context}: {strangers:?} in {name}");

        // Nobody stands before somebody who had joined before he asked.
        for (at, (first, _)) in queue.iter().enumerate() {
            for (second, _) in &queue[at + 1..] {
                assert!(
                    joined[second].1 >= joined[first].0,
                    "{context}: {second} stands behind {first} in {name}: {queue:?}"
                );
            }
        }
    }
}

/// What the server says of a session that was among the holders a moment ago.
fn holder(
    connection: &mut dyn ConnectionLike,
    pool: &str,
    session: &str,
    json: &str,
    n: usize,
) -> Found {
    let read: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(read["n"], n, "the metadata of {session}: {json}");
    let heartbeats = read.get("heartbeat_count");
    let heartbeats = heartbeats.map_or(0, |count| count.as_i64().expect("a count"));
    let before_ms = now_ms();
    let left_ms: i64 = cmd("SEAT.PTTL")
        .arg(pool)
        .arg(session)
        .query(connection)
        .expect("a lease");
    match left_ms {
        -2 => Found::Free,
        -1 => Found::Held {
            heartbeats,
            deadline_ms: None,
        },
        _ => Found::Held {
            heartbeats,
            deadline_ms: Some((
                before_ms + left_ms - ROUNDING_MS,
                now_ms() + left_ms + ROUNDING_MS,
            )),
        },
    }
}

/// Panics if at any instant more sessions surely held a pool than it has seats. Returns how many
/// tenures that covers.
pub fn judge(clients: &[Client], context: &str) -> usize {
    let pools = &clients[0].pools;
    let mut judged = 0;
    for (number, pool) in pools.iter().enumerate() {
        let tenures: Vec<_> = clients
            .iter()
            .flat_map(|client| &client.tenures[number])
            .filter(|tenure| tenure.until.is_none_or(|until| until > tenure.from))
            .map(|tenure| (tenure.from, tenure.until))
            .collect();
        judged += tenures.len();
        let most = highest(&steps(tenures.into_iter()));
        assert!(
            most <= pool.seats,
            "{context}: {} surely had {most} holders of {} seats",
            pool.name,
            pool.seats
        );
    }
    judged
}
