//! The deadlines of a pool's leases, in order.

use crate::memory::allocated;

/// Entries in a block before it is split. The most that an insertion or removal moves in memory is one block.
const BLOCK: usize = 512;

/// A lease in the index: when it lapses, whose it is, and how long it was granted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) deadline_ms: i64,
    pub(crate) slot: u32,
    pub(crate) length_ms: u64,
}

/// The order of leases: by deadline, then by slot.
type Key = (i64, u32);

impl Entry {
    fn key(&self) -> Key {
        (self.deadline_ms, self.slot)
    }
}

/// Leases ordered by deadline, with their number up to any moment in O(log n).
///
/// Sorted blocks of bounded size, and over them a Fenwick tree of their lengths. Both the blocks and their directory stay
/// contiguous, so that a heartbeat (one removal and one insertion) touches few cache lines among a million leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    /// None is empty.
    blocks: Vec<Vec<Entry>>,
    /// The last key of each block. A search for a block looks at these alone: a block's own memory is far away.
    ends: Vec<Key>,
    /// Fenwick tree over the blocks' lengths.
    lengths: Vec<u32>,
    len: usize,
}

impl Deadlines {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn earliest(&self) -> Option<&Entry> {
        self.blocks.first()?.first()
    }

    /// The number of the first block whose last entry is not before `key`.
    fn block_for(&self, key: Key) -> usize {
        self.ends.partition_point(|&end| end < key)
    }

    /// Notes that the end of a block may be another.
    fn note_end(&mut self, number: usize) {
        if let Some(last) = self.blocks[number].last() {
            self.ends[number] = last.key();
        }
    }

    fn remove_block(&mut self, number: usize) {
        self.blocks.remove(number);
        self.ends.remove(number);
        self.recount();
    }

    /// How many deadlines are at or before `now_ms`. O(log n).
    pub(crate) fn lapsed(&self, now_ms: i64) -> usize {
        let (block, within) = self.place_after(now_ms);
        self.entries_before(block) + within
    }

    /// The first entry with a deadline after `now_ms`. O(log n).
    pub(crate) fn after(&self, now_ms: i64) -> Option<&Entry> {
        let (block, within) = self.place_after(now_ms);
        self.blocks.get(block)?.get(within)
    }

    /// The place, as a block and an index in it, of the first entry with a deadline after `now_ms`.
    fn place_after(&self, now_ms: i64) -> (usize, usize) {
        if self
            .earliest()
            .is_none_or(|first| first.deadline_ms > now_ms)
        {
            return (0, 0);
        }
        let lapsed = |entry: &Entry| entry.deadline_ms <= now_ms;
        let block = self
            .ends
            .partition_point(|&(deadline_ms, _)| deadline_ms <= now_ms);
        let within = self
            .blocks
            .get(block)
            .map_or(0, |block| block.partition_point(lapsed));
        (block, within)
    }

    fn entries_before(&self, mut block: usize) -> usize {
        let mut sum = 0;
        while block > 0 {
            sum += self.lengths[block - 1] as usize;
            block &= block - 1;
        }
        sum
    }

    fn adjust_length(&mut self, block: usize, by: i32) {
        let mut node = block + 1;
        while node <= self.lengths.len() {
            self.lengths[node - 1] = self.lengths[node - 1].wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }

    fn recount(&mut self) {
        self.lengths.clear();
        self.lengths
            .extend(self.blocks.iter().map(|block| block.len() as u32));
        for node in 1..=self.lengths.len() {
            let parent = node + (node & node.wrapping_neg());
            if parent <= self.lengths.len() {
                self.lengths[parent - 1] += self.lengths[node - 1];
            }
        }
    }

    /// Adds a lease. Its slot must not have one yet. O(log n), at worst the splitting of one block.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.len += 1;
        let number = self.block_for(entry.key());
        // A deadline after all others goes to the end of the last block.
        let number = number.min(self.blocks.len().saturating_sub(1));
        let Some(block) = self.blocks.get_mut(number) else {
            self.blocks.push(vec![entry]);
            self.ends.push(entry.key());
            self.recount();
            return;
        };
        let place = block.partition_point(|other| other.key() < entry.key());
        block.insert(place, entry);
        if block.len() <= BLOCK {
            if place + 1 == block.len() {
                self.ends[number] = entry.key();
            }
            self.adjust_length(number, 1);
            return;
        }
        // Deadlines mostly come in rising order; then full blocks stay behind the split, else halves.
        let keep = if place == BLOCK { BLOCK } else { BLOCK / 2 };
        let tail = block.split_off(keep);
        // The insertion that overfilled the block has doubled its capacity.
        block.shrink_to(BLOCK);
        self.blocks.insert(number + 1, tail);
        self.ends.insert(number + 1, entry.key());
        self.note_end(number);
        self.note_end(number + 1);
        self.recount();
    }

