//! Tickets: queue entries that are kept by polling, and are part of the pool.

use crate::claims::{Claim, TicketClaims};
use crate::entries::{QueueEntries, QueueEntry};
use crate::figures::Figures;
use crate::moment::Moment;
use crate::order::{Entry, Order};

/// A queue entry that is kept by polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// When its session joined the queue, in milliseconds of unix time.
    pub since_ms: i64,
    /// How long each poll keeps the position, in milliseconds; never 0.
    pub length_ms: u64,
    /// Until when it is kept, in milliseconds of unix time: the position is lost from this
    /// millisecond on.
    pub deadline_ms: i64,
}

impl Ticket {
    /// This ticket valid for `valid_ms` from `now_ms` on, whatever its own length, or `None` if
    /// that is 0 or ends beyond the range of time. Both are in milliseconds, `now_ms` of unix time.
    ///
    /// ```
    /// use seat_pool::Ticket;
    ///
    /// let joined = Ticket { since_ms: 1_000, length_ms: 500, deadline_ms: 1_500 };
    /// let polled = joined.kept(1_400, joined.length_ms).expect("within time");
    /// assert_eq!(polled, Ticket { deadline_ms: 1_900, ..joined });
    /// assert_eq!(joined.kept(1_400, 0), None);
    /// ```
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
    entries: QueueEntries<Ticket>,
    /// When they are lost, by slot in `entries`.
    deadlines: Order<()>,
    /// What their sessions asked for beyond a seat, by slot in `entries`.
    claims: TicketClaims,
}

impl Tickets {
    /// Tickets, lost ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Gives `session` this ticket: a new entry, or the one it has.
    pub(crate) fn put(
        &mut self,
        session: &[u8],
        figure: i64,
        arrival: u64,
        ticket: Ticket,
        claim: &Claim<'_>,
    ) {
        self.remove(session);
        let weight = claim.weight;
        let slot = self
            .entries
            .insert(session, figure, arrival, weight, ticket);
        if claim.owner.is_some() {
            // What it states may be one figure more than there are indexes for.
            let entry = self.entries.at(slot);
            let figure = entry.map_or(figure, |entry| self.entries.figure(entry));
            self.claims.add(slot, claim, figure, arrival);
        }
        self.deadlines.insert(Entry {
            at: ticket.deadline_ms,
            slot,
            value: (),
        });
    }

    pub(crate) fn remove(&mut self, session: &[u8]) -> bool {
        let Some(slot) = self.entries.slot_of(session) else {
            return false;
        };
        if let Some(entry) = self.entries.remove(session) {
            self.deadlines.remove(entry.waiting.deadline_ms, slot);
            self.claims.remove(slot, entry.arrival());
        }
        true
    }

    pub(crate) fn get(&self, session: &[u8]) -> Option<&QueueEntry<Ticket>> {
        self.entries.get(session)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueEntry<Ticket>> {
        self.entries.iter()
    }

    /// Up to `limit` sessions whose tickets are lost.
    pub(crate) fn lost(&self, moment: Moment, limit: usize) -> impl Iterator<Item = &[u8]> {
        self.deadlines
            .iter()
            .take(limit)
            .take_while(move |entry| moment.has_passed(entry.at))
            .filter_map(|entry| self.entries.at(entry.slot))
            .map(QueueEntry::session)
    }

    /// All tickets that are lost, the one that was lost first before the others.
    pub(crate) fn lost_entries(&self, moment: Moment) -> impl Iterator<Item = &QueueEntry<Ticket>> {
        let deadlines = self.deadlines.iter();
        let lost = deadlines.take_while(move |entry| moment.has_passed(entry.at));
        lost.filter_map(|entry| self.entries.at(entry.slot))
    }

    /// The ticket that is lost first.
    pub(crate) fn first_lost(&self) -> Option<&QueueEntry<Ticket>> {
        self.entries.at(self.deadlines.first()?.slot)
    }

    /// What the session of a ticket states as the limit.
    pub(crate) fn figure(&self, ticket: &QueueEntry<Ticket>) -> i64 {
        self.entries.figure(ticket)
    }

    /// What the session of a ticket asked for beyond a seat. O(log n), O(1) while no ticket has an
    /// owner.
    pub(crate) fn claim(&self, ticket: &QueueEntry<Ticket>) -> Claim<'_> {
        let slot = match self.claims.is_empty() {
            true => None,
            false => self.entries.slot_of(ticket.session()),
        };
        let weight = ticket.weight();
        match slot {
            Some(slot) => self.claims.get(slot, weight),
            None => Claim {
                weight,
                ..Claim::PLAIN
            },
        }
    }

    /// The claim of the ticket in a slot, which must be in use.
    pub(crate) fn claim_at(&self, slot: u32) -> Claim<'_> {
        let weight = self.entries.at(slot).map_or(1, QueueEntry::weight);
        self.claims.get(slot, weight)
    }

    /// Whether all ask for one seat each and nothing else.
    pub(crate) fn is_plain(&self) -> bool {
        self.claims.is_empty() && !self.entries.figures().has_heavy()
    }

    /// The tickets whose owners are limited, by slot in [`Tickets::at`].
    pub(crate) fn limited(&self) -> &Figures {
        self.claims.limited()
    }

    /// The sessions of an owner that have tickets, lost ones included. O(log n), then O(1) a
    /// ticket.
    pub(crate) fn owned(&self, owner: &[u8]) -> impl Iterator<Item = &[u8]> {
        let slots = self.claims.slots_of(owner);
        let tickets = slots.filter_map(|slot| self.entries.at(slot));
        tickets.map(QueueEntry::session)
    }

    pub(crate) fn figures(&self) -> &Figures {
        self.entries.figures()
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&QueueEntry<Ticket>> {
        self.entries.at(slot)
    }

    pub(crate) fn restate(&mut self, figure: i64) {
        self.entries.restate(figure);
        self.claims.restate(figure);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Tickets>()
            + self.entries.memory_bytes()
            + self.deadlines.memory_bytes()
            + self.claims.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Ticket, Tickets};
    use crate::claims::Claim;
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
    fn a_poll_keeps_the_position_within_the_range_of_time() {
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
            .map(|entry| (entry.session()[0], entry.arrival(), entry.waiting))
            .collect();
        assert_eq!(&listed, model);
        assert_eq!(tickets.len(), model.len());
        let deadlines = || model.iter().map(|(.., ticket)| ticket.deadline_ms);
        assert_eq!(
            tickets.first_lost().map(|entry| entry.waiting.deadline_ms),
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
            let mut lost: Vec<_> = tickets.lost(moment, usize::MAX).map(|id| id[0]).collect();
            lost.sort_unstable();
            let expected = model.iter().filter(|entry| !is_valid(entry));
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
                // A poll keeps its position in the order, a new ticket takes one that is free.
                let arrival = known.map_or(arrival, |known| model[known].1);
                if known.is_none() && model.iter().any(|(_, other, _)| *other == arrival) {
                    continue;
                }
                known.map(|known| model.remove(known));
                let ticket = ticket(0, length_ms);
                tickets.put(&[session], 0, arrival, ticket, &Claim::PLAIN);
                model.push((session, arrival, ticket));
                model.sort_by_key(|(_, arrival, _)| *arrival);
                let entry = tickets.get(&[session]).expect("it has one");
                prop_assert_eq!((entry.arrival(), entry.waiting), (arrival, ticket));
            }
            check(&tickets, &model);
        }
    }
}
