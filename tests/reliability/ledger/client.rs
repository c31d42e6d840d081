//! A client, with what it knows of its own sessions.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use redis::{Cmd, ConnectionLike, RedisResult, Value, cmd};

use super::state::{Lease, Operation, State, possible};
use super::{Kind, Pool};
use crate::overbooking::words;
use crate::support::now_ms;

/// Of each client in each pool.
pub(super) const SESSIONS: usize = 16;

/// A ticket that no test outlasts.
const TICKET_MS: i64 = 600_000;

const HOUR_MS: i64 = 3_600_000;
/// From when until when a session surely held a seat.
pub(super) struct Tenure {
    pub(super) from: Instant,
    pub(super) until: Option<Instant>,
}

pub(super) struct Entry {
    /// One, unless an answer is missing.
    pub(super) states: Vec<State>,
    /// The last tenure of the pool's, while it lasts.
    pub(super) tenure: Option<usize>,
}

/// A client, with the ledger of its own sessions.
pub struct Client {
    pub(super) number: usize,
    pub(super) pools: Arc<[Pool]>,
    random: Rng,
    /// By pool and session.
    pub(super) entries: Vec<Vec<Entry>>,
    /// By pool.
    pub(super) tenures: Vec<Vec<Tenure>>,
}
impl Client {
    /// So many, which compete for the same pools.
    pub fn several(count: usize, pools: &Arc<[Pool]>, seed: u64) -> Vec<Self> {
        let entry = || Entry {
            states: vec![State::Free],
            tenure: None,
        };
        let client = |number| Self {
            number,
            pools: Arc::clone(pools),
            random: Rng::with_seed(seed.wrapping_add(number as u64)),
            entries: pools
                .iter()
                .map(|_| (0..SESSIONS).map(|_| entry()).collect())
                .collect(),
            tenures: pools.iter().map(|_| Vec::new()).collect(),
        };
        (0..count).map(client).collect()
    }

    pub(super) fn session(&self, n: usize) -> String {
        format!("client-{}-session-{n}", self.number)
    }

    /// One call, or none if it fell on a session that is left alone; `confirmed` says of an answer
    /// whether it holds from now on, whatever happens. Returns whether the session is settled.
    pub fn step(
        &mut self,
        connection: &mut dyn ConnectionLike,
        confirmed: impl FnOnce(&mut dyn ConnectionLike) -> bool,
    ) -> RedisResult<bool> {
        let pool = self.random.usize(..self.pools.len());
        let n = self.random.usize(..SESSIONS);
        let &[before] = &self.entries[pool][n].states[..] else {
            return Ok(false);
        };
        let operation = match (before, self.random.u8(..10)) {
            (State::Free, _) => Operation::Acquire,
            (State::Waiting { .. }, 0..2) => Operation::Release,
            (State::Waiting { .. }, _) => Operation::Acquire,
            (State::Held { .. }, 0) => Operation::Acquire,
            (State::Held { .. }, 1..6) => Operation::Heartbeat,
            (State::Held { .. }, _) => Operation::Release,
        };
        let (command, lease_ms) = self.command(pool, n, before, operation);
        let (asked, asked_ms) = (Instant::now(), now_ms());

        let entry = &mut self.entries[pool][n];
        entry
            .states
            .extend(possible(operation, before, lease_ms, asked, asked_ms));
        if operation == Operation::Release
            && let Some(tenure) = entry.tenure.take()
        {
            let tenure = &mut self.tenures[pool][tenure];
            tenure.until = Some(tenure.until.map_or(asked, |until| until.min(asked)));
        }
        let reply: Vec<Value> = command.query(connection)?;
        let call = Call {
            pool: &self.pools[pool],
            operation,
            before,
            lease_ms,
            asked,
            asked_ms,
        };
        let reply = words(&reply);
        let after = call.outcome(&reply);
        let entry = &mut self.entries[pool][n];
        if !confirmed(connection) {
            entry.states = vec![before, after];
            return Ok(false);
        }
        entry.states = vec![after];
        let State::Held { lease, .. } = after else {
            entry.tenure = None;
            return Ok(true);
        };
        let until = lease.map(|lease| lease.lasts_from(asked));
        match (reply.0.as_str(), entry.tenure) {
            ("ACQUIRED", _) => {
                entry.tenure = Some(self.tenures[pool].len());
                let from = Instant::now();
                self.tenures[pool].push(Tenure { from, until });
            }
            ("HEARTBEAT_UPDATED", Some(tenure)) => self.tenures[pool][tenure].until = until,
            _ => {}
        }
        Ok(true)
    }

