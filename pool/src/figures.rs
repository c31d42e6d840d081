//! Queue entries by the figure that each states, in the order of arrival.

use std::collections::BTreeSet;

use crate::memory::allocated;
use crate::order::{Entry, Order, Value};

/// The most figures that are told apart in one structure. Far more than may be joined with at a
/// name; values that are renamed and restored can bring some together. It bounds the work of each
/// decision, whatever was loaded. The tests of this crate have fewer, so that a short history
/// reaches them.
pub(crate) const MOST_FIGURES: usize = if cfg!(test) { 10 } else { 32 };

/// Entries of a queue, by figure and arrival: one ordered index a figure.
///
/// A *figure* is the limit that a session states itself, and by which it alone is judged. All
/// entries with the same figure are shut out together or not at all, and of those that are not, the
/// first in the order of arrival has the fewest ahead. So a decision looks at the first entry of
/// each figure and counts in each index, and the length of the queue matters by its logarithm only:
///
/// ```text
///  arrival   1    2    3    4    5    6    7          used = 2
/// figure 2   a    .    c    .    .    f    .     shut out: used >= 2, so they count for nobody
/// figure 3   .    b    .    .    .    .    g     b has 0 ahead, g has 3 (b, d, e)
/// figure 5   .    .    .    d    e    .    .     d has 1 ahead (b), e has 2 (b, d)
/// ```
///
/// An entry knows the number of its index, not its figure. So RESIZE, which gives all the same
/// figure, renames the longest index and moves only what is in the others.
///
/// What is counted is seats: each entry has a weight. One that is heavier than its figure counts
/// for nobody, so each index sums up the others only. RESIZE finds those that it makes too heavy,
/// or no longer so, by their weights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// An empty one is free for the next figure.
    indexes: Vec<FigureIndex>,
}

#[derive(Clone, Debug)]
struct FigureIndex {
    figure: i64,
    arrivals: Order<Weight>,
    /// The entries that weigh more than 1, by weight; mostly none.
    heavy: BTreeSet<(u32, u64, u32)>,
}

/// How many seats an entry asks for, and whether these are more than its figure.
#[derive(Clone, Copy, Debug)]
struct Weight(u32);

impl Weight {
    /// Above all weights.
    const TOO_HEAVY: u32 = 1 << 31;

    /// An entry of weight 1 is never marked: where the figure is below, the whole index is shut
    /// out.
    fn under(figure: i64, weight: u32) -> Weight {
        let is_too_heavy = weight > 1 && i64::from(weight) > figure;
        Weight(if is_too_heavy {
            weight | Weight::TOO_HEAVY
        } else {
            weight
        })
    }

    fn seats(self) -> u32 {
        self.0 & !Weight::TOO_HEAVY
    }
}

impl Value for Weight {
    type Sum = u64;

    fn amount(self, _slot: u32) -> u64 {
        let counts = self.0 & Weight::TOO_HEAVY == 0;
        if counts { self.0.into() } else { 0 }
    }
}

impl FigureIndex {
    fn new(figure: i64) -> FigureIndex {
        FigureIndex {
            figure,
            arrivals: Order::default(),
            heavy: BTreeSet::new(),
        }
    }

    fn is_used(&self) -> bool {
        !self.arrivals.is_empty()
    }

    fn insert(&mut self, arrival: u64, slot: u32, weight: u32) {
        self.arrivals.insert(Entry {
            at: arrival as i64,
            slot,
            value: Weight::under(self.figure, weight),
        });
        if weight > 1 {
            self.heavy.insert((weight, arrival, slot));
        }
    }

    fn remove(&mut self, arrival: u64, slot: u32) {
        let removed = self.arrivals.remove(arrival as i64, slot);
        let weight = removed.map_or(1, |entry| entry.value.seats());
        if weight > 1 {
            self.heavy.remove(&(weight, arrival, slot));
        }
    }

