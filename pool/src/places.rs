//! Places in a queue, in the order of arrival.

use crate::deadlines::{Deadlines, Entry};
use crate::index::Index;
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
    arrivals: Deadlines,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places {
            places: Slab::new(),
            sessions: Index::new(),
            arrivals: Deadlines::default(),
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
            .insert(session, slot, |slot| session_in(places, slot));
        self.arrivals.insert(Entry {
            deadline_ms: arrival as i64,
            slot,
            length_ms: 0,
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
            .map_or(0, |before| self.arrivals.lapsed(before as i64))
    }

    /// Who arrived first.
    pub fn first(&self) -> Option<&Place<T>> {
        self.places.get(self.arrivals.earliest()?.slot)
    }

    /// All places in the order of arrival. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &Place<T>> {
        self.arrivals
            .iter()
            .filter_map(|entry| self.places.get(entry.slot))
    }

    /// All places with their slots, in no particular order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u32, &Place<T>)> {
        self.places.iter_from(0)
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
