//! A client, with what it knows of its own sessions.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use redis::{Cmd, ConnectionLike, RedisResult, Value, cmd};

use super::state::{Hold, Lease, Operation, Request, State, Token};
use super::{Kind, Pool};
use crate::overbooking::words;
use crate::support::now_ms;

/// Of each client in each pool.
pub(super) const SESSIONS: usize = 16;

/// Where so many compete, each cares for the sessions that have something half of the time: most
/// calls for the others are refused.
const CROWD: usize = 16;

/// The limit that all state for each owner.
pub(super) const MAX_PER_OWNER: i64 = 2;

const MAX_WEIGHT: i64 = 8;

/// One of so many sessions has no owner.
const WITHOUT_OWNER: usize = 4;

/// One of so many sessions with owners asks for tickets where there is a queue; the others wait by
/// their clients alone.
const WITH_TICKET: usize = 8;

/// A ticket that no test outlasts.
const TICKET_MS: i64 = 600_000;

const HOUR_MS: i64 = 3_600_000;

/// From when until when a session surely held its seats.
pub(super) struct Tenure {
    pub(super) n: usize,
    pub(super) weight: i64,
    /// When they were asked for.
    pub(super) asked: Instant,
    pub(super) from: Instant,
    pub(super) until: Option<Instant>,
    /// Whether it ended by nothing that its own client did.
    pub(super) is_gone: bool,
}

pub(super) struct Entry {
    /// One, unless an answer is missing.
    pub(super) states: Vec<State>,
    /// When it asked last.
    pub(super) asked: Instant,
    /// The last tenure of the pool's, while it lasts.
    pub(super) tenure: Option<usize>,
    /// How often it surely lost its seats by nothing that its own client did, and how often that
    /// cannot have been the end of its lease.
    pub(super) gone: usize,
    pub(super) gone_in_lease: usize,
    /// How often it may have lost them by that.
    pub(super) perhaps_gone: usize,
}

/// A takeover, as the client knows of it whose session took over.
pub(super) struct Takeover {
    pub(super) pool: usize,
    /// The session that ended: its client and its number.
    pub(super) ended: (usize, usize),
    pub(super) asked: Instant,
    pub(super) answered: Instant,
}

/// A call without an answer that holds, by which a session of the owner may have ended.
pub(super) struct Unanswered {
    pub(super) pool: usize,
    pub(super) owner: usize,
    pub(super) asked: Instant,
    /// When an audit has seen what came of it.
    pub(super) audited: Option<Instant>,
}

/// A client, with the ledger of its own sessions.
pub struct Client {
    pub(super) number: usize,
    pub(super) pools: Arc<[Pool]>,
    random: Rng,
    /// Of all clients.
    owners: usize,
    is_in_crowd: bool,
    /// By pool and session.
    pub(super) entries: Vec<Vec<Entry>>,
    /// By pool.
    pub(super) tenures: Vec<Vec<Tenure>>,
    pub(super) takeovers: Vec<Takeover>,
    pub(super) unanswered: Vec<Unanswered>,
    /// Those that it was given, by pool, in the order of time: those of pools on two nodes have no
    /// order.
    pub(super) tokens: Vec<Vec<i64>>,
}

impl Client {
    /// So many, which compete for the same pools.
    pub fn several(count: usize, pools: &Arc<[Pool]>, seed: u64) -> Vec<Self> {
        let entry = || Entry {
            states: vec![State::Free],
            asked: Instant::now(),
            tenure: None,
            gone: 0,
            gone_in_lease: 0,
            perhaps_gone: 0,
        };
        let client = |number| Self {
            number,
            pools: Arc::clone(pools),
            random: Rng::with_seed(seed.wrapping_add(number as u64)),
            owners: (count / 2).max(2),
            is_in_crowd: count > CROWD,
            entries: pools
                .iter()
                .map(|_| (0..SESSIONS).map(|_| entry()).collect())
                .collect(),
            tenures: pools.iter().map(|_| Vec::new()).collect(),
            takeovers: Vec::new(),
            unanswered: Vec::new(),
            tokens: pools.iter().map(|_| Vec::new()).collect(),
        };
        (0..count).map(client).collect()
    }

