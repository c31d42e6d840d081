//! Many clients at once, judged by nothing but the replies that they got.
//!
//! A client knows two things about a seat of its own. It *surely* holds it from the reply to
//! ACQUIRE until it sends RELEASE, for the server granted before that and takes back after. It
//! *possibly* holds it from sending ACQUIRE until the reply to RELEASE. So at no instant may more
//! than `seats` clients surely hold one pool, or the pool was overbooked; and during each denied
//! call there must be an instant at which `seats` clients possibly held it, or a free seat was
//! refused.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redis::{Connection, Value};

use crate::support::{Server, workload};

const CLIENTS: usize = 64;
const POOLS: usize = 8;

/// For how long the clients ask, and for how long at most if they have not had enough answers.
const RUN: Duration = Duration::from_secs(3);
const LONGEST_RUN: Duration = Duration::from_secs(60);

/// How many grants, and how many denials, prove something.
const ENOUGH: usize = 1000;

/// The callers of the last pool do not agree about its limit; those of the others do: 1 to 7.
const DISPUTED: usize = POOLS - 1;
const HIGHEST_DISPUTED: i64 = 4;

/// A seat from its grant to its release, as its client saw it; seats that are held at the end have
/// no release.
struct Tenure {
    asked: Instant,
    granted: Instant,
    giving_back: Option<Instant>,
    given_back: Option<Instant>,
}

struct Denial {
    asked: Instant,
    answered: Instant,
    seats: i64,
}

/// How far all clients are.
#[derive(Default)]
struct Progress {
    grants: AtomicUsize,
    denials: AtomicUsize,
    /// Whether what was to happen meanwhile has happened. Only what comes after that is counted.
    is_over: AtomicBool,
}

impl Progress {
    fn counts(&self, answers: &AtomicUsize) {
        if self.is_over.load(SeqCst) {
            answers.fetch_add(1, SeqCst);
        }
    }

    fn is_enough(&self) -> bool {
        let answers = [&self.grants, &self.denials];
        answers.iter().all(|count| count.load(SeqCst) > ENOUGH)
    }
}

/// What one client saw in one pool.
#[derive(Default)]
struct Seen {
    tenures: Vec<Tenure>,
    denials: Vec<Denial>,
    /// The heartbeats of the seat that it holds, if it holds one.
    holding: Option<i64>,
}

/// How a client asks.
#[derive(Clone, Copy)]
pub enum Speech<'a> {
    /// By the commands.
    Commands,
    /// By the scripts, with these SHA1s for ACQUIRE, HEARTBEAT and RELEASE.
    Scripts([&'a str; 3]),
}

impl Speech<'_> {
    fn command(self, number: usize) -> redis::Cmd {
        match self {
            Speech::Commands => {
                redis::cmd(["SEAT.ACQUIRE", "SEAT.HEARTBEAT", "SEAT.RELEASE"][number])
            }
            Speech::Scripts(shas) => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(shas[number]).arg(1);
                command
            }
        }
    }
}

#[test]
fn no_pool_ever_has_more_holders_than_seats() {
    let server = Server::builder().shipped_grace().start();
    judge(&server, |_| Speech::Commands, || {});
}

