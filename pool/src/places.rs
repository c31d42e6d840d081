//! Places in a queue, in the order of arrival.

use crate::index::Index;
use crate::order::{Entry, Order};
use crate::slab::Slab;

/// A place: who waits there, since when in the order of arrival, and what the kind of place brings with it.
#[derive(Clone, Debug)]
pub struct Place<T> {
    session: Box<[u8]>,
    /// The lower, the earlier. Unique among all places that can meet in one queue.
    arrival: u64,
    /// What the kind of place brings with it.
    pub waiting: T,
}

impl<T> Place<T> {
    /// Who waits.
    pub fn session(&self) -> &[u8] {
        &self.session
    }

    /// The number in the order of arrival: the lower, the earlier.
    pub fn arrival(&self) -> u64 {
        self.arrival
    }
}

/// Places by session and by arrival. Each operation is O(log n), and none stalls on the size of the queue.
#[derive(Clone, Debug)]
pub struct Places<T> {
    places: Slab<Place<T>>,
    sessions: Index,
    arrivals: Order<()>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places {
            places: Slab::new(),
            sessions: Index::new(),
            arrivals: Order::default(),
        }
    }
}

impl<T> Places<T> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives `session` a place. It must not have one yet.
    pub fn insert(&mut self, session: &[u8], arrival: u64, waiting: T) -> u32 {
        let slot = self.places.insert(Place {
            session: session.into(),
            arrival,
            waiting,
        });
        let places = &self.places;
        self.sessions
            .put(session, slot, |slot| session_in(places, slot));
        self.arrivals.insert(Entry {
            at: arrival as i64,
            slot,
            value: (),
        });
        slot
    }

    /// The place of `session`.
    pub fn get(&self, session: &[u8]) -> Option<&Place<T>> {
        self.places.get(self.slot_of(session)?)
    }

    pub(crate) fn slot_of(&self, session: &[u8]) -> Option<u32> {
        let places = &self.places;
        self.sessions.find(session, |slot| session_in(places, slot))
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Place<T>> {
        self.places.get(slot)
    }

    /// Takes `session` out of the queue.
    pub fn remove(&mut self, session: &[u8]) -> Option<Place<T>> {
        let places = &self.places;
        let slot = self
            .sessions
            .remove(session, |slot| session_in(places, slot))?;
        let place = self.places.remove(slot)?;
        self.arrivals.remove(place.arrival as i64, slot);
        Some(place)
    }

    /// How many arrived before `arrival`.
    pub fn ahead_of(&self, arrival: u64) -> usize {
        arrival
            .checked_sub(1)
            .map_or(0, |before| self.arrivals.up_to(before as i64))
    }

    /// Who arrived first.
    pub fn first(&self) -> Option<&Place<T>> {
        self.places.get(self.arrivals.first()?.slot)
    }

    /// All places in the order of arrival. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &Place<T>> {
        self.arrivals
            .iter()
            .filter_map(|entry| self.places.get(entry.slot))
    }

    /// The bytes that the places take, without what `T` owns. O(n).
    pub(crate) fn memory_bytes(&self) -> usize {
        let sessions: usize = self
            .iter()
            .map(|place| crate::memory::allocated(place.session.len()))
            .sum();
        sessions
            + self.places.memory_bytes()
            + self.sessions.memory_bytes()
            + self.arrivals.memory_bytes()
    }
}

fn session_in<T>(places: &Slab<Place<T>>, slot: u32) -> &[u8] {
    places.get(slot).map_or(&[], |place| &place.session)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Places;

    /// In the order of arrival: who, when, and what came with the place.
    type Model = Vec<(u8, u64, u32)>;

    fn check(places: &Places<u32>, model: &Model) {
        let listed: Vec<_> = places
            .iter()
            .map(|place| (place.session()[0], place.arrival(), place.waiting))
            .collect();
        assert_eq!(&listed, model);
        assert_eq!(places.len(), model.len());
        assert_eq!(places.is_empty(), model.is_empty());
        let first = places.first().map(|place| place.session()[0]);
        assert_eq!(first, model.first().map(|(session, ..)| *session));
        for session in 0..=u8::MAX {
            let expected = model.iter().find(|(other, ..)| *other == session);
            let place = places.get(&[session]);
            let found = place.map(|place| (session, place.arrival(), place.waiting));
            assert_eq!(found, expected.copied());
            let slot = places.slot_of(&[session]);
            let at = slot.and_then(|slot| places.at(slot));
            assert_eq!(at.map(|place| place.waiting), found.map(|found| found.2));
        }
        let arrivals = model.iter().map(|(_, arrival, _)| *arrival);
        for arrival in arrivals.chain([0, 1, i64::MAX as u64]) {
            let ahead = model.iter().filter(|(_, other, _)| *other < arrival);
            assert_eq!(places.ahead_of(arrival), ahead.count(), "of {arrival}");
        }
    }

    proptest! {
        #[test]
        fn agree_with_a_sorted_list(
            steps in prop::collection::vec((any::<u8>(), 0..u64::from(u16::MAX), any::<bool>()), 1..600)
        ) {
            let mut places = Places::default();
            let mut model = Model::new();
            for (number, (session, arrival, grow)) in (0..).zip(steps) {
                let known = model.iter().position(|(other, ..)| *other == session);
                let is_taken = model.iter().any(|(_, other, _)| *other == arrival);
                if let Some(known) = known {
                    let (_, arrival, waiting) = model.remove(known);
                    let place = places.remove(&[session]).expect("it has a place");
                    prop_assert_eq!(place.session(), &[session][..]);
                    prop_assert_eq!((place.arrival(), place.waiting), (arrival, waiting));
                } else {
                    prop_assert!(places.remove(&[session]).is_none());
                }
                if grow && !is_taken {
                    let slot = places.insert(&[session], arrival, number);
                    prop_assert_eq!(places.slot_of(&[session]), Some(slot));
                    model.push((session, arrival, number));
                    model.sort_by_key(|(_, arrival, _)| *arrival);
                }
            }
            check(&places, &model);
        }
    }

    #[test]
    fn ten_thousand_leave_in_the_order_in_which_they_came() {
        let mut places = Places::default();
        for number in 0..10_000u32 {
            places.insert(&number.to_le_bytes(), number.into(), number);
        }
        let full = places.memory_bytes();
        for number in 0..10_000u32 {
            assert_eq!(places.ahead_of(u64::MAX / 2), 10_000 - number as usize);
            let first = places.first().expect("some are left");
            assert_eq!(first.waiting, number);
            let session = first.session().to_vec();
            assert!(places.remove(&session).is_some());
        }
        assert!(places.is_empty() && places.first().is_none());
        assert!(places.memory_bytes() < full / 10, "memory is given back");
    }

    #[test]
    fn the_first_and_the_last_number_of_all_have_their_places() {
        let mut places = Places::default();
        let last = i64::MAX as u64 - 1;
        places.insert(b"last", last, ());
        places.insert(b"first", 0, ());
        assert_eq!(
            places.first().map(|place| place.session()),
            Some(&b"first"[..])
        );
        assert_eq!((places.ahead_of(0), places.ahead_of(1)), (0, 1));
        assert_eq!((places.ahead_of(last), places.ahead_of(last + 1)), (1, 2));
    }
}
