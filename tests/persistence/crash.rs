//! `kill -9` under `appendfsync always`: nothing acknowledged is lost, nothing released comes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use fastrand::Rng;

use crate::dialog::Dialog;
use crate::support::{Server, eventually};
use crate::workload;

const CLIENTS: usize = 4;
const POOLS: usize = 3;
const SESSIONS: usize = 40;
const ROUNDS: usize = 4;
/// Acknowledged operations before a round's kill.
const ENOUGH: usize = 400;

/// What a client knows of a session of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Its seat was taken back, or was never granted.
    Free,
    /// Granted, with so many heartbeats acknowledged.
    Held(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Acquire,
    Heartbeat,
    Release,
}

/// A client's own sessions, and the operation that the crash left without an answer.
#[derive(Clone, Default)]
struct Ledger {
    known: HashMap<(usize, usize), Known>,
    unanswered: Option<((usize, usize), Operation)>,
}

fn pool(n: usize) -> String {
    format!("pool-{n}")
}

fn session(client: usize, n: usize) -> String {
    format!("client-{client}-session-{n}")
}

fn metadata(n: usize) -> String {
    format!(r#"{{"n":{n}}}"#)
}

/// Works until the server is gone.
fn work(
    client: usize,
    mut connection: redis::Connection,
    mut ledger: Ledger,
    mut random: Rng,
    acknowledged: &AtomicUsize,
) -> Ledger {
    ledger.unanswered = None;
    loop {
        let place = (random.usize(..POOLS), random.usize(..SESSIONS));
        let known = *ledger.known.entry(place).or_insert(Known::Free);
        let operation = match known {
            Known::Free => Operation::Acquire,
            Known::Held(_) if random.bool() => Operation::Heartbeat,
            Known::Held(_) => Operation::Release,
        };
        let (key, id) = (pool(place.0), session(client, place.1));
        let mut command = match operation {
            Operation::Acquire => redis::cmd("SEAT.ACQUIRE"),
            Operation::Heartbeat => redis::cmd("SEAT.HEARTBEAT"),
            Operation::Release => redis::cmd("SEAT.RELEASE"),
        };
        command.arg(key).arg(id);
        if operation == Operation::Acquire {
            command.arg(1000).arg(metadata(place.1));
        }
        ledger.unanswered = Some((place, operation));
        let Ok(reply) = command.query::<Vec<redis::Value>>(&mut connection) else {
            return ledger;
        };
        assert_eq!(reply[0], redis::Value::Int(1), "{operation:?}: {reply:?}");
        ledger.unanswered = None;
        let now = match (operation, known) {
            (Operation::Acquire, _) => Known::Held(0),
            (Operation::Heartbeat, Known::Held(count)) => Known::Held(count + 1),
            _ => Known::Free,
        };
        ledger.known.insert(place, now);
        acknowledged.fetch_add(1, SeqCst);
    }
}

/// What the server holds of a session.
fn found(dialog: &mut Dialog, client: usize, place: (usize, usize)) -> Known {
    let (key, id) = (pool(place.0), session(client, place.1));
    if dialog.ask(&format!("SEAT.GET {key} {id}")) == "nil" {
        return Known::Free;
    }
    let json = dialog.bytes(&["SEAT.GET", &key, &id]);
    let read: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(read["n"], place.1, "the metadata of {id}");
    Known::Held(
        read.get("heartbeat_count")
            .map_or(0, |count| count.as_i64().expect("a count")),
    )
}

/// Holds each ledger against the server, and brings it up to date where an answer was lost.
fn audit(server: &Server, ledgers: &mut [Ledger], context: &str) {
    let mut dialog = Dialog::with(server);
    let mut held = [0; POOLS];
    for (client, ledger) in ledgers.iter_mut().enumerate() {
        let unanswered = ledger.unanswered;
        for (&place, known) in &mut ledger.known {
            let now = found(&mut dialog, client, place);
            let after = match (unanswered, *known) {
                (Some((at, Operation::Acquire)), _) if at == place => Known::Held(0),
                (Some((at, Operation::Release)), _) if at == place => Known::Free,
                (Some((at, Operation::Heartbeat)), Known::Held(count)) if at == place => {
                    Known::Held(count + 1)
                }
                _ => *known,
            };
            assert!(
                now == *known || now == after,
                "{context}: {} in {}: {known:?} was acknowledged, {unanswered:?} was under way, {now:?} is there",
                session(client, place.1),
                pool(place.0)
            );
            *known = now;
            held[place.0] += usize::from(now != Known::Free);
        }
    }
    for (n, held) in held.into_iter().enumerate() {
        assert_eq!(
            dialog.number(&format!("SEAT.COUNT {}", pool(n))),
            held as i64,
            "{context}: {}",
            pool(n)
        );
    }
}

fn crash_again_and_again(preamble: &str) {
    let seed = workload::seed();
    let mut server = Server::builder().recording().config(preamble).start();
    let mut ledgers = vec![Ledger::default(); CLIENTS];
    for round in 0..ROUNDS {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = ledgers
            .drain(..)
            .enumerate()
            .map(|(client, ledger)| {
                let (connection, acknowledged) = (server.client(), Arc::clone(&acknowledged));
                let random = Rng::with_seed(seed.wrapping_add((round * CLIENTS + client) as u64));
                thread::spawn(move || work(client, connection, ledger, random, &acknowledged))
            })
            .collect();
        eventually("enough operations are acknowledged", || {
            acknowledged.load(SeqCst) >= ENOUGH
        });
        if round == 1 {
            // The next crash may come in the middle of a rewrite, or after it.
            let reply = Dialog::with(&server).ask("BGREWRITEAOF");
            assert!(reply.starts_with('+'), "{reply}");
            eventually("more operations are acknowledged", || {
                acknowledged.load(SeqCst) >= 2 * ENOUGH
            });
        }
        server.kill9();
        ledgers = clients
            .into_iter()
            .map(|client| client.join().expect("a client's ledger"))
            .collect();
        server.restart();
        audit(
            &server,
            &mut ledgers,
            &format!("SEAT_TEST_SEED={seed}, round {round}, {preamble}"),
        );
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_released_comes_back() {
    crash_again_and_again("aof-use-rdb-preamble no");
}

#[test]
fn nor_with_an_rdb_at_the_head_of_the_file() {
    crash_again_and_again("aof-use-rdb-preamble yes");
}