/// Has many clients at once ask as `speech` says of each, while `meanwhile` runs here, and judges
/// what they got. `speech` is called in the client's thread, just before it begins.
pub fn judge<'a>(
    server: &Server,
    speech: impl Fn(usize) -> Speech<'a> + Sync,
    meanwhile: impl FnOnce(),
) {
    let seed = workload::seed();
    // The seed fixes what each client does, not how the clients interleave.

    let barrier = Barrier::new(CLIENTS);
    let (speech, progress) = (&speech, &Progress::default());
    let seen: Vec<[Seen; POOLS]> = thread::scope(|scope| {
        let client = |n: usize| {
            let (connection, barrier) = (server.client(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                let random = Rng::with_seed(seed.wrapping_add(n as u64));
                run_client(n, speech(n), connection, random, progress)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        meanwhile();
        progress.is_over.store(true, SeqCst);
        clients
            .into_iter()
            .map(|client| {
                client
                    .join()
                    .expect("each reply fits what the client knows")
            })
            .collect()
    });

    let mut client = server.client();
    let (mut grants, mut denials) = (0, 0);
    for pool in 0..POOLS {
        let tenures: Vec<_> = seen.iter().flat_map(|seen| &seen[pool].tenures).collect();
        let limit = if pool == DISPUTED {
            HIGHEST_DISPUTED
        } else {
            seats(pool)
        };
        let most = highest(&steps(
            tenures
                .iter()
                .map(|tenure| (tenure.granted, tenure.giving_back, 1)),
        ));
        assert!(
            most <= limit,
            "pool {pool} surely had {most} holders of {limit} seats"
        );

        let possible = steps(
            tenures
                .iter()
                .map(|tenure| (tenure.asked, tenure.given_back, 1)),
        );
        for denial in seen.iter().flat_map(|seen| &seen[pool].denials) {
            let held = highest_between(&possible, denial.asked, denial.answered);
            assert!(
                held >= denial.seats,
                "pool {pool} denied with at most {held} holders of {} seats",
                denial.seats
            );
            denials += 1;
        }
        grants += tenures.len();

        // Whatever the scripts' callers have left elsewhere is the pool's from here on.
        redis::cmd("SEAT.CLEANUP")
            .arg(name(pool))
            .exec(&mut client)
            .unwrap();
        let sessions: BTreeSet<String> = redis::cmd("SEAT.SESSIONS")
            .arg(name(pool))
            .query(&mut client)
            .unwrap();
        let holders = (0..CLIENTS)
            .filter(|&n| seen[n][pool].holding.is_some())
            .map(session)
            .collect();
        assert_eq!(sessions, holders, "pool {pool} at the end");
    }
    writeln!(
        io::stderr(),
        "overbooking: {grants} grants and {denials} denials checked"
    )
    .expect("stderr");
    assert!(
        grants > ENOUGH && denials > ENOUGH,
        "{grants} grants and {denials} denials prove little"
    );
}

/// The pools that [`judge`] works on.
pub fn pools() -> impl Iterator<Item = String> {
    (0..POOLS).map(name)
}

fn name(pool: usize) -> String {
    format!("pool-{pool}")
}

fn session(client: usize) -> String {
    format!("session-{client}")
}

fn seats(pool: usize) -> i64 {
    pool as i64 + 1
}

/// Acquires, keeps and releases at random, and holds each reply against what it knows of its own
/// seat.
fn run_client(
    n: usize,
    speech: Speech<'_>,
    mut connection: Connection,
    mut random: Rng,
    progress: &Progress,
) -> [Seen; POOLS] {
    let mut seen: [Seen; POOLS] = Default::default();
    let session = session(n);
    let begun = Instant::now();
    let goes_on = || {
        let since = begun.elapsed();
        since < RUN || since < LONGEST_RUN && !progress.is_enough()
    };
    while goes_on() {
        // Half of the time a pool in which it holds a seat, for with 64 clients that is a rare one.
        let held: Vec<_> = (0..POOLS)
            .filter(|&pool| seen[pool].holding.is_some())
            .collect();
        let pool = match random.bool() {
            true => random.choice(held).unwrap_or_else(|| random.usize(..POOLS)),
            false => random.usize(..POOLS),
        };
        let limit = if pool == DISPUTED {
            random.i64(1..=HIGHEST_DISPUTED)
        } else {
            seats(pool)
        };
        let seen = &mut seen[pool];
        let mut ask = |number: usize, argument: Option<i64>, metadata: Option<&str>| {
            let mut command = speech.command(number);
            command
                .arg(name(pool))
                .arg(&session)
                .arg(argument)
                .arg(metadata);
            let asked = Instant::now();
            let reply: Vec<Value> = command.query(&mut connection).expect("an answer");
            (asked, words(&reply), Instant::now())
        };
        match random.u8(..10) {
            0..5 => {
                let (asked, reply, answered) = ask(0, Some(limit), Some(r#"{"n":1}"#));
                match (reply.0.as_str(), &reply.1[..]) {
                    ("ACQUIRED", &[used, seats]) => {
                        assert!(seen.holding.is_none(), "granted twice");
                        assert!(
                            seats == limit && (1..=limit).contains(&used),
                            "{reply:?} of {limit}"
                        );
                        seen.tenures.push(Tenure {
                            asked,
                            granted: answered,
                            giving_back: None,
                            given_back: None,
                        });
                        seen.holding = Some(0);
                        progress.counts(&progress.grants);
                    }
                    ("ALREADY_ACTIVE", &[used]) => {
                        assert!(seen.holding.is_some(), "active without a grant");
                        assert!(
                            used >= 1 && (used <= limit || pool == DISPUTED),
                            "{reply:?} of {limit}"
                        );
                    }
                    ("NO_SEATS_AVAILABLE", &[used, seats]) => {
                        assert!(seen.holding.is_none(), "denied what it has");
                        let full = if pool == DISPUTED {
                            used >= limit
                        } else {
                            used == limit
                        };
                        assert!(seats == limit && full, "{reply:?} of {limit}");
                        seen.denials.push(Denial {
                            asked,
                            answered,
                            seats,
                        });
                        progress.counts(&progress.denials);
                    }
                    _ => panic!("not an answer of ACQUIRE: {reply:?}"),
                }
            }
            5..8 => {
                let (_, reply, _) = ask(1, None, None);
                match (reply.0.as_str(), &reply.1[..], &mut seen.holding) {
                    ("HEARTBEAT_UPDATED", &[count], Some(heartbeats)) => {
                        *heartbeats += 1;
                        assert_eq!(
                            count, *heartbeats,
                            "a heartbeat was lost or came from elsewhere"
                        );
                    }
                    ("SESSION_NOT_ACTIVE", &[], None) => {}
                    (.., holding) => panic!("{reply:?} to a heartbeat when holding {holding:?}"),
                }
            }
            _ => {
                let (asked, reply, answered) = ask(2, None, None);
                match (reply.0.as_str(), &reply.1[..], seen.holding.take()) {
                    ("RELEASED", &[used], Some(_)) => {
                        assert!(
                            (0..limit).contains(&used) || pool == DISPUTED,
                            "{reply:?} of {limit}"
                        );
                        let tenure = seen.tenures.last_mut().expect("a grant before its release");
                        tenure.giving_back = Some(asked);
                        tenure.given_back = Some(answered);
                    }
                    ("SESSION_NOT_FOUND", &[], None) => {}
                    (.., holding) => panic!("{reply:?} to a release when holding {holding:?}"),
                }
            }
        }
    }
    seen
}

/// The status word and the numbers after it.
pub fn words(reply: &[Value]) -> (String, Vec<i64>) {
    let [Value::Int(0 | 1), Value::BulkString(word), numbers @ ..] = reply else {
        panic!("not a seat reply: {reply:?}")
    };
    let number = |value: &Value| match value {
        Value::Int(number) => *number,
        other => panic!("not a number: {other:?}"),
    };
    (
        String::from_utf8_lossy(word).into_owned(),
        numbers.iter().map(number).collect(),
    )
}

/// The weight of the intervals that are open, from each instant on; where one ends as another
/// begins, the end counts first.
pub fn steps(
    intervals: impl Iterator<Item = (Instant, Option<Instant>, i64)>,
) -> Vec<(Instant, i64)> {
    let mut changes = Vec::new();
    for (from, until, weight) in intervals {
        changes.push((from, weight));
        changes.extend(until.map(|until| (until, -weight)));
    }
    changes.sort();
    let mut open = 0;
    for (_, change) in &mut changes {
        open += *change;
        *change = open;
    }
    changes
}

pub fn highest(steps: &[(Instant, i64)]) -> i64 {
    steps.iter().map(|&(_, open)| open).max().unwrap_or(0)
}

/// The highest step from the one that holds at `from` to the one that holds at `until`.
fn highest_between(steps: &[(Instant, i64)], from: Instant, until: Instant) -> i64 {
    let first = steps
        .partition_point(|&(at, _)| at < from)
        .saturating_sub(1);
    let end = steps.partition_point(|&(at, _)| at <= until);
    highest(&steps[first..end])
}

#[test]
fn the_judgement_sees_overbooking_and_needless_denials() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let apart = [
        (at(0), Some(at(5)), 1),
        (at(5), Some(at(9)), 1),
        (at(10), None, 1),
    ];
    let apart = steps(apart.into_iter());
    assert_eq!(highest(&apart), 1);
    assert_eq!(highest_between(&apart, at(9), at(9)), 1);
    let together = [
        (at(0), Some(at(6)), 1),
        (at(5), Some(at(9)), 1),
        (at(7), None, 1),
    ];
    let together = steps(together.into_iter());
    assert_eq!(highest(&together), 2);
    assert_eq!(highest_between(&together, at(1), at(4)), 1);
    assert_eq!(highest_between(&together, at(5), at(5)), 2);
    assert_eq!(highest_between(&together, at(10), at(20)), 1);
    assert_eq!(highest_between(&steps([].into_iter()), at(0), at(1)), 0);
    let heavy = [(at(0), Some(at(2)), 3), (at(1), Some(at(3)), 2)];
    assert_eq!(highest(&steps(heavy.into_iter())), 5);
}
