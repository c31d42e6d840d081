//! The pool itself: decisions, and the effects that carry them out.
//!
//! A session is stored once, in a slot of the session table. The index leads to it by its id, the
//! deadlines lead to it by the time at which its lease expires:
//!
//! ```text
//!                  get("alice")
//!                       │  its hash is 8c51f0e9, say
//!                       v
//! index       (8c51f0e9, 256)   (17d2a604, 257)   ...         by hash: the slot
//!                        │
//!                        │  256 = 1 × 256 + 0: chunk 1, offset 0
//!                        v
//! sessions    chunk 0                chunk 1                  by slot: the session
//!             s0 s1 ... s255         alice         bob
//!             without leases         until 11000   until 35000
//!             slots 0 to 255         slot 256      slot 257
//!                                     ^             ^
//! deadlines                   (11000, 256)  (35000, 257)      by deadline and slot:
//!                                10000         30000          the lease's length
//! ```
//!
//! It is 12,000 now, in milliseconds:
//!
//! - `get("alice")` finds slot 256 and compares the id there. The session's own deadline is past,
//!   so it is not live, and nothing is returned.
//! - `used` counts 258 sessions less the one whose deadline has passed, without a look at either.
//! - A heartbeat of Bob changes his session in place, removes (35000, 257) from the deadlines, and
//!   adds (42000, 257).
//! - `expired` begins with the first of the deadlines: slot 256, Alice. Freeing her removes one
//!   entry of each structure, and the next session takes slot 256, the lowest free one.

use std::collections::BTreeSet;

use crate::MAX_SECOND;
use crate::claims::Claim;
use crate::cursor::{Generation, StaleCursor};
use crate::effect::{Effect, Freed, Grant, Heartbeat, Holder, Join, Lease};
use crate::entries::QueueEntry;
use crate::holders::Holders;
use crate::index::Index;
use crate::moment::Moment;
use crate::order::{Entry, Order};
use crate::queue::{Ticket, Tickets};
use crate::session::{NEVER_MS, Session};
use crate::slab::Slab;

/// Sessions that hold seats, those that have a ticket for one, and the limit.
///
/// A session whose lease has expired stays in the session table until it is reclaimed, but no
/// decision and no reading method sees it any more: they all take the [`Moment`], and "live" means
/// live at that moment.
///
/// ```
/// use seat_pool::{Effect, Lease, Metadata, Moment, Pool};
///
/// let mut pool = Pool::new(0);
/// let lease = Lease::starting(0, 30_000);
/// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, lease));
/// assert_eq!((pool.seats(), pool.used(Moment::at(29_999))), (5, 1));
/// // Expired, and not reclaimed yet.
/// let later = Moment::at(30_000);
/// assert_eq!((pool.used(later), pool.len()), (0, 1));
/// assert!(pool.get(later, b"alice").is_none() && pool.contains(b"alice"));
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    seats: i64,
    sessions: Slab<Session>,
    /// From ids to slots in `sessions`.
    index: Index,
    /// The leased among `sessions`, by deadline, with the lengths of their leases. A session's own
    /// deadline and its entry here always agree.
    deadlines: Order<u64>,
    payload_bytes: usize,
    /// Sessions that came without metadata.
    without_metadata: u32,
    generation: Generation,
    denied: u64,
    peak_used: u64,
    /// Most pools have no session with an owner, a weight above 1 or a token.
    pub(crate) holders: Option<Box<Holders>>,
    /// Most pools never have any.
    tickets: Option<Box<Tickets>>,
}

/// What applying an effect came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing: the session or the ticket that it changes does not exist.
    Missed,
    /// What it says is so now.
    Done,
    /// The same, and a grant has replaced the session of this id from before, whose lease had
    /// expired.
    Replaced,
}

/// The outcome of a HEARTBEAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome<'a> {
    /// The session holds no seat.
    NotActive,
    /// The session holds a seat but has no metadata to count in.
    NoMetadata,
    /// The session's heartbeat, to be applied.
    Updated(Heartbeat<'a>),
}

impl Pool {
    /// A pool that nobody holds a seat of.
    pub fn new(seats: i64) -> Pool {
        Pool {
            seats,
            sessions: Slab::new(),
            index: Index::new(),
            deadlines: Order::default(),
            payload_bytes: 0,
            without_metadata: 0,
            generation: Generation::new(),
            denied: 0,
            peak_used: 0,
            holders: None,
            tickets: None,
        }
    }

    /// The limit: what the latest grant or RESIZE stated. Nobody who waits is judged by it.
    pub fn seats(&self) -> i64 {
        self.seats
    }

    /// Sessions, those that expired and are not yet reclaimed included. O(1).
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Tickets, those lost and not yet removed included. O(1).
    pub fn tickets(&self) -> usize {
        self.tickets.as_ref().map_or(0, |tickets| tickets.len())
    }

