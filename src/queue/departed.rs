//! Which pools were moved to another server, rather than deleted.
//!
//! `MIGRATE` deletes the key here once the other server has it, and reports that as a `del`:
//! whoever is blocked there must not be granted a seat of a new pool then, while the holders keep
//! theirs on the other server. What gives it away is that the value is saved first, alone and in
//! this process, and deleted before the timer runs again. `DUMP` and `DEL` in one step look the
//! same, and mostly mean the same.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::c_int;

use redis_module::raw;

use super::{Name, databases_of_queues, schedule_check_at};
use crate::ffi::with_module_context;

#[derive(Default)]
struct Departures {
    /// Values that were saved since the timer ran, at whose names clients are blocked. By address:
    /// nothing more is known up to 6.2.
    saved: HashSet<usize>,
    /// Names from which such a value has gone.
    departed: HashSet<Name>,
}

thread_local! {
    static DEPARTURES: RefCell<Departures> = RefCell::default();
}

/// A value is saved that is or was under this name.
pub(crate) fn value_saved(value: usize, key: &[u8]) {
    let databases = databases_of_queues(key);
    if databases.is_empty() {
        return;
    }
    with_module_context(|ctx| {
        if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_IS_CHILD) {
            return;
        }
        DEPARTURES.with_borrow_mut(|state| state.saved.insert(value));
        // The timer forgets it.
        for database in databases {
            schedule_check_at(ctx, (database, key.into()));
        }
    });
}

/// A value goes from a name. To be called before the name is looked at for those who wait there.
pub(crate) fn value_deleted(value: usize, key: &[u8]) {
    let was_saved = DEPARTURES.with_borrow_mut(|state| state.saved.remove(&value));
    if was_saved {
        let names = databases_of_queues(key).into_iter();
        let names = names.map(|database| (database, key.into()));
        DEPARTURES.with_borrow_mut(|state| state.departed.extend(names));
    }
}

/// The timer runs: what is deleted from now on is no part of what saved it.
pub(crate) fn forget_saved() {
    DEPARTURES.with_borrow_mut(|state| state.saved.clear());
}

/// Whether the pool at a name, at which there is none, has moved to another server, and those who
/// wait were not answered yet.
pub(crate) fn has_departed(database: c_int, key: &[u8]) -> bool {
    DEPARTURES.with_borrow(|state| {
        !state.departed.is_empty() && state.departed.contains(&(database, key.into()))
    })
}

/// Everybody who waited at a name was answered, or there is a pool again.
pub(crate) fn forget_departed(database: c_int, key: &[u8]) {
    DEPARTURES.with_borrow_mut(|state| {
        if !state.departed.is_empty() {
            state.departed.remove(&(database, key.into()));
        }
    });
}
