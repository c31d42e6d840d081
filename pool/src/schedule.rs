//! Names with a time each, the earliest first.

use crate::index::Index;
use crate::order::{Entry, Order};
use crate::slab::Slab;

/// When to check which name again: the deadlines by which pools with leases are found when one
/// expires.
///
/// Made of the same parts as a pool, so that it, too, grows without a stall. Times are milliseconds
/// of unix time.
///
/// ```
/// use seat_pool::Schedule;
///
/// let mut schedule = Schedule::default();
/// assert!(schedule.note(b"licence:cad", 5_000));
/// assert!(schedule.note(b"licence:cad", 3_000));
/// assert!(!schedule.note(b"licence:cad", 9_000), "it comes up before");
/// assert_eq!(schedule.earliest_ms(), Some(3_000));
/// assert_eq!(schedule.take_due(2_999), None);
/// assert_eq!(schedule.take_due(3_000).as_deref(), Some(&b"licence:cad"[..]));
/// assert!(schedule.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Schedule {
    names: Slab<(Box<[u8]>, i64)>,
    index: Index,
    times: Order<()>,
}

impl Schedule {
    /// Has `name` come up at `at_ms`, unless it comes up earlier already. Returns whether that
    /// changed anything. O(log n).
    pub fn note(&mut self, name: &[u8], at_ms: i64) -> bool {
        let names = &self.names;
        let slot = match self.index.find(name, |slot| name_in(names, slot)) {
            None => {
                let slot = self.names.insert((name.into(), at_ms));
                let names = &self.names;
                self.index.put(name, slot, |slot| name_in(names, slot));
                slot
            }
            Some(slot) => match self.names.get_mut(slot) {
                Some((_, earlier)) if *earlier > at_ms => {
                    self.times.remove(*earlier, slot);
                    *earlier = at_ms;
                    slot
                }
                _ => return false,
            },
        };
        self.times.insert(Entry {
            at: at_ms,
            slot,
            value: (),
        });
        true
    }

    /// When the next name comes up. O(1).
    pub fn earliest_ms(&self) -> Option<i64> {
        self.times.first().map(|entry| entry.at)
    }

    /// How many names there are. O(1).
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `name` is to come up. O(1).
    pub fn contains(&self, name: &[u8]) -> bool {
        let names = &self.names;
        let slot = self.index.find(name, |slot| name_in(names, slot));
        slot.is_some()
    }

    /// Takes `name` out, whenever it would come up, and returns whether it was there. O(log n).
    pub fn forget(&mut self, name: &[u8]) -> bool {
        let names = &self.names;
        let Some(slot) = self.index.remove(name, |slot| name_in(names, slot)) else {
            return false;
        };
        if let Some((_, at_ms)) = self.names.remove(slot) {
            self.times.remove(at_ms, slot);
        }
        true
    }

    /// Takes out the earliest name if it has come up by `now_ms`. O(log n).
    pub fn take_due(&mut self, now_ms: i64) -> Option<Box<[u8]>> {
        let &Entry { at, slot, .. } = self.times.first()?;
        if at > now_ms {
            return None;
        }
        let name = self.names.get(slot)?.0.clone();
        self.forget(&name);
        Some(name)
    }
}

fn name_in(names: &Slab<(Box<[u8]>, i64)>, slot: u32) -> &[u8] {
    names.get(slot).map_or(&[], |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::Schedule;

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0..40u8, 0..1000i64, 0..5u8), 1..400)) {
            let mut schedule = Schedule::default();
            let mut model: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
            for (name, at_ms, step) in steps {
                if step == 0 {
                    let name = vec![name; usize::from(name)];
                    prop_assert_eq!(schedule.contains(&name), model.contains_key(&name));
                    prop_assert_eq!(schedule.forget(&name), model.remove(&name).is_some());
                    prop_assert_eq!(schedule.len(), model.len());
                } else if step < 3 {
                    let earliest = model.values().min().copied();
                    prop_assert_eq!(schedule.earliest_ms(), earliest);
                    let taken = schedule.take_due(at_ms);
                    prop_assert_eq!(taken.is_some(), earliest.is_some_and(|earliest| earliest <= at_ms));
                    if let Some(name) = taken {
                        prop_assert_eq!(model.remove(&*name), earliest);
                    }
                } else {
                    let name = vec![name; usize::from(name)];
                    let noted = schedule.note(&name, at_ms);
                    let known = model.get(&name).copied();
                    prop_assert_eq!(noted, known.is_none_or(|known| known > at_ms));
                    model.insert(name, known.map_or(at_ms, |known| known.min(at_ms)));
                }
            }
        }
    }
}