    /// How many takeovers it knows of.
    pub fn takeovers(&self) -> usize {
        self.takeovers.len()
    }

    pub(super) fn session(&self, n: usize) -> String {
        format!("client-{}-session-{n}", self.number)
    }

    /// The owner of a session in a pool, by its number.
    pub(super) fn owner(&self, pool: usize, n: usize) -> Option<usize> {
        self.owner_of(pool, (self.number, n))
    }

    fn owner_of(&self, pool: usize, (client, n): (usize, usize)) -> Option<usize> {
        let has_one = self.pools[pool].kind.has_owners() && n % WITHOUT_OWNER > 0;
        has_one.then(|| (client + n) % self.owners)
    }

    /// One call, or none if it fell on a session that is left alone; `confirmed` says of an answer
    /// whether it holds from now on, whatever happens. Returns whether the session is settled.
    pub fn step(
        &mut self,
        connection: &mut dyn ConnectionLike,
        confirmed: impl FnOnce(&mut dyn ConnectionLike) -> bool,
    ) -> RedisResult<bool> {
        let (pool, n) = self.pick();
        let (before, request) = match self.entries[pool][n].states[..] {
            [before] => (before, self.choose(pool, n, before)),
            // Its owner had reached its limit. That took the ticket if the turn had come.
            [State::Free, waiting @ State::Waiting { .. }] => {
                (waiting, Request::plain(Operation::Release))
            }
            _ => return Ok(false),
        };
        let command = self.command(pool, n, &request);
        let (asked, asked_ms) = (Instant::now(), now_ms());

        let entry = &mut self.entries[pool][n];
        entry.asked = asked;
        entry
            .states
            .extend(request.possible(before, asked, asked_ms));
        let mut given_up = None;
        if request.operation == Operation::Release && !request.is_void(before) {
            given_up = entry.tenure.take();
            if let Some(tenure) = given_up {
                self.tenures[pool][tenure].ends_by(asked);
            }
        }
        let call = Call {
            pool: &self.pools[pool],
            request,
            before,
            asked,
            asked_ms,
        };
        let reply: RedisResult<Vec<Value>> = command.query(connection);
        let reply = match reply {
            Ok(reply) => Reply::to(&request, &reply),
            Err(error) => {
                self.leave_unanswered(pool, &request, asked);
                return Err(error);
            }
        };
        let after = call.outcome(&reply, self.tokens[pool].last().copied().unwrap_or(0));
        let (word, is_gone) = (reply.word.as_str(), call.shows_it_gone(&reply));
        if !confirmed(connection) {
            self.entries[pool][n].states = vec![before, after];
            self.leave_unanswered(pool, &request, asked);
            return Ok(false);
        }
        if request.with_token
            && let State::Held(Hold {
                token: Token::Known(token),
                ..
            }) = after
        {
            self.tokens[pool].push(token);
        }
        if let Some(session) = &reply.replaced {
            self.note_takeover(pool, n, session, asked);
        }
        if is_gone {
            let is_in_lease = !before.can_have_expired(now_ms());
            self.note_gone(pool, n, given_up, is_in_lease);
        }
        let entry = &mut self.entries[pool][n];
        entry.states = match (word, before) {
            ("OWNER_LIMIT", State::Waiting { .. }) => vec![after, before],
            _ => vec![after],
        };
        let State::Held(hold) = after else {
            entry.tenure = None;
            return Ok(true);
        };
        let until = hold.lease.map(|lease| lease.lasts_from(asked));
        match (word, entry.tenure) {
            ("ACQUIRED", _) => self.begin_tenure(pool, n, hold.weight, asked, until),
            ("HEARTBEAT_UPDATED", Some(tenure)) => self.tenures[pool][tenure].until = until,
            _ => {}
        }
        Ok(true)
    }

