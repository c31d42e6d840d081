//! Who waits for a seat: tickets, which are part of the pool, and blocked clients, which belong to a name.

use crate::entries::{QueueEntries, QueueEntry};
use crate::figures::Figures;
use crate::moment::Moment;
use crate::order::{Entry, Order};

/// How many seats there are to decide by, and how many of them are taken by others than a pool's
/// sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// All seats, as whoever asks for one states them.
    pub seats: i64,
    /// Of these, what invalid entries of legacy keys take: they hold seats, and no pool can hold
    /// them.
    pub taken_elsewhere: usize,
}

impl Limit {
    /// Whether a seat is free where a pool's sessions and those who wait ahead take `taken`.
    pub(crate) fn has_room(self, taken: usize) -> bool {
        self.free(taken) > 0
    }

    /// The seats that are free where a pool's sessions take `used`.
    pub(crate) fn free(self, used: usize) -> usize {
        let taken = used.saturating_add(self.taken_elsewhere);
        let seats = usize::try_from(self.seats).unwrap_or(0);
        seats.saturating_sub(taken)
    }
}

/// A limit of which nothing is taken elsewhere.
impl From<i64> for Limit {
    fn from(seats: i64) -> Limit {
        Limit {
            seats,
            taken_elsewhere: 0,
        }
    }
}

/// A place that is kept by polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// When its session joined the queue, in milliseconds of unix time.
    pub since_ms: i64,
    /// How long each poll keeps the place, in milliseconds; never 0.
    pub length_ms: u64,
    /// Until when it is kept, in milliseconds of unix time: the place is lost from this millisecond on.
    pub deadline_ms: i64,
}

impl Ticket {
    /// This ticket valid for `valid_ms` from `now_ms` on, whatever its own length, or `None` if that is 0 or ends beyond the range of
    /// time.
    pub fn kept(self, now_ms: i64, valid_ms: u64) -> Option<Ticket> {
        let deadline_ms = now_ms.checked_add_unsigned(valid_ms)?;
        (valid_ms > 0 && deadline_ms < i64::MAX).then_some(Ticket {
            deadline_ms,
            ..self
        })
    }
}

/// The tickets of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    places: QueueEntries<Ticket>,
    /// When they are lost, by slot in `places`.
    deadlines: Order<()>,
}

impl Tickets {
    /// Tickets, lost ones included.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Tickets that are valid. O(log n).
    pub(crate) fn valid(&self, moment: Moment) -> usize {
        self.len() - self.passed(moment)
    }

    /// Tickets that are lost. O(log n).
    fn passed(&self, moment: Moment) -> usize {
        let latest = moment.latest_passed_ms();
        latest.map_or(0, |latest_ms| self.deadlines.up_to(latest_ms))
    }

    /// Gives `session` this ticket: a new entry, or the one it has.
    pub(crate) fn put(&mut self, session: &[u8], figure: i64, arrival: u64, ticket: Ticket) {
        self.remove(session);
        let slot = self.places.insert(session, figure, arrival, ticket);
        self.deadlines.insert(Entry {
            at: ticket.deadline_ms,
            slot,
            value: (),
        });
    }

    pub(crate) fn remove(&mut self, session: &[u8]) -> bool {
        let Some(slot) = self.places.slot_of(session) else {
            return false;
        };
        if let Some(place) = self.places.remove(session) {
            self.deadlines.remove(place.waiting.deadline_ms, slot);
        }
        true
    }

    pub(crate) fn get(&self, session: &[u8]) -> Option<&QueueEntry<Ticket>> {
        self.places.get(session)
    }

