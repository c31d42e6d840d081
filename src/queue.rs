//! Blocked clients: who waits at which name, how they are woken, and what becomes of a grant whose client is gone.
//!
//! A waiter is known to the server by a number, which travels as the private data of the blocked client. All else about it stands
//! here, so that whatever end it comes to, nothing is owned by the server's structures. The server tells the end by `on_free`; the
//! client's handle is dead after that.
//!
//! A waiter is woken by its handle, never by signalling the key, since a signal makes the server call back for everybody who waits.
//! Up to 7.0 that runs the waiter's callback at once, inside the command that wakes it: so it comes last, after the key is closed.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{c_int, c_void};

use redis_module::raw;
use seat_pool::{Effect, Freed, Lease, Line, Metadata, Ticket};

use crate::error::Error;
use crate::ffi::{BlockedClient, Ctx, OwnedStr, Str, guard};
use crate::pool_key::PoolKey;
use crate::replies::{self, Granted};
use crate::{reclaim, server, stats};

/// A waiter's number. Never 0, which the server would take for no private data.
pub(crate) type WaiterId = u64;

/// Waiters that one command or tick serves at most; a timer goes on with the rest.
pub(crate) const BATCH: usize = 64;

/// The ticket of a blocked client is renewed when it has only so long left, so that it is still valid in whatever instant its wait
/// ends, and soon lost if this server dies and the client with it.
const SPARE_MS: u64 = 1000;

/// For how long the ticket of a blocked client is valid when it is renewed: each renewal is replicated, so not for too short.
pub(crate) fn attended_ms(ticket_ms: u64) -> u64 {
    ticket_ms.max(SPARE_MS).saturating_add(SPARE_MS)
}

/// How often a node of a cluster looks whether a key where clients are blocked is still its own.
pub(crate) const SLOT_LOOK_MS: i64 = 1000;

/// A name: the database's number and the key.
type Name = (c_int, Box<[u8]>);

/// What a waiter asked for.
pub(crate) struct Request {
    pub(crate) session: Box<[u8]>,
    pub(crate) seats: i64,
    pub(crate) metadata: Metadata<'static>,
    pub(crate) lease_ms: Option<u64>,
    /// How long each poll keeps its ticket, if it asked for one as well.
    pub(crate) ticket_ms: Option<u64>,
    pub(crate) since_ms: i64,
}

struct Waiter {
    name: Name,
    request: Request,
    arrival: u64,
    /// Absent for the moment between joining and blocking.
    client: Option<BlockedClient>,
    /// The connection's number, by which it is known whether it is still there.
    connection: u64,
    outcome: Outcome,
}

/// What a waiter is to be told.
enum Outcome {
    /// Nothing yet.
    Waiting,
    /// It was granted a seat.
    Granted(Granted),
    /// Its session holds a seat that was granted otherwise.
    AlreadyActive,
    /// It will not get one.
    NoSeats,
    /// It cannot be served here.
    Failed(Error),
    /// It has been told.
    Told,
}

/// What must wait until the server can be written to.
enum Deferred {
    /// The seat of a session whose client was gone when it was granted, with its number in the order of arrival.
    TakeBack(WaiterId, Waiter),
    /// The place of a client that went during its long poll: valid for its ticket's time from that moment on.
    KeepPlace(Name, Box<[u8]>, u64),
    /// The news that a client has left the queue.
    TellLeft(Name),
}

/// The lines of one database, by key.
type Lines = HashMap<Box<[u8]>, Box<Line<WaiterId>>>;

/// A grant whose client may be gone. It is known by the value that it is in, since a pool can move before it is looked at again.
struct Unconfirmed {
    waiter: WaiterId,
    value: usize,
    name: Name,
    session: Box<[u8]>,
    /// Whether the value has gone from the name and not come under another.
    is_adrift: bool,
}

