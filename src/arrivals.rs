//! Which keys that the server loads can be pools at all, decided without opening them.
//!
//! An event follows each key that comes from an RDB or a payload, and most of them are other
//! tenants' keys. A pool among them was read by this module just before. So as long as no value was
//! read whose event has not come, the key of an event is not a pool.

use std::cell::Cell;

use redis_module::raw;

use crate::data_sets::is_second_loading;
use crate::ffi::Ctx;

/// The events of keys that came from an RDB or a payload.
const LOADS: [&[u8]; 2] = [b"loaded", b"restore"];

/// Those by which a pool that is there already, or its copy, comes under a name.
const MOVES: [&[u8]; 3] = [b"rename_to", b"move_to", b"copy_to"];

thread_local! {
    /// Values that were read and whose events have not come. It belongs to the main thread, which
    /// loads and announces it.
    ///
    /// Mostly one at most. While a server loads a new data set and serves the old one, commands may
    /// run between a value and its event. And a value whose key has expired has no event at all.
    static READ: Cell<u32> = const { Cell::new(0) };
}

/// Notes that a pool was read from an RDB or a payload.
pub(crate) fn value_read() {
    READ.set(READ.get().saturating_add(1));
}

/// Whether an event means that a key has come which may be a pool.
///
/// While a second data set is loaded, what is read belongs to it. Only a client that writes on the
/// replica restores a key then, into the data set that is shown.
pub(crate) fn may_be_pool(event: &[u8]) -> bool {
    let is_restored_meanwhile = event == b"restore" && is_second_loading();
    LOADS.contains(&event) && READ.get() > 0 || MOVES.contains(&event) || is_restored_meanwhile
}

/// Notes what the key of such an event was.
pub(crate) fn seen(ctx: Ctx<'_>, event: &[u8], is_pool: bool) {
    if !LOADS.contains(&event) {
        return;
    }
    const LOADING: u32 =
        raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    if is_pool {
        READ.set(READ.get().saturating_sub(1));
    } else if !ctx.has_any_flag(LOADING) {
        // Nothing comes between a value and its event now, so the others have none.
        READ.set(0);
    }
}
