//! Who waits for a seat: tickets, which are part of the pool, and blocked clients, which belong to a name.

use crate::deadlines::{Deadlines, Entry};
use crate::places::{Place, Places};

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
    /// This ticket after a poll at `now_ms` that keeps the place for `length_ms`, or `None` if that is 0 or ends beyond the range
    /// of time.
    pub fn polled(self, now_ms: i64, length_ms: u64) -> Option<Ticket> {
        let deadline_ms = now_ms.checked_add_unsigned(length_ms)?;
        (length_ms > 0 && deadline_ms < i64::MAX).then_some(Ticket {
            length_ms,
            deadline_ms,
            ..self
        })
    }
}

/// The tickets of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    places: Places<Ticket>,
    /// When they are lost, by slot in `places`.
    deadlines: Deadlines,
}

impl Tickets {
    /// Tickets, lost ones included.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Tickets that are valid. O(log n).
    pub(crate) fn valid(&self, now_ms: i64) -> usize {
        self.len() - self.deadlines.lapsed(now_ms)
    }

    /// Gives `session` this ticket: a new place, or the one it has.
    pub(crate) fn put(&mut self, session: &[u8], arrival: u64, ticket: Ticket) {
        self.remove(session);
        let slot = self.places.insert(session, arrival, ticket);
        self.deadlines.insert(Entry {
            deadline_ms: ticket.deadline_ms,
            slot,
            length_ms: 0,
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

    pub(crate) fn get(&self, session: &[u8]) -> Option<&Place<Ticket>> {
        self.places.get(session)
    }

    /// Valid tickets that arrived before `arrival`. O(log n), O(n) while some are lost and not removed yet.
    pub(crate) fn valid_ahead_of(&self, now_ms: i64, arrival: u64) -> usize {
        if self.deadlines.lapsed(now_ms) == 0 {
            return self.places.ahead_of(arrival);
        }
        self.iter()
            .take_while(|place| place.arrival() < arrival)
            .filter(|place| place.waiting.deadline_ms > now_ms)
            .count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Place<Ticket>> {
        self.places.iter()
    }

    /// Up to `limit` sessions whose tickets are lost.
    pub(crate) fn lost(&self, now_ms: i64, limit: usize) -> impl Iterator<Item = &[u8]> {
        self.deadlines
            .iter()
            .take(limit)
            .take_while(move |entry| entry.deadline_ms <= now_ms)
            .filter_map(|entry| self.places.at(entry.slot))
            .map(Place::session)
    }

    pub(crate) fn earliest_ms(&self) -> Option<i64> {
        self.deadlines.earliest().map(|entry| entry.deadline_ms)
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
    places: Places<W>,
    /// Those of `places` that have a ticket as well, by arrival.
    ticketed: Deadlines,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Line {
            places: Places::default(),
            ticketed: Deadlines::default(),
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
        let slot = self.places.insert(session, arrival, waiter);
        if ticketed {
            self.ticketed.insert(Entry {
                deadline_ms: arrival as i64,
                slot,
                length_ms: 0,
            });
        }
    }

    /// Takes the client of `session` out.
    pub fn leave(&mut self, session: &[u8]) -> Option<Place<W>> {
        let slot = self.places.slot_of(session)?;
        let place = self.places.remove(session)?;
        self.ticketed.remove(place.arrival() as i64, slot);
        Some(place)
    }

    /// The place of `session`.
    pub fn get(&self, session: &[u8]) -> Option<&Place<W>> {
        self.places.get(session)
    }

    /// The client that has waited longest.
    pub fn first(&self) -> Option<&Place<W>> {
        self.places.first()
    }

    /// All clients in the order of arrival. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &Place<W>> {
        self.places.iter()
    }

    /// Whether the client of `session` has a ticket as well.
    pub fn is_ticketed(&self, session: &[u8]) -> bool {
        let slot = self.places.slot_of(session);
        slot.zip(self.places.get(session))
            .is_some_and(|(slot, place)| self.ticketed.get(place.arrival() as i64, slot).is_some())
    }

    /// Finds out anew which clients have tickets, because another value has come under the name, or none. O(n log n).
    pub fn find_tickets(&mut self, has_ticket: impl Fn(&[u8]) -> bool) {
        self.ticketed = Deadlines::default();
        for (slot, place) in self.places.slots() {
            if has_ticket(place.session()) {
                self.ticketed.insert(Entry {
                    deadline_ms: place.arrival() as i64,
                    slot,
                    length_ms: 0,
                });
            }
        }
    }

    /// How many of the clients that arrived before `arrival` have no ticket of `tickets_ahead` others. O(log n).
    pub(crate) fn more_ahead_of(&self, arrival: u64, tickets_ahead: usize) -> usize {
        let both = arrival
            .checked_sub(1)
            .map_or(0, |before| self.ticketed.lapsed(before as i64));
        self.places.ahead_of(arrival) - both.min(tickets_ahead)
    }

    /// As [`Line::more_ahead_of`], of all clients.
    pub(crate) fn more_than(&self, tickets: usize) -> usize {
        self.len() - self.ticketed.len().min(tickets)
    }
}
