//! The deadlines of a pool's leases, in order.

use crate::memory::allocated;

/// Entries in a leaf before it is split. An insertion or removal moves no more of them, and they are twenty-four cache lines. Tests of
/// this file have smaller ones, so that a few entries make a tree.
const LEAF: usize = if cfg!(test) { 8 } else { 64 };

/// Leaves in a group before that is split.
const GROUP: usize = if cfg!(test) { 6 } else { 64 };

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

/// Leases ordered by deadline, with their number up to any moment.
///
/// A tree of three levels: groups, their leaves, and the entries in these, each level a sorted list. Each list of the upper two has
/// the last keys of its members beside it, close together, so that a search touches few cache lines among a million leases, and
/// a heartbeat, which is one removal and one insertion, moves little. With a million leases there are some hundreds of groups.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    groups: List<Group>,
    /// Entries in each group.
    sizes: Vec<u32>,
    len: usize,
    /// What the leaves take.
    leaf_bytes: usize,
}

type Leaf = Vec<Entry>;

/// Neighbouring leaves.
#[derive(Clone, Debug, Default)]
struct Group {
    leaves: List<Leaf>,
}

/// Sorted parts of a level, none of them empty, each with its last key.
#[derive(Clone, Debug)]
struct List<T> {
    parts: Vec<T>,
    ends: Vec<Key>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        List {
            parts: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<T> List<T> {
    fn of(part: T, end: Key) -> List<T> {
        // Most pools have one of each, so no room is made for more until there are.
        let (mut parts, mut ends) = (Vec::with_capacity(1), Vec::with_capacity(1));
        parts.push(part);
        ends.push(end);
        List { parts, ends }
    }

    /// The number of the first part whose end is not before `key`.
    fn part_for(&self, key: Key) -> usize {
        self.ends.partition_point(|&end| end < key)
    }

    /// As [`List::part_for`]; a key after all others belongs to the last part.
    fn part_to_grow(&self, key: Key) -> usize {
        self.part_for(key).min(self.parts.len().saturating_sub(1))
    }

    fn insert(&mut self, number: usize, part: T, end: Key) {
        self.parts.insert(number, part);
        self.ends.insert(number, end);
    }

    fn remove(&mut self, number: usize) -> T {
        self.ends.remove(number);
        self.parts.remove(number)
    }

    fn split_off(&mut self, at: usize) -> List<T> {
        let tail = List {
            parts: self.parts.split_off(at),
            ends: self.ends.split_off(at),
        };
        self.parts.shrink_to_fit();
        self.ends.shrink_to_fit();
        tail
    }

    fn append(&mut self, mut other: List<T>) {
        self.parts.append(&mut other.parts);
        self.ends.append(&mut other.ends);
    }

    fn end(&self) -> Key {
        self.ends.last().copied().unwrap_or((i64::MIN, 0))
    }

    fn list_bytes(&self) -> usize {
        allocated(self.parts.capacity() * size_of::<T>())
            + allocated(self.ends.capacity() * size_of::<Key>())
    }
}

/// Where a full list of `len` is split if its newest member stands at `place`. Deadlines mostly come in rising order; then full lists stay
/// behind the split, else halves.
fn split_at(len: usize, place: usize) -> usize {
    if place + 1 == len { len - 1 } else { len / 2 }
}

fn leaf_bytes(leaf: &Leaf) -> usize {
    allocated(leaf.capacity() * size_of::<Entry>())
}

impl Clone for Deadlines {
    fn clone(&self) -> Deadlines {
        let groups = self.groups.clone();
        // The clones of the leaves have no reserve.
        let leaves = groups.parts.iter().flat_map(|group| &group.leaves.parts);
        let leaf_bytes = leaves.map(leaf_bytes).sum();
        Deadlines {
            groups,
            sizes: self.sizes.clone(),
            len: self.len,
            leaf_bytes,
        }
    }
}

impl Deadlines {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn earliest(&self) -> Option<&Entry> {
        self.groups.parts.first()?.leaves.parts.first()?.first()
    }

    /// How many deadlines are at or before `now_ms`. O(1) if none is, else O(log n) and a sum over one number for thousands of leases.
    pub(crate) fn lapsed(&self, now_ms: i64) -> usize {
        if self
            .earliest()
            .is_none_or(|first| first.deadline_ms > now_ms)
        {
            return 0;
        }
        let after = (now_ms, u32::MAX);
        let number = self.groups.part_for(after);
        let before: usize = self.sizes[..number].iter().map(|&size| size as usize).sum();
        let Some(group) = self.groups.parts.get(number) else {
            return before;
        };
        let number = group.leaves.part_for(after);
        let leaves = &group.leaves.parts;
        let before = before + leaves[..number].iter().map(Vec::len).sum::<usize>();
        let within = |leaf: &Leaf| leaf.partition_point(|entry| entry.deadline_ms <= now_ms);
        before + leaves.get(number).map_or(0, within)
    }

    /// The first entry with a deadline after `now_ms`. O(log n).
    pub(crate) fn after(&self, now_ms: i64) -> Option<&Entry> {
        // No deadline is the highest of all, so there is a next millisecond.
        let next = (now_ms.checked_add(1)?, 0);
        let group = self.groups.parts.get(self.groups.part_for(next))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(next))?;
        leaf.get(leaf.partition_point(|entry| entry.key() < next))
    }

    /// Adds a lease. Its slot must not have one yet. O(log n), at worst the splitting of a leaf and a group.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.len += 1;
        let key = entry.key();
        let number = self.groups.part_to_grow(key);
        let Some(group) = self.groups.parts.get_mut(number) else {
            let leaf = vec![entry];
            self.leaf_bytes += leaf_bytes(&leaf);
            let leaves = List::of(leaf, key);
            self.groups = List::of(Group { leaves }, key);
            self.sizes = vec![1];
            return;
        };
        self.sizes[number] += 1;
        self.groups.ends[number] = self.groups.ends[number].max(key);

        let leaves = &mut group.leaves;
        let place = leaves.part_to_grow(key);
        leaves.ends[place] = leaves.ends[place].max(key);
        let leaf = &mut leaves.parts[place];
        self.leaf_bytes -= leaf_bytes(leaf);
        let within = leaf.partition_point(|other| other.key() < key);
        leaf.insert(within, entry);
        if leaf.len() > LEAF {
            let tail = leaf.split_off(split_at(leaf.len(), within));
            leaf.shrink_to_fit();
            self.leaf_bytes += leaf_bytes(leaf) + leaf_bytes(&tail);
            let end = leaves.ends[place];
            leaves.ends[place] = leaf.last().map_or(end, Entry::key);
            leaves.insert(place + 1, tail, end);
            if leaves.parts.len() > GROUP {
                self.split_group(number, place + 1);
            }
        } else {
            self.leaf_bytes += leaf_bytes(leaf);
        }
    }

