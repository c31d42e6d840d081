//! Blocked clients: who waits at which name, how they are woken, and what becomes of a grant whose
//! client is gone.
//!
//! A waiter is known to the server by a number, which travels as the private data of the blocked
//! client. All else about it stands here, so that whatever end it comes to, nothing is owned by the
//! server's structures. The server reports the end by `on_free`; the client's handle is dead after
//! that.
//!
//! A waiter is woken by its handle, never by signalling the key, since a signal makes the server
//! call back for everybody who waits. Up to 7.0 that runs the waiter's callback at once, inside the
//! command that wakes it: so it comes last, after the key is closed.
//!
//! Whose turn it is decides the machine of `seat_pool`. This file holds what is known of the
//! waiters and of the names they wait at; [`blocked`] is what the server calls back for;
//! [`departed`] knows which pools moved away and were not deleted; [`waking`] answers the clients.

mod blocked;
mod departed;
mod waking;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::c_int;

use seat_pool::{AlreadyActive, BlockedQueue, Granted, MAX_ARRIVAL, MAX_TOKEN};

use crate::error::Error;
use crate::ffi::{BlockedClient, Ctx, Str};
use crate::replies::Asked;
use crate::{deadlines, stats};

pub(crate) use blocked::{block, finish_join, has_deferred, run_deferred, unblock_late};
pub(crate) use departed::{
    forget_departed, forget_saved, has_departed, value_deleted, value_saved,
};
pub(crate) use waking::{fail, unblock};

/// A waiter's number. Never 0, which the server would take for no private data.
pub(crate) type WaiterId = u64;

/// What blocks the client of a call for a session at a key of a database, for so many milliseconds
/// at most, and with what the call has asked for: [`block`]. Whoever opens the key passes it on,
/// since the callbacks that end a wait open keys themselves.
pub(crate) type BlockClient = fn(Ctx<'_>, c_int, Str<'_>, &[u8], i64, Asked) -> Option<WaiterId>;

/// Waiters that one command or tick serves at most; a timer goes on with the rest.
pub(crate) const BATCH: usize = 64;

/// How often a node of a cluster looks whether a key where clients are blocked is still its own.
pub(crate) const SLOT_CHECK_MS: i64 = 1000;

/// A name: the database's number and the key.
type Name = (c_int, Box<[u8]>);

struct Waiter {
    name: Name,
    session: Box<[u8]>,
    client: BlockedClient,
    /// Whether the command by which it joined is done with its pool: before that, nobody may wake
    /// it.
    may_be_woken: bool,
    /// The connection's number, by which it is known whether it is still there.
    connection: u64,
    asked: Asked,
    outcome: Outcome,
    /// As it was in the queue. Absent while it is there.
    left: Option<seat_pool::Waiter<WaiterId>>,
}

/// The answer that a waiter is to get.
pub(crate) enum Outcome {
    /// Nothing yet.
    Waiting,
    /// It was granted a seat.
    Granted(Granted),
    /// Its session has come to hold a seat otherwise.
    AlreadyActive(AlreadyActive),
    /// Its owner has so many live sessions, and may not have more than this.
    OwnerLimit(u64, u64),
    /// It will not get one.
    NoSeats,
    /// It cannot be served here.
    Failed(Error),
    /// It has its answer.
    Answered,
    /// It has been answered by way of a buffer of the server's, which it gets at the end of this
    /// turn if its wait is not ended before.
    AnsweredLater,
}

/// What must wait until the server can be written to.
enum Deferred {
    /// The seat of a session whose client was gone when it was granted.
    TakeBack(WaiterId, Box<Waiter>),
    /// The ticket of a client that went during its long poll: valid for its own time from that
    /// moment on.
    RenewTicket(Name, Box<[u8]>, u64),
    /// The news that a client has left the queue.
    PublishLeft(Name),
}

/// The blocked queues of one database, by key.
type Queues = HashMap<Box<[u8]>, Box<BlockedQueue<WaiterId>>>;

