//! Entries in the order of a number: leases and tickets by deadline, queue entries by arrival,
//! names by when to check them.

use std::fmt;

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
pub(crate) struct Entry<T, A = i64> {
    /// A moment in milliseconds, a number in the order of arrival, or one of these behind what it
    /// is grouped by.
    pub(crate) at: A,
    pub(crate) slot: u32,
    pub(crate) value: T,
}

/// The order itself: of those at the same place, the lower slot comes first.
type Key<A> = (A, u32);

impl<T, A: Copy> Entry<T, A> {
    fn key(&self) -> Key<A> {
        (self.at, self.slot)
    }
}

impl<T: Value, A> Entry<T, A> {
    fn amount(&self) -> T::Sum {
        self.value.amount(self.slot)
    }
}

/// A value of entries, of which the index may keep sums.
pub(crate) trait Value: Copy {
    /// What is summed up; `()` where nothing is, which then takes no room and no time.
    type Sum: Sum;

    /// What the entry of a slot adds to the sums.
    fn amount(self, slot: u32) -> Self::Sum;
}

/// A sum over entries, or another figure that those of parts make up, such as the least of them.
pub(crate) trait Sum: Copy + Default + PartialEq + fmt::Debug {
    fn add(&mut self, amount: Self);

    /// Takes out an amount that was added. Returns whether the sum is right now: what is left of a
    /// least one is not known from it, and must be summed up anew.
    #[must_use]
    fn subtract(&mut self, amount: Self) -> bool;
}

impl Sum for () {
    fn add(&mut self, (): ()) {}
    fn subtract(&mut self, (): ()) -> bool {
        true
    }
}

impl Sum for u64 {
    fn add(&mut self, amount: u64) {
        *self += amount;
    }
    fn subtract(&mut self, amount: u64) -> bool {
        *self -= amount;
        true
    }
}

impl Value for () {
    type Sum = ();
    fn amount(self, _slot: u32) {}
}

impl Value for u64 {
    type Sum = ();
    fn amount(self, _slot: u32) {}
}

/// How many seats the entries take.
impl Value for u32 {
    type Sum = u64;
    fn amount(self, _slot: u32) -> u64 {
        self.into()
    }
}

/// Entries in order, with how many there are up to any number, and the sum of their values.
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
pub(crate) struct Order<T: Value, A = i64> {
    groups: List<Group<T, A>, A>,
    /// What is in each group.
    sizes: Vec<Size<T::Sum>>,
    /// What the leaves take.
    leaf_bytes: usize,
}

impl<T: Value, A> Default for Order<T, A> {
    fn default() -> Self {
        Order {
            groups: List::default(),
            sizes: Vec::new(),
            leaf_bytes: 0,
        }
    }
}

/// How many entries some are, and the sum of their values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Size<S> {
    entries: u32,
    sum: S,
}

impl<S: Sum> Size<S> {
    fn add(&mut self, entries: usize, sum: S) {
        self.entries += entries as u32;
        self.sum.add(sum);
    }
}

/// Neighbouring entries, and the sum of their values.
#[derive(Clone, Debug)]
struct Leaf<T: Value, A> {
    entries: Vec<Entry<T, A>>,
    sum: T::Sum,
}

impl<T: Value, A: Copy> Leaf<T, A> {
    fn of(entries: Vec<Entry<T, A>>) -> Leaf<T, A> {
        let sum = sum_of(&entries);
        Leaf { entries, sum }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes an amount out of the sum, whose entries have left.
    fn subtract(&mut self, amount: T::Sum) {
        if !self.sum.subtract(amount) {
            self.sum = sum_of(&self.entries);
        }
    }

    fn bytes(&self) -> usize {
        allocated(self.entries.capacity() * size_of::<Entry<T, A>>())
    }
}

fn sum_of<T: Value, A: Copy>(entries: &[Entry<T, A>]) -> T::Sum {
    let mut sum = T::Sum::default();
    entries.iter().for_each(|entry| sum.add(entry.amount()));
    sum
}

/// Neighbouring leaves.
#[derive(Clone, Debug)]
struct Group<T: Value, A> {
    leaves: List<Leaf<T, A>, A>,
}

impl<T: Value, A: Copy + Ord> Group<T, A> {
    /// What is in its first `leaves`.
    fn size_of_first(&self, leaves: usize) -> Size<T::Sum> {
        let mut size = Size::<T::Sum>::default();
        for leaf in &self.leaves.parts[..leaves] {
            size.add(leaf.len(), leaf.sum);
        }
        size
    }

