//! Entries in the order of a number: leases and tickets by deadline, queue entries by arrival,
//! names by when to check them.

use crate::memory::allocated;

/// Entries in a leaf before it is split. An insertion or removal moves no more of them, and of
/// leases they are twenty-four cache lines. Tests of this file have smaller ones, so that a few
/// entries make a tree.
const LEAF: usize = if cfg!(test) { 8 } else { 64 };

/// Leaves in a group before that is split.
const GROUP: usize = if cfg!(test) { 6 } else { 64 };

/// An entry: where it stands in the order, the slot of what it is about, and what else is known of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<T> {
    /// A moment in milliseconds, or a number in the order of arrival.
    pub(crate) at: i64,
    pub(crate) slot: u32,
    pub(crate) value: T,
}

/// The order itself: of those at the same number, the lower slot comes first.
type Key = (i64, u32);

impl<T> Entry<T> {
    fn key(&self) -> Key {
        (self.at, self.slot)
    }
}

/// Entries in order, with how many there are up to any number.
///
/// A tree of three levels: groups, their leaves, and the entries in these, each level a sorted
/// list. Each list of the upper two has the last keys of its members next to it, close together, so
/// that a search touches few cache lines among a million leases, and a heartbeat, which is one
/// removal and one insertion, moves little. With a million leases there are some hundreds of
/// groups.
///
/// Ten thousand leases, one for each 10 ms from 0 on, in the slots 0 to 9,999. A key is a deadline
/// and a slot:
///
/// ```text
///            group 0           group 1           group 2
/// ends    (40950, 4095)     (81910, 8191)     (99990, 9999)
/// sizes       4096              4096              1808
/// leaves       64                64                29
///                                 │
///         ┌───────────────────────┘
///     leaf 5            leaf 6            leaf 7
///  (44790, 4479)     (45430, 4543)     (46070, 4607)   ...
///   64 entries        64 entries        64 entries
///                         │
///       44800 44810 ... 45000 | 45010 ... 45430
///                             45005
/// ```
///
/// A lease until 45,005 is inserted, in slot 10,000. The first group whose end is not before it is
/// group 1, the first such leaf there is leaf 6, and in this it follows 21 others. With it the leaf
/// has 65 entries, one too many, so it is split into 32 and 33. That gives the group 65 leaves, and
/// it is split likewise, into 32 and 33 of them. Nothing else moves:
///
/// ```text
///            group 0           group 1           group 2           group 3
/// ends    (40950, 4095)     (60790, 6079)     (81910, 8191)     (99990, 9999)
/// sizes       4096              1985              2112              1808
/// leaves       64                32                33                29
///                                 │
///         ┌───────────────────────┘
///     leaf 5            leaf 6            leaf 7            leaf 8
///  (44790, 4479)     (45100, 4510)     (45430, 4543)     (46070, 4607)   ...
///   64 entries        32 entries        33 entries        64 entries
/// ```
///
/// How many have expired by 45,200 is a sum over what is before the one leaf that is searched:
///
/// ```text
/// up_to(45200) = 4096            group 0
///              + 6 × 64 + 32     the leaves 0 to 6 of group 1
///              + 10              of leaf 7: 45110 to 45200
///              = 4522
/// ```
///
/// Where the new entry is the last of a full leaf, as a new lease among others of the same length
/// mostly is, 64 stay and it begins a leaf of its own. So leaves that are done with are full.
#[derive(Debug)]
pub(crate) struct Order<T> {
    groups: List<Group<T>>,
    /// Entries in each group.
    sizes: Vec<u32>,
    len: usize,
    /// What the leaves take.
    leaf_bytes: usize,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Order {
            groups: List::default(),
            sizes: Vec::new(),
            len: 0,
            leaf_bytes: 0,
        }
    }
}

type Leaf<T> = Vec<Entry<T>>;

/// Neighbouring leaves.
#[derive(Clone, Debug)]
struct Group<T> {
    leaves: List<Leaf<T>>,
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

/// Where a full list of `len` is split if its newest member stands at `position`. New members
/// mostly come in rising order; then full lists stay behind the split, else halves.
fn split_at(len: usize, position: usize) -> usize {
    if position + 1 == len {
        len - 1
    } else {
        len / 2
    }
}

fn leaf_bytes<T>(leaf: &Leaf<T>) -> usize {
    allocated(leaf.capacity() * size_of::<Entry<T>>())
}

impl<T: Copy> Clone for Order<T> {
    fn clone(&self) -> Order<T> {
        let groups = self.groups.clone();
        // The clones of the leaves have no reserve.
        let leaves = groups.parts.iter().flat_map(|group| &group.leaves.parts);
        let leaf_bytes = leaves.map(leaf_bytes).sum();
        Order {
            groups,
            sizes: self.sizes.clone(),
            len: self.len,
            leaf_bytes,
        }
    }
}

impl<T: Copy> Order<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<&Entry<T>> {
        self.groups.parts.first()?.leaves.parts.first()?.first()
    }