/// A grant whose client may be gone. It is known by the value that it is in, since a pool can move
/// before it is looked at again.
struct Unconfirmed {
    waiter: WaiterId,
    value: usize,
    name: Name,
    session: Box<[u8]>,
    /// Whether the value has gone from the name and not come under another.
    is_detached: bool,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<c_int, Queues>,
    /// A tree, since a hash table of very many would hold all up when it grows.
    waiters: BTreeMap<WaiterId, Waiter>,
    last_id: WaiterId,
    last_arrival: u64,
    last_token: u64,
    /// Those of the waiters who are to have a token.
    waiting_for_tokens: u64,
    /// Grants from the queue whose clients may not have their replies yet. Mostly none, at most
    /// those of one turn of the loop.
    unconfirmed: Vec<Unconfirmed>,
    deferred: VecDeque<Deferred>,
    /// Who is to be answered once the command by which it joined has ended.
    late: Vec<WaiterId>,
    /// Who is being woken at this moment.
    waking: Option<WaiterId>,
    /// Names under which another value may have come, whose tickets were not looked for yet.
    tickets_moved: HashSet<Name>,
    /// The same of those whose sessions were not looked for.
    sessions_moved: HashSet<Name>,
}

impl State {
    fn add_waiter(&mut self, id: WaiterId, waiter: Waiter) {
        self.waiting_for_tokens += u64::from(waiter.asked.token);
        self.waiters.insert(id, waiter);
        stats::BLOCKED_CLIENTS.set(self.waiters.len() as u64);
    }