#[derive(Default)]
struct State {
    lines: BTreeMap<c_int, Lines>,
    waiters: HashMap<WaiterId, Waiter>,
    last_id: WaiterId,
    last_arrival: u64,
    /// Grants from the queue whose clients have not been told for certain. Mostly none, at most those of one turn of the loop.
    unconfirmed: Vec<Unconfirmed>,
    deferred: Vec<Deferred>,
    /// Names under which another value may have come, with other tickets.
    moved: HashSet<Name>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// The line at a name, taken out while its key is open.
pub(crate) fn take_line(database: c_int, key: &[u8]) -> Option<Box<Line<WaiterId>>> {
    STATE.with_borrow_mut(|state| state.lines.get_mut(&database)?.remove(key))
}

/// Puts a line back where it was taken from.
pub(crate) fn put_line(database: c_int, key: &[u8], line: Box<Line<WaiterId>>) {
    if !line.is_empty() {
        STATE.with_borrow_mut(|state| {
            let lines = state.lines.entry(database).or_default();
            lines.insert(key.into(), line);
        });
    }
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

/// Notes a number that came from elsewhere, so that those to come are higher.
pub(crate) fn saw_arrival(arrival: u64) {
    STATE.with_borrow_mut(|state| state.last_arrival = state.last_arrival.max(arrival));
}

/// Notes that a session with a ticket has polled, so that nothing older decides how long it is valid.
pub(crate) fn polled(database: c_int, key: &[u8], session: &[u8]) {
    STATE.with_borrow_mut(|state| {
        state.deferred.retain(|action| {
            !matches!(action, Deferred::KeepPlace(name, other, _)
                if name.0 == database && *name.1 == *key && **other == *session)
        });
    });
}

/// Since when a blocked client waits.
pub(crate) fn since_ms(waiter: WaiterId) -> i64 {
    STATE.with_borrow(|state| {
        let waiter = state.waiters.get(&waiter);
        waiter.map_or(0, |waiter| waiter.request.since_ms)
    })
}

/// Notes that a session's seat in a pool is its own: it has been heard of, or it is free or granted anew.
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

/// A pool has gone from its name.
pub(crate) fn value_left(value: usize) {
    STATE.with_borrow_mut(|state| {
        let grants = state.unconfirmed.iter_mut();
        grants
            .filter(|grant| grant.value == value)
            .for_each(|grant| grant.is_adrift = true);
    });
}

/// A pool has come under a name.
pub(crate) fn value_came(value: usize, database: c_int, key: &[u8]) {
    STATE.with_borrow_mut(|state| {
        let grants = state.unconfirmed.iter_mut();
        for grant in grants.filter(|grant| grant.value == value) {
            grant.name = (database, key.into());
            grant.is_adrift = false;
        }
    });
}

/// Two databases have changed places.
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

/// Whether another value may have come under a name since it was last looked at; asking takes note that it is looked at now.
pub(crate) fn has_moved(database: c_int, key: &[u8]) -> bool {
    STATE.with_borrow_mut(|state| {
        !state.moved.is_empty() && state.moved.remove(&(database, key.into()))
    })
}

/// Looks at the queue of a name within the next turn of the event loop, if anybody is blocked there.
pub(crate) fn look_soon(ctx: Ctx<'_>, key: &[u8]) {
    let databases: Vec<c_int> = STATE.with_borrow(|state| {
        let lines = state.lines.iter();
        lines
            .filter(|(_, lines)| lines.contains_key(key))
            .map(|(&database, _)| database)
            .collect()
    });
    for database in databases {
        look_soon_at(ctx, (database, key.into()));
    }
}

fn look_soon_at(ctx: Ctx<'_>, name: Name) {
    reclaim::note_in(ctx, name.0, &name.1, ctx.now_ms());
    STATE.with_borrow_mut(|state| state.moved.insert(name));
}

/// As [`look_soon`], for all names of some databases, or of all.
pub(crate) fn look_soon_everywhere(ctx: Ctx<'_>, is_meant: impl Fn(c_int) -> bool) {
    let names: Vec<Name> = STATE.with_borrow(|state| {
        let lines = state
            .lines
            .iter()
            .filter(|(database, _)| is_meant(**database));
        lines
            .flat_map(|(&database, lines)| lines.keys().map(move |key| (database, key.clone())))
            .collect()
    });
    for name in names {
        look_soon_at(ctx, name);
    }
}

impl PoolKey<'_> {
    /// Adds a waiter to the line of the open key. [`block`] must follow once the key is closed.
    pub(crate) fn join_line(&mut self, arrival: u64, request: Request) -> WaiterId {
        let id = STATE.with_borrow_mut(|state| {
            state.last_id += 1;
            state.last_id
        });
        let ticketed = self.pool().has_ticket(&request.session);
        let line = self.line.get_or_insert_default();
        line.join(&request.session, arrival, ticketed, id);
        let waiter = Waiter {
            name: (self.database, self.name.bytes().into()),
            request,
            arrival,
            client: None,
            connection: self.ctx.connection(),
            outcome: Outcome::Waiting,
        };
        STATE.with_borrow_mut(|state| state.waiters.insert(id, waiter));
        id
    }

    /// Takes the client of `session` out of the line, if one is blocked there, and has it told that there is no seat for it.
    pub(crate) fn dismiss(&mut self, session: &[u8]) -> bool {
        let Some(place) = self.line.as_mut().and_then(|line| line.leave(session)) else {
            return false;
        };
        self.wake(place.waiting, Outcome::NoSeats);
        true
    }

    fn wake(&mut self, id: WaiterId, outcome: Outcome) {
        STATE.with_borrow_mut(|state| {
            if let Some(waiter) = state.waiters.get_mut(&id) {
                waiter.outcome = outcome;
            }
        });
        self.wakes.push(id);
    }

    /// Has each blocked client be at the place that the tickets of this value give it.
    pub(crate) fn find_tickets(&mut self) {
        let Some(mut line) = self.line.take() else {
            return;
        };
        let sessions: Vec<Box<[u8]>> = line.iter().map(|place| place.session().into()).collect();
        for session in sessions {
            let ticket = self.pool().any_ticket(&session);
            line.mark(&session, ticket.map(|place| place.arrival()));
        }
        self.line = Some(line);
    }

    /// Grants seats to those whose turn it is, a bounded number of them, and returns how many that were.
    pub(crate) fn serve(&mut self) -> usize {
        self.serve_under(None, None)
    }

    /// As [`PoolKey::serve`], but where there is no pool under the limit `seats`, and only those who are ahead of `session`.
    pub(crate) fn serve_under(&mut self, seats: Option<i64>, session: Option<&[u8]>) -> usize {
        let lost = self.remove_lost_tickets();
        let mut granted = 0;
        while granted < BATCH && self.serve_one(seats, session) {
            granted += 1;
        }
        if granted == BATCH || lost == BATCH {
            reclaim::note(self.ctx, self.name, self.ctx.now_ms());
        }
        granted
    }

    fn remove_lost_tickets(&mut self) -> usize {
        let now_ms = self.ctx.now_ms();
        let soon_ms = now_ms.saturating_add_unsigned(SPARE_MS);
        let ending = self.pool().lost_tickets(soon_ms, BATCH);
        let ending: Vec<Box<[u8]>> = ending.map(Box::from).collect();
        let mut changed = 0;
        for session in &ending {
            let is_lost = self.pool().ticket(now_ms, session).is_none();
            let blocked = self.line.as_ref().and_then(|line| line.get(session));
            match blocked.map(|place| ticket_ms_of(place.waiting)) {
                // The client is still there, so its place is kept without a poll.
                Some(Some(ticket_ms)) => self.keep_place(session, attended_ms(ticket_ms)),
                // The client never asked for a ticket: it waits on without.
                Some(None) if is_lost => self.drop_ticket(session),
                None if is_lost => self.leave(session),
                _ => continue,
            }
            changed += 1;
        }
        changed
    }

    /// When time alone will next change something here: a lease lapses, or a ticket is lost or to be renewed.
    pub(crate) fn next_look_ms(&self) -> Option<i64> {
        let ticket = self.pool().first_lost().map(|place| {
            let deadline_ms = place.waiting.deadline_ms;
            let blocked = self.line().get(place.session());
            match blocked.and_then(|client| ticket_ms_of(client.waiting)) {
                Some(_) => deadline_ms.saturating_sub_unsigned(SPARE_MS),
                None => deadline_ms,
            }
        });
        let lease = self.pool().earliest_lapse_ms();
        // In a cluster the slot may go without an event that tells of it.
        let is_cluster = self.ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER);
        let slot =
            (is_cluster && !self.line().is_empty()).then(|| self.ctx.now_ms() + SLOT_LOOK_MS);
        lease.into_iter().chain(ticket).chain(slot).min()
    }

