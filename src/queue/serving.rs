//! Serving the queue of an open key.

use seat_pool::{Effect, Freed, Lease, Metadata, Place, Ticket};

use super::{BATCH, Blocked, Outcome, Request, SLOT_LOOK_MS, STATE, Unconfirmed, Waiter, WaiterId};
use crate::pool_key::PoolKey;
use crate::replies::{AlreadyActive, Granted};
use crate::stats;

/// Whose turn it was in a queue.
enum Turn {
    /// That of a session, which has a seat now.
    Granted,
    /// That of one who is granted nothing: its session has a seat already, or it is not known any more.
    Passed,
    /// Nobody's.
    Nobodys,
}

/// The ticket of a blocked client is renewed when it has only so long left, so that it is still valid in whatever instant its wait
/// ends, and soon lost if this server dies and the client with it.
const SPARE_MS: u64 = 1000;

/// For how long the ticket of a blocked client is valid when it is renewed: each renewal is replicated, so not for too short.
pub(crate) fn attended_ms(ticket_ms: u64) -> u64 {
    ticket_ms.max(SPARE_MS).saturating_add(SPARE_MS)
}

impl PoolKey<'_> {
    /// Adds a blocked client to the line of the open key. [`super::has_joined`] must follow once
    /// the key is closed.
    pub(crate) fn join_line(&mut self, arrival: u64, request: Request, blocked: &Blocked) {
        let id = blocked.id;
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
        STATE.with_borrow_mut(|state| state.add_waiter(id, waiter));
    }

    /// Takes the client of `session` out of the line, if one is blocked there, and has it told that there is no seat for it.
    pub(crate) fn dismiss(&mut self, session: &[u8]) -> bool {
        let Some(id) = self.leave_line(session) else {
            return false;
        };
        self.wake(id, Outcome::NoSeats);
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
        let places = self.line().iter();
        let sessions: Vec<Box<[u8]>> = places.map(|place| place.session().into()).collect();
        for session in sessions {
            let ticket = self.pool().any_ticket(&session).map(Place::arrival);
            if let Some(line) = &mut self.line {
                line.mark(&session, ticket);
            }
        }
    }

    /// Tells blocked clients whose sessions hold seats of a value that has come to this name so, a bounded number of them.
    pub(crate) fn find_holders(&mut self) {
        if self.line.is_none() || !super::have_sessions_moved(self.database, self.name.bytes()) {
            return;
        }
        let holds = |session: &&[u8]| {
            self.pool().get(self.moment, session).is_some() || self.invalid_entry(session).is_some()
        };
        let holders = self.line().iter().map(Place::session).filter(holds);
        let mut holders: Vec<Box<[u8]>> = holders.take(BATCH + 1).map(Box::from).collect();
        if holders.len() > BATCH {
            holders.truncate(BATCH);
            super::look_soon_at(self.ctx, (self.database, self.name.bytes().into()));
        }
        for session in &holders {
            self.wake_holder(session);
        }
    }

    /// Tells the client of `session`, if one is blocked here, that the session holds a seat
    /// already. A session that does so by an invalid entry leaves the queue, and there is no lease
    /// that could be renewed.
    pub(crate) fn wake_holder(&mut self, session: &[u8]) {
        let invalid = self.invalid_entry(session);
        if invalid.is_some() && self.pool().has_ticket(session) {
            self.commit(&Effect::Leave { session });
        }
        let Some(id) = self.leave_line(session) else {
            return;
        };
        let length_ms = STATE.with_borrow(|state| state.waiters.get(&id)?.request.lease_ms);
        let lease = length_ms.and_then(|length_ms| Lease::starting(self.moment.now_ms, length_ms));
        if let Some(why) = invalid.filter(|_| lease.is_some()) {
            return self.wake(id, Outcome::Failed(why));
        }
        let holder = self.answer_holder(session, lease);
        self.wake(id, Outcome::AlreadyActive(holder));
    }

    /// Gives a session that holds a seat already the lease that its ACQUIRE asks for, and returns what it is told.
    pub(crate) fn answer_holder(&mut self, session: &[u8], lease: Option<Lease>) -> AlreadyActive {
        match lease {
            Some(lease) => self.commit(&Effect::Renew { session, lease }),
            None => super::confirm(self.value(), session),
        }
        stats::ALREADY_ACTIVE.add();
        AlreadyActive {
            used: self.used(),
            renewed: lease,
        }
    }

    /// Grants seats to those whose turn it is, a bounded number of them, and returns how many that were.
    pub(crate) fn serve(&mut self) -> usize {
        self.serve_under(None, None)
    }

    /// As [`PoolKey::serve`], but where there is no pool under the limit `seats`, and only those who are ahead of `session`.
    pub(crate) fn serve_under(&mut self, seats: Option<i64>, session: Option<&[u8]>) -> usize {
        if self.line.is_none() && self.pool().tickets() == 0 {
            return 0;
        }
        if self.pool().len() == 0 && super::has_departed(self.database, self.name.bytes()) {
            // The timer tells those who wait here.
            return 0;
        }
        let lost = self.remove_lost_tickets();
        let (mut granted, mut served) = (0, 0);
        while served < BATCH {
            match self.serve_one(seats, session) {
                Turn::Granted => granted += 1,
                Turn::Passed => {}
                Turn::Nobodys => break,
            }
            served += 1;
        }
        if served == BATCH || lost == BATCH {
            self.note(self.moment.now_ms);
        }
        granted
    }

    fn remove_lost_tickets(&mut self) -> usize {
        let moment = self.moment;
        let soon = moment.moved_to(moment.now_ms.saturating_add_unsigned(SPARE_MS));
        let ending = self.pool().lost_tickets(soon, BATCH);
        let ending: Vec<Box<[u8]>> = ending.map(Box::from).collect();
        let mut changed = 0;
        for session in &ending {
            let is_lost = self.pool().ticket(moment, session).is_none();
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
            let deadline_ms = self.moment.effective(place.waiting.deadline_ms);
            let blocked = self.line().get(place.session());
            match blocked.and_then(|client| ticket_ms_of(client.waiting)) {
                Some(_) => deadline_ms.saturating_sub_unsigned(SPARE_MS),
                None => deadline_ms,
            }
        });
        let lease = self.pool().earliest_lapse_ms(self.moment);
        // In a cluster the slot may go without an event that tells of it.
        let slot = (!self.line().is_empty() && self.ctx.is_in_cluster())
            .then(|| self.moment.now_ms + SLOT_LOOK_MS);
        lease.into_iter().chain(ticket).chain(slot).min()
    }

    /// Has the ticket of `session` be valid for `valid_ms` from now on.
    pub(super) fn keep_place(&mut self, session: &[u8], valid_ms: u64) {
        let now_ms = self.moment.now_ms;
        let kept = self.pool().any_ticket(session).and_then(|place| {
            let ticket = place.waiting.kept(now_ms, valid_ms)?;
            Some((self.pool().figure_of(place), place.arrival(), ticket))
        });
        if let Some((seats, arrival, ticket)) = kept {
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
    pub(super) fn take_back(&mut self, request: &Request, arrival: u64) {
        let (moment, session) = (self.moment, &request.session);
        let seats = request.seats;
        if self.pool().get(moment, session).is_none() {
            return;
        }
        self.commit(&Effect::freeing(session, Freed::Released));
        stats::RELEASED.add();
        let ticket = request.ticket_ms.and_then(|ticket_ms| {
            let ticket = Ticket {
                since_ms: request.since_ms,
                length_ms: ticket_ms,
                deadline_ms: moment.now_ms,
            };
            ticket.kept(moment.now_ms, ticket_ms)
        });
        match ticket {
            Some(ticket) => {
                self.commit(&Effect::joining(session, seats, arrival, ticket));
            }
            None => self.tell_left(),
        }
        self.serve();
    }

    fn serve_one(&mut self, seats: Option<i64>, until: Option<&[u8]>) -> Turn {
        let moment = self.moment;
        let Some(line) = self.line.as_ref().filter(|_| !self.suspends_grants()) else {
            return Turn::Nobodys;
        };
        // Without a pool there is no limit but that of the call, or that which the first in line states.
        let seats = if self.exists() {
            self.pool().seats()
        } else {
            let first = line.first();
            let stated = || first.and_then(|place| seats_of(place.waiting));
            seats.or_else(stated).unwrap_or(0)
        };
        let next = self.pool().next_in_line(moment, self.limit(seats), line);
        let Some(next) = next.filter(|next| until != Some(next.session())) else {
            return Turn::Nobodys;
        };
        let id = next.waiting;
        let session: Box<[u8]> = next.session().into();
        if self.pool().get(moment, &session).is_some() || self.invalid_entry(&session).is_some() {
            self.wake_holder(&session);
            return Turn::Passed;
        }
        self.leave_line(&session);
        let Some((metadata, lease_ms)) = take_request(id) else {
            return Turn::Passed;
        };
        let lease = lease_ms.and_then(|length_ms| Lease::starting(moment.now_ms, length_ms));
        self.commit(&Effect::granting(
            moment.now_ms,
            &session,
            seats,
            &metadata,
            lease,
        ));
        self.granted_from_queue();
        stats::ACQUIRED.add();
        let used = self.used();
        let grant = Unconfirmed {
            waiter: id,
            value: self.value(),
            name: (self.database, self.name.bytes().into()),
            session,
            is_adrift: false,
        };
        STATE.with_borrow_mut(|state| state.unconfirmed.push(grant));
        self.wake(id, Outcome::Granted(Granted { used, seats, lease }));
        Turn::Granted
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
