//! Keys other than pools: their types, removing them, hearing of them, and going through all of
//! them.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use redis_module::raw;

use super::{Ctx, Str, api, guard};

/// How a key is opened, and whether that counts as a use of it.
///
/// What a client reads or changes is used, as by the server's own commands. What the module looks
/// at for itself is not: that leaves the key's LRU and LFU as they are, counts no `keyspace_hits`
/// and no `keyspace_misses`, and publishes no `keymiss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A client reads.
    Read,
    /// A client changes.
    Write,
    /// The module looks. The key is not to be changed.
    Look,
    /// The module changes.
    Tend,
}

impl Mode {
    pub(crate) const fn flags(self) -> c_int {
        let flags = match self {
            Mode::Read => raw::REDISMODULE_READ,
            Mode::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
            // Servers before 7.2 know NOTOUCH alone, and count what is opened for reading. What is
            // opened for writing none of them counts. NOEFFECTS, where it is known, leaves keys
            // whose time to live is over to others.
            Mode::Look => {
                raw::REDISMODULE_READ
                    | raw::REDISMODULE_WRITE
                    | raw::REDISMODULE_OPEN_KEY_NOTOUCH
                    | raw::REDISMODULE_OPEN_KEY_NOEFFECTS
            }
            Mode::Tend => {
                raw::REDISMODULE_READ | raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOTOUCH
            }
        };
        flags as c_int
    }
}

/// What a key holds, as far as the module cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Set,
    Hash,
    Other,
}

impl Ctx<'_> {
    /// What is at a key of the selected database. That does not count as a use of it. O(1).
    pub(crate) fn kind_of(self, key: Str<'_>) -> Kind {
        self.with_key(key, Mode::Look, |handle| {
            // SAFETY: the handle is open, or null, which the server takes for an empty key.
            unsafe { kind_behind(handle) }
        })
    }

    /// What is at a key, and the key's own database. Within MULTI, a callback finds the
    /// transaction's database selected by some servers (Valkey from 9.1.1 on), whichever the event
    /// is about. Without a value it is the selected one. O(1).
    pub(crate) fn kind_and_database_of(self, key: Str<'_>) -> (Kind, c_int) {
        self.with_key(key, Mode::Look, |handle| {
            // SAFETY: the handle is open, or null, which the server takes for an empty key.
            unsafe { (kind_behind(handle), self.database_of(handle)) }
        })
    }

    /// The database of an open key, or the selected one for null and on servers that do not tell
    /// (up to 6.2).
    ///
    /// # Safety
    /// The handle must be open, or null.
    pub(crate) unsafe fn database_of(self, handle: *mut raw::RedisModuleKey) -> c_int {
        // SAFETY: the statics are set once before the module's first callback, and the handle is
        // open.
        unsafe {
            match raw::RedisModule_GetDbIdFromModuleKey {
                Some(database) if !handle.is_null() => database(handle),
                _ => self.selected_database(),
            }
        }
    }

    /// What is at two keys. O(1).
    pub(crate) fn kinds_of(self, keys: [Str<'_>; 2]) -> [Kind; 2] {
        keys.map(|key| self.kind_of(key))
    }

    /// Removes a key that exists, here and on whoever follows, as UNLINK does, but reports it only
    /// by [`Ctx::notify_del`].
    pub(crate) fn unlink(self, key: Str<'_>) {
        self.with_key(key, Mode::Tend, |handle| {
            // SAFETY: the key is open for writing.
            unsafe { api!(RedisModule_UnlinkKey)(handle) };
        });
        self.replicate(c"UNLINK", &[key]);
        self.signal_modified(key);
    }

    /// Publishes the event of a key that was removed.
    pub(crate) fn notify_del(self, key: Str<'_>) {
        self.notify(raw::REDISMODULE_NOTIFY_GENERIC as c_int, c"del", key);
    }

    fn with_key<T>(
        self,
        key: Str<'_>,
        mode: Mode,
        body: impl FnOnce(*mut raw::RedisModuleKey) -> T,
    ) -> T {
        // SAFETY: context and key are valid; the handle is closed below, and `body` does not keep
        // it.
        unsafe {
            let handle = api!(RedisModule_OpenKey)(self.as_ptr(), key.as_ptr(), mode.flags());
            let result = body(handle.cast());
            if !handle.is_null() {
                api!(RedisModule_CloseKey)(handle.cast());
            }
            result
        }
    }
}

/// # Safety
/// The handle must be open, or null.
unsafe fn kind_behind(handle: *mut raw::RedisModuleKey) -> Kind {
    // SAFETY: by this function's contract; the server takes null for an empty key.
    let kind = unsafe { api!(RedisModule_KeyType)(handle) };
    match kind as isize {
        raw::REDISMODULE_KEYTYPE_EMPTY => Kind::Nothing,
        raw::REDISMODULE_KEYTYPE_SET => Kind::Set,
        raw::REDISMODULE_KEYTYPE_HASH => Kind::Hash,
        _ => Kind::Other,
    }
}

/// How far a walk through the keys of a database has come.
pub(crate) struct Walk {
    cursor: NonNull<raw::RedisModuleScanCursor>,
}

impl Walk {
    pub(crate) fn new() -> Walk {
        // SAFETY: the function has no conditions.
        let cursor = unsafe { api!(RedisModule_ScanCursorCreate)() };
        Walk {
            cursor: NonNull::new(cursor).expect("the server makes a cursor"),
        }
    }

    /// Visits some more keys of the selected database, a few at a time, and returns whether others
    /// are left. A key that is there all the time is visited; `visit` may not change any.
    pub(crate) fn go_on(&mut self, ctx: Ctx<'_>, visit: fn(Str<'_>)) -> bool {
        let data = (visit as *const ()).cast_mut().cast::<c_void>();
        // SAFETY: context and cursor are valid, the callback has the right type, and its data is a
        // function of the type it expects.
        let more = unsafe {
            api!(RedisModule_Scan)(ctx.as_ptr(), self.cursor.as_ptr(), Some(on_key), data)
        };
        more != 0
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // SAFETY: the cursor is owned and not used again.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.cursor.as_ptr()) };
    }
}

unsafe extern "C" fn on_key(
    _: *mut raw::RedisModuleCtx,
    key: *mut raw::RedisModuleString,
    _: *mut raw::RedisModuleKey,
    visit: *mut c_void,
) {
    guard("a walk through the keys", || {
        // SAFETY: `go_on` passed a function of this type, and the server passes the name of a key.
        let (visit, key) = unsafe {
            let visit = std::mem::transmute::<*mut c_void, fn(Str<'_>)>(visit);
            (visit, Str::new(key))
        };
        visit(key);
    });
}