    /// Sessions, tickets and owners together: the allocations that freeing the pool takes, about.
    /// O(1).
    pub fn allocations(&self) -> usize {
        let owners = self.holders.as_ref();
        self.len() + self.tickets() + owners.map_or(0, |holders| holders.count_owners())
    }

    /// Whether there is neither a session nor a ticket. Such a pool does not exist as a key. O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.tickets() == 0
    }

    /// Live sessions. O(log n) while some have expired, otherwise O(1).
    pub fn count(&self, moment: Moment) -> usize {
        self.len() - self.passed(moment)
    }

    /// The seats that live sessions take: the sum of their weights. O(log n) while some have
    /// expired, otherwise O(1).
    pub fn used(&self, moment: Moment) -> u64 {
        match &self.holders {
            None => self.count(moment) as u64,
            Some(holders) => self.used_with(holders, moment),
        }
    }

    /// Apart, so that a plain pool saves no registers for it.
    #[inline(never)]
    fn used_with(&self, holders: &Holders, moment: Moment) -> u64 {
        self.count(moment) as u64 + holders.extra(moment)
    }

    /// The seats that all sessions take, those that expired and are not yet reclaimed included.
    /// O(1).
    pub(crate) fn used_by_all(&self) -> u64 {
        let extra = self.holders.as_ref();
        self.len() as u64 + extra.map_or(0, |holders| holders.extra_of_all())
    }

    /// The most seats that were taken since the value was made or loaded, those of this moment
    /// included. Neither persisted nor replicated.
    pub fn peak_used(&self, moment: Moment) -> u64 {
        self.peak_used.max(self.used(moment))
    }

    /// Notes how many seats are taken after a grant, for [`Pool::peak_used`].
    pub fn note_used(&mut self, used: u64) {
        self.peak_used = self.peak_used.max(used);
    }

    /// The calls that were denied since the value was made or loaded. Neither persisted nor
    /// replicated.
    pub fn denied(&self) -> u64 {
        self.denied
    }

    /// Counts a denied call.
    pub fn count_denial(&mut self) {
        self.denied += 1;
    }

    /// The largest token of a session of this pool, or one that was larger and is void by now; 0
    /// if there is none. O(1).
    pub fn last_token(&self) -> u64 {
        let holders = self.holders.as_ref();
        holders.map_or(0, |holders| holders.last_token())
    }

    /// The owners of live sessions, in no particular order, each with the number of its live
    /// sessions and the seats that these take. O(m log n) where m is the number of owners.
    pub fn owners(&self, moment: Moment) -> impl Iterator<Item = (&[u8], u64, u64)> {
        let holders = self.holders.iter();
        holders.flat_map(move |holders| holders.owners(moment))
    }

    /// How many owners of live sessions there are. O(1), O(m log n) while m sessions have expired.
    pub fn count_owners(&self, moment: Moment) -> usize {
        let Some(holders) = &self.holders else {
            return 0;
        };
        let expired = self.expired_sessions(moment, usize::MAX);
        let owners = expired.filter_map(|(slot, _)| holders.get(slot).owner);
        let owners: BTreeSet<&[u8]> = owners.collect();
        let gone = owners
            .into_iter()
            .filter(|owner| holders.count_of(moment, owner) == 0);
        holders.count_owners() - gone.count()
    }

    /// The live sessions of an owner. O(log n), then O(1) a session.
    pub fn owned<'a>(
        &'a self,
        moment: Moment,
        owner: &'a [u8],
    ) -> impl Iterator<Item = &'a Session> {
        let holders = self.holders.iter();
        let slots = holders.flat_map(move |holders| holders.live_slots_of(moment, owner));
        slots.filter_map(|slot| self.sessions.get(slot))
    }

    /// How many live sessions an owner has. O(log n).
    pub fn held(&self, moment: Moment, owner: &[u8]) -> u64 {
        let holders = self.holders.as_ref();
        holders.map_or(0, |holders| holders.count_of(moment, owner))
    }

    /// How many sessions an owner has, those that expired and are not yet reclaimed included. O(1).
    pub(crate) fn held_by_all(&self, owner: &[u8]) -> u64 {
        let holders = self.holders.as_ref();
        holders.map_or(0, |holders| holders.all_of_owner(owner))
    }

    /// The slots of an owner's sessions whose leases have expired, the earliest deadline first.
    /// O(log n), then O(1) a session.
    pub(crate) fn expired_of(&self, moment: Moment, owner: &[u8]) -> impl Iterator<Item = u32> {
        let holders = self.holders.iter();
        holders.flat_map(move |holders| holders.expired_slots_of(moment, owner))
    }

    /// The slot of the live session of an owner that has been silent for the longest; of several,
    /// the lowest. A renewed lease is a sign of life. O(log n).
    pub(crate) fn most_silent_of(&self, moment: Moment, owner: &[u8]) -> Option<u32> {
        let holders = self.holders.as_ref()?;
        holders.most_silent_of(moment, owner)
    }

    /// Whose session one of this pool is, how many seats it takes, and its token. O(1).
    pub fn holder_of(&self, session: &Session) -> Holder<'_> {
        let Some(holders) = &self.holders else {
            return Holder::PLAIN;
        };
        let slot = self.slot_of(session.id());
        slot.map_or(Holder::PLAIN, |slot| holders.get(slot))
    }

    /// How many seats the session in a slot takes, which must be in use.
    pub(crate) fn weight_at(&self, slot: u32) -> u32 {
        let holders = self.holders.as_ref();
        holders.map_or(1, |holders| holders.get(slot).weight)
    }

    /// The id of the session in a slot, which must be in use.
    pub(crate) fn id_at(&self, slot: u32) -> &[u8] {
        id_in(&self.sessions, slot)
    }

    /// What the session of a ticket asked for beyond a seat. O(log n).
    pub fn claim_of(&self, ticket: &QueueEntry<Ticket>) -> Claim<'_> {
        let tickets = self.tickets.as_ref();
        tickets.map_or(Claim::PLAIN, |tickets| tickets.claim(ticket))
    }

    /// Whether there is a live session of this id whose present token is `token`. O(1).
    pub fn has_token(&self, moment: Moment, session: &[u8], token: Option<u64>) -> bool {
        let session = self.get(moment, session);
        session.is_some_and(|session| self.holder_of(session).token == token)
    }

    /// Live sessions that have metadata. As [`Pool::count`], but O(n) while some session has none.
    ///
    /// ```
    /// # use seat_pool::{Effect, Import, Metadata, Moment, Pool};
    /// # let (mut pool, now) = (Pool::new(0), Moment::at(0));
    /// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, None));
    /// let bob = Import::read(b"bob", None)?;
    /// pool.apply(&bob.effect(&pool, now, 5).expect("he is not in the pool yet"));
    /// assert_eq!((pool.count(now), pool.with_metadata(now)), (2, 1));
    /// # Ok::<(), seat_pool::ImportError>(())
    /// ```
    pub fn with_metadata(&self, moment: Moment) -> usize {
        if self.without_metadata == 0 {
            return self.count(moment);
        }
        let live = self.live(moment);
        live.filter(|session| session.metadata().is_some()).count()
    }

    /// Live sessions that have a lease. O(log n) while some have expired, otherwise O(1).
    pub fn leased(&self, moment: Moment) -> usize {
        self.deadlines.len() - self.passed(moment)
    }

    /// Leases that have ended, those of sessions that were not reclaimed yet. O(log n) while there
    /// are some, otherwise O(1).
    fn passed(&self, moment: Moment) -> usize {
        match self.deadlines.is_empty() {
            true => 0,
            false => self.passed_of_some(moment),
        }
    }

    /// Apart, so that a pool without leases does not call it.
    #[inline(never)]
    fn passed_of_some(&self, moment: Moment) -> usize {
        let latest = moment.latest_passed_ms();
        latest.map_or(0, |latest_ms| self.deadlines.up_to(latest_ms))
    }

    /// Whether time alone will change something: there is a lease or a ticket. O(1).
    pub fn has_deadlines(&self) -> bool {
        self.deadlines.first().is_some() || self.tickets() > 0
    }

    /// The earliest effective deadline of all leases and tickets, past or to come. O(1).
    pub fn earliest_deadline_ms(&self, moment: Moment) -> Option<i64> {
        let lease = self.earliest_expiry_ms(moment);
        let ticket = self.first_lost().map(|place| place.waiting.deadline_ms);
        let ticket = ticket.map(|deadline_ms| moment.effective(deadline_ms));
        lease.into_iter().chain(ticket).min()
    }

    /// The earliest effective deadline of all leases, past or to come. O(1).
    pub fn earliest_expiry_ms(&self, moment: Moment) -> Option<i64> {
        let first = self.deadlines.first();
        first.map(|entry| moment.effective(entry.at))
    }

    /// The ticket that is lost first. O(1).
    pub fn first_lost(&self) -> Option<&QueueEntry<Ticket>> {
        self.tickets.as_ref()?.first_lost()
    }

    /// The earliest effective deadline of a live session. O(log n) while some have expired,
    /// otherwise O(1).
    ///
    /// ```
    /// # use seat_pool::{Effect, Lease, Metadata, Moment, Pool};
    /// # let mut pool = Pool::new(0);
    /// for (session, length_ms) in [(b"alice", 500), (b"brian", 900)] {
    ///     let lease = Lease::starting(0, length_ms);
    ///     pool.apply(&Effect::granting(0, session, 5, &Metadata::NONE, lease));
    /// }
    /// let now = Moment::at(500);
    /// assert_eq!(pool.earliest_expiry_ms(now), Some(500), "Alice's, still to be reclaimed");
    /// assert_eq!(pool.next_deadline_ms(now), Some(900), "Brian's, the next that somebody loses");
    /// ```
    pub fn next_deadline_ms(&self, moment: Moment) -> Option<i64> {
        let next = match moment.latest_passed_ms() {
            Some(latest_ms) => self.deadlines.after(latest_ms),
            None => self.deadlines.first(),
        };
        next.map(|entry| moment.effective(entry.at))
    }

    /// Whether there is a session, expired or not. O(1).
    pub fn has_sessions(&self) -> bool {
        self.sessions.len() > 0
    }

    /// Whether there is a session of this id, expired or not. O(1).
    pub fn contains(&self, session: &[u8]) -> bool {
        self.slot_of(session).is_some()
    }

    /// The live session of this id. O(1).
    pub fn get(&self, moment: Moment, session: &[u8]) -> Option<&Session> {
        let slot = self.slot_of(session)?;
        self.sessions
            .get(slot)
            .filter(|session| session.is_live(moment))
    }

    /// All sessions, expired ones included, in no particular order. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter_from(0).map(|(_, session)| session)
    }

    /// The live sessions, in no particular order. O(n).
    pub fn live(&self, moment: Moment) -> impl Iterator<Item = &Session> {
        self.iter().filter(move |session| session.is_live(moment))
    }

    /// The lease of a session of this pool. O(log n).
    ///
    /// ```
    /// # use seat_pool::{Effect, Lease, Metadata, Moment, Pool};
    /// # let mut pool = Pool::new(0);
    /// let lease = Lease::starting(0, 500);
    /// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, lease));
    /// let alice = pool.get(Moment::at(499), b"alice").expect("she holds a seat");
    /// assert_eq!(pool.lease_of(alice), lease);
    /// ```
    pub fn lease_of(&self, session: &Session) -> Option<Lease> {
        let deadline_ms = session.deadline_ms()?;
        let slot = self.slot_of(session.id())?;
        let entry = self.deadlines.get(deadline_ms, slot)?;
        Some(Lease {
            length_ms: entry.value,
            deadline_ms,
        })
    }

    /// The join that would make a ticket like this one of the pool. O(1).
    pub fn join_of<'a>(&'a self, ticket: &'a QueueEntry<Ticket>) -> Effect<'a> {
        Effect::Join(Join {
            session: ticket.session(),
            seats: self.figure_of(ticket),
            arrival: ticket.arrival(),
            ticket: ticket.waiting,
            claim: self.claim_of(ticket),
        })
    }

    /// The limit that the session of a ticket states itself: its figure. O(1).
    pub fn figure_of(&self, ticket: &QueueEntry<Ticket>) -> i64 {
        let tickets = self.tickets.as_ref();
        tickets.map_or(0, |tickets| tickets.figure(ticket))
    }

    /// Whether there is nothing but plain seats: no owner, no weight above 1, no token, and no
    /// limit for an owner. O(1), since there are a few dozen figures at most.
    pub(crate) fn is_plain(&self) -> bool {
        let tickets = self.tickets.as_ref();
        self.holders.is_none() && tickets.is_none_or(|tickets| tickets.is_plain())
    }

    pub(crate) fn ticket_table(&self) -> Option<&Tickets> {
        self.tickets.as_deref()
    }

    /// The effects that make this pool from nothing, in an order in which they can be applied.
    /// O(n).
    ///
    /// ```
    /// use seat_pool::{Effect, Metadata, Pool};
    ///
    /// let mut pool = Pool::new(0);
    /// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, None));
    /// let mut copy = Pool::new(0);
    /// for effect in pool.rebuilding() {
    ///     copy.apply(&effect);
    /// }
    /// assert_eq!((copy.len(), copy.seats()), (1, 5));
    /// ```
    pub fn rebuilding(&self) -> impl Iterator<Item = Effect<'_>> {
        let grants = self.iter().map(|session| self.grant_of(session));
        let joins = self.all_tickets().map(|ticket| self.join_of(ticket));
        // Where there is a grant, it has brought the limit.
        let has_grant = self.iter().next().is_some();
        let seats = (!has_grant).then_some(Effect::Seats(self.seats));
        grants.chain(joins).chain(seats)
    }

    /// The grant that would make a session like this one of the pool. O(log n).
    pub fn grant_of<'a>(&'a self, session: &'a Session) -> Effect<'a> {
        Effect::Grant(Grant {
            session: session.id(),
            seats: self.seats,
            acquired_at: session.acquired_at(),
            last_heartbeat: session.last_heartbeat(),
            heartbeat_count: session.heartbeat_count(),
            lease: self.lease_of(session),
            metadata: session.metadata(),
            holder: self.holder_of(session),
            replaces: None,
        })
    }

    /// Visits live sessions from `cursor` on, about `count` of them, and returns the cursor to go
    /// on from; 0 starts and ends.
    ///
    /// A session that stays from the first call to the last is visited exactly once. A cursor is
    /// good for the value that returned it, wherever that goes; every other value refuses it. Looks
    /// at no more than ten slots for each session asked for, so that gaps cannot make a step long.
    /// O(count).
    ///
    /// Fails where the cursor is another value's, or none at all; then nothing was visited.
    ///
    /// ```
    /// # use seat_pool::{Effect, Metadata, Moment, Pool};
    /// # let (mut pool, now) = (Pool::new(0), Moment::at(0));
    /// for session in [b"a", b"b", b"c"] {
    ///     pool.apply(&Effect::granting(0, session, 5, &Metadata::NONE, None));
    /// }
    /// let mut seen = Vec::new();
    /// let cursor = pool.scan(now, 0, 2, |session| seen.push(session.id()))?;
    /// assert_eq!(seen.len(), 2);
    /// assert_eq!(pool.scan(now, cursor, 2, |session| seen.push(session.id()))?, 0);
    /// assert_eq!(seen.len(), 3);
    /// # Ok::<(), seat_pool::StaleCursor>(())
    /// ```
    pub fn scan<'a>(
        &'a self,
        moment: Moment,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&'a Session),
    ) -> Result<u64, StaleCursor> {
        let end = self.sessions.end();
        let start = self.generation.slot(cursor)?.min(end);
        let next = |slot| {
            if slot < end {
                self.generation.cursor(slot)
            } else {
                0
            }
        };
        let stop = start.saturating_add(count.saturating_mul(10)).min(end);
        let mut visited = 0;
        for (slot, session) in self.sessions.iter_from(start) {
            let slot = slot as usize;
            if slot >= stop {
                break;
            }
            if session.is_live(moment) {
                visit(session);
                visited += 1;
                if visited == count {
                    return Ok(next(slot + 1));
                }
            }
        }
        Ok(next(stop))
    }

    /// The bytes that the pool takes, its own struct included. O(n / 256), and O(n) in the tickets.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Pool>()
            + self.payload_bytes
            + self.sessions.memory_bytes()
            + self.index.memory_bytes()
            + self.deadlines.memory_bytes()
            + self
                .tickets
                .as_ref()
                .map_or(0, |tickets| tickets.memory_bytes())
            + self
                .holders
                .as_ref()
                .map_or(0, |holders| holders.memory_bytes())
    }

    /// The valid ticket of `session`. O(1).
    pub fn ticket(&self, moment: Moment, session: &[u8]) -> Option<&QueueEntry<Ticket>> {
        let ticket = self.any_ticket(session)?;
        (!moment.has_passed(ticket.waiting.deadline_ms)).then_some(ticket)
    }

    /// Whether `session` has a ticket, lost or not. O(1).
    pub fn has_ticket(&self, session: &[u8]) -> bool {
        self.any_ticket(session).is_some()
    }

    /// The ticket of `session`, lost or not. O(1).
    pub fn any_ticket(&self, session: &[u8]) -> Option<&QueueEntry<Ticket>> {
        self.tickets.as_ref()?.get(session)
    }

    /// The highest number of a ticket in the order of arrival. O(n).
    pub fn last_arrival(&self) -> Option<u64> {
        self.all_tickets().map(QueueEntry::arrival).max()
    }

    /// All tickets in the order of arrival, lost ones included. O(n).
    pub fn all_tickets(&self) -> impl Iterator<Item = &QueueEntry<Ticket>> {
        self.tickets.iter().flat_map(|tickets| tickets.iter())
    }

    /// Up to `limit` sessions whose tickets are lost and not removed yet. O(limit).
    ///
    /// ```
    /// # use seat_pool::{Effect, Moment, Pool, Ticket};
    /// # let mut pool = Pool::new(0);
    /// let ticket = Ticket { since_ms: 0, length_ms: 500, deadline_ms: 500 };
    /// pool.apply(&Effect::joining(b"bob", 2, 1, ticket));
    /// assert_eq!(pool.lost_tickets(Moment::at(499), 10).count(), 0);
    /// let later = Moment::at(500);
    /// assert_eq!(pool.lost_tickets(later, 10).next(), Some(&b"bob"[..]));
    /// // It is there until an effect removes it, but no longer valid.
    /// assert!(pool.has_ticket(b"bob") && pool.ticket(later, b"bob").is_none());
    /// ```
    pub fn lost_tickets(&self, moment: Moment, limit: usize) -> impl Iterator<Item = &[u8]> {
        let tickets = self.tickets.iter();
        tickets.flat_map(move |tickets| tickets.lost(moment, limit))
    }

    /// The tickets that are lost and not removed yet, the one that was lost first before the
    /// others. O(their number).
    pub(crate) fn lost_entries(&self, moment: Moment) -> impl Iterator<Item = &QueueEntry<Ticket>> {
        let tickets = self.tickets.iter();
        tickets.flat_map(move |tickets| tickets.lost_entries(moment))
    }

    /// Decides on a HEARTBEAT. It renews the session's lease by its own length, or by `lease`
    /// instead if that is given. With a `token` that is not the session's present one, the session
    /// is not active for the caller. O(1), with a lease O(log n).
    ///
    /// ```
    /// use seat_pool::HeartbeatOutcome;
    /// # use seat_pool::{Effect, Lease, Metadata, Moment, Pool};
    /// # let mut pool = Pool::new(0);
    ///
    /// pool.apply(&Effect::granting(0, b"alice", 5, &Metadata::NONE, Lease::starting(0, 500)));
    /// match pool.heartbeat(Moment::at(400), b"alice", None, None) {
    ///     HeartbeatOutcome::Updated(heartbeat) => {
    ///         assert_eq!(heartbeat.heartbeat_count, 1);
    ///         assert_eq!(heartbeat.lease, Lease::starting(400, 500));
    ///         pool.apply(&Effect::Heartbeat(heartbeat));
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// let late = pool.heartbeat(Moment::at(900), b"alice", None, None);
    /// assert_eq!(late, HeartbeatOutcome::NotActive);
    /// ```
    pub fn heartbeat<'a>(
        &self,
        moment: Moment,
        session: &'a [u8],
        lease: Option<Lease>,
        token: Option<u64>,
    ) -> HeartbeatOutcome<'a> {
        let Some(found) = self.get(moment, session) else {
            return HeartbeatOutcome::NotActive;
        };
        if token.is_some() && self.holder_of(found).token != token {
            return HeartbeatOutcome::NotActive;
        }
        if found.metadata().is_none() {
            return HeartbeatOutcome::NoMetadata;
        }
        let own = || self.lease_of(found)?.renewed(moment.now_ms);
        HeartbeatOutcome::Updated(Heartbeat {
            session,
            last_heartbeat: seconds(moment.now_ms),
            heartbeat_count: found.heartbeat_count().unwrap_or(0).saturating_add(1),
            lease: lease.or_else(own),
        })
    }

    /// The ids of up to `limit` sessions whose leases have expired, the earliest deadline first.
    /// O(limit).
    ///
    /// ```
    /// # use seat_pool::{Effect, Lease, Metadata, Moment, Pool};
    /// # let mut pool = Pool::new(0);
    /// for (session, length_ms) in [(b"alice", 900), (b"brian", 500)] {
    ///     let lease = Lease::starting(0, length_ms);
    ///     pool.apply(&Effect::granting(0, session, 5, &Metadata::NONE, lease));
    /// }
    /// let later = Moment::at(900);
    /// assert!(pool.expired(later, 10).eq([b"brian", b"alice"]));
    /// assert!(pool.expired(later, 1).eq([b"brian"]));
    /// ```
    pub fn expired(&self, moment: Moment, limit: usize) -> impl Iterator<Item = &[u8]> {
        let sessions = self.expired_sessions(moment, limit);
        sessions.map(|(_, session)| session.id())
    }

    fn expired_sessions(
        &self,
        moment: Moment,
        limit: usize,
    ) -> impl Iterator<Item = (u32, &Session)> {
        let slots = self.expired_slots(moment).take(limit);
        slots.filter_map(|slot| Some((slot, self.sessions.get(slot)?)))
    }

    /// The slots of the sessions whose leases have expired, the earliest deadline first. O(1) a
    /// session.
    pub(crate) fn expired_slots(&self, moment: Moment) -> impl Iterator<Item = u32> {
        let entries = self.deadlines.iter();
        let expired = entries.take_while(move |entry| moment.has_passed(entry.at));
        expired.map(|entry| entry.slot)
    }

    /// Carries out an effect. Those of a session need it or its ticket, expired or not, unless they
    /// create it, and do nothing without. O(1), with leases or tickets O(log n).
    ///
    /// ```
    /// use seat_pool::{Applied, Effect, Freed, Metadata, Pool};
    ///
    /// let mut pool = Pool::new(0);
    /// let freeing = Effect::freeing(b"alice", Freed::Released);
    /// assert_eq!(pool.apply(&freeing), Applied::Missed);
    /// let granting = Effect::granting(0, b"alice", 5, &Metadata::NONE, None);
    /// assert_eq!(pool.apply(&granting), Applied::Done);
    /// assert_eq!(pool.apply(&granting), Applied::Replaced);
    /// assert_eq!(pool.apply(&freeing), Applied::Done);
    /// assert!(pool.is_empty());
    /// ```
    pub fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        let met = match effect {
            Effect::Grant(grant) | Effect::Import(grant) => return self.grant(grant),
            Effect::Heartbeat(heartbeat) => self.update_session(heartbeat.session, |session| {
                session.record_heartbeat(heartbeat.last_heartbeat, heartbeat.heartbeat_count);
                heartbeat.lease
            }),
            Effect::Renew { session, lease } => self.update_session(session, |_| Some(*lease)),
            Effect::Token { session, token } => self.set_token(session, *token),
            Effect::Free { session, .. } => self.free(session),
            Effect::Join(join) => {
                let tickets = self.tickets.get_or_insert_default();
                tickets.put(
                    join.session,
                    join.seats,
                    join.arrival,
                    join.ticket,
                    &join.claim,
                );
                true
            }
            Effect::Leave { session } => self.leave(session),
            Effect::Seats(seats) => {
                self.seats = *seats;
                true
            }
            Effect::Resize(seats) => {
                self.seats = *seats;
                if let Some(tickets) = &mut self.tickets {
                    tickets.restate(*seats);
                }
                true
            }
        };
        if met { Applied::Done } else { Applied::Missed }
    }

    fn set_token(&mut self, session: &[u8], token: u64) -> bool {
        let Some(slot) = self.slot_of(session) else {
            return false;
        };
        let deadline_ms = self.sessions.get(slot).and_then(Session::deadline_ms);
        let holders = self.holders.get_or_insert_default();
        holders.set_token(slot, token, deadline_ms);
        true
    }

    fn leave(&mut self, session: &[u8]) -> bool {
        let Some(tickets) = &mut self.tickets else {
            return false;
        };
        let left = tickets.remove(session);
        if tickets.len() == 0 {
            self.tickets = None;
        }
        left
    }

    fn grant(&mut self, grant: &Grant<'_>) -> Applied {
        self.leave(grant.session);
        self.seats = grant.seats;
        let predecessor = grant.replaces.and_then(|session| self.unindex(session));
        let session = Session::new(grant);
        self.payload_bytes += session.payload_bytes();
        self.without_metadata += u32::from(session.metadata().is_none());
        let slot = self.sessions.insert(session);
        let sessions = &self.sessions;
        let replaced = self
            .index
            .put(grant.session, slot, |slot| id_in(sessions, slot));
        if let Some(replaced) = replaced {
            self.remove_slot(replaced);
        }
        if let Some(lease) = grant.lease {
            self.deadlines.insert(entry(slot, lease));
        }
        if grant.holder != Holder::PLAIN {
            let deadline_ms = grant.lease.map(|lease| lease.deadline_ms);
            let session = self.sessions.get(slot);
            let heard_ms = session.map_or(NEVER_MS, |session| session.heard_ms(grant.lease));
            let holders = self.holders.get_or_insert_default();
            holders.insert(slot, &grant.holder, deadline_ms, heard_ms);
        }
        // Last, so that what the two have in common stays.
        if let Some(predecessor) = predecessor {
            self.remove_slot(predecessor);
        }
        match replaced {
            Some(_) => Applied::Replaced,
            None => Applied::Done,
        }
    }

    /// Changes a session and gives it the lease that `change` returns.
    fn update_session(
        &mut self,
        session: &[u8],
        change: impl FnOnce(&mut Session) -> Option<Lease>,
    ) -> bool {
        let Some(slot) = self.slot_of(session) else {
            return false;
        };
        let Some(found) = self.sessions.get_mut(slot) else {
            return false;
        };
        let old = found.deadline_ms();
        let lease = change(found);
        found.set_deadline_ms(lease.map(|lease| lease.deadline_ms));
        if let Some(deadline_ms) = old {
            self.deadlines.remove(deadline_ms, slot);
        }
        if let Some(lease) = lease {
            self.deadlines.insert(entry(slot, lease));
        }
        if let Some(holders) = &mut self.holders {
            let deadline_ms = lease.map(|lease| lease.deadline_ms);
            holders.renew(slot, old, deadline_ms, found.heard_ms(lease));
        }
        true
    }

    fn free(&mut self, session: &[u8]) -> bool {
        let slot = self.unindex(session);
        if let Some(slot) = slot {
            self.remove_slot(slot);
        }
        slot.is_some()
    }

    /// Takes a session out of the index. [`Pool::remove_slot`] must follow for its slot.
    fn unindex(&mut self, session: &[u8]) -> Option<u32> {
        let sessions = &self.sessions;
        self.index.remove(session, |slot| id_in(sessions, slot))
    }

    fn remove_slot(&mut self, slot: u32) {
        if let Some(session) = self.sessions.remove(slot) {
            self.payload_bytes -= session.payload_bytes();
            self.without_metadata -= u32::from(session.metadata().is_none());
            if let Some(deadline_ms) = session.deadline_ms() {
                self.deadlines.remove(deadline_ms, slot);
            }
            if let Some(holders) = &mut self.holders {
                holders.remove(slot, session.deadline_ms());
                if holders.is_empty() {
                    self.holders = None;
                }
            }
        }
    }

    /// The slot of the session of this id, live or not. O(1).
    pub(crate) fn slot_of(&self, session: &[u8]) -> Option<u32> {
        let sessions = &self.sessions;
        self.index.find(session, |slot| id_in(sessions, slot))
    }
}