    /// Splits a group whose newest leaf is that at `place`.
    fn split_group(&mut self, number: usize, place: usize) {
        let leaves = &mut self.groups.parts[number].leaves;
        let tail = leaves.split_off(split_at(leaves.parts.len(), place));
        let moved: usize = tail.parts.iter().map(Vec::len).sum();
        let (end, tail_end) = (leaves.end(), tail.end());
        self.groups.ends[number] = end;
        self.groups
            .insert(number + 1, Group { leaves: tail }, tail_end);
        self.sizes[number] -= moved as u32;
        self.sizes.insert(number + 1, moved as u32);
    }

    /// Removes and returns the lease of `slot` that lapses at `deadline_ms`. O(log n).
    pub(crate) fn remove(&mut self, deadline_ms: i64, slot: u32) -> Option<Entry> {
        let key = (deadline_ms, slot);
        let number = self.groups.part_for(key);
        let leaves = &mut self.groups.parts.get_mut(number)?.leaves;
        let place = leaves.part_for(key);
        let leaf = leaves.parts.get_mut(place)?;
        let within = leaf.binary_search_by_key(&key, Entry::key).ok()?;
        self.leaf_bytes -= leaf_bytes(leaf);
        let entry = leaf.remove(within);
        self.len -= 1;
        self.sizes[number] -= 1;
        match leaf.last().map(Entry::key) {
            Some(end) => {
                if leaf.len() * 4 < leaf.capacity() {
                    leaf.shrink_to(leaf.len() * 2);
                }
                self.leaf_bytes += leaf_bytes(leaf);
                leaves.ends[place] = end;
                self.merge_leaf(number, place);
                self.merge_leaf(number, place.saturating_sub(1));
            }
            None => {
                leaves.remove(place);
            }
        }
        let leaves = &self.groups.parts[number].leaves;
        if leaves.parts.is_empty() {
            self.groups.remove(number);
            self.sizes.remove(number);
        } else {
            self.groups.ends[number] = leaves.end();
            self.merge_group(number);
            self.merge_group(number.saturating_sub(1));
        }
        Some(entry)
    }

