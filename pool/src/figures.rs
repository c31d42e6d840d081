//! Queue entries by the figure that each states, in the order of arrival.

use crate::order::{Entry, Order};

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
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// An empty one is free for the next figure.
    indexes: Vec<FigureIndex>,
}

#[derive(Clone, Debug)]
struct FigureIndex {
    figure: i64,
    arrivals: Order<()>,
}

impl FigureIndex {
    fn is_used(&self) -> bool {
        self.arrivals.len() > 0
    }
}

impl Figures {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.indexes.iter().map(|index| index.arrivals.len()).sum()
    }

    /// Adds an entry and returns the number of its index. A figure beyond the most that are told
    /// apart becomes the next lower one that is known, or else the lowest: the same on every node,
    /// since it depends on nothing but the entries. O(log n).
    pub(crate) fn insert(&mut self, figure: i64, arrival: u64, slot: u32) -> u32 {
        let number = self.index_for(figure);
        self.indexes[number].arrivals.insert(Entry {
            at: arrival as i64,
            slot,
            value: (),
        });
        number as u32
    }

    fn index_for(&mut self, figure: i64) -> usize {
        let known = |index: &FigureIndex| index.is_used() && index.figure == figure;
        if let Some(number) = self.indexes.iter().position(known) {
            return number;
        }
        let empty = FigureIndex {
            figure,
            arrivals: Order::default(),
        };
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
            index.arrivals.remove(arrival as i64, slot);
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
        indexes.map(|index| index.ahead_of(arrival)).sum()
    }

    /// As [`Figures::ahead_of`], but only those that are not shut out while `taken` seats are
    /// taken. O(log n).
    pub(crate) fn competing_ahead_of(&self, taken: u64, arrival: u64) -> usize {
        let indexes = self.indexes.iter();
        let competing = indexes.filter(|index| !is_shut_out(taken, index.figure));
        competing.map(|index| index.ahead_of(arrival)).sum()
    }

    /// The first entry of each figure: the figure, the arrival and the slot.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (i64, u64, u32)> {
        self.indexes.iter().filter_map(|index| {
            let first = index.arrivals.first()?;
            Some((index.figure, first.at as u64, first.slot))
        })
    }

    /// The slots of all entries in the order of arrival. O(n).
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        let indexes = self.indexes.iter();
        let mut rest: Vec<_> = indexes
            .map(|index| index.arrivals.iter().peekable())
            .collect();
        std::iter::from_fn(move || {
            let next = |entries: &mut std::iter::Peekable<_>| {
                let entry: &&Entry<()> = entries.peek()?;
                Some((entry.at, entry.slot))
            };
            let firsts = rest.iter_mut().enumerate();
            let firsts = firsts.filter_map(|(number, entries)| Some((next(entries)?, number)));
            let (_, number) = firsts.min()?;
            rest[number].next().map(|entry| entry.slot)
        })
    }

    /// The slots of the entries with the figure of an index, in the order of arrival, each with its
    /// arrival.
    pub(crate) fn entries_of(&self, number: u32) -> impl Iterator<Item = (u64, u32)> {
        let index = self.indexes.get(number as usize);
        let entries = index.into_iter().flat_map(|index| index.arrivals.iter());
        entries.map(|entry| (entry.at as u64, entry.slot))
    }

    /// The numbers of the indexes that are in use, each with its figure.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, i64)> {
        let numbered = self.indexes.iter().enumerate();
        let used = numbered.filter(|(_, index)| index.is_used());
        used.map(|(number, index)| (number as u32, index.figure))
    }

    /// Has all entries state `figure`. `moved` is called for each that is in another index now: its
    /// slot, and that index's number. O(m log n) where m is the number of entries outside the
    /// longest index.
    pub(crate) fn restate(&mut self, figure: i64, mut moved: impl FnMut(u32, u32)) {
        let numbered = self.indexes.iter().enumerate();
        let longest = numbered.max_by_key(|(_, index)| index.arrivals.len());
        let Some((longest, _)) = longest else {
            return;
        };
        self.indexes[longest].figure = figure;
        for number in (0..self.indexes.len()).filter(|&number| number != longest) {
            let others = std::mem::take(&mut self.indexes[number].arrivals);
            for entry in others.iter() {
                self.indexes[longest].arrivals.insert(*entry);
                moved(entry.slot, longest as u32);
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let trees = self.indexes.iter();
        trees
            .map(|index| index.arrivals.memory_bytes())
            .sum::<usize>()
            + crate::memory::allocated(self.indexes.capacity() * size_of::<FigureIndex>())
    }
}

impl FigureIndex {
    fn ahead_of(&self, arrival: u64) -> usize {
        let before = arrival.checked_sub(1);
        before.map_or(0, |before| {
            let before = i64::try_from(before).unwrap_or(i64::MAX);
            self.arrivals.up_to(before)
        })
    }
}

/// Whether a session with this figure is shut out: it is granted nothing, no seat is kept for it,
/// and it counts for nobody.
pub(crate) fn is_shut_out(taken: u64, figure: i64) -> bool {
    u64::try_from(figure).map_or(true, |figure| taken >= figure)
}