impl Lease {
    /// This lease from `now_ms` on. One whose deadline would leave the range of time stays as it
    /// is.
    fn renewed(self, now_ms: i64) -> Option<Lease> {
        Some(Lease::starting(now_ms, self.length_ms).unwrap_or(self))
    }
}

impl<'a> Grant<'a> {
    /// The grant of one seat at `now_ms`.
    pub fn starting(
        now_ms: i64,
        session: &'a [u8],
        seats: i64,
        metadata: &'a crate::Metadata<'a>,
        lease: Option<Lease>,
    ) -> Grant<'a> {
        Grant {
            session,
            seats,
            acquired_at: Some(seconds(now_ms)),
            last_heartbeat: Some(seconds(now_ms)),
            heartbeat_count: metadata.heartbeat_count,
            lease,
            metadata: Some(&metadata.text),
            holder: Holder::PLAIN,
            replaces: None,
        }
    }
}

impl<'a> Effect<'a> {
    /// The grant of a seat at `now_ms`, in milliseconds of unix time; the session keeps its whole
    /// seconds. `seats` is the limit that the pool remembers, and is not checked here.
    pub fn granting(
        now_ms: i64,
        session: &'a [u8],
        seats: i64,
        metadata: &'a crate::Metadata<'a>,
        lease: Option<Lease>,
    ) -> Effect<'a> {
        Effect::Grant(Grant::starting(now_ms, session, seats, metadata, lease))
    }

    /// The lease that a session has by this effect.
    pub fn lease(&self) -> Option<Lease> {
        match self {
            Effect::Grant(grant) | Effect::Import(grant) => grant.lease,
            Effect::Heartbeat(heartbeat) => heartbeat.lease,
            Effect::Renew { lease, .. } => Some(*lease),
            Effect::Free { .. }
            | Effect::Join(_)
            | Effect::Token { .. }
            | Effect::Leave { .. }
            | Effect::Seats(_)
            | Effect::Resize(_) => None,
        }
    }

    /// The moment at which time alone undoes what this effect did: the deadline of a lease or a
    /// ticket, in milliseconds of unix time.
    ///
    /// ```
    /// use seat_pool::{Effect, Freed, Lease, Metadata};
    ///
    /// let granting = Effect::granting(0, b"alice", 5, &Metadata::NONE, Lease::starting(0, 500));
    /// assert_eq!(granting.deadline_ms(), Some(500));
    /// assert_eq!(Effect::freeing(b"alice", Freed::Released).deadline_ms(), None);
    /// ```
    pub fn deadline_ms(&self) -> Option<i64> {
        match self {
            Effect::Join(join) => Some(join.ticket.deadline_ms),
            _ => self.lease().map(|lease| lease.deadline_ms),
        }
    }

    /// A ticket for a session. `seats` is its figure, `arrival` its number in the order of arrival,
    /// below [`crate::MAX_ARRIVAL`].
    pub fn joining(session: &'a [u8], seats: i64, arrival: u64, ticket: Ticket) -> Effect<'a> {
        Effect::Join(Join {
            session,
            seats,
            arrival,
            ticket,
            claim: Claim::PLAIN,
        })
    }

    /// The end of a session's hold.
    pub fn freeing(session: &'a [u8], why: Freed) -> Effect<'a> {
        Effect::Free { session, why }
    }
}

fn id_in(sessions: &Slab<Session>, slot: u32) -> &[u8] {
    sessions.get(slot).map_or(&[], Session::id)
}

fn entry(slot: u32, lease: Lease) -> Entry<u64> {
    Entry {
        at: lease.deadline_ms,
        slot,
        value: lease.length_ms,
    }
}

/// Milliseconds of unix time in whole seconds, as the scripts' TIME gave them; clamped to what a
/// session stores, which ends in the year 2106.
pub(crate) fn seconds(now_ms: i64) -> u32 {
    let seconds = now_ms.div_euclid(1000);
    u32::try_from(seconds.max(0)).map_or(MAX_SECOND, |seconds| seconds.min(MAX_SECOND))
}
