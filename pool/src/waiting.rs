//! The queue as a whole: the tickets of a pool and the blocked clients of its name, in one order.

use crate::blocked::{Blocked, BlockedQueue};
use crate::entries::QueueEntry;
use crate::figures::{Contender, Figures, MOST_FIGURES, is_shut_out};
use crate::moment::Moment;
use crate::pool::Pool;
use crate::queue::{Ticket, Tickets};

/// How many different figures may be joined with at one name.
pub const MAX_FIGURES: usize = 8;

/// How many tickets in turn one step checks for the limits of their owners. A seat that is kept
/// for one behind these is given to others once some of them are gone, or when it polls.
const MOST_CHECKED: usize = 1024;

/// Somebody in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// Who waits.
    pub session: &'a [u8],
    /// Since when, in milliseconds of unix time.
    pub since_ms: i64,
}

/// The queue at a moment: who waits, in which order, and whose turn it is.
///
/// Each session is judged by its own *figure*, the limit that it stated. A waiter is *shut out*
/// while the seats that are taken reach its figure, or where its weight is above its figure: it is
/// granted nothing, no seat is kept for it and it counts for nobody. Of the others, it is the turn
/// of each for whom
///
/// ```text
/// seats taken + weights of those ahead that are not shut out + its own  <=  its figure
/// ```
///
/// A blocked client whose turn it is gets a seat; for a ticket whose turn it is a seat is kept.
/// Whoever does not wait yet is judged as the last of all.
///
/// ```
/// use seat_pool::{BlockedQueue, Effect, Metadata, Moment, Pool, Queue, Ticket};
///
/// let mut pool = Pool::new(0);
/// pool.apply(&Effect::granting(0, b"alice", 2, &Metadata::NONE, None));
/// let ticket = Ticket { since_ms: 0, length_ms: 500, deadline_ms: 500 };
/// pool.apply(&Effect::joining(b"bob", 2, 1, ticket));
/// let nobody = BlockedQueue::<()>::new();
/// let queue = Queue::new(&pool, &nobody, Moment::at(499), 0);
/// assert_eq!((queue.waiting(), queue.kept(), queue.position(b"bob")), (1, 1, Some(1)));
/// let queue = Queue::new(&pool, &nobody, Moment::at(500), 0);
/// assert_eq!((queue.waiting(), queue.kept(), queue.position(b"bob")), (0, 0, None));
/// ```
pub struct Queue<'a, C> {
    pool: &'a Pool,
    blocked: &'a BlockedQueue<C>,
    now: Moment,
    taken_elsewhere: u64,
}

// By hand, since the client of a queue need not be copied for it.
impl<C> Clone for Queue<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Queue<'_, C> {}