    /// Keeps neighbouring leaves from both being nearly empty, so that scattered removals do not leave many small ones.
    fn merge_leaf(&mut self, number: usize, place: usize) {
        let leaves = &mut self.groups.parts[number].leaves;
        let Some([leaf, next]) = leaves.parts.get(place..place + 2) else {
            return;
        };
        if leaf.len() + next.len() > LEAF / 2 {
            return;
        }
        let end = leaves.ends[place + 1];
        let mut next = leaves.remove(place + 1);
        let leaf = &mut leaves.parts[place];
        self.leaf_bytes -= leaf_bytes(leaf) + leaf_bytes(&next);
        leaf.append(&mut next);
        self.leaf_bytes += leaf_bytes(leaf);
        leaves.ends[place] = end;
    }

    /// The same for neighbouring groups.
    fn merge_group(&mut self, number: usize) {
        let Some([group, next]) = self.groups.parts.get(number..number + 2) else {
            return;
        };
        if group.leaves.parts.len() + next.leaves.parts.len() > GROUP / 2 {
            return;
        }
        let end = self.groups.ends[number + 1];
        let next = self.groups.remove(number + 1);
        self.groups.parts[number].leaves.append(next.leaves);
        self.groups.ends[number] = end;
        self.sizes[number] += self.sizes.remove(number + 1);
    }

