//! What clients were answered, kept outside the servers, and held against what a server says after
//! a fault.
//!
//! A client knows of each of its sessions in which states it can be. An answer leaves one. A call
//! whose answer was lost, or that a failover may undo, leaves the state before it in addition to
//! those after it, and the session is left alone until an [`audit`] has looked. So an audit that
//! finds a state which is not on the list has found something lost, or something that came back.

use std::collections::{HashMap, HashSet};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redis::{Cmd, Connection, ConnectionLike, RedisError, RedisResult, Value, cmd};

use crate::overbooking::{highest, steps, words};
use crate::support::{Dialog, Server, eventually, now_ms};

/// Of each client in each pool.
const SESSIONS: usize = 16;

/// A ticket that no test outlasts.
const TICKET_MS: i64 = 600_000;

const HOUR_MS: i64 = 3_600_000;

/// Both clocks are the machine's, in whole milliseconds.
const ROUNDING_MS: i64 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sessions without a lease, or with one of an hour.
    Lasting,
    /// Leases of a fraction of a second.
    Brief,
    /// As lasting, and whoever finds no seat gets a ticket.
    Queued,
}

/// A pool for which the clients compete.
pub struct Pool {
    pub name: String,
    pub seats: i64,
    kind: Kind,
}

/// Pools of all three kinds by turns, each with fewer seats than sessions that want one.
pub fn pools(names: impl IntoIterator<Item: Into<String>>) -> Arc<[Pool]> {
    let kinds = [(Kind::Lasting, 24), (Kind::Brief, 12), (Kind::Queued, 5)];
    let pool = |(name, (kind, seats)): (_, (Kind, i64))| Pool { name, seats, kind };
    let names = names.into_iter().map(Into::into);
    names.zip(kinds.into_iter().cycle()).map(pool).collect()
}

/// A lease, by when it can end. The server took its deadline between a call and its answer.
#[derive(Clone, Copy, Debug)]
struct Lease {
    length_ms: i64,
    earliest_ms: i64,
    latest_ms: i64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Free,
    /// With a ticket, for which it asked and of which it heard at these times.
    Waiting {
        asked: Instant,
        answered: Option<Instant>,
    },
    Held {
        heartbeats: i64,
        lease: Option<Lease>,
    },
}

/// What a server says of a session. A deadline is known to a few milliseconds.
#[derive(Clone, Copy, Debug)]
enum Found {
    Free,
    Waiting,
    Held {
        heartbeats: i64,
        deadline_ms: Option<(i64, i64)>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Acquire,
    Heartbeat,
    Release,
}

/// From when until when a session surely held a seat.
struct Tenure {
    from: Instant,
    until: Option<Instant>,
}

struct Entry {
    /// One, unless an answer is missing.
    states: Vec<State>,
    /// The last tenure of the pool's, while it lasts.
    tenure: Option<usize>,
}

/// A client, with the ledger of its own sessions.
pub struct Client {
    number: usize,
    pools: Arc<[Pool]>,
    random: Rng,
    /// By pool and session.
    entries: Vec<Vec<Entry>>,
    /// By pool.
    tenures: Vec<Vec<Tenure>>,
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}

impl Lease {
    fn from(length_ms: i64, asked_ms: i64, answered_ms: i64) -> Self {
        Self {
            length_ms,
            earliest_ms: asked_ms + length_ms - ROUNDING_MS,
            latest_ms: answered_ms.saturating_add(length_ms + ROUNDING_MS),
        }
    }

    /// Until when it surely lasts, if it was asked for at this time.
    fn lasts_from(&self, asked: Instant) -> Instant {
        asked + millis(self.length_ms - ROUNDING_MS)
    }
}

impl State {
    /// Whether a lease can have ended by this time.
    fn can_have_expired(&self, by_ms: i64) -> bool {
        matches!(self, Self::Held { lease: Some(lease), .. } if lease.earliest_ms <= by_ms)
    }