    fn pick(&mut self) -> (usize, usize) {
        if self.is_in_crowd && self.random.bool() {
            let pools = self.entries.iter().enumerate();
            let all = pools.flat_map(|(pool, entries)| {
                let entries = entries.iter().enumerate();
                entries.map(move |(n, entry)| (pool, n, entry))
            });
            let with_something = all.filter(|(_, _, entry)| {
                entry.states.len() == 1 && !matches!(entry.states[0], State::Free)
            });
            let with_something: Vec<_> = with_something.map(|(pool, n, _)| (pool, n)).collect();
            if let Some(picked) = self.random.choice(with_something) {
                return picked;
            }
        }
        let pool = self.random.usize(..self.pools.len());
        (pool, self.random.usize(..SESSIONS))
    }

    fn choose(&mut self, pool: usize, n: usize, before: State) -> Request {
        let kind = self.pools[pool].kind;
        let owner = self.owner(pool, n);
        let random = &mut self.random;
        let operation = match (before, random.u8(..10)) {
            (State::Free, _) => Operation::Acquire,
            (State::Waiting { .. }, 0..2) => Operation::Release,
            (State::Waiting { .. }, _) => Operation::Acquire,
            (State::Held(_), 0) => Operation::Acquire,
            (State::Held(_), 1..6) => Operation::Heartbeat,
            (State::Held(_), _) => Operation::Release,
        };
        let plain = Request {
            owner,
            queues: kind == Kind::Queued || kind == Kind::OwnedQueued && n % WITH_TICKET == 1,
            ..Request::plain(operation)
        };
        let token = match before {
            State::Held(hold) => hold.token,
            _ => Token::None,
        };
        match (operation, kind.has_owners()) {
            (Operation::Acquire, has_owners) => {
                let lease_ms = match (before, kind, random.u8(..4)) {
                    // A repeated call leaves the lease alone.
                    (State::Held(_), ..) => None,
                    (_, Kind::Brief, _) | (_, Kind::Owned | Kind::OwnedQueued, 0) => {
                        Some(random.i64(20..400))
                    }
                    (_, _, 0..2) => Some(HOUR_MS + random.i64(0..HOUR_MS)),
                    _ => None,
                };
                Request {
                    lease_ms,
                    weight: if has_owners {
                        random.i64(1..=MAX_WEIGHT)
                    } else {
                        1
                    },
                    with_token: has_owners && random.bool(),
                    takeover: owner.is_some() && random.bool(),
                    block_ms: (kind.has_queue() && (!plain.queues || random.u8(..4) == 0))
                        .then(|| random.u8(1..60)),
                    ..plain
                }
            }
            (_, true) => Request {
                token: match (token, random.u8(..4)) {
                    (Token::Known(present), 0..2) => Some(present),
                    (Token::Known(present), 2) => Some(present - 1),
                    (Token::None, 0) if matches!(before, State::Held(_)) => Some(1),
                    _ => None,
                },
                ..plain
            },
            _ => plain,
        }
    }

