//! Blocked clients: who waits at a name on an open connection.

use crate::claims::{Claim, KeptClaim, SlotsByOwner};
use crate::entries::{QueueEntries, QueueEntry};
use crate::figures::Figures;
use crate::metadata::Metadata;
use crate::pool::Pool;

/// What a blocked client asked for, apart from its session and figure.
#[derive(Clone, Debug)]
pub struct Request {
    /// The metadata that its grant will have.
    pub metadata: Metadata<'static>,
    /// The length of the lease that its grant will have, in milliseconds, if it asked for one.
    pub lease_ms: Option<u64>,
    /// How long each poll keeps its ticket, in milliseconds, if it asked for one as well.
    pub ticket_ms: Option<u64>,
    /// Since when its session waits, in milliseconds of unix time.
    pub since_ms: i64,
    /// What its session asked for beyond a seat; absent for a plain seat.
    pub claim: Option<Box<KeptClaim>>,
    /// Whether its grant is to have a token.
    pub with_token: bool,
}

impl Request {
    /// What its session asked for beyond a seat.
    pub fn claim(&self) -> Claim<'_> {
        KeptClaim::or_plain(self.claim.as_deref())
    }
}

/// Who waits, or did so, since when, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait<'a> {
    /// Who waits.
    pub session: &'a [u8],
    /// The limit that it stated, or that RESIZE restated for it.
    pub seats: i64,
    /// Since when, in milliseconds of unix time.
    pub since_ms: i64,
    /// What it asked for beyond a seat.
    pub claim: Claim<'a>,
}

/// A [`Wait`] that outlives its entry in the queue.
pub(crate) struct KeptWait {
    pub(crate) seats: i64,
    pub(crate) since_ms: i64,
    pub(crate) claim: Option<Box<KeptClaim>>,
}

impl KeptWait {
    pub(crate) fn of<'a>(&'a self, session: &'a [u8]) -> Wait<'a> {
        Wait {
            session,
            seats: self.seats,
            since_ms: self.since_ms,
            claim: KeptClaim::or_plain(self.claim.as_deref()),
        }
    }
}

/// A blocked client that has left the queue, with all that its host may need to answer it.
#[derive(Clone, Debug)]
pub struct Waiter<C> {
    /// How the host knows the client.
    pub client: C,
    /// Whose client it is.
    pub session: Box<[u8]>,
    /// Its number in the order of arrival.
    pub arrival: u64,
    /// The limit that it stated, or that RESIZE restated for it.
    pub seats: i64,
    /// What it asked for.
    pub request: Request,
}

impl<C> Waiter<C> {
    /// Its wait.
    pub fn wait(&self) -> Wait<'_> {
        Wait {
            session: &self.session,
            seats: self.seats,
            since_ms: self.request.since_ms,
            claim: self.request.claim(),
        }
    }
}

/// A blocked client in the queue.
#[derive(Clone, Debug)]
pub struct Blocked<C> {
    /// How the host knows the client.
    pub client: C,
    /// What it asked for.
    pub request: Request,
    /// The number of the index of [`BlockedQueue::ticketed`] in which its session's ticket stands.
    ticketed: Option<u32>,
}

/// The blocked queue: the clients that wait at one name.
///
/// They are not part of a pool. They stay with the name when the pool moves, and wait also where
/// there is none. A session that has a ticket as well has one entry here and one among the pool's
/// tickets, both at the same arrival. It is counted once, and judged by what its client stated:
///
/// ```text
///              a ── b ── c ── d ── e     in the order of arrival
/// tickets      x         x         x     of the pool: they move with it
/// clients           x    x    x          of the name
/// ticketed               x               of the name: by the figures of the tickets
///
/// all who wait = tickets + clients - ticketed
/// ```
///
/// ```
/// use seat_pool::{BlockedQueue, Metadata, Moment, Pool, Queue, Request};
///
/// let mut blocked = BlockedQueue::default();
/// let request = Request {
///     metadata: Metadata::NONE,
///     lease_ms: None,
///     ticket_ms: None,
///     since_ms: 0,
///     claim: None,
///     with_token: false,
/// };
/// blocked.insert(&Pool::new(0), b"alice", 1, 7, "alice's connection", request);
/// let nobody = Pool::new(0);
/// let queue = Queue::new(&nobody, &blocked, Moment::at(0), 0);
/// assert_eq!(queue.position(b"alice"), Some(1));
/// assert_eq!(blocked.remove(b"alice").map(|waiter| waiter.client), Some("alice's connection"));
/// ```
#[derive(Clone, Debug)]
pub struct BlockedQueue<C> {
    entries: QueueEntries<Blocked<C>>,
    /// The tickets of those in `entries`, by the slots of these.
    ticketed: Figures,
    /// Those in `entries` whose sessions have an owner.
    slots: SlotsByOwner,
}

