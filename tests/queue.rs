//! The queue: who is granted a seat, when, and in which order. What is special to tickets is in `tickets`.

mod bad_input;
mod barging;
mod events;
mod figures;
mod freed_seats;
mod introspection;
mod limits;
mod persistence;
mod positions;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::dialog::{Dialog, replicated};
use crate::support::{Server, eventually};

/// A client that is blocked by `command`, once its session waits.
#[track_caller]
pub fn blocked(server: &Server, command: &str) -> Dialog {
    let mut client = Dialog::with(server);
    block(&mut Dialog::with(server), &mut client, command);
    client
}

/// Has `client` be blocked by `command`, an ACQUIRE of a session that does not wait yet.
#[track_caller]
pub fn block(witness: &mut Dialog, client: &mut Dialog, command: &str) {
    let words: Vec<_> = command.split(' ').collect();
    let position = format!("SEAT.POSITION {} {}", words[1], words[2]);
    witness.expect(&position, "nil");
    client.send(command);
    eventually(command, || witness.ask(&position) != "nil");
}

/// The sessions that wait, in order, each with the milliseconds since it joined.
#[track_caller]
pub fn queue(dialog: &mut Dialog, key: &str) -> Vec<(String, i64)> {
    let reply = dialog.raw(&["SEAT.QUEUE", key]);
    let reply = redis::parse_redis_value(&reply).expect("a reply");
    let waiters: Vec<redis::Value> = redis::from_redis_value(reply).expect("an array");
    let waiters = waiters.into_iter();
    waiters
        .map(|waiter| redis::from_redis_value(waiter).expect("a session and milliseconds"))
        .collect()
}

/// The sessions that wait, in order.
#[track_caller]
pub fn waiting(dialog: &mut Dialog, key: &str) -> Vec<String> {
    let waiters = queue(dialog, key).into_iter();
    waiters.map(|(session, _)| session).collect()
}

/// What a server replicated while `actions` ran: the effects on pools, the present time as `T`, those of one unit together.
#[track_caller]
pub fn units(server: &Server, actions: impl FnOnce()) -> Vec<Vec<String>> {
    let mut units = Vec::new();
    let mut open: Option<Vec<String>> = None;
    for line in replicated(server, actions) {
        match (line.as_str(), &mut open) {
            ("MULTI", None) => open = Some(Vec::new()),
            ("EXEC", Some(_)) => units.extend(open.take()),
            ("MULTI", Some(_)) | ("EXEC", None) => panic!("{line} out of place"),
            (line, Some(unit)) => unit.push(effect(line)),
            (line, None) => units.push(vec![effect(line)]),
        }
    }
    assert!(open.is_none(), "a unit without an end: {open:?}");
    // Servers before 7.0 pass on empty transactions.
    units.retain(|unit| !unit.is_empty());
    units
}

#[track_caller]
fn effect(line: &str) -> String {
    let effect = line.strip_prefix("SEAT.EFFECT ");
    let effect = effect.unwrap_or_else(|| panic!("not an effect: {line}"));
    let now_ms = now_ms();
    let recent = |time: i64| (now_ms - time).abs() < 1_000_000;
    let words: Vec<_> = effect
        .split(' ')
        .map(|word| match word.parse::<i64>() {
            Ok(time) if recent(time) || recent(time.saturating_mul(1000)) => "T",
            _ => word,
        })
        .collect();
    words.join(" ")
}

pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_millis() as i64
}

/// A server that records, and takes effects from clients.
pub fn recording() -> Server {
    Server::builder()
        .recording()
        .module_args("allow-effects yes")
        .start()
}

pub const NOTHING: [Vec<String>; 0] = [];