    fn command(&self, pool: usize, n: usize, request: &Request) -> Cmd {
        let session = self.session(n);
        let Pool { name, seats, kind } = &self.pools[pool];
        let mut command = cmd(match request.operation {
            Operation::Acquire => "SEAT.ACQUIRE",
            Operation::Heartbeat => "SEAT.HEARTBEAT",
            Operation::Release => "SEAT.RELEASE",
        });
        command.arg(name).arg(session);
        if let Some(token) = request.token {
            command.arg("TOKEN").arg(token);
        }
        if request.operation != Operation::Acquire {
            return command;
        }
        command.arg(seats).arg(format!(r#"{{"n":{n}}}"#));
        if let Some(lease_ms) = request.lease_ms {
            command.arg("PX").arg(lease_ms);
        }
        if kind.has_owners() {
            command.arg("WEIGHT").arg(request.weight);
        }
        if let Some(owner) = request.owner {
            command.arg("OWNER").arg(owner_name(owner));
            command.arg("MAX").arg(MAX_PER_OWNER);
        }
        if request.takeover {
            command.arg("TAKEOVER");
        }
        if request.with_token {
            command.arg("WITHTOKEN");
        }
        if request.queues {
            command.arg("QUEUE").arg(TICKET_MS);
        }
        if let Some(block_ms) = request.block_ms {
            command.arg("BLOCK").arg(block_ms);
        }
        command
    }

    pub(super) fn begin_tenure(
        &mut self,
        pool: usize,
        n: usize,
        weight: i64,
        asked: Instant,
        until: Option<Instant>,
    ) {
        self.entries[pool][n].tenure = Some(self.tenures[pool].len());
        self.tenures[pool].push(Tenure {
            n,
            weight,
            asked,
            from: Instant::now(),
            until,
            is_gone: false,
        });
    }

    /// A session has lost its seats by nothing that this client did.
    pub(super) fn note_gone(
        &mut self,
        pool: usize,
        n: usize,
        given_up: Option<usize>,
        is_in_lease: bool,
    ) {
        let entry = &mut self.entries[pool][n];
        entry.gone += 1;
        entry.gone_in_lease += usize::from(is_in_lease);
        if let Some(tenure) = entry.tenure.take().or(given_up) {
            let tenure = &mut self.tenures[pool][tenure];
            tenure.is_gone = true;
            tenure.ends_by(Instant::now());
        }
    }

    /// A takeover ends a session of the same owner, and not that for which it is.
    fn note_takeover(&mut self, pool: usize, n: usize, session: &str, asked: Instant) {
        let ended = parsed(session);
        let owner = self.owner(pool, n);
        assert!(
            owner.is_some() && self.owner_of(pool, ended) == owner && ended != (self.number, n),
            "{} took over from {session} in {}",
            self.session(n),
            self.pools[pool].name
        );
        self.takeovers.push(Takeover {
            pool,
            ended,
            asked,
            answered: Instant::now(),
        });
    }

    fn leave_unanswered(&mut self, pool: usize, request: &Request, asked: Instant) {
        let owner = request.owner.filter(|_| request.takeover);
        self.unanswered.extend(owner.map(|owner| Unanswered {
            pool,
            owner,
            asked,
            audited: None,
        }));
    }
}

pub(super) fn owner_name(owner: usize) -> String {
    format!("owner-{owner}")
}

/// The client and the number of a session, by its name.
fn parsed(session: &str) -> (usize, usize) {
    let numbers = session.strip_prefix("client-");
    let numbers = numbers.and_then(|numbers| numbers.split_once("-session-"));
    let (client, n) = numbers.expect("a session of a client");
    let number = |text: &str| text.parse().expect("a number");
    (number(client), number(n))
}

impl Tenure {
    pub(super) fn ends_by(&mut self, at: Instant) {
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }
}

/// An answer: its word, the numbers after it, and the session that has ended for a takeover.
#[derive(Debug)]
struct Reply {
    word: String,
    numbers: Vec<i64>,
    replaced: Option<String>,
}

impl Reply {
    fn to(request: &Request, values: &[Value]) -> Self {
        let (values, replaced) = match values {
            [Value::Int(1), .., last] if request.takeover => {
                let replaced = redis::from_redis_value_ref(last).expect("a session or nil");
                (&values[..values.len() - 1], replaced)
            }
            _ => (values, None),
        };
        let (word, numbers) = words(values);
        Self {
            word,
            numbers,
            replaced,
        }
    }
}

/// A call that was answered.
struct Call<'a> {
    pool: &'a Pool,
    request: Request,
    before: State,
    asked: Instant,
    asked_ms: i64,
}

impl Call<'_> {
    /// Whether the answer shows that the session had lost its seats by then.
    fn shows_it_gone(&self, reply: &Reply) -> bool {
        let still_held = ["ALREADY_ACTIVE", "HEARTBEAT_UPDATED", "RELEASED"];
        matches!(self.before, State::Held(_))
            && !self.request.is_void(self.before)
            && !still_held.contains(&reply.word.as_str())
    }