    fn sum(&self) -> T::Sum {
        self.size_of_first(self.leaves.parts.len()).sum
    }

    /// Adds what is in it from the key `from` to the key `to`, both included.
    fn add_between(&self, from: Key<A>, to: Key<A>, size: &mut Size<T::Sum>) {
        let (start, end) = (self.leaves.part_for(from), self.leaves.part_for(to));
        let leaves = self.leaves.parts.iter().enumerate();
        for (number, leaf) in leaves.take(end.saturating_add(1)).skip(start) {
            if start < number && number < end {
                size.add(leaf.len(), leaf.sum);
                continue;
            }
            let start = leaf.entries.partition_point(|entry| entry.key() < from);
            let within = &leaf.entries[start..];
            let len = within.partition_point(|entry| entry.key() <= to);
            size.add(len, sum_of(&within[..len]));
        }
    }
}

/// Sorted parts of a level, none of them empty, each with its last key.
#[derive(Clone, Debug)]
struct List<T, A> {
    parts: Vec<T>,
    ends: Vec<Key<A>>,
}

impl<T, A> Default for List<T, A> {
    fn default() -> Self {
        List {
            parts: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<T, A: Copy + Ord> List<T, A> {
    fn of(part: T, end: Key<A>) -> List<T, A> {
        // Most pools have one of each, so no room is made for more until there are.
        let (mut parts, mut ends) = (Vec::with_capacity(1), Vec::with_capacity(1));
        parts.push(part);
        ends.push(end);
        List { parts, ends }
    }

    /// The number of the first part whose end is not before `key`.
    fn part_for(&self, key: Key<A>) -> usize {
        self.ends.partition_point(|&end| end < key)
    }

    /// As [`List::part_for`]; a key after all others belongs to the last part.
    fn part_to_grow(&self, key: Key<A>) -> usize {
        self.part_for(key).min(self.parts.len().saturating_sub(1))
    }

    fn insert(&mut self, number: usize, part: T, end: Key<A>) {
        self.parts.insert(number, part);
        self.ends.insert(number, end);
    }

    fn remove(&mut self, number: usize) -> T {
        self.ends.remove(number);
        self.parts.remove(number)
    }

    fn split_off(&mut self, at: usize) -> List<T, A> {
        let tail = List {
            parts: self.parts.split_off(at),
            ends: self.ends.split_off(at),
        };
        self.parts.shrink_to_fit();
        self.ends.shrink_to_fit();
        tail
    }

    fn append(&mut self, mut other: List<T, A>) {
        self.parts.append(&mut other.parts);
        self.ends.append(&mut other.ends);
    }

    /// The last key of a list that is not empty.
    fn end(&self) -> Key<A> {
        self.ends[self.ends.len() - 1]
    }

    fn list_bytes(&self) -> usize {
        allocated(self.parts.capacity() * size_of::<T>())
            + allocated(self.ends.capacity() * size_of::<Key<A>>())
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

impl<T: Value, A: Copy> Clone for Order<T, A> {
    fn clone(&self) -> Order<T, A> {
        let groups = self.groups.clone();
        // The clones of the leaves have no reserve.
        let leaves = groups.parts.iter().flat_map(|group| &group.leaves.parts);
        let leaf_bytes = leaves.map(Leaf::bytes).sum();
        Order {
            groups,
            sizes: self.sizes.clone(),
            leaf_bytes,
        }
    }
}

impl<T: Value, A: Copy + Ord> Order<T, A> {
    /// How many entries there are. A sum over one number for thousands of them.
    pub(crate) fn len(&self) -> usize {
        self.sizes.iter().map(|size| size.entries as usize).sum()
    }

    /// O(1).
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.parts.is_empty()
    }

    pub(crate) fn first(&self) -> Option<&Entry<T, A>> {
        let leaf = self.groups.parts.first()?.leaves.parts.first()?;
        leaf.entries.first()
    }

    /// How many entries are at `at` or before. As [`Order::rank`].
    pub(crate) fn up_to(&self, at: A) -> usize {
        self.rank(at).0
    }

    /// How many entries are at `at` or before, and the sum of their values. O(1) if none is, else
    /// O(log n) and a sum over one number for thousands of entries.
    pub(crate) fn rank(&self, at: A) -> (usize, T::Sum) {
        let (mut before, mut sum) = (0, T::Sum::default());
        if self.first().is_none_or(|first| first.at > at) {
            return (before, sum);
        }
        let after = (at, u32::MAX);
        let number = self.groups.part_for(after);
        for size in &self.sizes[..number] {
            before += size.entries as usize;
            sum.add(size.sum);
        }
        let Some(group) = self.groups.parts.get(number) else {
            return (before, sum);
        };
        let number = group.leaves.part_for(after);
        let size = group.size_of_first(number);
        before += size.entries as usize;
        sum.add(size.sum);
        if let Some(leaf) = group.leaves.parts.get(number) {
            let within = leaf.entries.partition_point(|entry| entry.at <= at);
            before += within;
            sum.add(sum_of(&leaf.entries[..within]));
        }
        (before, sum)
    }

    /// How many entries are at `first` or after it and at `last` or before, and the sum of their
    /// values. O(log n), and a sum over one number for thousands of these entries.
    pub(crate) fn between(&self, first: A, last: A) -> (usize, T::Sum) {
        let (from, to) = ((first, 0), (last, u32::MAX));
        let (start, end) = (self.groups.part_for(from), self.groups.part_for(to));
        let mut between = Size::<T::Sum>::default();
        let groups = self.groups.parts.iter().zip(&self.sizes).enumerate();
        for (number, (group, size)) in groups.take(end.saturating_add(1)).skip(start) {
            if start < number && number < end {
                between.add(size.entries as usize, size.sum);
            } else {
                group.add_between(from, to, &mut between);
            }
        }
        (between.entries as usize, between.sum)
    }

    /// The first entry after `at`. O(log n).
    pub(crate) fn after(&self, at: A) -> Option<&Entry<T, A>> {
        let last = (at, u32::MAX);
        let group = self.groups.parts.get(self.groups.part_for(last))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(last))?;
        let within = leaf.entries.partition_point(|entry| entry.at <= at);
        leaf.entries.get(within)
    }

    /// The first entry at `at` or after it. O(log n).
    pub(crate) fn first_from(&self, at: A) -> Option<&Entry<T, A>> {
        let first = (at, 0);
        let group = self.groups.parts.get(self.groups.part_for(first))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(first))?;
        let within = leaf.entries.partition_point(|entry| entry.at < at);
        leaf.entries.get(within)
    }

    /// The entries from the first at `at` or after it on. O(log n), then O(1) an entry.
    pub(crate) fn iter_from(&self, at: A) -> impl Iterator<Item = &Entry<T, A>> {
        let first = (at, 0);
        let number = self.groups.part_for(first);
        let group = self.groups.parts.get(number);
        let leaf = group.map_or(0, |group| group.leaves.part_for(first));
        let own = group
            .into_iter()
            .flat_map(move |group| &group.leaves.parts[leaf..]);
        let later = self.groups.parts.iter().skip(number + 1);
        let later = later.flat_map(|group| &group.leaves.parts);
        let entries = own.chain(later).flat_map(|leaf| &leaf.entries);
        entries.skip_while(move |entry| entry.at < at)
    }

    /// Adds an entry. Its slot must not have one yet. O(log n), at worst the splitting of a leaf
    /// and a group.
    pub(crate) fn insert(&mut self, entry: Entry<T, A>) {
        let (key, amount) = (entry.key(), entry.amount());
        let number = self.groups.part_to_grow(key);
        let Some(group) = self.groups.parts.get_mut(number) else {
            let leaf = Leaf::of(vec![entry]);
            self.leaf_bytes += leaf.bytes();
            let leaves = List::of(leaf, key);
            self.groups = List::of(Group { leaves }, key);
            self.sizes = vec![Size {
                entries: 1,
                sum: amount,
            }];
            return;
        };
        let size = &mut self.sizes[number];
        size.entries += 1;
        size.sum.add(amount);
        self.groups.ends[number] = self.groups.ends[number].max(key);

        let leaves = &mut group.leaves;
        let position = leaves.part_to_grow(key);
        leaves.ends[position] = leaves.ends[position].max(key);
        let leaf = &mut leaves.parts[position];
        self.leaf_bytes -= leaf.bytes();
        let within = leaf.entries.partition_point(|other| other.key() < key);
        leaf.entries.insert(within, entry);
        leaf.sum.add(amount);
        if leaf.len() > LEAF {
            let tail = leaf.entries.split_off(split_at(leaf.len(), within));
            let tail = Leaf::of(tail);
            leaf.entries.shrink_to_fit();
            leaf.subtract(tail.sum);
            self.leaf_bytes += leaf.bytes() + tail.bytes();
            let end = leaves.ends[position];
            leaves.ends[position] = leaf.entries.last().map_or(end, Entry::key);
            leaves.insert(position + 1, tail, end);
            if leaves.parts.len() > GROUP {
                self.split_group(number, position + 1);
            }
        } else {
            self.leaf_bytes += leaf.bytes();
        }
    }

    /// Splits a group whose newest leaf is that at `position`.
    fn split_group(&mut self, number: usize, position: usize) {
        let group = &mut self.groups.parts[number];
        let split = split_at(group.leaves.parts.len(), position);
        let stays = group.size_of_first(split);
        let tail = group.leaves.split_off(split);
        let (end, tail_end) = (group.leaves.end(), tail.end());
        let tail = Group { leaves: tail };
        let mut moved = std::mem::replace(&mut self.sizes[number], stays);
        moved.entries -= stays.entries;
        if !moved.sum.subtract(stays.sum) {
            moved.sum = tail.sum();
        }
        self.groups.ends[number] = end;
        self.groups.insert(number + 1, tail, tail_end);
        self.sizes.insert(number + 1, moved);
    }

    /// Removes and returns the entry of `slot` at `at`. O(log n).
    pub(crate) fn remove(&mut self, at: A, slot: u32) -> Option<Entry<T, A>> {
        let key = (at, slot);
        let number = self.groups.part_for(key);
        let leaves = &mut self.groups.parts.get_mut(number)?.leaves;
        let position = leaves.part_for(key);
        let leaf = leaves.parts.get_mut(position)?;
        let within = leaf.entries.binary_search_by_key(&key, Entry::key).ok()?;
        self.leaf_bytes -= leaf.bytes();
        let entry = leaf.entries.remove(within);
        leaf.subtract(entry.amount());
        let size = &mut self.sizes[number];
        size.entries -= 1;
        let is_right = size.sum.subtract(entry.amount());
        match leaf.entries.last().map(Entry::key) {
            Some(end) => {
                if leaf.len() * 4 < leaf.entries.capacity() {
                    leaf.entries.shrink_to(leaf.len() * 2);
                }
                self.leaf_bytes += leaf.bytes();
                leaves.ends[position] = end;
                self.merge_leaf(number, position);
                self.merge_leaf(number, position.saturating_sub(1));
            }
            None => {
                leaves.remove(position);
            }
        }
        let group = &self.groups.parts[number];
        if group.leaves.parts.is_empty() {
            self.groups.remove(number);
            self.sizes.remove(number);
        } else {
            self.groups.ends[number] = group.leaves.end();
            if !is_right {
                self.sizes[number].sum = group.sum();
            }
            self.merge_group(number);
            self.merge_group(number.saturating_sub(1));
        }
        Some(entry)
    }

    /// Gives the entry of `slot` at `at` another value, and returns whether there is one. O(log n).
    pub(crate) fn set(&mut self, at: A, slot: u32, value: T) -> bool {
        let key = (at, slot);
        let number = self.groups.part_for(key);
        let Some(group) = self.groups.parts.get_mut(number) else {
            return false;
        };
        let position = group.leaves.part_for(key);
        let Some(leaf) = group.leaves.parts.get_mut(position) else {
            return false;
        };
        let Ok(within) = leaf.entries.binary_search_by_key(&key, Entry::key) else {
            return false;
        };
        let entry = &mut leaf.entries[within];
        let old = entry.amount();
        entry.value = value;
        let new = entry.amount();
        if leaf.sum.subtract(old) {
            leaf.sum.add(new);
        } else {
            leaf.sum = sum_of(&leaf.entries);
        }
        let size = &mut self.sizes[number];
        if size.sum.subtract(old) {
            size.sum.add(new);
        } else {
            size.sum = group.sum();
        }
        true
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
        self.leaf_bytes -= leaf.bytes() + next.bytes();
        leaf.entries.append(&mut next.entries);
        leaf.sum.add(next.sum);
        self.leaf_bytes += leaf.bytes();
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
        let added = self.sizes.remove(number + 1);
        let size = &mut self.sizes[number];
        size.entries += added.entries;
        size.sum.add(added.sum);
    }

    /// The entry of `slot` at `at`. O(log n).
    pub(crate) fn get(&self, at: A, slot: u32) -> Option<&Entry<T, A>> {
        let key = (at, slot);
        let group = self.groups.parts.get(self.groups.part_for(key))?;
        let leaf = group.leaves.parts.get(group.leaves.part_for(key))?;
        let within = leaf.entries.binary_search_by_key(&key, Entry::key).ok()?;
        leaf.entries.get(within)
    }

    /// The entries from the first on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<T, A>> {
        let leaves = self.groups.parts.iter();
        let leaves = leaves.flat_map(|group| &group.leaves.parts);
        leaves.flat_map(|leaf| &leaf.entries)
    }

    /// The entries whose amounts are not 0, from the first on. The search for each is O(log n) and
    /// a sum over one number for thousands of entries.
    pub(crate) fn iter_counted(&self) -> impl Iterator<Item = &Entry<T, A>> {
        let nothing = T::Sum::default();
        let groups = self.groups.parts.iter().zip(&self.sizes);
        let groups = groups.filter(move |(_, size)| size.sum != nothing);
        let leaves = groups.flat_map(|(group, _)| &group.leaves.parts);
        let leaves = leaves.filter(move |leaf| leaf.sum != nothing);
        let entries = leaves.flat_map(|leaf| &leaf.entries);
        entries.filter(move |entry| entry.amount() != nothing)
    }

    /// The bytes that the index takes. O(n / 4096), the least that a full group holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists = self.groups.parts.iter();
        self.leaf_bytes
            + lists.map(|group| group.leaves.list_bytes()).sum::<usize>()
            + self.groups.list_bytes()
            + allocated(self.sizes.capacity() * size_of::<Size<T::Sum>>())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Entry, GROUP, LEAF, Leaf, Order, Size, Sum, Value, sum_of};