    /// Valid tickets that arrived before `arrival`. O(log n), O(n) while some are lost and not removed yet.
    pub(crate) fn valid_ahead_of(&self, moment: Moment, arrival: u64) -> usize {
        if self.passed(moment) == 0 {
            return self.places.ahead_of(arrival);
        }
        self.iter()
            .take_while(|place| place.arrival() < arrival)
            .filter(|place| !moment.has_passed(place.waiting.deadline_ms))
            .count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueEntry<Ticket>> {
        self.places.iter()
    }

    /// Up to `limit` sessions whose tickets are lost.
    pub(crate) fn lost(&self, moment: Moment, limit: usize) -> impl Iterator<Item = &[u8]> {
        self.deadlines
            .iter()
            .take(limit)
            .take_while(move |entry| moment.has_passed(entry.at))
            .filter_map(|entry| self.places.at(entry.slot))
            .map(QueueEntry::session)
    }

    /// All tickets that are lost, the one that was lost first before the others.
    pub(crate) fn lost_entries(&self, moment: Moment) -> impl Iterator<Item = &QueueEntry<Ticket>> {
        let deadlines = self.deadlines.iter();
        let lost = deadlines.take_while(move |entry| moment.has_passed(entry.at));
        lost.filter_map(|entry| self.places.at(entry.slot))
    }

    /// The ticket that is lost first.
    pub(crate) fn first_lost(&self) -> Option<&QueueEntry<Ticket>> {
        self.places.at(self.deadlines.first()?.slot)
    }

    /// What the session of a ticket states as the limit.
    pub(crate) fn figure(&self, ticket: &QueueEntry<Ticket>) -> i64 {
        self.places.figure(ticket)
    }

    pub(crate) fn figures(&self) -> &Figures {
        self.places.figures()
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&QueueEntry<Ticket>> {
        self.places.at(slot)
    }

    pub(crate) fn restate(&mut self, figure: i64) {
        self.places.restate(figure);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Tickets>() + self.places.memory_bytes() + self.deadlines.memory_bytes()
    }
}

/// The blocked clients that wait at one name. They are not part of a pool: they stay with the name when the pool moves.
///
/// One that asked for a ticket as well has the same place in both.
#[derive(Clone, Debug)]
pub struct Line<W> {
    places: QueueEntries<W>,
    /// Those of `places` that have a ticket as well, by arrival.
    ticketed: Order<()>,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Line {
            places: QueueEntries::default(),
            ticketed: Order::default(),
        }
    }
}

impl<W> Line<W> {
    /// How many clients are blocked.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no client is blocked.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a client for `session`, which must have none in the line yet. `ticketed` says that it has a ticket of the same arrival.
    pub fn join(&mut self, session: &[u8], arrival: u64, ticketed: bool, waiter: W) {
        let slot = self.places.insert(session, 0, arrival, waiter);
        if ticketed {
            self.ticketed.insert(Entry {
                at: arrival as i64,
                slot,
                value: (),
            });
        }
    }

    /// Takes the client of `session` out.
    pub fn leave(&mut self, session: &[u8]) -> Option<QueueEntry<W>> {
        let slot = self.places.slot_of(session)?;
        let place = self.places.remove(session)?;
        self.ticketed.remove(place.arrival() as i64, slot);
        Some(place)
    }

    /// The place of `session`.
    pub fn get(&self, session: &[u8]) -> Option<&QueueEntry<W>> {
        self.places.get(session)
    }

    /// The client that has waited longest.
    pub fn first(&self) -> Option<&QueueEntry<W>> {
        self.places.first()
    }

    /// All clients in the order of arrival. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &QueueEntry<W>> {
        self.places.iter()
    }

    /// Whether the client of `session` has a ticket as well.
    #[cfg(test)]
    fn is_ticketed(&self, session: &[u8]) -> bool {
        let slot = self.places.slot_of(session);
        slot.zip(self.places.get(session))
            .is_some_and(|(slot, place)| self.ticketed.get(place.arrival() as i64, slot).is_some())
    }

    /// Has the client of `session` be at the place of its ticket, whose arrival is `ticket`, or at its own place without one.
    pub fn mark(&mut self, session: &[u8], ticket: Option<u64>) {
        if let Some(place) = self.leave(session) {
            let arrival = ticket.unwrap_or(place.arrival());
            self.join(session, arrival, ticket.is_some(), place.waiting);
        }
    }