    /// O(m log n) where m is the number of entries whose weights lie between the two figures.
    fn set_figure(&mut self, figure: i64) {
        let old = std::mem::replace(&mut self.figure, figure);
        if self.heavy.is_empty() {
            return;
        }
        let weight = |figure: i64| figure.clamp(1, u32::MAX.into()) as u32;
        let lower = weight(old.min(figure)).saturating_add(1);
        let (from, to) = ((lower, 0, 0), (weight(old.max(figure)), u64::MAX, u32::MAX));
        if from > to {
            return;
        }
        for &(weight, arrival, slot) in self.heavy.range(from..=to) {
            self.arrivals.remove(arrival as i64, slot);
            self.arrivals.insert(Entry {
                at: arrival as i64,
                slot,
                value: Weight::under(figure, weight),
            });
        }
    }
}

impl Figures {
    /// Whether some entry weighs more than 1.
    pub(crate) fn has_heavy(&self) -> bool {
        self.indexes.iter().any(|index| !index.heavy.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.indexes.iter().all(|index| !index.is_used())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.indexes.iter().map(|index| index.arrivals.len()).sum()
    }

    /// Adds an entry and returns the number of its index. A figure beyond the most that are told
    /// apart becomes the next lower one that is known, or else the lowest: the same on every node,
    /// since it depends on nothing but the entries. O(log n).
    pub(crate) fn insert(&mut self, figure: i64, arrival: u64, slot: u32, weight: u32) -> u32 {
        let number = self.index_for(figure);
        self.indexes[number].insert(arrival, slot, weight);
        number as u32
    }

    fn index_for(&mut self, figure: i64) -> usize {
        let known = |index: &FigureIndex| index.is_used() && index.figure == figure;
        if let Some(number) = self.indexes.iter().position(known) {
            return number;
        }
        let empty = FigureIndex::new(figure);
        if let Some(number) = self.indexes.iter().position(|index| !index.is_used()) {
            self.indexes[number] = empty;
            return number;
        }
        if self.indexes.len() < MOST_FIGURES {
            self.indexes.push(empty);
            return self.indexes.len() - 1;
        }
        let numbered = || self.indexes.iter().enumerate();
        let lower = numbered().filter(|(_, index)| index.figure < figure);
        let next_lower = lower.max_by_key(|(_, index)| index.figure);
        let lowest = || numbered().min_by_key(|(_, index)| index.figure);
        next_lower.or_else(lowest).map_or(0, |(number, _)| number)
    }

    /// Removes the entry of `slot` that arrived at `arrival`. O(log n).
    pub(crate) fn remove(&mut self, number: u32, arrival: u64, slot: u32) {
        if let Some(index) = self.indexes.get_mut(number as usize) {
            index.remove(arrival, slot);
        }
    }

    /// The figure of an index that is in use.
    pub(crate) fn figure(&self, number: u32) -> i64 {
        let index = self.indexes.get(number as usize);
        index.map_or(0, |index| index.figure)
    }

    /// The figures that are stated at present, in no particular order.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = i64> {
        let used = self.indexes.iter().filter(|index| index.is_used());
        used.map(|index| index.figure)
    }

    /// How many entries state the figure of an index.
    pub(crate) fn len_of(&self, number: u32) -> usize {
        let index = self.indexes.get(number as usize);
        index.map_or(0, |index| index.arrivals.len())
    }

    /// How many entries arrived before `arrival`. O(log n).
    pub(crate) fn ahead_of(&self, arrival: u64) -> usize {
        let indexes = self.indexes.iter();
        indexes.map(|index| index.ahead_of(arrival).0).sum()
    }

    /// The seats that those ask for who arrived before `arrival` and are not shut out while `taken`
    /// seats are taken. O(log n).
    pub(crate) fn competing_ahead_of(&self, taken: u64, arrival: u64) -> u64 {
        let indexes = self.indexes.iter();
        let competing = indexes.filter(|index| !is_shut_out(taken, index.figure));
        competing.map(|index| index.ahead_of(arrival).1).sum()
    }