    fn command(
        &mut self,
        pool: usize,
        n: usize,
        before: State,
        operation: Operation,
    ) -> (Cmd, Option<i64>) {
        let session = self.session(n);
        let Pool { name, seats, kind } = &self.pools[pool];
        let mut command = match operation {
            Operation::Acquire => cmd("SEAT.ACQUIRE"),
            Operation::Heartbeat => cmd("SEAT.HEARTBEAT"),
            Operation::Release => cmd("SEAT.RELEASE"),
        };
        command.arg(name).arg(session);
        if operation != Operation::Acquire {
            return (command, None);
        }
        command.arg(seats).arg(format!(r#"{{"n":{n}}}"#));
        let lease_ms = match (before, kind) {
            // A repeated call leaves the lease alone.
            (State::Held { .. }, _) => None,
            (_, Kind::Brief) => Some(self.random.i64(20..400)),
            (_, Kind::Lasting | Kind::Queued) => self
                .random
                .bool()
                .then(|| HOUR_MS + self.random.i64(0..HOUR_MS)),
        };
        if let Some(lease_ms) = lease_ms {
            command.arg("PX").arg(lease_ms);
        }
        if *kind == Kind::Queued {
            command.arg("QUEUE").arg(TICKET_MS);
            if self.random.u8(..4) == 0 {
                command.arg("BLOCK").arg(self.random.u8(1..20));
            }
        }
        (command, lease_ms)
    }
}
/// A call that was answered.
struct Call<'a> {
    pool: &'a Pool,
    operation: Operation,
    before: State,
    lease_ms: Option<i64>,
    asked: Instant,
    asked_ms: i64,
}

impl Call<'_> {
    /// The state in which the session is by this reply, which must fit the one before.
    fn outcome(&self, reply: &(String, Vec<i64>)) -> State {
        let Pool { seats, kind, .. } = *self.pool;
        let held = |heartbeats, length_ms: Option<i64>| State::Held {
            heartbeats,
            lease: length_ms.map(|length_ms| Lease::from(length_ms, self.asked_ms, now_ms())),
        };
        let expired = self.before.can_have_expired(now_ms());
        let fits = match (self.operation, reply.0.as_str(), &reply.1[..], self.before) {
            (Operation::Acquire, "ACQUIRED", &[used, limit, ref lease @ ..], before) => {
                let fits = (1..=seats).contains(&used)
                    && limit == seats
                    && lease == self.lease_ms.as_slice()
                    && (expired || !matches!(before, State::Held { .. }));
                fits.then(|| held(0, self.lease_ms))
            }
            (Operation::Acquire, "ALREADY_ACTIVE", &[used], State::Held { .. }) => {
                (1..=seats).contains(&used).then_some(self.before)
            }
            (Operation::Acquire, "NO_SEATS_AVAILABLE", &[used, limit], before) => {
                let fits = kind != Kind::Queued
                    && used == seats
                    && limit == seats
                    && (expired || !matches!(before, State::Held { .. }));
                fits.then_some(State::Free)
            }
            (Operation::Acquire, "QUEUED", &[used, limit, position], before) => {
                let fits = kind == Kind::Queued
                    && (0..=seats).contains(&used)
                    && limit == seats
                    && position >= 1;
                let waiting = match before {
                    State::Waiting { .. } => Some(before),
                    State::Free => Some(State::Waiting {
                        asked: self.asked,
                        answered: Some(Instant::now()),
                    }),
                    State::Held { .. } => None,
                };
                waiting.filter(|_| fits)
            }
            (
                Operation::Heartbeat,
                "HEARTBEAT_UPDATED",
                &[count],
                State::Held { heartbeats, lease },
            ) => (count == heartbeats + 1).then(|| held(count, lease.map(|lease| lease.length_ms))),
            (Operation::Heartbeat, "SESSION_NOT_ACTIVE", [], State::Held { .. }) => {
                expired.then_some(State::Free)
            }
            (Operation::Release, "RELEASED", &[used], State::Held { .. }) => {
                // The seat may have gone to a client that was blocked for it.
                let most = seats - i64::from(kind != Kind::Queued);
                (0..=most).contains(&used).then_some(State::Free)
            }
            (Operation::Release, "SESSION_NOT_FOUND", [], State::Held { .. }) => {
                expired.then_some(State::Free)
            }
            (Operation::Release, "SESSION_NOT_FOUND", [], State::Waiting { .. }) => {
                Some(State::Free)
            }
            _ => None,
        };
        fits.unwrap_or_else(|| {
            panic!(
                "{:?} in {} from {:?}: {reply:?}",
                self.operation, self.pool.name, self.before
            )
        })
    }
}