    /// The state in which the session is by this reply, which must fit the one before.
    fn outcome(&self, reply: &Reply, last_token: i64) -> State {
        let Pool { seats, kind, .. } = *self.pool;
        let Request {
            operation,
            lease_ms,
            weight,
            with_token,
            owner,
            queues,
            block_ms,
            ..
        } = self.request;
        let is_void = self.request.is_void(self.before);
        // Whether it can have been without seats when the call came to the server.
        let was_free = match self.before {
            State::Held(_) => self.before.can_have_expired(now_ms()) || owner.is_some(),
            _ => true,
        };
        // The token, if the last numbers are what the options ask for.
        let token = |numbers: &[i64], lease_ms: Option<i64>| {
            let (lease, token) = numbers.split_at_checked(usize::from(lease_ms.is_some()))?;
            let token = match (token, with_token) {
                ([], false) => Token::None,
                (&[token], true) if token > last_token => Token::Known(token),
                _ => return None,
            };
            (lease == lease_ms.as_slice()).then_some(token)
        };
        let fits = match (
            operation,
            reply.word.as_str(),
            &reply.numbers[..],
            self.before,
        ) {
            (Operation::Acquire, "ACQUIRED", &[used, limit, ref rest @ ..], _) => {
                let fits = (weight..=seats).contains(&used) && limit == seats && was_free;
                let granted = |token| self.request.granted(token, self.asked_ms, now_ms());
                token(rest, lease_ms).filter(|_| fits).map(granted)
            }
            (Operation::Acquire, "ALREADY_ACTIVE", &[used, ref rest @ ..], State::Held(hold)) => {
                let fits = (hold.weight..=seats).contains(&used) && reply.replaced.is_none();
                token(rest, None).filter(|_| fits).map(|token| {
                    let token = if with_token { token } else { hold.token };
                    State::Held(Hold { token, ..hold })
                })
            }
            (Operation::Acquire, "NO_SEATS_AVAILABLE", &[used, limit], _) => {
                // Seats may be kept for those ahead of one that waited in vain.
                let is_full = used + weight > seats || block_ms.is_some();
                let fits = !queues && is_full && used <= seats && limit == seats && was_free;
                fits.then_some(State::Free)
            }
            (Operation::Acquire, "OWNER_LIMIT", &[held, max], _) => {
                let fits = owner.is_some() && held == MAX_PER_OWNER && max == MAX_PER_OWNER;
                (fits && was_free).then_some(State::Free)
            }
            (Operation::Acquire, "QUEUED", &[used, limit, position], before) => {
                let fits = queues && (0..=seats).contains(&used) && limit == seats && position >= 1;
                let answered = Some(Instant::now());
                let waiting = match before {
                    // Unless it lost its ticket by the limit of its owner, and has joined anew.
                    State::Waiting { asked, .. } if owner.is_some() => {
                        State::Waiting { asked, answered }
                    }
                    State::Waiting { .. } => before,
                    State::Free | State::Held(_) => State::Waiting {
                        asked: self.asked,
                        answered,
                    },
                };
                (fits && was_free).then_some(waiting)
            }
            (Operation::Heartbeat, "HEARTBEAT_UPDATED", numbers, State::Held(hold)) => {
                let lease = |lease: Lease| Lease::from(lease.length_ms, self.asked_ms, now_ms());
                let heartbeats = hold.heartbeats + 1;
                (numbers == [heartbeats] && !is_void).then(|| {
                    State::Held(Hold {
                        heartbeats,
                        lease: hold.lease.map(lease),
                        ..hold
                    })
                })
            }
            (Operation::Heartbeat, "SESSION_NOT_ACTIVE", [], State::Held(_))
            | (Operation::Release, "SESSION_NOT_FOUND", [], State::Held(_)) => {
                if is_void {
                    Some(self.before)
                } else {
                    was_free.then_some(State::Free)
                }
            }
            (Operation::Release, "RELEASED", &[used], State::Held(hold)) => {
                // The seats may have gone to a client that was blocked for them.
                let most = if kind.has_queue() {
                    seats
                } else {
                    seats - hold.weight
                };
                ((0..=most).contains(&used) && !is_void).then_some(State::Free)
            }
            (Operation::Release, "SESSION_NOT_FOUND", [], State::Waiting { .. }) => {
                Some(State::Free)
            }
            _ => None,
        };
        fits.unwrap_or_else(|| {
            panic!(
                "{:?} in {} from {:?}: {reply:?}",
                self.request, self.pool.name, self.before
            )
        })
    }
}