    /// Has the ticket of `session` be valid for `valid_ms` from now on.
    fn keep_place(&mut self, session: &[u8], valid_ms: u64) {
        let now_ms = self.ctx.now_ms();
        let kept = self.pool().any_ticket(session).and_then(|place| {
            let deadline_ms = now_ms.checked_add_unsigned(valid_ms)?;
            let ticket = Ticket {
                deadline_ms,
                ..place.waiting
            };
            Some((place.arrival(), ticket))
        });
        if let Some((arrival, ticket)) = kept {
            let seats = self.pool().seats();
            self.commit(&Effect::joining(session, seats, arrival, ticket));
        }
    }

    /// Takes the ticket of `session`, whose client stays where it is.
    pub(crate) fn drop_ticket(&mut self, session: &[u8]) {
        if self.pool().has_ticket(session) {
            self.commit(&Effect::Leave { session });
        }
        if let Some(line) = &mut self.line {
            line.mark(session, None);
        }
    }

    /// Takes `session` out of the queue, ticket and blocked client, if it is there.
    pub(crate) fn leave(&mut self, session: &[u8]) {
        let was_blocked = self.dismiss(session);
        let had_ticket = self.pool().has_ticket(session);
        if had_ticket {
            self.commit(&Effect::Leave { session });
        }
        if was_blocked || had_ticket {
            self.tell_left();
        }
    }

