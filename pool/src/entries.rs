//! The entries of a queue, by session, by figure and by arrival.

use crate::figures::Figures;
use crate::index::Index;
use crate::slab::Slab;

/// An entry of a queue: who waits, since when in the order of arrival, and what its kind brings
/// with it.
///
/// ```
/// use seat_pool::{Effect, Moment, Pool, Ticket};
///
/// let mut pool = Pool::new(0);
/// let ticket = Ticket { since_ms: 0, length_ms: 500, deadline_ms: 500 };
/// pool.apply(&Effect::joining(b"bob", 2, 17, ticket));
/// let entry = pool.ticket(Moment::at(499), b"bob").expect("it is valid until 500");
/// assert_eq!((entry.session(), entry.arrival()), (&b"bob"[..], 17));
/// assert_eq!((entry.waiting, pool.figure_of(entry)), (ticket, 2));
/// ```
#[derive(Clone, Debug)]
pub struct QueueEntry<T> {
    session: Box<[u8]>,
    /// The lower, the earlier. Unique among all entries that can meet in one queue.
    arrival: u64,
    /// The number of the index in which it stands, which tells its figure.
    index: u32,
    weight: u32,
    /// What the kind of entry brings with it.
    pub waiting: T,
}

impl<T> QueueEntry<T> {
    /// Who waits.
    pub fn session(&self) -> &[u8] {
        &self.session
    }

    /// The number in the order of arrival: the lower, the earlier.
    pub fn arrival(&self) -> u64 {
        self.arrival
    }

