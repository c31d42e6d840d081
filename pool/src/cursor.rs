//! The cursors of SCAN: which value, and how far.

use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The bits of a cursor that are the slot.
const SLOT_BITS: u32 = 32;

/// The highest of the bits above the slot. It is set in every cursor, so that all have the same
/// length, and none is below it or negative as a signed number.
const MARK: u32 = 1 << 30;

/// A cursor of another value than the one that is at the key now, or no cursor at all. To go on
/// from it could miss sessions.
///
/// ```
/// use seat_pool::{Effect, Metadata, Moment, Pool, StaleCursor};
///
/// let (mut pool, now) = (Pool::new(0), Moment::at(0));
/// for session in [b"a", b"b"] {
///     pool.apply(&Effect::granting(0, session, 5, &Metadata::NONE, None));
/// }
/// let cursor = pool.scan(now, 0, 1, |_| {})?;
/// let copy = pool.clone();
/// assert_eq!(copy.scan(now, cursor, 1, |_| {}), Err(StaleCursor));
/// assert_eq!(pool.scan(now, cursor, 1, |_| {}), Ok(0));
/// # Ok::<(), StaleCursor>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleCursor;

/// By what the cursors of one value are told from those of all others: slots are its own, and a
/// value that is loaded or copied has the same sessions in others. A clone is another value.
///
/// Each value of a process has another number, up to a billion of them. It is chance, one in a
/// billion, that a value of another process has the same.
#[derive(Debug)]
pub(crate) struct Generation(u32);

impl Generation {
    pub(crate) fn new() -> Self {
        static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
            // The standard library's keys come from the system's randomness.
            let random = std::hash::RandomState::new().hash_one(0);
            AtomicU32::new(random as u32)
        });
        Generation(NEXT.fetch_add(1, Relaxed) % MARK + MARK)
    }

    /// The cursor to go on from `slot`.
    pub(crate) fn cursor(&self, slot: usize) -> u64 {
        u64::from(self.0) << SLOT_BITS | slot as u64
    }

    /// The slot to go on from; 0 is where every value begins.
    pub(crate) fn slot(&self, cursor: u64) -> Result<usize, StaleCursor> {
        if cursor == 0 {
            Ok(0)
        } else if cursor >> SLOT_BITS == u64::from(self.0) {
            Ok(cursor as u32 as usize)
        } else {
            Err(StaleCursor)
        }
    }
}

impl Clone for Generation {
    fn clone(&self) -> Self {
        Generation::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Generation, StaleCursor};

    #[test]
    fn a_cursor_is_of_one_value_and_of_nineteen_digits() {
        let first = Generation::new();
        let others = [Generation::new(), first.clone(), Generation::new()];
        for slot in [1, 255, 1_000_000, u32::MAX as usize] {
            let cursor = first.cursor(slot);
            assert_eq!(cursor.to_string().len(), 19);
            assert!(i64::try_from(cursor).is_ok());
            assert_eq!(first.slot(cursor), Ok(slot));
            for other in &others {
                assert_eq!(other.slot(cursor), Err(StaleCursor));
            }
        }
        assert_eq!(first.slot(0), Ok(0));
        for number in [1, 600, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            assert_eq!(first.slot(number), Err(StaleCursor));
        }
    }
}