    /// Frees a seat that was granted to a client that had gone. One that asked for a ticket as well has its place back.
    fn take_back(&mut self, request: &Request, arrival: u64) {
        let (now_ms, session) = (self.ctx.now_ms(), &request.session);
        let seats = self.pool().seats();
        if self.pool().get(now_ms, session).is_none() {
            return;
        }
        self.commit(&Effect::freeing(session, Freed::Released));
        let ticket = request.ticket_ms.and_then(|ticket_ms| {
            let ticket = Ticket {
                since_ms: request.since_ms,
                length_ms: ticket_ms,
                deadline_ms: now_ms,
            };
            ticket.polled(now_ms, ticket_ms)
        });
        match ticket {
            Some(ticket) => {
                self.commit(&Effect::joining(session, seats, arrival, ticket));
            }
            None => self.tell_left(),
        }
        self.serve();
    }

    fn serve_one(&mut self, seats: Option<i64>, until: Option<&[u8]>) -> bool {
        let now_ms = self.ctx.now_ms();
        let Some(line) = &self.line else {
            return false;
        };
        // Without a pool there is no limit but that of the call, or that which the first in line states.
        let seats = if self.exists() {
            self.pool().seats()
        } else {
            let first = line.first();
            let stated = || first.and_then(|place| seats_of(place.waiting));
            seats.or_else(stated).unwrap_or(0)
        };
        let Some(next) = self.pool().next_in_line(now_ms, seats, line) else {
            return false;
        };
        if until == Some(next.session()) {
            return false;
        }
        let id = next.waiting;
        let session: Box<[u8]> = next.session().into();
        if let Some(line) = &mut self.line {
            line.leave(&session);
        }
        if self.pool().get(now_ms, &session).is_some() {
            self.wake(id, Outcome::AlreadyActive);
            return true;
        }
        let Some((metadata, lease_ms)) = take_request(id) else {
            return true;
        };
        let lease = lease_ms.and_then(|length_ms| Lease::starting(now_ms, length_ms));
        self.commit(&Effect::granting(now_ms, &session, seats, &metadata, lease));
        self.granted_from_queue();
        stats::ACQUIRED.add();
        let used = self.pool().used(now_ms) as i64;
        let grant = Unconfirmed {
            waiter: id,
            value: self.value(),
            name: (self.database, self.name.bytes().into()),
            session,
            is_adrift: false,
        };
        STATE.with_borrow_mut(|state| state.unconfirmed.push(grant));
        self.wake(id, Outcome::Granted(Granted { used, seats, lease }));
        true
    }
}

fn ticket_ms_of(waiter: WaiterId) -> Option<u64> {
    STATE.with_borrow(|state| state.waiters.get(&waiter)?.request.ticket_ms)
}

/// The limit that a blocked client stated.
pub(crate) fn seats_of(waiter: WaiterId) -> Option<i64> {
    STATE.with_borrow(|state| Some(state.waiters.get(&waiter)?.request.seats))
}

fn take_request(waiter: WaiterId) -> Option<(Metadata<'static>, Option<u64>)> {
    STATE.with_borrow_mut(|state| {
        let request = &mut state.waiters.get_mut(&waiter)?.request;
        let metadata = std::mem::replace(&mut request.metadata, Metadata::NONE);
        Some((metadata, request.lease_ms))
    })
}