impl<C> Default for BlockedQueue<C> {
    fn default() -> Self {
        BlockedQueue::new()
    }
}

impl<C> BlockedQueue<C> {
    /// A queue in which nobody is.
    pub fn new() -> BlockedQueue<C> {
        BlockedQueue {
            entries: QueueEntries::default(),
            ticketed: Figures::default(),
            slots: SlotsByOwner::default(),
        }
    }

    /// Whether no client is blocked. O(1).
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of `session`. O(1).
    pub fn get(&self, session: &[u8]) -> Option<&QueueEntry<Blocked<C>>> {
        self.entries.get(session)
    }

    /// The limit that the client of an entry stated, or that RESIZE restated for it. O(1).
    pub fn figure(&self, entry: &QueueEntry<Blocked<C>>) -> i64 {
        self.entries.figure(entry)
    }

    /// All entries in the order of arrival. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &QueueEntry<Blocked<C>>> {
        self.entries.iter()
    }

    /// The client that has waited longest. O(1).
    pub fn first(&self) -> Option<&QueueEntry<Blocked<C>>> {
        self.entries.first()
    }

    pub(crate) fn figures(&self) -> &Figures {
        self.entries.figures()
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&QueueEntry<Blocked<C>>> {
        self.entries.at(slot)
    }

    /// The sessions of an owner whose clients are blocked. O(log n), then O(1) a client.
    pub(crate) fn owned(&self, owner: &[u8]) -> impl Iterator<Item = &[u8]> {
        let entries = self.slots.of(owner).filter_map(|slot| self.at(slot));
        entries.map(QueueEntry::session)
    }

    pub(crate) fn ticketed(&self) -> &Figures {
        &self.ticketed
    }

    /// Adds the client of `session`, which has none in the queue yet, at a number in the order of
    /// arrival. If the session has a ticket of the pool at this name, that must be its ticket's
    /// number. O(log n).
    pub fn insert(
        &mut self,
        pool: &Pool,
        session: &[u8],
        seats: i64,
        arrival: u64,
        client: C,
        request: Request,
    ) {
        let weight = request.claim().weight;
        let blocked = Blocked {
            client,
            request,
            ticketed: None,
        };
        let slot = self
            .entries
            .insert(session, seats, arrival, weight, blocked);
        let entry = self.entries.at(slot);
        if let Some(owner) = entry.and_then(|entry| entry.waiting.request.claim().owner) {
            self.slots.add(owner, slot);
        }
        self.note_ticket(slot, pool);
    }

    /// Takes the client of `session` out, if it has one in the queue. O(log n).
    pub fn remove(&mut self, session: &[u8]) -> Option<Waiter<C>> {
        let slot = self.entries.slot_of(session)?;
        self.forget_ticket(slot);
        let entry = self.entries.at(slot)?;
        let (seats, arrival) = (self.entries.figure(entry), entry.arrival());
        let blocked = self.entries.remove(session)?.waiting;
        if let Some(owner) = blocked.request.claim().owner {
            self.slots.remove(owner, slot);
        }
        Some(Waiter {
            client: blocked.client,
            session: session.into(),
            arrival,
            seats,
            request: blocked.request,
        })
    }

    /// Takes the client of `session` out, unless a newer one has replaced it. O(log n).
    ///
    /// ```
    /// # use seat_pool::{BlockedQueue, Effect, Metadata, Pool, Request, Ticket};
    /// # let mut blocked = BlockedQueue::new();
    /// # let request = Request {
    /// #     metadata: Metadata::NONE,
    /// #     lease_ms: None,
    /// #     ticket_ms: None,
    /// #     since_ms: 0,
    /// #     claim: None,
    /// #     with_token: false,
    /// # };
    /// blocked.insert(&Pool::new(0), b"alice", 1, 7, "second connection", request);
    /// assert!(blocked.remove_client(b"alice", &"first connection").is_none());
    /// let waiter = blocked.remove_client(b"alice", &"second connection");
    /// assert_eq!(waiter.map(|waiter| (waiter.arrival, waiter.seats)), Some((7, 1)));
    /// assert!(blocked.is_empty());
    /// ```
    pub fn remove_client(&mut self, session: &[u8], client: &C) -> Option<Waiter<C>>
    where
        C: PartialEq,
    {
        let entry = self.entries.get(session)?;
        (entry.waiting.client == *client).then(|| self.remove(session))?
    }

    /// Gives the client of `session` the position of the ticket that the session has in `pool`
    /// now, or at its own without one.
    pub(crate) fn match_ticket(&mut self, session: &[u8], pool: &Pool) {
        let Some(slot) = self.entries.slot_of(session) else {
            return;
        };
        self.forget_ticket(slot);
        let ticket = pool.any_ticket(session);
        let arrival = self.entries.at(slot).map(QueueEntry::arrival);
        match ticket {
            Some(ticket) if Some(ticket.arrival()) != arrival => {
                let waiter = self.remove(session);
                if let Some(Waiter {
                    client,
                    seats,
                    request,
                    ..
                }) = waiter
                {
                    self.insert(pool, session, seats, ticket.arrival(), client, request);
                }
            }
            _ => self.note_ticket(slot, pool),
        }
    }

    /// Gives each client the position that the tickets of `pool` give it: another value has come
    /// to the name. O(n log n).
    ///
    /// ```
    /// # use seat_pool::{BlockedQueue, Effect, Metadata, Pool, Request, Ticket};
    /// # let mut blocked = BlockedQueue::new();
    /// # let request = Request {
    /// #     metadata: Metadata::NONE,
    /// #     lease_ms: None,
    /// #     ticket_ms: None,
    /// #     since_ms: 0,
    /// #     claim: None,
    /// #     with_token: false,
    /// # };
    /// blocked.insert(&Pool::new(0), b"alice", 1, 7, "her connection", request);
    /// let mut renamed = Pool::new(0);
    /// let ticket = Ticket { since_ms: 0, length_ms: 500, deadline_ms: 500 };
    /// renamed.apply(&Effect::joining(b"alice", 1, 3, ticket));
    /// blocked.match_tickets(&renamed);
    /// assert_eq!(blocked.get(b"alice").map(|alice| alice.arrival()), Some(3));
    /// ```
    pub fn match_tickets(&mut self, pool: &Pool) {
        let sessions: Vec<Box<[u8]>> = self.iter().map(|entry| entry.session().into()).collect();
        for session in sessions {
            self.match_ticket(&session, pool);
        }
    }

    /// Has all clients state `seats`, as the tickets of the pool at this name do. O(m log n) where
    /// m is the number of those that do not state the commonest figure.
    pub(crate) fn restate(&mut self, seats: i64) {
        self.entries.restate(seats);
        let entries = &mut self.entries;
        self.ticketed.restate(seats, |slot, index| {
            if let Some(entry) = entries.at_mut(slot) {
                entry.waiting.ticketed = Some(index);
            }
        });
    }

    fn note_ticket(&mut self, slot: u32, pool: &Pool) {
        let Some(entry) = self.entries.at_mut(slot) else {
            return;
        };
        if let Some(ticket) = pool.any_ticket(entry.session()) {
            let figure = pool.figure_of(ticket);
            let index = self
                .ticketed
                .insert(figure, ticket.arrival(), slot, ticket.weight());
            entry.waiting.ticketed = Some(index);
        }
    }

    fn forget_ticket(&mut self, slot: u32) {
        let Some(entry) = self.entries.at_mut(slot) else {
            return;
        };
        if let Some(index) = entry.waiting.ticketed.take() {
            let arrival = entry.arrival();
            self.ticketed.remove(index, arrival, slot);
        }
    }
}
