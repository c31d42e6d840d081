//! Invalid entries of legacy keys: sessions that the scripts keep and that no pool can hold.

use seat_pool::ImportError;

use crate::error::{Error, LONGEST_NAMED};

/// The invalid entries of one pool's legacy keys. Each takes one seat of the pool, as it did for
/// the scripts.
pub(crate) struct InvalidEntries {
    /// By session, in order, with what is wrong.
    entries: Box<[(Box<[u8]>, ImportError)]>,
}

impl InvalidEntries {
    /// Of different sessions each, in any order.
    pub(crate) fn new(mut entries: Vec<(Box<[u8]>, ImportError)>) -> InvalidEntries {
        entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        InvalidEntries {
            entries: entries.into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(session, _)| &**session)
    }

    /// Says what is wrong with the first, if there is any.
    pub(crate) fn first_error(&self) -> Option<Error> {
        self.entries.first().map(error)
    }

    /// Says what is wrong with the entry of `session`, if there is one. O(log n).
    pub(crate) fn error_of(&self, session: &[u8]) -> Option<Error> {
        self.entries
            .binary_search_by(|(other, _)| (**other).cmp(session))
            .ok()
            .map(|at| error(&self.entries[at]))
    }

    /// Whether there is an entry of `session`. O(log n).
    pub(crate) fn has(&self, session: &[u8]) -> bool {
        self.entries
            .binary_search_by(|(other, _)| (**other).cmp(session))
            .is_ok()
    }
}

fn error((session, why): &(Box<[u8]>, ImportError)) -> Error {
    let end = session.len().min(LONGEST_NAMED);
    Error::NotImportable {
        session: session[..end].into(),
        why: *why,
    }
}