/// Blocks the client of this call until its waiter is woken, for at most `timeout_ms`; 0 is for ever.
pub(crate) fn block(ctx: Ctx<'_>, key: Str<'_>, id: WaiterId, timeout_ms: i64) {
    if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER) {
        reclaim::note(ctx, key, ctx.now_ms() + SLOT_LOOK_MS);
    }
    let client = ctx.block_on_key(key, timeout_ms, on_ready, on_reply, on_free, id);
    STATE.with_borrow_mut(|state| {
        if let Some(waiter) = state.waiters.get_mut(&id) {
            waiter.client = Some(client);
        }
    });
}

/// Has waiters be told what became of them. For a closed key only.
pub(crate) fn unblock(waiters: &[WaiterId]) {
    for id in waiters {
        let client = STATE.with_borrow(|state| state.waiters.get(id)?.client);
        if let Some(client) = client {
            client.unblock();
        }
    }
}

/// Tells all who are blocked at a name that they cannot be served there, a bounded number of them, and returns whether some are left.
pub(crate) fn fail(database: c_int, key: &[u8], error: impl Fn() -> Error) -> bool {
    let Some(mut line) = take_line(database, key) else {
        return false;
    };
    let mut failed = Vec::new();
    while failed.len() < BATCH
        && let Some(session) = line.first().map(|place| Box::<[u8]>::from(place.session()))
        && let Some(place) = line.leave(&session)
    {
        failed.push(place.waiting);
    }
    let some_left = !line.is_empty();
    put_line(database, key, line);
    STATE.with_borrow_mut(|state| {
        state.moved.remove(&(database, key.into()));
        for id in &failed {
            if let Some(waiter) = state.waiters.get_mut(id) {
                waiter.outcome = Outcome::Failed(error());
            }
        }
    });
    unblock(&failed);
    some_left
}

/// Does what had to wait for a moment in which the server can be written to, a bounded part of it.
pub(crate) fn run_deferred(ctx: Ctx<'_>) {
    let deferred: Vec<_> = STATE.with_borrow_mut(|state| {
        let some = state.deferred.len().min(4 * BATCH);
        state.deferred.drain(..some).collect()
    });
    for action in deferred {
        match action {
            Deferred::TakeBack(id, waiter) => {
                let grant = forget_unconfirmed(id).filter(|grant| !grant.is_adrift);
                // Up to 7.0, a client that was told and then unblocked by somebody else looks as if it were gone.
                let was_told = matches!(waiter.outcome, Outcome::Told);
                let is_there = was_told && ctx.has_connection(waiter.connection);
                if let Some(grant) = grant.filter(|_| !is_there) {
                    with_key(ctx, &grant.name, |key| {
                        if key.value() == grant.value {
                            key.take_back(&waiter.request, waiter.arrival);
                        }
                    });
                }
            }
            Deferred::KeepPlace(name, session, ticket_ms) => {
                with_key(ctx, &name, |key| key.keep_place(&session, ticket_ms));
            }
            Deferred::TellLeft(name) => with_key(ctx, &name, |key| key.tell_left()),
        }
    }
}

fn with_key(ctx: Ctx<'_>, name: &Name, body: impl FnOnce(&mut PoolKey<'_>)) {
    ctx.select_database(name.0);
    let key = OwnedStr::new(&name.1);
    if !ctx.may_serve(key.get()) {
        return;
    }
    if let Ok(mut key) = PoolKey::write(ctx, key.get()) {
        body(&mut key);
    }
}

/// The key was created by somebody. Waiters are woken by handle alone, so nobody is served here.
unsafe extern "C" fn on_ready(
    _: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    raw::Status::Err as c_int
}

/// The waiter was woken, or its time is over, or CLIENT UNBLOCK ended it.
unsafe extern "C" fn on_reply(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the server passes the context of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    guard("a blocked client's reply", || {
        reply(ctx, ctx.blocked_private_data())
    });
    raw::Status::Ok as c_int
}