    fn take_waiter(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id);
        let had_token = waiter.as_ref().is_some_and(|waiter| waiter.asked.token);
        self.waiting_for_tokens -= u64::from(had_token);
        stats::BLOCKED_CLIENTS.set(self.waiters.len() as u64);
        waiter
    }

    fn tokens_left(&self) -> u64 {
        LAST_TOKEN - self.last_token
    }

    fn forget_moves(&mut self, database: c_int, key: &[u8]) {
        if !(self.tickets_moved.is_empty() && self.sessions_moved.is_empty()) {
            let name = (database, key.into());
            self.tickets_moved.remove(&name);
            self.sessions_moved.remove(&name);
        }
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// The blocked queue of a name, taken out while its key is open.
pub(crate) fn take(database: c_int, key: &[u8]) -> Option<Box<BlockedQueue<WaiterId>>> {
    STATE.with_borrow_mut(|state| state.queues.get_mut(&database)?.remove(key))
}

/// Puts a blocked queue back where it was taken from. With the last of those who waited there goes
/// the note that the name is to be looked at.
pub(crate) fn put(database: c_int, key: &[u8], blocked: Box<BlockedQueue<WaiterId>>) {
    STATE.with_borrow_mut(|state| {
        if !blocked.is_empty() {
            let queues = state.queues.entry(database).or_default();
            queues.insert(key.into(), blocked);
        } else {
            state.forget_moves(database, key);
        }
    });
}

/// The connection of a waiter.
pub(crate) fn connection_of(waiter: WaiterId) -> Option<u64> {
    STATE.with_borrow(|state| Some(state.waiters.get(&waiter)?.connection))
}

/// Clients that are blocked at present.
pub(crate) fn blocked_clients() -> u64 {
    STATE.with_borrow(|state| state.waiters.len() as u64)
}

/// The next number in the order of arrival.
pub(crate) fn next_arrival() -> u64 {
    STATE.with_borrow_mut(|state| {
        state.last_arrival += 1;
        state.last_arrival
    })
}

/// The largest token.
const LAST_TOKEN: u64 = MAX_TOKEN - 1;

/// Tokens that a clock in the distant future must leave.
const SPARE_TOKENS: u64 = 1 << 40;

/// The next token, larger than all before; there must be one ([`has_token_left`]).
pub(crate) fn next_token(now_ms: i64) -> u64 {
    let now_micros = u64::try_from(now_ms).unwrap_or(0).saturating_mul(1000);
    let least = now_micros.min(LAST_TOKEN - SPARE_TOKENS);
    STATE.with_borrow_mut(|state| {
        state.last_token = (state.last_token.max(least) + 1).min(LAST_TOKEN);
        state.last_token
    })
}

/// Notes a token of a session in a pool that came from elsewhere, so that those to come are larger.
pub(crate) fn note_token(token: u64) {
    STATE.with_borrow_mut(|state| state.last_token = state.last_token.max(token));
}

/// Whether there is a token larger than all before, and than those that clients wait for. None is
/// left only after somebody has made one up.
pub(crate) fn has_token_left() -> bool {
    STATE.with_borrow(|state| state.tokens_left() > state.waiting_for_tokens)
}

/// Whether tokens do not suffice for those who wait for one. They are not to be served then.
pub(crate) fn lacks_tokens() -> bool {
    STATE.with_borrow(|state| state.tokens_left() < state.waiting_for_tokens)
}

/// Notes a number that came from elsewhere, so that those to come are higher.
///
/// No server has counted to half of [`MAX_ARRIVAL`]: such a number was made up. Counting on from it
/// would end at numbers that no replica follows and no server loads. So whoever joins later comes
/// before it.
pub(crate) fn note_arrival(arrival: u64) {
    if arrival < MAX_ARRIVAL / 2 {
        STATE.with_borrow_mut(|state| state.last_arrival = state.last_arrival.max(arrival));
    }
}

/// Notes that a session with a ticket has polled, so that nothing older decides how long it is
/// valid.
pub(crate) fn note_poll(database: c_int, key: &[u8], session: &[u8]) {
    STATE.with_borrow_mut(|state| {
        state.deferred.retain(|action| {
            !matches!(action, Deferred::RenewTicket(name, other, _)
                if name.0 == database && *name.1 == *key && **other == *session)
        });
    });
}

/// The answer to a waiter that has left the queue is decided.
pub(crate) fn set_outcome(waiter: seat_pool::Waiter<WaiterId>, outcome: Outcome) {
    STATE.with_borrow_mut(|state| {
        if let Some(known) = state.waiters.get_mut(&waiter.client) {
            known.outcome = outcome;
            known.left = Some(waiter);
        }
    });
}

/// Notes that a waiter was granted a seat of a value, of which it is not known yet whether its
/// client hears.
pub(crate) fn granted(
    database: c_int,
    key: &[u8],
    value: usize,
    waiter: &seat_pool::Waiter<WaiterId>,
) {
    let grant = Unconfirmed {
        waiter: waiter.client,
        value,
        name: (database, key.into()),
        session: waiter.session.clone(),
        is_detached: false,
    };
    STATE.with_borrow_mut(|state| state.unconfirmed.push(grant));
}

/// Notes that a session's seat in a pool is its own: it has called, or it is free or granted
/// anew.
pub(crate) fn confirm(value: usize, session: &[u8]) {
    STATE.with_borrow_mut(|state| {
        state
            .unconfirmed
            .retain(|grant| grant.value != value || *grant.session != *session);
    });
}

fn forget_unconfirmed(waiter: WaiterId) -> Option<Unconfirmed> {
    STATE.with_borrow_mut(|state| {
        let mut grants = state.unconfirmed.iter();
        let place = grants.position(|grant| grant.waiter == waiter)?;
        Some(state.unconfirmed.swap_remove(place))
    })
}

/// Whether a waiter was granted a seat that nothing has confirmed since.
fn is_unconfirmed(waiter: WaiterId) -> bool {
    STATE.with_borrow(|state| {
        let mut grants = state.unconfirmed.iter();
        grants.any(|grant| grant.waiter == waiter)
    })
}

/// A pool was made. What is known of another that was at the same address is not about this one.
pub(crate) fn value_made(value: usize) {
    STATE.with_borrow_mut(|state| state.unconfirmed.retain(|grant| grant.value != value));
}

/// Drops what waits to be written. The server is not the primary any more, and another one may have
/// confirmed the sessions.
pub(crate) fn forget_what_to_write() {
    STATE.with_borrow_mut(|state| {
        state.unconfirmed.clear();
        state.deferred.clear();
    });
}

/// A pool has gone from its name.
pub(crate) fn value_left(value: usize) {
    STATE.with_borrow_mut(|state| {
        let grants = state.unconfirmed.iter_mut();
        grants
            .filter(|grant| grant.value == value)
            .for_each(|grant| grant.is_detached = true);
    });
}

/// A pool has come under a name.
pub(crate) fn pool_arrived(value: usize, database: c_int, key: &[u8]) {
    STATE.with_borrow_mut(|state| {
        let grants = state.unconfirmed.iter_mut();
        for grant in grants.filter(|grant| grant.value == value) {
            grant.name = (database, key.into());
            grant.is_detached = false;
        }
    });
}

/// Two databases have been swapped.
pub(crate) fn databases_swapped(one: c_int, other: c_int) {
    STATE.with_borrow_mut(|state| {
        for grant in &mut state.unconfirmed {
            if grant.name.0 == one {
                grant.name.0 = other;
            } else if grant.name.0 == other {
                grant.name.0 = one;
            }
        }
    });
}

/// Whether a value with other tickets may have come under a name since somebody asked.
pub(crate) fn have_tickets_moved(database: c_int, key: &[u8]) -> bool {
    STATE.with_borrow_mut(|state| {
        !state.tickets_moved.is_empty() && state.tickets_moved.remove(&(database, key.into()))
    })
}

/// Whether a value with other sessions may have come under a name since somebody asked.
pub(crate) fn have_sessions_moved(database: c_int, key: &[u8]) -> bool {
    STATE.with_borrow_mut(|state| {
        !state.sessions_moved.is_empty() && state.sessions_moved.remove(&(database, key.into()))
    })
}

/// Has the timer check the queue of a name in the next turn of the event loop, if anybody is
/// blocked there.
pub(crate) fn schedule_check(ctx: Ctx<'_>, key: &[u8]) {
    for database in databases_of_queues(key) {
        schedule_check_at(ctx, (database, key.into()));
    }
}

/// The databases in which somebody is blocked at a key of this name.
fn databases_of_queues(key: &[u8]) -> Vec<c_int> {
    STATE.with_borrow(|state| {
        let queues = state.queues.iter();
        queues
            .filter(|(_, queues)| queues.contains_key(key))
            .map(|(&database, _)| database)
            .collect()
    })
}

/// As [`schedule_check`], for a name in one database, whether somebody is blocked there or not.
pub(crate) fn schedule_check_at(ctx: Ctx<'_>, name: Name) {
    deadlines::note(ctx, name.0, &name.1, ctx.now_ms());
    STATE.with_borrow_mut(|state| {
        state.tickets_moved.insert(name.clone());
        state.sessions_moved.insert(name);
    });
}

/// As [`schedule_check`], for all names of some databases, or of all.
pub(crate) fn schedule_checks(ctx: Ctx<'_>, is_meant: impl Fn(c_int) -> bool) {
    let names: Vec<Name> = STATE.with_borrow(|state| {
        let queues = state
            .queues
            .iter()
            .filter(|(database, _)| is_meant(**database));
        queues
            .flat_map(|(&database, queues)| queues.keys().map(move |key| (database, key.clone())))
            .collect()
    });
    for name in names {
        schedule_check_at(ctx, name);
    }
}

#[cfg(test)]
mod tests {
    use seat_pool::{BlockedQueue, Metadata, Pool, Request};

    use super::{
        STATE, Unconfirmed, WaiterId, have_tickets_moved, is_unconfirmed, put, take, value_made,
    };

    #[test]
    fn a_grant_is_not_about_a_later_value_at_the_same_address() {
        let grant = |waiter, value| Unconfirmed {
            waiter,
            value,
            name: (0, b"pool"[..].into()),
            session: b"a"[..].into(),
            is_detached: false,
        };
        STATE.with_borrow_mut(|state| state.unconfirmed = vec![grant(1, 8), grant(2, 16)]);
        value_made(8);
        assert!(!is_unconfirmed(1));
        assert!(is_unconfirmed(2));
    }

    #[test]
    fn the_note_that_a_name_is_to_be_looked_at_goes_with_the_last_who_waits_there() {
        let mut blocked = Box::<BlockedQueue<WaiterId>>::default();
        for (session, id) in [(b"a", 1), (b"b", 2)] {
            let request = Request {
                metadata: Metadata::NONE,
                lease_ms: None,
                ticket_ms: None,
                since_ms: 0,
                claim: None,
                with_token: false,
            };
            blocked.insert(&Pool::new(0), session, 1, id, id, request);
        }
        put(0, b"pool", blocked);
        STATE.with_borrow_mut(|state| state.tickets_moved.insert((0, b"pool"[..].into())));
        for (session, is_noted) in [(b"a", true), (b"b", false)] {
            let mut blocked = take(0, b"pool").expect("somebody waits");
            blocked.remove(session);
            put(0, b"pool", blocked);
            let noted = STATE.with_borrow(|state| state.tickets_moved.len());
            assert_eq!(noted, usize::from(is_noted));
        }
        assert!(!have_tickets_moved(0, b"pool"));
        assert!(take(0, b"pool").is_none());
    }
}
