//! Numbered slots in chunks of a fixed size.

use std::collections::BTreeSet;

use crate::memory::allocated;

/// Slots in a chunk. The most that any single insertion moves in memory is one chunk's slots.
const CHUNK: usize = 256;
const WORDS: usize = CHUNK / 64;

/// A store of values in numbered slots.
///
/// A value keeps its slot for as long as it stays, which is what makes a cursor over the slots
/// exact. Growing adds a chunk and never moves the others; a chunk that empties gives its memory
/// back.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with a free slot. The lowest is filled first, so that the highest can empty.
    roomy: BTreeSet<usize>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    slots: Vec<Option<T>>,
    occupied: [u64; WORDS],
    live: usize,
}

impl<T> Chunk<T> {
    fn new() -> Self {
        Chunk {
            slots: Vec::new(),
            occupied: [0; WORDS],
            live: 0,
        }
    }

    fn first_free(&self) -> usize {
        let word = self.occupied.iter().position(|&bits| bits != u64::MAX);
        let word = word.expect("a roomy chunk has a free slot");
        word * 64 + self.occupied[word].trailing_ones() as usize
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            chunks: Vec::new(),
            roomy: BTreeSet::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One past the highest slot that may be in use.
    pub(crate) fn end(&self) -> usize {
        let before_last = self.chunks.len().saturating_sub(1) * CHUNK;
        before_last + self.chunks.last().map_or(0, |chunk| chunk.slots.len())
    }

    /// Stores `value` in the lowest free slot and returns its number. O(log n).
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let number = match self.roomy.first() {
            Some(&number) => number,
            None => {
                self.chunks.push(Chunk::new());
                let number = self.chunks.len() - 1;
                self.roomy.insert(number);
                number
            }
        };
        let chunk = &mut self.chunks[number];
        let offset = chunk.first_free();
        if offset == chunk.slots.len() {
            chunk.slots.push(Some(value));
        } else {
            chunk.slots[offset] = Some(value);
        }
        chunk.occupied[offset / 64] |= 1 << (offset % 64);
        chunk.live += 1;
        if chunk.live == CHUNK {
            self.roomy.remove(&number);
        }
        self.len += 1;
        u32::try_from(number * CHUNK + offset).expect("fewer than 2^32 slots")
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let slot = slot as usize;
        self.chunks
            .get(slot / CHUNK)?
            .slots
            .get(slot % CHUNK)?
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let slot = slot as usize;
        self.chunks
            .get_mut(slot / CHUNK)?
            .slots
            .get_mut(slot % CHUNK)?
            .as_mut()
    }

    /// Empties a slot. O(log n).
    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let (number, offset) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let chunk = self.chunks.get_mut(number)?;
        let value = chunk.slots.get_mut(offset)?.take()?;
        chunk.occupied[offset / 64] &= !(1 << (offset % 64));
        chunk.live -= 1;
        self.len -= 1;
        self.roomy.insert(number);
        if chunk.live == 0 {
            chunk.slots = Vec::new();
            self.drop_empty_tail();
        }
        Some(value)
    }

    fn drop_empty_tail(&mut self) {
        while self.chunks.last().is_some_and(|chunk| chunk.live == 0) {
            self.chunks.pop();
            self.roomy.remove(&self.chunks.len());
        }
    }

    /// The values in slot order, each with its slot, from `start` on.
    pub(crate) fn iter_from(&self, start: usize) -> impl Iterator<Item = (u32, &T)> {
        self.chunks
            .iter()
            .enumerate()
            .skip(start / CHUNK)
            .flat_map(|(number, chunk)| {
                let slots = chunk.slots.iter().enumerate();
                slots.filter_map(move |(offset, value)| {
                    Some(((number * CHUNK + offset) as u32, value.as_ref()?))
                })
            })
            .skip_while(move |(slot, _)| (*slot as usize) < start)
    }

    /// The bytes of the slots themselves, without what their values own. O(n / 256).
    pub(crate) fn memory_bytes(&self) -> usize {
        let slots: usize = self
            .chunks
            .iter()
            .map(|chunk| allocated(chunk.slots.capacity() * size_of::<Option<T>>()))
            .sum();
        // A B-tree node holds up to eleven keys and stays at least half full.
        let roomy = self.roomy.len().div_ceil(6) * allocated(11 * size_of::<usize>() + 16);
        slots + allocated(self.chunks.capacity() * size_of::<Chunk<T>>()) + roomy
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{CHUNK, Slab};

    proptest! {
        #[test]
        fn agrees_with_a_map_of_slots(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..2000)) {
            let mut slab = Slab::new();
            let mut model = BTreeMap::new();
            for (value, (insert, pick)) in steps.into_iter().enumerate() {
                if insert || model.is_empty() {
                    let slot = slab.insert(value);
                    prop_assert_eq!(model.insert(slot, value), None, "slot {} was in use", slot);
                } else {
                    let slot = *model.keys().nth(pick.index(model.len())).unwrap();
                    prop_assert_eq!(slab.remove(slot), model.remove(&slot));
                    prop_assert_eq!(slab.remove(slot), None);
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            let stored: Vec<_> = slab.iter_from(0).map(|(slot, value)| (slot, *value)).collect();
            prop_assert_eq!(stored, model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn iteration_starts_at_any_slot() {
        let mut slab = Slab::new();
        for value in 0..3 * CHUNK {
            slab.insert(value);
        }
        for start in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let rest: Vec<_> = slab.iter_from(start).map(|(_, value)| *value).collect();
            assert_eq!(rest, (start..3 * CHUNK).collect::<Vec<_>>());
        }
    }

    #[test]
    fn emptied_chunks_give_their_memory_back() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..10 * CHUNK).map(|value| slab.insert(value)).collect();
        let full = slab.memory_bytes();
        for slot in &slots[CHUNK..9 * CHUNK] {
            slab.remove(*slot);
        }
        assert!(slab.memory_bytes() < full / 3, "chunks in the middle");
        for slot in &slots[9 * CHUNK..] {
            slab.remove(*slot);
        }
        assert_eq!(slab.end(), CHUNK, "chunks at the end");
    }
}