    /// How many of the clients that arrived before `arrival` have no ticket of `tickets_ahead` others. O(log n).
    pub(crate) fn more_ahead_of(&self, arrival: u64, tickets_ahead: usize) -> usize {
        let both = arrival
            .checked_sub(1)
            .map_or(0, |before| self.ticketed.up_to(before as i64));
        self.places.ahead_of(arrival) - both.min(tickets_ahead)
    }

    /// As [`Line::more_ahead_of`], of all clients.
    pub(crate) fn more_than(&self, tickets: usize) -> usize {
        self.len() - self.ticketed.len().min(tickets)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Line, Ticket, Tickets};
    use crate::moment::Moment;

    fn ticket(since_ms: i64, length_ms: u64) -> Ticket {
        let joined = Ticket {
            since_ms,
            length_ms,
            deadline_ms: since_ms,
        };
        joined.kept(since_ms, length_ms).expect("within time")
    }

    #[test]
    fn a_poll_keeps_the_place_from_now_on_within_the_range_of_time() {
        let joined = ticket(1_000, 500);
        assert_eq!((joined.since_ms, joined.deadline_ms), (1_000, 1_500));
        let polled = joined.kept(1_400, 50).expect("within time");
        assert_eq!(polled.since_ms, 1_000);
        assert_eq!((polled.length_ms, polled.deadline_ms), (500, 1_450));
        assert_eq!(joined.kept(1_400, 0), None);
        assert_eq!(joined.kept(1, u64::MAX), None);
        assert_eq!(joined.kept(i64::MAX - 5, 5), None);
        let last = joined.kept(i64::MAX - 5, 4).expect("within time");
        assert_eq!(last.deadline_ms, i64::MAX - 1);
        let early = joined.kept(i64::MIN, u64::MAX - 1).expect("within time");
        assert_eq!(early.deadline_ms, i64::MAX - 1);
    }

    /// In the order of arrival: who, when, and the ticket.
    type Model = Vec<(u8, u64, Ticket)>;

    fn check(tickets: &Tickets, model: &Model) {
        let listed: Vec<_> = tickets
            .iter()
            .map(|place| (place.session()[0], place.arrival(), place.waiting))
            .collect();
        assert_eq!(&listed, model);
        assert_eq!(tickets.len(), model.len());
        let deadlines = || model.iter().map(|(.., ticket)| ticket.deadline_ms);
        assert_eq!(
            tickets.first_lost().map(|place| place.waiting.deadline_ms),
            deadlines().min()
        );
        let floors = [Moment::NO_FLOOR, 30, 61];
        let times = [i64::MIN, 0, 1, 30, 60, 100, i64::MAX - 1];
        for (now_ms, floor_ms) in times
            .into_iter()
            .flat_map(|at| floors.map(|floor| (at, floor)))
        {
            let moment = Moment::with_floor(now_ms, floor_ms);
            let is_valid = |(.., ticket): &&(u8, u64, Ticket)| {
                now_ms < ticket.deadline_ms || now_ms < floor_ms
            };
            let valid = model.iter().filter(is_valid).count();
            assert_eq!(tickets.valid(moment), valid, "at {moment:?}");
            for arrival in [0, 1, 20, 40, 100, 101] {
                let ahead = model.iter().filter(is_valid);
                let ahead = ahead.filter(|(_, other, _)| *other < arrival);
                assert_eq!(tickets.valid_ahead_of(moment, arrival), ahead.count());
            }
            let mut lost: Vec<_> = tickets.lost(moment, usize::MAX).map(|id| id[0]).collect();
            lost.sort_unstable();
            let expected = model.iter().filter(|place| !is_valid(place));
            let mut expected: Vec<_> = expected.map(|(session, ..)| *session).collect();
            expected.sort_unstable();
            assert_eq!(lost, expected, "lost at {moment:?}");
            assert_eq!(tickets.lost(moment, 2).count(), lost.len().min(2));
        }
    }