    /// The lease of `slot` that lapses at `deadline_ms`. O(log n).
    pub(crate) fn get(&self, deadline_ms: i64, slot: u32) -> Option<&Entry> {
        let key = (deadline_ms, slot);
        let group = self.groups.parts.get(self.groups.part_for(key))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(key))?;
        leaf.get(leaf.binary_search_by_key(&key, Entry::key).ok()?)
    }

    /// The leases from the earliest deadline on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let leaves = self.groups.parts.iter();
        leaves.flat_map(|group| group.leaves.parts.iter().flatten())
    }

    /// The bytes that the index takes. O(n / 4096), the least that a full group holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists = self.groups.parts.iter();
        self.leaf_bytes
            + lists.map(|group| group.leaves.list_bytes()).sum::<usize>()
            + self.groups.list_bytes()
            + allocated(self.sizes.capacity() * size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Deadlines, Entry, GROUP, LEAF, Leaf, leaf_bytes};

    fn leaves_of(deadlines: &Deadlines) -> impl Iterator<Item = &Leaf> {
        let groups = deadlines.groups.parts.iter();
        groups.flat_map(|group| &group.leaves.parts)
    }

    fn check(deadlines: &Deadlines, model: &BTreeMap<(i64, u32), u64>) {
        let stored: Vec<_> = deadlines.iter().map(|e| (e.key(), e.length_ms)).collect();
        let expected: Vec<_> = model.iter().map(|(key, length)| (*key, *length)).collect();
        assert_eq!(stored, expected);
        assert_eq!(deadlines.len(), model.len());
        let groups = &deadlines.groups;
        for (number, group) in groups.parts.iter().enumerate() {
            let leaves = &group.leaves;
            assert_eq!(groups.ends[number], leaves.end());
            let held: usize = leaves.parts.iter().map(Vec::len).sum();
            assert_eq!(deadlines.sizes[number] as usize, held);
            assert!((1..=GROUP).contains(&leaves.parts.len()));
            for (leaf, end) in leaves.parts.iter().zip(&leaves.ends) {
                assert!((1..=LEAF).contains(&leaf.len()));
                assert_eq!(leaf[leaf.len() - 1].key(), *end);
            }
            assert_eq!(leaves.parts.len(), leaves.ends.len());
        }
        assert_eq!(groups.parts.len(), groups.ends.len());
        assert_eq!(groups.parts.len(), deadlines.sizes.len());
        let bytes: usize = leaves_of(deadlines).map(leaf_bytes).sum();
        assert_eq!(deadlines.leaf_bytes, bytes);
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
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0..1000i64, 0..3000u32, any::<bool>()), 1..8000)
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
    fn rising_deadlines_fill_their_leaves_and_scattered_removals_merge_them() {
        let mut deadlines = Deadlines::default();
        let mut model = BTreeMap::new();
        let full_groups = 5;
        for slot in 0..(full_groups * GROUP * LEAF) as u32 {
            let deadline_ms = i64::from(slot) / 10;
            deadlines.insert(Entry {
                deadline_ms,
                slot,
                length_ms: 1,
            });
            model.insert((deadline_ms, slot), 1);
        }
        check(&deadlines, &model);
        assert_eq!(deadlines.groups.parts.len(), full_groups);
        assert_eq!(leaves_of(&deadlines).count(), full_groups * GROUP);
        let scattered: Vec<_> = model
            .keys()
            .copied()
            .filter(|(_, slot)| !(*slot as usize).is_multiple_of(LEAF))
            .collect();
        for (deadline_ms, slot) in scattered {
            assert!(deadlines.remove(deadline_ms, slot).is_some());
            model.remove(&(deadline_ms, slot));
        }
        check(&deadlines, &model);
        check(&deadlines.clone(), &model);
        assert_eq!(model.len(), full_groups * GROUP);
        // Of two neighbours in a group one is a quarter full at least.
        let groups = deadlines.groups.parts.len();
        let leaves = leaves_of(&deadlines).count();
        assert!(leaves <= 2 * model.len() / (LEAF / 4) + groups, "{leaves}");
        assert!(groups <= full_groups, "{groups}");
        for (deadline_ms, slot) in model.into_keys() {
            assert!(deadlines.remove(deadline_ms, slot).is_some());
        }
        check(&deadlines, &BTreeMap::new());
        assert_eq!((deadlines.leaf_bytes, deadlines.len()), (0, 0));
    }

    #[test]
    fn a_copy_counts_its_own_leaves_which_have_no_reserve() {
        let mut deadlines = Deadlines::default();
        for slot in 0..LEAF as u32 - 3 {
            deadlines.insert(Entry {
                deadline_ms: 1,
                slot,
                length_ms: 1,
            });
        }
        let mut copy = deadlines.clone();
        assert!(copy.memory_bytes() < deadlines.memory_bytes());
        assert_eq!(
            copy.leaf_bytes,
            leaves_of(&copy).map(leaf_bytes).sum::<usize>()
        );
        for slot in 0..LEAF as u32 - 3 {
            assert!(copy.remove(1, slot).is_some());
        }
        assert_eq!(copy.leaf_bytes, 0);
    }
}
