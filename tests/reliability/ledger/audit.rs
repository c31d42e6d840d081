//! What the clients know, held against what a server says and against each other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redis::{ConnectionLike, Value, cmd};

use super::Pool;
use super::client::{Client, MAX_PER_OWNER, SESSIONS, owner_name};
use super::state::{Found, Hold, ROUNDING_MS, State, Token, millis};
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
        let details = Details::of(connection, name);
        details.keep_to_limits(pool.seats, &format!("{context}: {name}"));
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
                && (count == sessions.len() as i64 || pool.kind.has_brief_leases()),
            "{context}: {name} counts {count}, and shows {sessions:?}"
        );

        let mut joined: HashMap<String, (Instant, Instant)> = HashMap::new();
        let mut known = HashSet::new();
        for client in clients.iter_mut() {
            for n in 0..SESSIONS {
                let session = client.session(n);
                let asked = Instant::now();
                let found = match (sessions.get(&session), details.0.get(&session)) {
                    (Some(json), Some(detail)) => {
                        let owner = client.owner(number, n).map(owner_name);
                        assert_eq!(detail.owner, owner, "{context}: {session} in {name}");
                        holder(connection, name, &session, json, n, detail)
                    }
                    _ if waiting.contains(&*session) => Found::Waiting,
                    _ => Found::Free,
                };
                let has_owner = client.owner(number, n).is_some();
                let entry = &mut client.entries[number][n];
                let fits = |state: &&State| state.allows(&found, has_owner, now_ms());
                let Some(&state) = entry.states.iter().find(fits) else {
                    panic!(
                        "{context}: {session} in {name} can be {:?}, but is {found:?}",
                        entry.states
                    );
                };
                let now = Instant::now();
                let state = match (state, found) {
                    (_, Found::Free) => State::Free,
                    (State::Waiting { asked, answered }, _) => State::Waiting {
                        asked,
                        // A call without an answer may have found its ticket gone by the limit of
                        // its owner, and have joined anew.
                        answered: answered
                            .filter(|_| !has_owner || entry.states.len() == 1)
                            .or(Some(now)),
                    },
                    (State::Held(hold), Found::Held { token, .. }) => State::Held(Hold {
                        token: token.map_or(Token::None, Token::Known),
                        ..hold
                    }),
                    (state, _) => state,
                };
                let before = std::mem::replace(&mut entry.states, vec![state]);
                let held = before.iter().any(|state| matches!(state, State::Held(_)));
                if let [State::Held(_)] = before[..]
                    && !matches!(state, State::Held(_))
                {
                    let is_in_lease = !before[0].can_have_expired(now_ms());
                    client.note_gone(number, n, None, is_in_lease);
                } else if held && before.len() > 1 {
                    // Between the call and this audit, others may have taken over from it.
                    entry.perhaps_gone += 1;
                    if let Some(tenure) = entry.tenure.take_if(|_| has_owner) {
                        let asked = entry.asked;
                        let tenure = &mut client.tenures[number][tenure];
                        tenure.is_gone = true;
                        tenure.ends_by(asked);
                    }
                }
                let entry = &mut client.entries[number][n];
                match (state, found, entry.tenure) {
                    (State::Held(_), _, Some(_)) => {}
                    (State::Held(hold), Found::Held { deadline_ms, .. }, None) => {
                        let left = |(low, _): (i64, i64)| asked + millis(low - now_ms());
                        let until = deadline_ms.map(left);
                        client.begin_tenure(number, n, hold.weight, asked, until);
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
        takeovers_explain_what_is_gone(clients, number, &format!("{context}: {name}"));
    }
}

/// What a server knows of a session beyond its metadata.
struct Detail {
    owner: Option<String>,
    weight: i64,
    token: Option<i64>,
}

/// Of all sessions of a pool at one moment.
struct Details(HashMap<String, Detail>);

impl Details {
    fn of(connection: &mut dyn ConnectionLike, pool: &str) -> Self {
        let details: HashMap<String, HashMap<String, Value>> = cmd("SEAT.SESSIONS")
            .arg(pool)
            .arg("WITHDETAILS")
            .query(connection)
            .expect("the details");
        let read = |fields: &HashMap<String, Value>, name: &str| -> Option<i64> {
            redis::from_redis_value_ref(&fields[name]).expect("an integer or nil")
        };
        let details = details.into_iter().map(|(session, fields)| {
            let detail = Detail {
                owner: redis::from_redis_value_ref(&fields["owner"]).expect("a name or nil"),
                weight: read(&fields, "weight").expect("a weight"),
                token: read(&fields, "token"),
            };
            (session, detail)
        });
        Self(details.collect())
    }

    fn keep_to_limits(&self, seats: i64, context: &str) {
        let used: i64 = self.0.values().map(|detail| detail.weight).sum();
        assert!(used <= seats, "{context} has {seats} seats and uses {used}");
        let mut held: HashMap<&str, i64> = HashMap::new();
        for owner in self.0.values().filter_map(|detail| detail.owner.as_deref()) {
            *held.entry(owner).or_default() += 1;
        }
        let most = held.values().copied().max().unwrap_or(0);
        assert!(
            most <= MAX_PER_OWNER,
            "{context} has {held:?} of each owner"
        );
    }
}

/// What the server says of a session that was among the holders a moment ago.
fn holder(
    connection: &mut dyn ConnectionLike,
    pool: &str,
    session: &str,
    json: &str,
    n: usize,
    detail: &Detail,
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
    let deadline_ms = match left_ms {
        -2 => return Found::Free,
        -1 => None,
        _ => Some((
            before_ms + left_ms - ROUNDING_MS,
            now_ms() + left_ms + ROUNDING_MS,
        )),
    };
    Found::Held {
        heartbeats,
        deadline_ms,
        weight: detail.weight,
        token: detail.token,
    }
}

/// Each session that a takeover ended has lost its seats, and each that has lost them before the
/// end of its lease was ended by a takeover: by one that was answered, or by one of its owner's
/// calls that were not.
fn takeovers_explain_what_is_gone(clients: &mut [Client], pool: usize, context: &str) {
    let now = Instant::now();
    let mut ended: HashMap<(usize, usize), usize> = HashMap::new();
    let mut unanswered: HashMap<usize, usize> = HashMap::new();
    for client in clients.iter_mut() {
        for takeover in client
            .takeovers
            .iter()
            .filter(|takeover| takeover.pool == pool)
        {
            *ended.entry(takeover.ended).or_default() += 1;
        }
        for call in client
            .unanswered
            .iter_mut()
            .filter(|call| call.pool == pool)
        {
            call.audited.get_or_insert(now);
            *unanswered.entry(call.owner).or_default() += 1;
        }
    }
    let mut unexplained: HashMap<usize, usize> = HashMap::new();
    for client in clients.iter() {
        for (n, entry) in client.entries[pool].iter().enumerate() {
            let ended = ended.remove(&(client.number, n)).unwrap_or(0);
            let session = client.session(n);
            assert!(
                ended <= entry.gone + entry.perhaps_gone,
                "{context}: {ended} takeovers ended {session}, which lost its seats {} times",
                entry.gone
            );
            let left = entry.gone_in_lease.saturating_sub(ended);
            match client.owner(pool, n) {
                Some(owner) => *unexplained.entry(owner).or_default() += left,
                None => assert_eq!(left, 0, "{context}: {session} lost its seats"),
            }
        }
    }
    assert!(ended.is_empty(), "{context}: {ended:?} are no sessions");
    for (owner, left) in unexplained {
        let unanswered = unanswered.get(&owner).copied().unwrap_or(0);
        assert!(
            left <= unanswered,
            "{context}: {left} sessions of owner {owner} are gone, and {unanswered} calls without an answer can have ended one"
        );
    }
}

/// Panics if at any instant sessions surely held more seats of a pool than it has, or more sessions
/// of an owner than its limit surely held seats, or if a pool gave a token twice. Returns how many
/// tenures that covers.
pub fn judge(clients: &[Client], context: &str) -> usize {
    let pools = &clients[0].pools;
    let mut judged = 0;
    for (number, pool) in pools.iter().enumerate() {
        let mut ended: HashMap<(usize, usize), Vec<(Instant, Instant)>> = HashMap::new();
        let mut unanswered: HashMap<usize, Vec<(Instant, Instant)>> = HashMap::new();
        for client in clients {
            for takeover in &client.takeovers {
                if takeover.pool == number {
                    let times = (takeover.asked, takeover.answered);
                    ended.entry(takeover.ended).or_default().push(times);
                }
            }
            for call in &client.unanswered {
                if call.pool == number {
                    let times = (call.asked, call.audited.expect("an audit at the end"));
                    unanswered.entry(call.owner).or_default().push(times);
                }
            }
        }
        let mut all = Vec::new();
        let mut by_owner: HashMap<usize, Vec<_>> = HashMap::new();
        for client in clients {
            for tenure in &client.tenures[number] {
                let owner = client.owner(number, tenure.n);
                let named = ended.get(&(client.number, tenure.n));
                let others = owner.and_then(|owner| unanswered.get(&owner));
                let others = others.filter(|_| tenure.is_gone);
                let mut until = tenure.until;
                // It surely lasted until the first of the calls that can have ended it. One that
                // was answered before this client read of its grant may have ended it, too.
                for &(asked, answered) in named.into_iter().chain(others).flatten() {
                    if answered > tenure.asked && until.is_none_or(|until| asked < until) {
                        until = Some(asked);
                    }
                }
                if until.is_some_and(|until| until <= tenure.from) {
                    continue;
                }
                all.push((tenure.from, until, tenure.weight));
                if let Some(owner) = owner {
                    by_owner
                        .entry(owner)
                        .or_default()
                        .push((tenure.from, until, 1));
                }
            }
        }
        judged += all.len();
        let most = highest(&steps(all.into_iter()));
        let Pool { name, seats, .. } = pool;
        assert!(
            most <= *seats,
            "{context}: {most} of the {seats} seats of {name} were surely held"
        );
        let tokens = clients.iter().flat_map(|client| &client.tokens[number]);
        let tokens: Vec<i64> = tokens.copied().collect();
        let distinct: HashSet<&i64> = tokens.iter().collect();
        let are_new = distinct.len() == tokens.len();
        assert!(are_new, "{context}: a token of {name} was given twice");
        for (owner, tenures) in by_owner {
            let most = highest(&steps(tenures.into_iter()));
            assert!(
                most <= MAX_PER_OWNER,
                "{context}: owner {owner} surely had {most} sessions in {name}"
            );
        }
    }
    judged
}