    proptest! {
        #[test]
        fn tickets_agree_with_a_sorted_list(
            steps in prop::collection::vec((0..30u8, 0..100u64, prop::option::of(1..100u64)), 1..200)
        ) {
            let mut tickets = Tickets::default();
            let mut model = Model::new();
            for (session, arrival, length_ms) in steps {
                let known = model.iter().position(|(other, ..)| *other == session);
                let Some(length_ms) = length_ms else {
                    prop_assert_eq!(tickets.remove(&[session]), known.is_some());
                    known.map(|known| model.remove(known));
                    continue;
                };
                // A poll keeps its place in the order, a new ticket takes one that is free.
                let arrival = known.map_or(arrival, |known| model[known].1);
                if known.is_none() && model.iter().any(|(_, other, _)| *other == arrival) {
                    continue;
                }
                known.map(|known| model.remove(known));
                let ticket = ticket(0, length_ms);
                tickets.put(&[session], 0, arrival, ticket);
                model.push((session, arrival, ticket));
                model.sort_by_key(|(_, arrival, _)| *arrival);
                let place = tickets.get(&[session]).expect("it has one");
                prop_assert_eq!((place.arrival(), place.waiting), (arrival, ticket));
            }
            check(&tickets, &model);
        }

        /// Some wait by a ticket, some are blocked, some both at one place. Nobody is counted twice.
        #[test]
        fn a_line_counts_those_who_have_tickets_once(
            places in prop::collection::vec((any::<bool>(), any::<bool>()), 0..60),
            leave in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            forgets in any::<bool>(),
        ) {
            let mut tickets = Tickets::default();
            let mut line = Line::default();
            let mut model: Vec<(u64, bool, bool)> = Vec::new();
            for (arrival, (has_ticket, is_blocked)) in (0..).zip(places) {
                let session = [arrival as u8];
                if has_ticket {
                    tickets.put(&session, 0, arrival, ticket(0, 10));
                }
                if is_blocked {
                    line.join(&session, arrival, has_ticket, arrival);
                }
                model.push((arrival, has_ticket, is_blocked));
            }
            for index in leave {
                if model.is_empty() {
                    break;
                }
                let index = index.index(model.len());
                let (arrival, _, is_blocked) = &mut model[index];
                let left = line.leave(&[*arrival as u8]);
                prop_assert_eq!(left.map(|place| place.waiting), is_blocked.then_some(*arrival));
                *is_blocked = false;
            }
            if forgets {
                tickets = Tickets::default();
                for (arrival, ..) in model.iter().filter(|(.., is_blocked)| *is_blocked) {
                    line.mark(&[*arrival as u8], None);
                }
                model.iter_mut().for_each(|(_, has_ticket, _)| *has_ticket = false);
            }
            model.retain(|(_, has_ticket, is_blocked)| *has_ticket || *is_blocked);

            let blocked = || model.iter().filter(|(.., is_blocked)| *is_blocked);
            prop_assert_eq!(line.len(), blocked().count());
            prop_assert_eq!(line.is_empty(), blocked().next().is_none());
            let order: Vec<_> = line.iter().map(|place| place.arrival()).collect();
            prop_assert_eq!(order, blocked().map(|(arrival, ..)| *arrival).collect::<Vec<_>>());
            let first = line.first().map(|place| place.arrival());
            prop_assert_eq!(first, blocked().next().map(|(arrival, ..)| *arrival));
            let valid = tickets.valid(Moment::at(0));
            prop_assert_eq!(valid + line.more_than(valid), model.len());
            for (ahead, &(arrival, has_ticket, is_blocked)) in model.iter().enumerate() {
                let session = [arrival as u8];
                let with_ticket = tickets.valid_ahead_of(Moment::at(0), arrival);
                let others = line.more_ahead_of(arrival, with_ticket);
                prop_assert_eq!(with_ticket + others, ahead);
                prop_assert_eq!(line.is_ticketed(&session), has_ticket && is_blocked);
                prop_assert_eq!(line.get(&session).is_some(), is_blocked);
            }
        }
    }
}