    fn allows(&self, found: &Found, by_ms: i64) -> bool {
        match (self, found) {
            (Self::Free, Found::Free) | (Self::Waiting { .. }, Found::Waiting) => true,
            (Self::Held { .. }, Found::Free) => self.can_have_expired(by_ms),
            (
                Self::Held { heartbeats, lease },
                Found::Held {
                    heartbeats: found,
                    deadline_ms,
                },
            ) => {
                heartbeats == found
                    && match (lease, deadline_ms) {
                        (None, None) => true,
                        (Some(lease), Some((low, high))) => {
                            *low <= lease.latest_ms && *high >= lease.earliest_ms
                        }
                        _ => false,
                    }
            }
            _ => false,
        }
    }
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

    fn session(&self, n: usize) -> String {
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

/// The states in which a call without an answer can leave a session, besides the one before.
fn possible(
    operation: Operation,
    before: State,
    lease_ms: Option<i64>,
    asked: Instant,
    asked_ms: i64,
) -> Vec<State> {
    let lease = |length_ms| Lease::from(length_ms, asked_ms, i64::MAX);
    match (operation, before) {
        (Operation::Acquire, State::Held { .. }) => vec![State::Held {
            heartbeats: 0,
            lease: None,
        }],
        (Operation::Acquire, State::Free | State::Waiting { .. }) => vec![
            State::Held {
                heartbeats: 0,
                lease: lease_ms.map(lease),
            },
            State::Waiting {
                asked,
                answered: None,
            },
        ],
        (
            Operation::Heartbeat,
            State::Held {
                heartbeats,
                lease: held,
            },
        ) => vec![State::Held {
            heartbeats: heartbeats + 1,
            lease: held.map(|held| lease(held.length_ms)),
        }],
        (Operation::Heartbeat | Operation::Release, _) => vec![State::Free],
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

/// How a client gets at whoever takes writes at present.
pub trait Link: Send + 'static {
    /// A new connection, if there is somebody to connect to.
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>>;

    /// Whether the last answer holds, whatever happens.
    fn confirmed(&mut self, connection: &mut dyn ConnectionLike) -> bool {
        let _ = connection;
        true
    }

    /// Whether a client of such a link meets this error and connects anew.
    fn expects(&self, error: &RedisError) -> bool {
        !error.is_timeout() && (error.is_io_error() || error.is_connection_dropped())
    }
}

/// Clients at work in the background.
pub struct Load {
    threads: Vec<JoinHandle<Client>>,
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Load {
    pub fn start<L: Link + Clone>(clients: Vec<Client>, link: &L) -> Self {
        let answered = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = clients.into_iter().map(|client| {
            let (link, answered, stop) = (link.clone(), Arc::clone(&answered), Arc::clone(&stop));
            thread::spawn(move || work(client, link, &answered, &stop))
        });
        Self {
            threads: threads.collect(),
            answered,
            stop,
        }
    }

    /// Returns once so many more calls are answered and confirmed.
    #[track_caller]
    pub fn goes_on(&self, calls: usize) {
        let before = self.answered.load(SeqCst);
        eventually("calls are answered", || {
            let broken = self.threads.iter().any(JoinHandle::is_finished);
            broken || self.answered.load(SeqCst) >= before + calls
        });
    }

    /// How many calls were answered so far.
    pub fn answered(&self) -> usize {
        self.answered.load(SeqCst)
    }

    /// Ends the work, and hands over the ledgers.
    pub fn stop(mut self) -> Vec<Client> {
        self.stop.store(true, SeqCst);
        let threads = self.threads.drain(..);
        threads
            .map(|thread| thread.join().expect("a client whose answers all fit"))
            .collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

fn work(
    mut client: Client,
    mut link: impl Link,
    answered: &AtomicUsize,
    stop: &AtomicBool,
) -> Client {
    let mut connection = None;
    while !stop.load(SeqCst) {
        let Some(connected) = &mut connection else {
            connection = link.connect();
            if connection.is_none() {
                thread::sleep(Duration::from_millis(2));
            }
            continue;
        };
        match client.step(&mut **connected, |connection| link.confirmed(connection)) {
            Ok(true) => {
                answered.fetch_add(1, SeqCst);
            }
            // Perhaps there is another primary by now.
            Ok(false) => connection = None,
            Err(error) if link.expects(&error) => connection = None,
            Err(error) => panic!("client {}: {error}", client.number),
        }
    }
    client
}

/// The link to one server over its socket.
#[derive(Clone)]
pub struct Socket(pub PathBuf);

impl Link for Socket {
    fn connect(&mut self) -> Option<Box<dyn ConnectionLike + Send>> {
        let connection = connect(&self.0)?;
        Some(Box::new(connection))
    }
}

/// A connection, if somebody listens at the socket.
pub fn connect(socket: &Path) -> Option<Connection> {
    let url = format!("redis+unix://{}", socket.display());
    let client = redis::Client::open(url).expect("a valid address");
    let connection = client.get_connection().ok()?;
    let patience = Some(Duration::from_secs(30));
    connection.set_read_timeout(patience).expect("a timeout");
    Some(connection)
}

/// Changes something of which no client knows.
type Meddle = fn(&mut Dialog);

/// Whether an audit notices a change of which no client knows.
fn is_noticed(meddle: Meddle) -> bool {
    let server = Server::start();
    let mut clients = Client::several(3, &pools(["lasting", "brief", "queued"]), 1);
    let mut dialog = Dialog::with(&server);
    // More tickets than clients, so that one of these has two, whose order is known.
    let mut are_there = || dialog.sessions("lasting").len() > 1 && dialog.queue("queued").len() > 3;
    // They come and go, so there may be none by the time that the load has stopped.
    loop {
        let load = Load::start(clients, &Socket(server.socket()));
        eventually("there are holders and tickets", &mut are_there);
        clients = load.stop();
        if are_there() {
            break;
        }
    }
    audit(&mut server.client(), &mut clients, "before");
    meddle(&mut dialog);
    panic::catch_unwind(AssertUnwindSafe(|| {
        audit(&mut server.client(), &mut clients, "after");
    }))
    .is_err()
}

#[test]
fn an_audit_sees_what_was_lost_and_what_came_back() {
    fn first(dialog: &mut Dialog) -> String {
        dialog.sessions("lasting").remove(0)
    }
    let meddlers: [(&str, Meddle); 6] = [
        ("a seat is lost", |dialog| {
            let session = first(dialog);
            dialog.expect(&format!("SEAT.REVOKE lasting {session}"), "1");
        }),
        ("a stranger holds one", |dialog| {
            dialog.acquire("lasting", "stranger", 1000, "{}");
        }),
        ("a heartbeat is one too many", |dialog| {
            let session = first(dialog);
            dialog.contains(
                &format!("SEAT.HEARTBEAT lasting {session}"),
                "HEARTBEAT_UPDATED",
            );
        }),
        ("a lease is longer", |dialog| {
            for session in dialog.sessions("lasting") {
                dialog.ask(&format!("SEAT.ACQUIRE lasting {session} 1 EX 90000"));
            }
        }),
        ("a ticket is lost", |dialog| {
            let session = dialog.queue("queued").remove(0);
            let lost = "[0, SESSION_NOT_FOUND]";
            dialog.expect(&format!("SEAT.RELEASE queued {session}"), lost);
        }),
        (
            "a ticket is behind one that its client took later",
            |dialog| {
                let queue = dialog.queue("queued");
                let client = |session: &str| {
                    session
                        .split_once("-session-")
                        .map(|(client, _)| client.to_owned())
                };
                let is_of_two = |at: usize| {
                    queue[at + 1..]
                        .iter()
                        .any(|later| client(later) == client(&queue[at]))
                };
                let at = (0..queue.len())
                    .find(|&at| is_of_two(at))
                    .expect("more tickets than clients");
                let session = &queue[at];
                dialog.ask(&format!("SEAT.RELEASE queued {session}"));
                let join = format!("SEAT.ACQUIRE queued {session} 5 QUEUE 600000");
                dialog.contains(&join, "QUEUED");
            },
        ),
    ];
    assert!(!is_noticed(|_| {}), "nothing has changed");
    for (what, meddle) in meddlers {
        assert!(is_noticed(meddle), "{what}");
    }
}