    /// Removes and returns the lease of `slot` that lapses at `deadline_ms`. O(log n).
    pub(crate) fn remove(&mut self, deadline_ms: i64, slot: u32) -> Option<Entry> {
        let key = (deadline_ms, slot);
        let number = self.block_for(key);
        let block = self.blocks.get_mut(number)?;
        let place = block.binary_search_by_key(&key, Entry::key).ok()?;
        let entry = block.remove(place);
        self.len -= 1;
        if block.is_empty() {
            self.remove_block(number);
        } else {
            if block.capacity() > 64 && block.len() * 4 < block.capacity() {
                block.shrink_to(block.len() * 2);
            }
            self.note_end(number);
            self.adjust_length(number, -1);
            self.merge_with_next(number);
            self.merge_with_next(number.saturating_sub(1));
        }
        Some(entry)
    }

    /// Keeps neighbours from both being nearly empty, so that scattered removals do not leave many small blocks.
    fn merge_with_next(&mut self, number: usize) {
        let Some([block, next]) = self.blocks.get_mut(number..number + 2) else {
            return;
        };
        if block.len() + next.len() <= BLOCK / 4 {
            block.append(next);
            self.note_end(number);
            self.remove_block(number + 1);
        }
    }

    /// The lease of `slot` that lapses at `deadline_ms`. O(log n).
    pub(crate) fn get(&self, deadline_ms: i64, slot: u32) -> Option<&Entry> {
        let key = (deadline_ms, slot);
        let block = self.blocks.get(self.block_for(key))?;
        let place = block.binary_search_by_key(&key, Entry::key).ok()?;
        block.get(place)
    }

    /// The leases from the earliest deadline on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.blocks.iter().flatten()
    }

    /// The bytes that the index takes. O(n / 512).
    pub(crate) fn memory_bytes(&self) -> usize {
        let blocks: usize = self
            .blocks
            .iter()
            .map(|block| allocated(block.capacity() * size_of::<Entry>()))
            .sum();
        blocks
            + allocated(self.blocks.capacity() * size_of::<Vec<Entry>>())
            + allocated(self.ends.capacity() * size_of::<Key>())
            + allocated(self.lengths.capacity() * size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{BLOCK, Deadlines, Entry};

    fn check(deadlines: &Deadlines, model: &BTreeMap<(i64, u32), u64>) {
        let stored: Vec<_> = deadlines.iter().map(|e| (e.key(), e.length_ms)).collect();
        let expected: Vec<_> = model.iter().map(|(key, length)| (*key, *length)).collect();
        assert_eq!(stored, expected);
        assert_eq!(deadlines.len(), model.len());
        let ends = deadlines
            .blocks
            .iter()
            .map(|block| block[block.len() - 1].key());
        assert!(ends.eq(deadlines.ends.iter().copied()));
        for now_ms in [-1, 0, 1, 250, 500, 999, 1000, i64::MAX] {
            let lapsed = model.keys().filter(|(deadline, _)| *deadline <= now_ms);
            assert_eq!(deadlines.lapsed(now_ms), lapsed.count(), "at {now_ms}");
            let after = model.keys().find(|(deadline, _)| *deadline > now_ms);
            assert_eq!(
                deadlines.after(now_ms).map(Entry::key),
                after.copied(),
                "at {now_ms}"
            );
        }
        assert!(deadlines.blocks.iter().all(|block| !block.is_empty()));
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0..1000i64, 0..3000u32, any::<bool>()), 1..4000)
        ) {
            let mut deadlines = Deadlines::default();
            let mut model = BTreeMap::new();
            for (deadline_ms, slot, grow) in steps {
                let key = (deadline_ms, slot);
                if grow || model.is_empty() {
                    if model.insert(key, slot.into()).is_none() {
                        deadlines.insert(Entry { deadline_ms, slot, length_ms: slot.into() });
                    }
                } else {
                    let near = model.range(key..).next().or_else(|| model.iter().next());
                    let (deadline_ms, slot) = *near.expect("not empty").0;
                    let length = model.remove(&(deadline_ms, slot));
                    let entry = deadlines.remove(deadline_ms, slot);
                    prop_assert_eq!(entry.map(|entry| entry.length_ms), length);
                    prop_assert_eq!(deadlines.remove(deadline_ms, slot), None);
                }
            }
            check(&deadlines, &model);
        }
    }

    #[test]
    fn rising_deadlines_fill_their_blocks_and_scattered_removals_merge_them() {
        let mut deadlines = Deadlines::default();
        let mut model = BTreeMap::new();
        for slot in 0..20 * BLOCK as u32 {
            let deadline_ms = i64::from(slot) / 10;
            deadlines.insert(Entry {
                deadline_ms,
                slot,
                length_ms: 1,
            });
            model.insert((deadline_ms, slot), 1);
        }
        check(&deadlines, &model);
        assert_eq!(deadlines.blocks.len(), 20);
        let scattered: Vec<_> = model
            .keys()
            .copied()
            .filter(|(_, slot)| slot % 64 != 0)
            .collect();
        for (deadline_ms, slot) in scattered {
            assert!(deadlines.remove(deadline_ms, slot).is_some());
            model.remove(&(deadline_ms, slot));
        }
        check(&deadlines, &model);
        assert!(deadlines.blocks.len() <= 4, "{}", deadlines.blocks.len());
    }
}
