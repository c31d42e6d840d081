//! From a session's id to its slot.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;
use hashbrown::HashTable;

use crate::memory::allocated;

/// Entries a segment holds on average before the index grows by one segment. So many that the list
/// of the segments of a million entries stays in the processor's caches, and so few that one is
/// split within a few ten microseconds.
const SEGMENT_LOAD: usize = if cfg!(test) { 64 } else { 2048 };

/// Below this capacity a segment is not worth shrinking.
const SMALLEST_SHRUNK: usize = 32;

/// A hash index that stores slots only: the ids stay where they are, and each call brings `id_of`
/// to look at them.
///
/// It grows by linear hashing: whenever the segments hold more than [`SEGMENT_LOAD`] entries on
/// average, one segment is split in two, and nothing else moves. So the longest insertion moves a
/// few thousand entries, however many millions there are, and looks at no id, since the hashes are
/// kept. They are keyed at random, since ids come from clients who could otherwise choose ones that
/// collide.
///
/// One step, from five segments to six. The entries are what is to be expected of evenly spread
/// hashes:
///
/// ```text
/// segment            0      1      2      3      4            10,240 entries, 5 × 2,048:
/// lowest bits      000    *01    *10    *11    100            the next one makes it grow
/// entries         1280   2560   2560   2560   1280
///                         │
///                         ├────────────────────────────┐      5 - 4 = 1 is split
///                         v                            v
/// segment            0      1      2      3      4      5
/// lowest bits      000    001    *10    *11    100    101
/// entries         1280   1280   2560   2560   1280   1280     and the new entry in one of them
/// ```
///
/// Which segment is split next is not stored: a new segment 5 takes its share of segment 5 - 4,
/// where 4 is the highest power of two up to 5. After segment 7 all are split once, and segment 8
/// begins again with segment 0, by one bit more.
///
/// A hash is looked for by its lowest three bits, as long as there are more than four and no more
/// than eight segments. With six, one that ends in 101 is in segment 5. One that ends in 110 would
/// be in segment 6, which is not there yet, so the highest of the three bits is dropped: segment 2.
///
/// Shrinking is the same step backwards, at a quarter of the load: with six segments, the removal
/// that leaves 2,559 entries merges segment 5 into segment 1.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    hasher: RandomState,
    segments: Vec<HashTable<Entry>>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    slot: u32,
}

/// The segment, of `segments`, for a hash.
fn segment_of(hash: u32, segments: usize) -> usize {
    let hash = hash as usize;
    let level = segments.next_power_of_two();
    let segment = hash & (level - 1);
    if segment < segments {
        segment
    } else {
        segment & (level / 2 - 1)
    }
}