    /// How many entries are at `at` or before. O(1) if none is, else O(log n) and a sum over one
    /// number for thousands of entries.
    pub(crate) fn up_to(&self, at: i64) -> usize {
        if self.first().is_none_or(|first| first.at > at) {
            return 0;
        }
        let after = (at, u32::MAX);
        let number = self.groups.part_for(after);
        let before: usize = self.sizes[..number].iter().map(|&size| size as usize).sum();
        let Some(group) = self.groups.parts.get(number) else {
            return before;
        };
        let number = group.leaves.part_for(after);
        let leaves = &group.leaves.parts;
        let before = before + leaves[..number].iter().map(Vec::len).sum::<usize>();
        let within = |leaf: &Leaf<T>| leaf.partition_point(|entry| entry.at <= at);
        before + leaves.get(number).map_or(0, within)
    }

    /// The first entry after `at`. O(log n).
    pub(crate) fn after(&self, at: i64) -> Option<&Entry<T>> {
        // No entry is at the highest number of all, so there is a next one.
        let next = (at.checked_add(1)?, 0);
        let group = self.groups.parts.get(self.groups.part_for(next))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(next))?;
        leaf.get(leaf.partition_point(|entry| entry.key() < next))
    }

    /// Adds an entry. Its slot must not have one yet. O(log n), at worst the splitting of a leaf
    /// and a group.
    pub(crate) fn insert(&mut self, entry: Entry<T>) {
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
        let position = leaves.part_to_grow(key);
        leaves.ends[position] = leaves.ends[position].max(key);
        let leaf = &mut leaves.parts[position];
        self.leaf_bytes -= leaf_bytes(leaf);
        let within = leaf.partition_point(|other| other.key() < key);
        leaf.insert(within, entry);
        if leaf.len() > LEAF {
            let tail = leaf.split_off(split_at(leaf.len(), within));
            leaf.shrink_to_fit();
            self.leaf_bytes += leaf_bytes(leaf) + leaf_bytes(&tail);
            let end = leaves.ends[position];
            leaves.ends[position] = leaf.last().map_or(end, Entry::key);
            leaves.insert(position + 1, tail, end);
            if leaves.parts.len() > GROUP {
                self.split_group(number, position + 1);
            }
        } else {
            self.leaf_bytes += leaf_bytes(leaf);
        }
    }

    /// Splits a group whose newest leaf is that at `position`.
    fn split_group(&mut self, number: usize, position: usize) {
        let leaves = &mut self.groups.parts[number].leaves;
        let tail = leaves.split_off(split_at(leaves.parts.len(), position));
        let moved: usize = tail.parts.iter().map(Vec::len).sum();
        let (end, tail_end) = (leaves.end(), tail.end());
        self.groups.ends[number] = end;
        self.groups
            .insert(number + 1, Group { leaves: tail }, tail_end);
        self.sizes[number] -= moved as u32;
        self.sizes.insert(number + 1, moved as u32);
    }

    /// Removes and returns the entry of `slot` at `at`. O(log n).
    pub(crate) fn remove(&mut self, at: i64, slot: u32) -> Option<Entry<T>> {
        let key = (at, slot);
        let number = self.groups.part_for(key);
        let leaves = &mut self.groups.parts.get_mut(number)?.leaves;
        let position = leaves.part_for(key);
        let leaf = leaves.parts.get_mut(position)?;
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
                leaves.ends[position] = end;
                self.merge_leaf(number, position);
                self.merge_leaf(number, position.saturating_sub(1));
            }
            None => {
                leaves.remove(position);
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

    /// Keeps neighbouring leaves from both being nearly empty, so that scattered removals do not
    /// leave many small ones.
    fn merge_leaf(&mut self, number: usize, position: usize) {
        let leaves = &mut self.groups.parts[number].leaves;
        let Some([leaf, next]) = leaves.parts.get(position..position + 2) else {
            return;
        };
        if leaf.len() + next.len() > LEAF / 2 {
            return;
        }
        let end = leaves.ends[position + 1];
        let mut next = leaves.remove(position + 1);
        let leaf = &mut leaves.parts[position];
        self.leaf_bytes -= leaf_bytes(leaf) + leaf_bytes(&next);
        leaf.append(&mut next);
        self.leaf_bytes += leaf_bytes(leaf);
        leaves.ends[position] = end;
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

    /// The entry of `slot` at `at`. O(log n).
    pub(crate) fn get(&self, at: i64, slot: u32) -> Option<&Entry<T>> {
        let key = (at, slot);
        let group = self.groups.parts.get(self.groups.part_for(key))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(key))?;
        leaf.get(leaf.binary_search_by_key(&key, Entry::key).ok()?)
    }

    /// The entries from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
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

    use super::{Entry, GROUP, LEAF, Leaf, Order, leaf_bytes};

    fn leaves_of(order: &Order<u64>) -> impl Iterator<Item = &Leaf<u64>> {
        let groups = order.groups.parts.iter();
        groups.flat_map(|group| &group.leaves.parts)
    }

    fn check(order: &Order<u64>, model: &BTreeMap<(i64, u32), u64>) {
        let stored: Vec<_> = order.iter().map(|e| (e.key(), e.value)).collect();
        let expected: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(stored, expected);
        assert_eq!(order.len(), model.len());
        let groups = &order.groups;
        for (number, group) in groups.parts.iter().enumerate() {
            let leaves = &group.leaves;
            assert_eq!(groups.ends[number], leaves.end());
            let held: usize = leaves.parts.iter().map(Vec::len).sum();
            assert_eq!(order.sizes[number] as usize, held);
            assert!((1..=GROUP).contains(&leaves.parts.len()));
            for (leaf, end) in leaves.parts.iter().zip(&leaves.ends) {
                assert!((1..=LEAF).contains(&leaf.len()));
                assert_eq!(leaf[leaf.len() - 1].key(), *end);
            }
            assert_eq!(leaves.parts.len(), leaves.ends.len());
        }
        assert_eq!(groups.parts.len(), groups.ends.len());
        assert_eq!(groups.parts.len(), order.sizes.len());
        let bytes: usize = leaves_of(order).map(leaf_bytes).sum();
        assert_eq!(order.leaf_bytes, bytes);
        for at in [-1, 0, 1, 250, 500, 999, 1000, i64::MAX] {
            let before = model.keys().filter(|(other, _)| *other <= at);
            assert_eq!(order.up_to(at), before.count(), "at {at}");
            let after = model.keys().find(|(other, _)| *other > at);
            assert_eq!(order.after(at).map(Entry::key), after.copied(), "at {at}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0..1000i64, 0..3000u32, any::<bool>()), 1..8000)
        ) {
            let mut order = Order::default();
            let mut model = BTreeMap::new();
            for (at, slot, grow) in steps {
                let key = (at, slot);
                if grow || model.is_empty() {
                    if model.insert(key, slot.into()).is_none() {
                        order.insert(Entry { at, slot, value: slot.into() });
                    }
                } else {
                    let near = model.range(key..).next().or_else(|| model.iter().next());
                    let (at, slot) = *near.expect("not empty").0;
                    let value = model.remove(&(at, slot));
                    let entry = order.remove(at, slot);
                    prop_assert_eq!(entry.map(|entry| entry.value), value);
                    prop_assert_eq!(order.remove(at, slot), None);
                }
            }
            check(&order, &model);
        }
    }

    #[test]
    fn rising_numbers_fill_their_leaves_and_scattered_removals_merge_them() {
        let mut order = Order::default();
        let mut model = BTreeMap::new();
        let full_groups = 5;
        for slot in 0..(full_groups * GROUP * LEAF) as u32 {
            let at = i64::from(slot) / 10;
            order.insert(Entry { at, slot, value: 1 });
            model.insert((at, slot), 1);
        }
        check(&order, &model);
        assert_eq!(order.groups.parts.len(), full_groups);
        assert_eq!(leaves_of(&order).count(), full_groups * GROUP);
        let scattered: Vec<_> = model
            .keys()
            .copied()
            .filter(|(_, slot)| !(*slot as usize).is_multiple_of(LEAF))
            .collect();
        for (at, slot) in scattered {
            assert!(order.remove(at, slot).is_some());
            model.remove(&(at, slot));
        }
        check(&order, &model);
        check(&order.clone(), &model);
        assert_eq!(model.len(), full_groups * GROUP);
        // Of two neighbours in a group one is a quarter full at least.
        let groups = order.groups.parts.len();
        let leaves = leaves_of(&order).count();
        assert!(leaves <= 2 * model.len() / (LEAF / 4) + groups, "{leaves}");
        assert!(groups <= full_groups, "{groups}");
        for (at, slot) in model.into_keys() {
            assert!(order.remove(at, slot).is_some());
        }
        check(&order, &BTreeMap::new());
        assert_eq!((order.leaf_bytes, order.len()), (0, 0));
    }

    #[test]
    fn a_copy_counts_its_own_leaves_which_have_no_reserve() {
        let mut order = Order::default();
        for slot in 0..LEAF as u32 - 3 {
            order.insert(Entry {
                at: 1,
                slot,
                value: 1,
            });
        }
        let mut copy = order.clone();
        assert!(copy.memory_bytes() < order.memory_bytes());
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