    fn leaves_of(order: &Order<u32>) -> impl Iterator<Item = &Leaf<u32, i64>> {
        let groups = order.groups.parts.iter();
        groups.flat_map(|group| &group.leaves.parts)
    }

    fn check(order: &Order<u32>, model: &BTreeMap<(i64, u32), u32>) {
        let stored: Vec<_> = order.iter().map(|e| (e.key(), e.value)).collect();
        let expected: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(stored, expected);
        assert_eq!(order.len(), model.len());
        let groups = &order.groups;
        for (number, group) in groups.parts.iter().enumerate() {
            let leaves = &group.leaves;
            assert_eq!(groups.ends[number], leaves.end());
            let held: usize = leaves.parts.iter().map(Leaf::len).sum();
            let entries = leaves.parts.iter().flat_map(|leaf| &leaf.entries);
            let size = Size {
                entries: held as u32,
                sum: entries.map(Entry::amount).sum(),
            };
            assert_eq!(order.sizes[number], size);
            assert!((1..=GROUP).contains(&leaves.parts.len()));
            for (leaf, end) in leaves.parts.iter().zip(&leaves.ends) {
                assert!((1..=LEAF).contains(&leaf.len()));
                assert_eq!(leaf.entries[leaf.len() - 1].key(), *end);
                assert_eq!(leaf.sum, sum_of(&leaf.entries));
            }
            assert_eq!(leaves.parts.len(), leaves.ends.len());
        }
        assert_eq!(groups.parts.len(), groups.ends.len());
        assert_eq!(groups.parts.len(), order.sizes.len());
        let bytes: usize = leaves_of(order).map(Leaf::bytes).sum();
        assert_eq!(order.leaf_bytes, bytes);
        assert_eq!(order.is_empty(), model.is_empty());
        let counted: Vec<_> = order.iter_counted().map(Entry::key).collect();
        let expected = model.iter().filter(|(_, value)| **value > 0);
        let expected: Vec<_> = expected.map(|(key, _)| *key).collect();
        assert_eq!(counted, expected);
        for at in [-1, 0, 1, 250, 500, 999, 1000, i64::MAX] {
            let before = model.iter().filter(|((other, _), _)| *other <= at);
            let sum: u64 = before.clone().map(|(_, &value)| u64::from(value)).sum();
            assert_eq!(order.rank(at), (before.count(), sum), "at {at}");
            let rest: Vec<_> = order.iter_from(at).map(Entry::key).collect();
            let expected: Vec<_> = model.range((at, 0)..).map(|(key, _)| *key).collect();
            assert_eq!(rest, expected, "from {at}");
            let first = order.first_from(at).map(Entry::key);
            assert_eq!(first, expected.first().copied(), "from {at}");
            let after = model.keys().find(|(other, _)| *other > at);
            assert_eq!(order.after(at).map(Entry::key), after.copied(), "at {at}");
            for last in [at, at.saturating_add(3), at.saturating_add(400), i64::MAX] {
                let within = model.range((at, 0)..=(last, u32::MAX));
                let sum: u64 = within.clone().map(|(_, &value)| u64::from(value)).sum();
                let between = order.between(at, last);
                assert_eq!(between, (within.count(), sum), "from {at} to {last}");
            }
        }
    }