    /// How many seats it asks for.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

/// Entries by session, by figure and by arrival. Each operation is O(log n), and none stalls on the
/// size of the queue.
#[derive(Clone, Debug)]
pub struct QueueEntries<T> {
    entries: Slab<QueueEntry<T>>,
    sessions: Index,
    figures: Figures,
}

impl<T> Default for QueueEntries<T> {
    fn default() -> Self {
        QueueEntries {
            entries: Slab::new(),
            sessions: Index::new(),
            figures: Figures::default(),
        }
    }
}

impl<T> QueueEntries<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives `session` an entry. It must not have one yet.
    pub fn insert(
        &mut self,
        session: &[u8],
        figure: i64,
        arrival: u64,
        weight: u32,
        waiting: T,
    ) -> u32 {
        let slot = self.entries.insert(QueueEntry {
            session: session.into(),
            arrival,
            index: 0,
            weight,
            waiting,
        });
        let index = self.figures.insert(figure, arrival, slot, weight);
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.index = index;
        }
        let entries = &self.entries;
        self.sessions
            .put(session, slot, |slot| session_in(entries, slot));
        slot
    }

    /// The entry of `session`.
    pub fn get(&self, session: &[u8]) -> Option<&QueueEntry<T>> {
        self.entries.get(self.slot_of(session)?)
    }

    pub(crate) fn slot_of(&self, session: &[u8]) -> Option<u32> {
        let entries = &self.entries;
        self.sessions
            .find(session, |slot| session_in(entries, slot))
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&QueueEntry<T>> {
        self.entries.get(slot)
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut QueueEntry<T>> {
        self.entries.get_mut(slot)
    }

    /// What the session of an entry states as the limit.
    pub(crate) fn figure(&self, entry: &QueueEntry<T>) -> i64 {
        self.figures.figure(entry.index)
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Takes `session` out of the queue.
    pub fn remove(&mut self, session: &[u8]) -> Option<QueueEntry<T>> {
        let entries = &self.entries;
        let slot = self
            .sessions
            .remove(session, |slot| session_in(entries, slot))?;
        let entry = self.entries.remove(slot)?;
        self.figures.remove(entry.index, entry.arrival, slot);
        Some(entry)
    }

    /// Has all entries state `figure`. O(m log n) where m is the number of those that do not state
    /// the commonest figure.
    pub(crate) fn restate(&mut self, figure: i64) {
        let entries = &mut self.entries;
        self.figures.restate(figure, |slot, index| {
            if let Some(entry) = entries.get_mut(slot) {
                entry.index = index;
            }
        });
    }

    /// Who arrived first.
    pub fn first(&self) -> Option<&QueueEntry<T>> {
        let firsts = self.figures.firsts();
        self.entries.get(firsts.min()?.1)
    }

    /// All entries in the order of arrival. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &QueueEntry<T>> {
        let slots = self.figures.slots();
        slots.filter_map(|slot| self.entries.get(slot))
    }

    /// The bytes that the entries take, without what `T` owns. O(n).
    pub(crate) fn memory_bytes(&self) -> usize {
        let sessions: usize = self
            .entries
            .iter_from(0)
            .map(|(_, entry)| crate::memory::allocated(entry.session.len()))
            .sum();
        sessions
            + self.entries.memory_bytes()
            + self.sessions.memory_bytes()
            + self.figures.memory_bytes()
    }
}

fn session_in<T>(entries: &Slab<QueueEntry<T>>, slot: u32) -> &[u8] {
    entries.get(slot).map_or(&[], |entry| &entry.session)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::QueueEntries;
    use crate::MAX_WEIGHT;
    use crate::figures::{Contender, MOST_FIGURES};

    /// An entry of the model, which is sorted by arrival.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Known {
        session: u8,
        figure: i64,
        arrival: u64,
        weight: u32,
        number: u32,
    }

    impl Known {
        fn is_too_heavy(&self) -> bool {
            self.weight > 1 && i64::from(self.weight) > self.figure
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Takes the session's entry out, and puts in a new one.
        Put(u8, i64, u64, u32),
        Remove(u8),
        Restate(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let figure = || prop_oneof![6 => 0..4i64, 2 => -3..12i64, 1 => any::<i64>()];
        let arrival = 0..u64::from(u16::MAX);
        let weight = prop_oneof![6 => Just(1), 6 => 2..8u32, 1 => Just(MAX_WEIGHT)];
        prop_oneof![
            60 => (any::<u8>(), figure(), arrival, weight)
                .prop_map(|(s, f, a, w)| Step::Put(s, f, a, w)),
            30 => any::<u8>().prop_map(Step::Remove),
            1 => figure().prop_map(Step::Restate),
        ]
    }

    /// The figure that a new entry gets: its own, unless too many others are stated.
    fn figure_kept_of(model: &[Known], figure: i64) -> i64 {
        let known: BTreeSet<i64> = model.iter().map(|entry| entry.figure).collect();
        if known.contains(&figure) || known.len() < MOST_FIGURES {
            return figure;
        }
        let lower = known.range(..figure).next_back();
        *lower.or(known.first()).expect("some are known")
    }

    fn check(entries: &QueueEntries<u32>, model: &[Known]) {
        let known = |entry: &super::QueueEntry<u32>| Known {
            session: entry.session()[0],
            figure: entries.figure(entry),
            arrival: entry.arrival(),
            weight: entry.weight(),
            number: entry.waiting,
        };
        let listed: Vec<_> = entries.iter().map(known).collect();
        assert_eq!(listed, model);
        assert_eq!(entries.len(), model.len());
        assert_eq!(entries.figures().len(), model.len());
        assert_eq!(entries.is_empty(), model.is_empty());
        assert_eq!(entries.first().map(known), model.first().copied());
        for session in 0..=u8::MAX {
            let expected = model.iter().find(|entry| entry.session == session);
            assert_eq!(entries.get(&[session]).map(known).as_ref(), expected);
            let slot = entries.slot_of(&[session]);
            let at = slot.and_then(|slot| entries.at(slot));
            assert_eq!(at.map(known).as_ref(), expected);
        }
        let figures: BTreeSet<i64> = model.iter().map(|entry| entry.figure).collect();
        let distinct: Vec<i64> = entries.figures().distinct().collect();
        assert_eq!(distinct.len(), figures.len(), "each once");
        assert_eq!(BTreeSet::from_iter(distinct), figures);
        let firsts = entries.figures().firsts();
        let firsts: BTreeSet<_> = firsts.map(|(arrival, _)| arrival).collect();
        let first = |&figure| model.iter().find(|entry| entry.figure == figure);
        let expected = figures.iter().filter_map(first);
        assert_eq!(firsts, expected.map(|entry| entry.arrival).collect());
        for (figure, contenders) in entries.figures().contenders() {
            let listed = contenders.map(|contender| {
                let entry = entries.at(contender.slot).map(known);
                let entry = entry.expect("an entry");
                let of_entry = (entry.figure, entry.arrival, entry.weight);
                let Contender {
                    arrival, weight, ..
                } = contender;
                assert_eq!((contender.figure, arrival, weight), of_entry);
                entry
            });
            let listed: Vec<_> = listed.collect();
            let expected = model.iter().filter(|entry| entry.figure == figure);
            let expected = expected.filter(|entry| !entry.is_too_heavy());
            assert_eq!(listed, expected.copied().collect::<Vec<_>>());
            let mut firsts = entries.figures().first_contenders();
            let first = firsts.find(|contender| contender.figure == figure);
            assert_eq!(
                first.map(|first| first.arrival),
                listed.first().map(|entry| entry.arrival)
            );
        }
        let arrivals = model.iter().map(|entry| entry.arrival);
        for arrival in arrivals.chain([0, 1, i64::MAX as u64, u64::MAX]) {
            let ahead = model.iter().filter(|entry| entry.arrival < arrival);
            assert_eq!(entries.figures().ahead_of(arrival), ahead.clone().count());
            for taken in [0, 1, 2, 7, u64::MAX] {
                let competing = ahead
                    .clone()
                    .filter(|entry| i128::from(taken) < entry.figure.into())
                    .filter(|entry| !entry.is_too_heavy())
                    .map(|entry| u64::from(entry.weight))
                    .sum::<u64>();
                let counted = entries.figures().competing_ahead_of(taken, arrival);
                assert_eq!(counted, competing, "of {arrival} with {taken} taken");
            }
        }
    }

    proptest! {
        #[test]
        fn agree_with_a_sorted_list(steps in prop::collection::vec(step(), 1..400)) {
            let mut entries = QueueEntries::default();
            let mut model: Vec<Known> = Vec::new();
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Put(session, figure, arrival, weight) => {
                        entries.remove(&[session]);
                        model.retain(|entry| entry.session != session);
                        if model.iter().any(|entry| entry.arrival == arrival) {
                            continue;
                        }
                        let figure_kept = figure_kept_of(&model, figure);
                        let slot = entries.insert(&[session], figure, arrival, weight, number);
                        prop_assert_eq!(entries.slot_of(&[session]), Some(slot));
                        model.push(Known { session, figure: figure_kept, arrival, weight, number });
                        model.sort_by_key(|entry| entry.arrival);
                    }
                    Step::Remove(session) => {
                        let known = model.iter().position(|entry| entry.session == session);
                        let removed = entries.remove(&[session]);
                        prop_assert_eq!(
                            removed.map(|entry| (entry.session()[0], entry.arrival(), entry.waiting)),
                            known.map(|known| model.remove(known))
                                .map(|known| (session, known.arrival, known.number))
                        );
                    }
                    Step::Restate(figure) => {
                        entries.restate(figure);
                        model.iter_mut().for_each(|entry| entry.figure = figure);
                    }
                }
            }
            check(&entries, &model);
        }
    }

    #[test]
    fn ten_thousand_leave_in_the_order_in_which_they_came() {
        let mut entries = QueueEntries::default();
        for number in 0..10_000u32 {
            let figure = i64::from(number % 3);
            entries.insert(&number.to_le_bytes(), figure, number.into(), 1, number);
        }
        let full = entries.memory_bytes();
        for number in 0..10_000u32 {
            assert_eq!(
                entries.figures().ahead_of(u64::MAX / 2),
                10_000 - number as usize
            );
            let first = entries.first().expect("some are left");
            assert_eq!(first.waiting, number);
            let session = first.session().to_vec();
            assert!(entries.remove(&session).is_some());
        }
        assert!(entries.is_empty() && entries.first().is_none());
        assert!(entries.memory_bytes() < full / 10, "memory is given back");
    }

    #[test]
    fn the_first_and_the_last_number_of_all_are_in_order() {
        let mut entries = QueueEntries::default();
        let last = i64::MAX as u64 - 1;
        entries.insert(b"last", 1, last, 1, ());
        entries.insert(b"first", 2, 0, 1, ());
        assert_eq!(
            entries.first().map(|entry| entry.session()),
            Some(&b"first"[..])
        );
        assert_eq!(
            (entries.figures().ahead_of(0), entries.figures().ahead_of(1)),
            (0, 1)
        );
        assert_eq!(
            (
                entries.figures().ahead_of(last),
                entries.figures().ahead_of(last + 1)
            ),
            (1, 2)
        );
    }
}