impl<'a, C> Queue<'a, C> {
    /// The queue of a pool and of the clients that are blocked at its name. `taken_elsewhere` seats
    /// are held by others than the pool's sessions.
    pub fn new(
        pool: &'a Pool,
        blocked: &'a BlockedQueue<C>,
        now: Moment,
        taken_elsewhere: u64,
    ) -> Queue<'a, C> {
        Queue {
            pool,
            blocked,
            now,
            taken_elsewhere,
        }
    }

    /// Whether nobody waits, not even with a ticket that is lost and not removed yet. O(1).
    pub(crate) fn is_empty(&self) -> bool {
        self.blocked.is_empty() && self.pool.tickets() == 0
    }

    /// The seats that are taken, by whomever. O(log n) while leases have expired, otherwise O(1).
    pub(crate) fn taken(&self) -> u64 {
        self.pool
            .used(self.now)
            .saturating_add(self.taken_elsewhere)
    }

    /// The number that `session` has in the order of arrival, if it waits. O(1).
    pub fn arrival_of(&self, session: &[u8]) -> Option<u64> {
        let blocked = self.blocked.get(session).map(QueueEntry::arrival);
        blocked.or_else(|| self.pool.ticket(self.now, session).map(QueueEntry::arrival))
    }

    /// How many wait. O(log n), and O(m) in the tickets that are lost and not removed yet.
    pub fn waiting(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.ahead_of(u64::MAX)
    }

    /// The 1-based position of `session`, if it waits. As [`Queue::waiting`].
    pub fn position(&self, session: &[u8]) -> Option<usize> {
        let arrival = self.arrival_of(session)?;
        Some(self.ahead_of(arrival) + 1)
    }

    /// How many wait who arrived before `arrival`.
    fn ahead_of(&self, arrival: u64) -> usize {
        let tickets = self.pool.ticket_table();
        let tickets = tickets.map_or(0, |tickets| tickets.figures().ahead_of(arrival));
        let blocked = self.blocked.figures().ahead_of(arrival);
        let both = self.blocked.ticketed().ahead_of(arrival);
        let lost = self
            .lost_alone()
            .filter(|ticket| ticket.arrival() < arrival);
        (tickets + blocked).saturating_sub(both + lost.count())
    }

    /// The seats that those ask for who arrived before `arrival` and are not shut out while `taken`
    /// seats are taken.
    fn competing_ahead_of(&self, taken: u64, arrival: u64) -> u64 {
        let tickets = self.pool.ticket_table();
        let tickets = tickets.map_or(0, |tickets| {
            tickets.figures().competing_ahead_of(taken, arrival)
        });
        let blocked = self.blocked.figures();
        let blocked = blocked.competing_ahead_of(taken, arrival);
        let both = self.blocked.ticketed();
        let both = both.competing_ahead_of(taken, arrival);
        let lost = self.lost_alone().filter(|ticket| {
            let figure = self.pool.figure_of(ticket);
            ticket.arrival() < arrival
                && !is_shut_out(taken, figure)
                && i64::from(ticket.weight()) <= figure
        });
        let lost = lost.map(|ticket| u64::from(ticket.weight()));
        (tickets + blocked).saturating_sub(both + lost.sum::<u64>())
    }

    /// The tickets that are lost and not removed yet, of sessions that are not blocked: they wait
    /// no longer.
    fn lost_alone(&self) -> impl Iterator<Item = &'a QueueEntry<Ticket>> {
        let blocked = self.blocked;
        let lost = self.pool.lost_entries(self.now);
        lost.filter(move |ticket| blocked.is_empty() || blocked.get(ticket.session()).is_none())
    }

    /// Whether a session with this figure and weight may have its seats, waiting since `arrival`,
    /// or coming now if that is absent. O(log n), O(1) while nobody waits.
    pub(crate) fn is_turn_of(&self, figure: i64, weight: u32, arrival: Option<u64>) -> bool {
        let taken = self.taken();
        if !fits(taken, 0, weight, figure) {
            return false;
        }
        if self.is_empty() {
            return true;
        }
        let ahead = self.competing_ahead_of(taken, arrival.unwrap_or(u64::MAX));
        fits(taken, ahead, weight, figure)
    }

    /// As [`Queue::is_turn_of`], where a live session that takes `freed` seats ends for this one.
    /// No heavier than that, it needs no turn, since the seats that are taken do not rise. `None`
    /// if there are too few seats with the queue empty, too.
    pub(crate) fn is_turn_of_successor(
        &self,
        figure: i64,
        weight: u32,
        arrival: Option<u64>,
        freed: u32,
    ) -> Option<bool> {
        let taken = self.taken();
        if !fits(taken.saturating_sub(freed.into()), 0, weight, figure) {
            return None;
        }
        let more = weight.saturating_sub(freed);
        Some(more == 0 || self.is_turn_of(figure, more, arrival))
    }

    /// The blocked client whose turn it is: of those who may have a seat, the one that has waited
    /// longest. O(log n).
    pub(crate) fn next_turn(&self) -> Option<&'a QueueEntry<Blocked<C>>> {
        if self.now.holds_grants || self.blocked.is_empty() {
            return None;
        }
        let taken = self.taken();
        // Of those with the same figure, the first has the fewest ahead.
        let firsts = self.blocked.figures().first_contenders();
        let eligible = firsts.filter(|first| {
            let fits = |ahead| fits(taken, ahead, first.weight, first.figure);
            fits(0) && fits(self.competing_ahead_of(taken, first.arrival))
        });
        let first = eligible.min_by_key(|first| (first.arrival, first.slot))?;
        self.blocked.at(first.slot)
    }

    /// Those of `tickets`, entries of the pool's table, that have no client besides and whose turn
    /// it is, with their slots. O(k log n) where k is their number, and as [`Queue::waiting`].
    fn tickets_in_turn<'f>(
        &'f self,
        table: &'a Tickets,
        tickets: &'f Figures,
    ) -> impl Iterator<Item = (u32, &'a QueueEntry<Ticket>)> {
        let taken = self.taken();
        let competing = tickets
            .contenders()
            .filter(move |&(figure, _)| !is_shut_out(taken, figure));
        let in_turn = competing.flat_map(move |(figure, contenders)| {
            let with_ahead = contenders.map(move |contender: Contender| {
                (contender, self.competing_ahead_of(taken, contender.arrival))
            });
            // Those further behind have no fewer seats ahead.
            let near = with_ahead.take_while(move |&(_, ahead)| fits(taken, ahead, 1, figure));
            near.filter(move |&(contender, ahead)| fits(taken, ahead, contender.weight, figure))
        });
        in_turn.filter_map(move |(contender, _)| {
            let ticket = table.at(contender.slot)?;
            let is_valid = !self.now.has_passed(ticket.waiting.deadline_ms);
            let is_alone = self.blocked.is_empty() || self.blocked.get(ticket.session()).is_none();
            (is_valid && is_alone).then_some((contender.slot, ticket))
        })
    }

    /// Up to `limit` sessions that wait by tickets alone and whose turn it is, but whose owners
    /// have as many live sessions as they may have. Not those who can take over from one of these.
    /// O(k log n) where k is the number of those with a limited owner whose turn it is, and no more
    /// than [`MOST_CHECKED`]; O(1) where no ticket's owner is limited.
    pub(crate) fn over_limit(&self, limit: usize) -> Vec<&'a [u8]> {
        let table = self.pool.ticket_table();
        let Some(table) = table.filter(|table| !table.limited().is_empty()) else {
            return Vec::new();
        };
        let in_turn = self.tickets_in_turn(table, table.limited());
        let over = in_turn.take(MOST_CHECKED).filter(|&(slot, _)| {
            let claim = table.claim_at(slot);
            let owned = claim.owner.zip(claim.max_per_owner);
            owned.is_some_and(|(owner, max)| {
                let held = self.pool.held(self.now, owner);
                held > max || held == max && !claim.takeover
            })
        });
        over.take(limit)
            .map(|(_, ticket)| ticket.session())
            .collect()
    }

    /// How many seats are kept for tickets. O(k log n) where k is their number, and as
    /// [`Queue::waiting`].
    ///
    /// ```
    /// # use seat_pool::{BlockedQueue, Effect, Metadata, Moment, Pool, Queue, Ticket};
    /// # let mut pool = Pool::new(0);
    /// # let nobody = BlockedQueue::<()>::new();
    /// // Alice holds one of two seats. The other is kept for Bob, who came before Carol.
    /// pool.apply(&Effect::granting(0, b"alice", 2, &Metadata::NONE, None));
    /// let ticket = Ticket { since_ms: 0, length_ms: 500, deadline_ms: 500 };
    /// pool.apply(&Effect::joining(b"bob", 2, 1, ticket));
    /// pool.apply(&Effect::joining(b"carol", 2, 2, ticket));
    /// assert_eq!(Queue::new(&pool, &nobody, Moment::at(0), 0).kept(), 1);
    /// // A seat that is taken elsewhere cannot be kept.
    /// assert_eq!(Queue::new(&pool, &nobody, Moment::at(0), 1).kept(), 0);
    /// ```
    pub fn kept(&self) -> u64 {
        let Some(tickets) = self.pool.ticket_table() else {
            return 0;
        };
        let in_turn = self.tickets_in_turn(tickets, tickets.figures());
        in_turn.map(|(_, ticket)| u64::from(ticket.weight())).sum()
    }

    /// Whether `session` may join with this figure, that is whether no more than [`MAX_FIGURES`]
    /// are stated then. O(m) in the tickets that are lost and not removed yet, otherwise O(1),
    /// since there are a few dozen figures at most.
    pub(crate) fn has_room_for(&self, figure: i64, session: &[u8]) -> bool {
        let own = self.blocked.get(session);
        let mut leaving = [0; MOST_FIGURES];
        let own_ticket = match own {
            Some(_) => self.pool.any_ticket(session),
            None => self.pool.ticket(self.now, session),
        };
        for ticket in self.lost_alone().chain(own_ticket) {
            leaving[ticket.index() as usize] += 1;
        }
        let tickets = self.pool.ticket_table();
        let of_tickets = tickets
            .into_iter()
            .flat_map(|tickets| stated(tickets.figures(), |index| leaving[index as usize]));
        let own = own.map(QueueEntry::index);
        let of_clients = stated(self.blocked.figures(), |index| {
            usize::from(own == Some(index))
        });
        let mut others: Vec<i64> = of_tickets.chain(of_clients).collect();
        others.sort_unstable();
        others.dedup();
        others.len() < MAX_FIGURES || others.contains(&figure)
    }

    /// All who wait, in the order of arrival. O(n log n).
    ///
    /// ```
    /// # use seat_pool::{BlockedQueue, Effect, Metadata, Moment, Pool, Queue, Request, Ticket};
    /// # let (mut pool, mut blocked) = (Pool::new(0), BlockedQueue::new());
    /// # let request = Request {
    /// #     metadata: Metadata::NONE,
    /// #     lease_ms: None,
    /// #     ticket_ms: None,
    /// #     since_ms: 0,
    /// #     claim: None,
    /// #     with_token: false,
    /// # };
    /// let ticket = Ticket { since_ms: 0, length_ms: 500, deadline_ms: 500 };
    /// pool.apply(&Effect::joining(b"bob", 1, 2, ticket));
    /// blocked.insert(&pool, b"carol", 1, 1, "her connection", request);
    /// let queue = Queue::new(&pool, &blocked, Moment::at(0), 0);
    /// let listed: Vec<_> = queue.list().iter().map(|waiting| waiting.session).collect();
    /// assert_eq!(listed, [b"carol" as &[u8], b"bob"]);
    /// assert_eq!((queue.position(b"bob"), queue.position(b"dave")), (Some(2), None));
    /// ```
    pub fn list(&self) -> Vec<Waiting<'a>> {
        let valid = self
            .pool
            .all_tickets()
            .filter(|ticket| !self.now.has_passed(ticket.waiting.deadline_ms))
            .map(|ticket| (ticket.arrival(), ticket.session(), ticket.waiting.since_ms));
        let blocked = self
            .blocked
            .iter()
            .filter(|entry| self.pool.ticket(self.now, entry.session()).is_none())
            .map(|entry| {
                (
                    entry.arrival(),
                    entry.session(),
                    entry.waiting.request.since_ms,
                )
            });
        let mut all: Vec<_> = valid.chain(blocked).collect();
        all.sort_unstable();
        all.into_iter()
            .map(|(_, session, since_ms)| Waiting { session, since_ms })
            .collect()
    }
}

/// The figures that entries state, apart from so many `leaving` of each index.
fn stated(figures: &Figures, leaving: impl Fn(u32) -> usize) -> impl Iterator<Item = i64> {
    let numbers = figures.numbers();
    let staying = numbers.filter(move |&(index, _)| figures.len_of(index) > leaving(index));
    staying.map(|(_, figure)| figure)
}

/// Whether `weight` seats more are within the figure where `taken` are taken and `ahead` are to be
/// had by others.
fn fits(taken: u64, ahead: u64, weight: u32, figure: i64) -> bool {
    let all = taken.saturating_add(ahead).saturating_add(weight.into());
    u64::try_from(figure).is_ok_and(|figure| all <= figure)
}
