//! From a session's id to its slot.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::memory::allocated;

/// Entries a segment holds on average before the index grows by one segment.
const SEGMENT_LOAD: usize = 256;

/// Below this capacity a segment is not worth shrinking.
const SMALLEST_SHRUNK: usize = 32;

/// A hash index that stores slots only: the ids stay where they are, and each call brings `id_of` to look at them.
///
/// It grows by linear hashing: whenever the segments hold more than [`SEGMENT_LOAD`] entries on average, one segment is split in
/// two, and nothing else moves. So the longest insertion rehashes a few hundred ids, however many millions there are. The hash
/// is SipHash under random keys, since ids come from clients who could otherwise choose ones that collide.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    hasher: RandomState,
    segments: Vec<HashTable<u32>>,
    len: usize,
}

/// The segment, of `segments`, for a hash. The upper half of the hash decides, because the tables inside the segments go by
/// the lower bits.
fn segment_of(hash: u64, segments: usize) -> usize {
    let hash = (hash >> 32) as usize;
    let level = segments.next_power_of_two();
    let segment = hash & (level - 1);
    if segment < segments {
        segment
    } else {
        segment & (level / 2 - 1)
    }
}

impl Index {
    pub(crate) fn new() -> Self {
        Index {
            hasher: RandomState::new(),
            segments: Vec::new(),
            len: 0,
        }
    }

    /// The slot of `id`. O(1).
    pub(crate) fn find<'a>(&self, id: &[u8], id_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(id);
        let segment = &self.segments[segment_of(hash, self.segments.len())];
        segment.find(hash, |&slot| id_of(slot) == id).copied()
    }

    /// Adds the slot of an id that is not in the index yet. O(1), at worst the splitting of one segment.
    pub(crate) fn insert<'a>(&mut self, id: &[u8], slot: u32, id_of: impl Fn(u32) -> &'a [u8]) {
        if self.len >= self.segments.len() * SEGMENT_LOAD {
            self.segments.push(HashTable::new());
            let new = self.segments.len() - 1;
            if new > 0 {
                let old = new - (1 << new.ilog2());
                let entries = std::mem::take(&mut self.segments[old]);
                self.place_all(entries, &id_of);
            }
        }
        let hash = self.hasher.hash_one(id);
        self.place(hash, slot, &id_of);
        self.len += 1;
    }

    /// Removes an id and returns its slot. O(1), at worst the merging of two segments.
    pub(crate) fn remove<'a>(&mut self, id: &[u8], id_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(id);
        let number = segment_of(hash, self.segments.len());
        let segment = &mut self.segments[number];
        let entry = segment.find_entry(hash, |&slot| id_of(slot) == id).ok()?;
        let (slot, _) = entry.remove();
        self.len -= 1;
        if self.len * 4 < (self.segments.len() - 1) * SEGMENT_LOAD {
            let entries = self.segments.pop().unwrap_or_default();
            self.place_all(entries, &id_of);
        } else {
            self.shrink(number, &id_of);
        }
        Some(slot)
    }

    fn shrink<'a>(&mut self, number: usize, id_of: &impl Fn(u32) -> &'a [u8]) {
        let segment = &mut self.segments[number];
        if segment.capacity() > SMALLEST_SHRUNK && segment.len() * 4 < segment.capacity() {
            let hasher = &self.hasher;
            segment.shrink_to(segment.len() * 2, |&slot| hasher.hash_one(id_of(slot)));
        }
    }

    fn place_all<'a>(&mut self, entries: HashTable<u32>, id_of: &impl Fn(u32) -> &'a [u8]) {
        for slot in entries {
            self.place(self.hasher.hash_one(id_of(slot)), slot, id_of);
        }
    }

    fn place<'a>(&mut self, hash: u64, slot: u32, id_of: &impl Fn(u32) -> &'a [u8]) {
        let number = segment_of(hash, self.segments.len());
        let hasher = &self.hasher;
        self.segments[number].insert_unique(hash, slot, |&slot| hasher.hash_one(id_of(slot)));
    }

    /// The bytes that the index takes. O(n / 256).
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.segments.iter().map(HashTable::allocation_size);
        tables.map(allocated).sum::<usize>()
            + allocated(self.segments.capacity() * size_of::<HashTable<u32>>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::{Index, SEGMENT_LOAD};

    static IDS: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..200_000).map(|slot| format!("id-{slot}")).collect());

    fn id_of(slot: u32) -> &'static [u8] {
        IDS[slot as usize].as_bytes()
    }

    #[test]
    fn growing_and_shrinking_by_one_segment_at_a_time_loses_no_entry() {
        let mut index = Index::new();
        let many = 20 * SEGMENT_LOAD as u32;
        for slot in 0..many {
            index.insert(id_of(slot), slot, id_of);
            assert_eq!(index.find(id_of(slot), id_of), Some(slot));
            assert_eq!(index.find(id_of(many + slot), id_of), None);
        }
        assert_eq!(index.segments.len(), 20);
        assert!((0..many).all(|slot| index.find(id_of(slot), id_of) == Some(slot)));
        let last = many - 1;
        for slot in 0..many {
            assert_eq!(index.find(id_of(last), id_of), Some(last));
            assert_eq!(index.remove(id_of(slot), id_of), Some(slot));
            assert_eq!(index.remove(id_of(slot), id_of), None);
        }
        assert_eq!(index.segments.len(), 1);
    }

    #[test]
    fn no_segment_outgrows_a_few_times_the_average() {
        let mut index = Index::new();
        for slot in 0..200_000 {
            index.insert(id_of(slot), slot, id_of);
        }
        let longest = index.segments.iter().map(|segment| segment.len()).max();
        assert!(longest < Some(4 * SEGMENT_LOAD), "{longest:?}");
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((any::<bool>(), 0..2000u32), 1..3000)) {
            let mut index = Index::new();
            let mut model = HashMap::new();
            for (insert, slot) in steps {
                if !insert {
                    prop_assert_eq!(index.remove(id_of(slot), id_of), model.remove(&slot));
                } else if model.insert(slot, slot).is_none() {
                    index.insert(id_of(slot), slot, id_of);
                }
                prop_assert_eq!(index.find(id_of(slot), id_of), model.get(&slot).copied());
                prop_assert_eq!(index.len, model.len());
            }
        }
    }
}