    /// The first entry of each figure: the arrival and the slot.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (u64, u32)> {
        let firsts = self
            .indexes
            .iter()
            .filter_map(|index| index.arrivals.first());
        firsts.map(|first| (first.at as u64, first.slot))
    }

    /// Of each figure the first entry that is not heavier. O(log n).
    pub(crate) fn first_contenders(&self) -> impl Iterator<Item = Contender> {
        let indexes = self.indexes.iter();
        indexes.filter_map(|index| index.contenders().next())
    }

    /// The slots of all entries in the order of arrival. O(n).
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        let indexes = self.indexes.iter();
        let mut rest: Vec<_> = indexes
            .map(|index| index.arrivals.iter().peekable())
            .collect();
        std::iter::from_fn(move || {
            let next = |entries: &mut std::iter::Peekable<_>| {
                let entry: &&Entry<Weight> = entries.peek()?;
                Some((entry.at, entry.slot))
            };
            let firsts = rest.iter_mut().enumerate();
            let firsts = firsts.filter_map(|(number, entries)| Some((next(entries)?, number)));
            let (_, number) = firsts.min()?;
            rest[number].next().map(|entry| entry.slot)
        })
    }

    /// For each figure those entries that are not heavier, in the order of arrival.
    pub(crate) fn contenders(
        &self,
    ) -> impl Iterator<Item = (i64, impl Iterator<Item = Contender>)> {
        let used = self.indexes.iter().filter(|index| index.is_used());
        used.map(|index| (index.figure, index.contenders()))
    }

    /// The numbers of the indexes that are in use, each with its figure.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, i64)> {
        let numbered = self.indexes.iter().enumerate();
        let used = numbered.filter(|(_, index)| index.is_used());
        used.map(|(number, index)| (number as u32, index.figure))
    }

    /// Has all entries state `figure`. `moved` is called for each that is in another index now: its
    /// slot, and that index's number. O(m log n) where m is the number of entries outside the
    /// longest index, and of those in it that become heavier than their figure or cease to be.
    pub(crate) fn restate(&mut self, figure: i64, mut moved: impl FnMut(u32, u32)) {
        let numbered = self.indexes.iter().enumerate();
        let longest = numbered.max_by_key(|(_, index)| index.arrivals.len());
        let Some((longest, _)) = longest else {
            return;
        };
        self.indexes[longest].set_figure(figure);
        for number in (0..self.indexes.len()).filter(|&number| number != longest) {
            let empty = FigureIndex::new(figure);
            let others = std::mem::replace(&mut self.indexes[number], empty).arrivals;
            for entry in others.iter() {
                let weight = entry.value.seats();
                self.indexes[longest].insert(entry.at as u64, entry.slot, weight);
                moved(entry.slot, longest as u32);
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let trees = self.indexes.iter();
        trees.map(FigureIndex::memory_bytes).sum::<usize>()
            + allocated(self.indexes.capacity() * size_of::<FigureIndex>())
    }
}

/// An entry that is not heavier than its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) figure: i64,
    pub(crate) arrival: u64,
    pub(crate) slot: u32,
    pub(crate) weight: u32,
}

impl FigureIndex {
    /// How many arrived before `arrival`, and the seats that those of them ask for who are not
    /// heavier than the figure.
    fn ahead_of(&self, arrival: u64) -> (usize, u64) {
        let before = arrival.checked_sub(1);
        before.map_or((0, 0), |before| {
            let before = i64::try_from(before).unwrap_or(i64::MAX);
            self.arrivals.rank(before)
        })
    }

    fn contenders(&self) -> impl Iterator<Item = Contender> {
        self.arrivals.iter_counted().map(|entry| Contender {
            figure: self.figure,
            arrival: entry.at as u64,
            slot: entry.slot,
            weight: entry.value.seats(),
        })
    }

    fn memory_bytes(&self) -> usize {
        self.arrivals.memory_bytes() + set_bytes::<(u32, u64, u32)>(self.heavy.len())
    }
}

/// The bytes that a [`BTreeSet`] of so many takes: a node holds up to eleven and stays at least
/// half full.
pub(crate) fn set_bytes<T>(len: usize) -> usize {
    len.div_ceil(6) * allocated(11 * size_of::<T>() + 16)
}

/// Whether a session with this figure is shut out: it is granted nothing, no seat is kept for it,
/// and it counts for nobody.
pub(crate) fn is_shut_out(taken: u64, figure: i64) -> bool {
    u64::try_from(figure).map_or(true, |figure| taken >= figure)
}