fn reply(ctx: Ctx<'_>, id: WaiterId) {
    let told = STATE.with_borrow_mut(|state| {
        let waiter = state.waiters.get_mut(&id)?;
        let outcome = std::mem::replace(&mut waiter.outcome, Outcome::Told);
        let request = &waiter.request;
        Some((
            outcome,
            waiter.name.clone(),
            request.session.clone(),
            request.seats,
            request.ticket_ms,
        ))
    });
    let Some((outcome, name, session, seats, ticket_ms)) = told else {
        ctx.reply_error(&Error::Internal.to_string());
        return;
    };
    match outcome {
        Outcome::Granted(granted) => replies::acquired(ctx, &granted),
        Outcome::Failed(error) => ctx.reply_error(&error.to_string()),
        Outcome::Told => ctx.reply_error(&Error::Internal.to_string()),
        outcome => {
            let key = OwnedStr::new(&name.1);
            let mut key = match PoolKey::read(ctx, key.get()) {
                Ok(key) => key,
                Err(error) => return ctx.reply_error(&error.to_string()),
            };
            let now_ms = ctx.now_ms();
            let used = key.pool().used(now_ms) as i64;
            let has_ticket = key.pool().ticket(now_ms, &session).is_some();
            match (outcome, ticket_ms.filter(|_| has_ticket)) {
                (Outcome::AlreadyActive, _) => replies::already_active(ctx, used, None),
                (Outcome::Waiting, Some(ticket_ms)) => {
                    let position = key.pool().position(now_ms, &session, key.line());
                    key.end_wait(&session);
                    replies::queued(ctx, used, seats, position.unwrap_or(1));
                    drop(key);
                    defer(ctx, Deferred::KeepPlace(name, session, ticket_ms));
                }
                (outcome, _) => {
                    if matches!(outcome, Outcome::Waiting) {
                        key.end_wait(&session);
                        if !has_ticket {
                            key.tell_left();
                        }
                    }
                    replies::no_seats(ctx, used, seats);
                }
            }
        }
    }
}

fn defer(ctx: Ctx<'_>, action: Deferred) {
    if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
        // A demotion has ended the wait, and the primary is another now.
        return;
    }
    STATE.with_borrow_mut(|state| state.deferred.push(action));
    reclaim::wake_soon(ctx);
}

/// Whether something waits for [`run_deferred`].
pub(crate) fn has_deferred() -> bool {
    STATE.with_borrow(|state| !state.deferred.is_empty())
}

/// The server is done with a blocked client: it was told, or it is gone. Nothing may be replicated here.
unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, id: *mut c_void) {
    // SAFETY: the server passes the context of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    guard("the end of a blocked client", || {
        let id = id as WaiterId;
        let Some(waiter) = STATE.with_borrow_mut(|state| state.waiters.remove(&id)) else {
            return;
        };
        if let Outcome::Waiting = waiter.outcome {
            let Waiter { name, request, .. } = waiter;
            if leave_line(ctx, &name, &request.session, id) {
                defer(
                    ctx,
                    match request.ticket_ms {
                        Some(ticket_ms) => Deferred::KeepPlace(name, request.session, ticket_ms),
                        None => Deferred::TellLeft(name),
                    },
                );
            }
        } else if !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) && is_gone(ctx, &waiter) {
            // Whatever it was told has not reached it. If that was a grant, and nothing has confirmed it since, it is undone.
            defer(ctx, Deferred::TakeBack(id, waiter));
        } else {
            // It was told, or a demotion has ended its wait: what was granted stays so then, as with any lost reply.
            forget_unconfirmed(id);
        }
    });
}

/// Whether the client of a waiter that the server is done with is gone, so that it has not read what it was told.
fn is_gone(ctx: Ctx<'_>, waiter: &Waiter) -> bool {
    ctx.client_is_gone() || (server::closes_late() && ctx.is_closing(waiter.connection))
}

/// Takes a waiter out of its line, unless a newer one has taken its place over.
fn leave_line(ctx: Ctx<'_>, name: &Name, session: &[u8], id: WaiterId) -> bool {
    let Some(mut line) = take_line(name.0, &name.1) else {
        return false;
    };
    let is_own = line.get(session).is_some_and(|place| place.waiting == id);
    if is_own {
        line.leave(session);
    }
    let somebody_is_left = !line.is_empty();
    put_line(name.0, &name.1, line);
    if is_own && somebody_is_left {
        // At a name without a pool, the limit is that of the first in line, who is another now.
        reclaim::note_in(ctx, name.0, &name.1, ctx.now_ms());
    }
    is_own
}