/// The hash that the tables inside the segments go by. Entries of one segment agree in the lower
/// bits of theirs, so these are mixed into all others.
fn within_segment(hash: u32) -> u64 {
    let product = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

impl Default for Index {
    fn default() -> Self {
        Index::new()
    }
}

impl Index {
    pub(crate) fn new() -> Self {
        // The standard library's keys come from the system's randomness.
        let seed = std::hash::RandomState::new();
        let [a, b, c, d] = [0, 1, 2, 3].map(|part| seed.hash_one(part));
        Index {
            hasher: RandomState::with_seeds(a, b, c, d),
            segments: Vec::new(),
            len: 0,
        }
    }

    fn hash(&self, id: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(id);
        hasher.finish() as u32
    }

    /// The slot of `id`. O(1).
    pub(crate) fn find<'a>(&self, id: &[u8], id_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let hash = self.hash(id);
        let segment = &self.segments[segment_of(hash, self.segments.len())];
        let is_it = |entry: &Entry| entry.hash == hash && id_of(entry.slot) == id;
        let entry = segment.find(within_segment(hash), is_it)?;
        Some(entry.slot)
    }

    /// Notes the slot of `id` and returns the one that it had until now. O(1), at worst the
    /// splitting of one segment.
    pub(crate) fn put<'a>(
        &mut self,
        id: &[u8],
        slot: u32,
        id_of: impl Fn(u32) -> &'a [u8],
    ) -> Option<u32> {
        let hash = self.hash(id);
        if self.len > 0 {
            let number = segment_of(hash, self.segments.len());
            let is_it = |entry: &Entry| entry.hash == hash && id_of(entry.slot) == id;
            let known = self.segments[number].find_mut(within_segment(hash), is_it);
            if let Some(entry) = known {
                return Some(std::mem::replace(&mut entry.slot, slot));
            }
        }
        if self.len >= self.segments.len() * SEGMENT_LOAD {
            self.grow();
        }
        self.place(Entry { hash, slot });
        self.len += 1;
        None
    }

    /// Removes an id and returns its slot. O(1), at worst the merging of two segments.
    pub(crate) fn remove<'a>(&mut self, id: &[u8], id_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let hash = self.hash(id);
        let number = segment_of(hash, self.segments.len());
        let segment = &mut self.segments[number];
        let is_it = |entry: &Entry| entry.hash == hash && id_of(entry.slot) == id;
        let found = segment.find_entry(within_segment(hash), is_it).ok()?;
        let (Entry { slot, .. }, _) = found.remove();
        self.len -= 1;
        if self.len * 4 < (self.segments.len() - 1) * SEGMENT_LOAD {
            let entries = self.segments.pop().unwrap_or_default();
            entries.into_iter().for_each(|entry| self.place(entry));
        } else {
            self.shrink(number);
        }
        Some(slot)
    }

    /// Adds a segment, and gives it its share of the one that had it until now.
    fn grow(&mut self) {
        self.segments.push(HashTable::new());
        let new = self.segments.len() - 1;
        if new == 0 {
            return;
        }
        let old = new - (1 << new.ilog2());
        let entries = std::mem::take(&mut self.segments[old]);
        let share = entries.len() / 2;
        self.segments[old].reserve(share, rehash);
        self.segments[new].reserve(share, rehash);
        entries.into_iter().for_each(|entry| self.place(entry));
    }

    fn shrink(&mut self, number: usize) {
        let segment = &mut self.segments[number];
        if segment.capacity() > SMALLEST_SHRUNK && segment.len() * 4 < segment.capacity() {
            segment.shrink_to(segment.len() * 2, rehash);
        }
    }

    fn place(&mut self, entry: Entry) {
        let number = segment_of(entry.hash, self.segments.len());
        self.segments[number].insert_unique(within_segment(entry.hash), entry, rehash);
    }

    /// The bytes that the index takes. O(n / 2048).
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.segments.iter().map(HashTable::allocation_size);
        tables.map(allocated).sum::<usize>()
            + allocated(self.segments.capacity() * size_of::<HashTable<Entry>>())
    }
}

fn rehash(entry: &Entry) -> u64 {
    within_segment(entry.hash)
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
            assert_eq!(index.put(id_of(slot), slot, id_of), None);
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
            index.put(id_of(slot), slot, id_of);
        }
        let longest = index.segments.iter().map(|segment| segment.len()).max();
        assert!(longest < Some(4 * SEGMENT_LOAD), "{longest:?}");
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((any::<bool>(), 0..2000u32), 1..3000)) {
            let mut index = Index::new();
            let mut model = HashMap::new();
            // Two slots for each id, so that one takes the other's place.
            let id_of = |slot: u32| id_of(slot % 1000);
            for (insert, slot) in steps {
                let id = id_of(slot);
                if insert {
                    prop_assert_eq!(index.put(id, slot, id_of), model.insert(id, slot));
                } else {
                    prop_assert_eq!(index.remove(id, id_of), model.remove(id));
                }
                prop_assert_eq!(index.find(id, id_of), model.get(id).copied());
                prop_assert_eq!(index.len, model.len());
            }
        }
    }
}