    thread_local! {
        /// Additions to sums.
        static ADDED: Cell<usize> = const { Cell::new(0) };
    }

    fn added_by<T>(body: impl FnOnce() -> T) -> usize {
        ADDED.set(0);
        body();
        ADDED.get()
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Ranked(u32);

    /// The least value of entries, and its slot.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Least(Option<(u32, u32)>);

    impl Value for Ranked {
        type Sum = Least;
        fn amount(self, slot: u32) -> Least {
            Least(Some((self.0, slot)))
        }
    }

    impl Sum for Least {
        fn add(&mut self, amount: Least) {
            ADDED.set(ADDED.get() + 1);
            self.0 = self.0.into_iter().chain(amount.0).min();
        }
        fn subtract(&mut self, amount: Least) -> bool {
            *self != amount
        }
    }

    fn check_least(order: &Order<Ranked>, model: &BTreeMap<(i64, u32), u32>) {
        for (group, size) in order.groups.parts.iter().zip(&order.sizes) {
            assert_eq!(size.sum, group.sum());
            for leaf in &group.leaves.parts {
                assert_eq!(leaf.sum, sum_of(&leaf.entries));
            }
        }
        for (first, last) in [
            (-1, 1000),
            (0, 0),
            (3, 300),
            (250, 251),
            (500, 999),
            (999, 1000),
        ] {
            let within = model.range((first, 0)..=(last, u32::MAX));
            let least = within
                .clone()
                .map(|(&(_, slot), &value)| (value, slot))
                .min();
            assert_eq!(order.between(first, last), (within.count(), Least(least)));
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
                    // Long runs of values that add nothing.
                    let value = if at < 300 { 0 } else { slot };
                    if model.insert(key, value).is_none() {
                        prop_assert!(!order.set(at, slot, value));
                        order.insert(Entry { at, slot, value });
                    } else {
                        model.insert(key, value / 2);
                        prop_assert!(order.set(at, slot, value / 2));
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

    proptest! {
        #[test]
        fn the_least_of_a_range_is_that_of_a_sorted_map(
            steps in prop::collection::vec((0..1000i64, 0..3000u32, 0..50u32, 0..3u8), 1..4000)
        ) {
            let mut order = Order::default();
            let mut model = BTreeMap::new();
            for (at, slot, value, step) in steps {
                let key = (at, slot);
                if step > 0 || model.is_empty() {
                    if model.insert(key, value).is_none() {
                        order.insert(Entry { at, slot, value: Ranked(value) });
                    } else {
                        prop_assert!(order.set(at, slot, Ranked(value)));
                    }
                } else {
                    let near = model.range(key..).next().or_else(|| model.iter().next());
                    let (at, slot) = *near.expect("not empty").0;
                    let value = model.remove(&(at, slot));
                    let entry = order.remove(at, slot);
                    prop_assert_eq!(entry.map(|entry| entry.value.0), value);
                }
            }
            check_least(&order, &model);
            check_least(&order.clone(), &model);
        }
    }

    #[test]
    fn the_least_of_many_takes_a_step_for_each_group_at_most() {
        let entries = 100_000;
        let mut order = Order::default();
        for slot in 0..entries {
            let at = i64::from(slot);
            order.insert(Entry {
                at,
                slot,
                value: Ranked(slot),
            });
        }
        let within_groups = 2 * (GROUP + LEAF);
        let groups = entries as usize / (GROUP * LEAF) + within_groups;
        let half = i64::from(entries / 2);
        for (first, last) in [
            (0, i64::MAX),
            (half, i64::MAX),
            (half, half + 40),
            (0, half),
        ] {
            let steps = added_by(|| order.between(first, last));
            assert!(steps <= groups, "{steps} from {first} to {last}");
        }
        // Each is the least of its leaf and of its group.
        for slot in entries / 2..entries {
            let steps = added_by(|| order.set(slot.into(), slot, Ranked(slot + 1)));
            assert!(steps <= within_groups, "{steps} to change {slot}");
        }
        for slot in entries / 2..entries {
            let steps = added_by(|| order.remove(slot.into(), slot));
            assert!(steps <= within_groups, "{steps} to remove {slot}");
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
            leaves_of(&copy).map(Leaf::bytes).sum::<usize>()
        );
        for slot in 0..LEAF as u32 - 3 {
            assert!(copy.remove(1, slot).is_some());
        }
        assert_eq!(copy.leaf_bytes, 0);
    }
}
