//! The one way to a pool: opens the key, checks its type, lends the pool and commits effects to it.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::LazyLock;

use redis_module::raw;
use seat_pool::{Effect, Freed, Pool};

use crate::effects;
use crate::error::Error;
use crate::ffi::{Ctx, Str, api};
use crate::pool_type::{POOL_TYPE, into_value};
use crate::reclaim;

/// An open key that holds a pool or nothing.
///
/// Changes are committed one effect at a time; their keyspace events follow when the key is closed, since whoever listens may
/// open it again.
pub(crate) struct PoolKey<'a> {
    ctx: Ctx<'a>,
    name: Str<'a>,
    /// Absent for a missing key that was opened for reading.
    handle: Option<NonNull<raw::RedisModuleKey>>,
    pool: Option<NonNull<Pool>>,
    events: Events,
}

impl<'a> PoolKey<'a> {
    /// Opens a key to read its pool.
    pub(crate) fn read(ctx: Ctx<'a>, name: Str<'a>) -> Result<PoolKey<'a>, Error> {
        PoolKey::open(ctx, name, raw::REDISMODULE_READ as c_int)
    }

    /// Opens a key to change its pool, or to create one. That alone disturbs no WATCH and no tracking client.
    pub(crate) fn write(ctx: Ctx<'a>, name: Str<'a>) -> Result<PoolKey<'a>, Error> {
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
        PoolKey::open(ctx, name, mode as c_int)
    }

    fn open(ctx: Ctx<'a>, name: Str<'a>, mode: c_int) -> Result<PoolKey<'a>, Error> {
        // SAFETY: context and name are valid; the handle is closed by `drop`.
        let handle = unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode) };
        let mut key = PoolKey {
            ctx,
            name,
            handle: NonNull::new(handle.cast()),
            pool: None,
            events: Events::default(),
        };
        if let Some(handle) = key.handle {
            key.pool = pool_behind(handle)?;
        }
        Ok(key)
    }

    /// The pool, or an empty one for a missing key: a pool with no session does not exist.
    pub(crate) fn pool(&self) -> &Pool {
        static EMPTY: LazyLock<Pool> = LazyLock::new(|| Pool::new(0));
        match &self.pool {
            // SAFETY: the open key keeps its pool alive, and only `commit` changes or frees it, by `&mut self`.
            Some(pool) => unsafe { pool.as_ref() },
            None => &EMPTY,
        }
    }

    /// Carries out an effect, here and on whoever follows, and returns whether it met what it changes. A grant creates a missing
    /// pool; the end of the last session removes the key.
    pub(crate) fn commit(&mut self, effect: &Effect<'_>) -> bool {
        if !self.apply(effect) {
            return false;
        }
        effects::replicate(self.ctx, self.name, effect);
        true
    }

    /// As [`PoolKey::commit`], for an effect that came from a primary or an AOF and is sent on as it came.
    pub(crate) fn commit_replicated(&mut self, effect: &Effect<'_>) -> bool {
        if !self.apply(effect) {
            return false;
        }
        self.ctx.replicate_verbatim();
        true
    }

    fn apply(&mut self, effect: &Effect<'_>) -> bool {
        let Some(handle) = self.handle else {
            return false;
        };
        let pool = match (self.pool, effect) {
            (Some(pool), _) => pool,
            (None, Effect::Grant(grant)) => self.create(handle, grant.seats),
            (None, _) => return false,
        };
        // SAFETY: the open key keeps its pool alive, and `&mut self` makes this the only reference.
        let pool = unsafe { &mut *pool.as_ptr() };
        if matches!(effect, Effect::Grant(grant) if pool.contains(grant.session)) {
            // A grant to a session whose own lease had lapsed takes that seat back first.
            self.events.add(Events::EXPIRED);
        }
        if !pool.apply(effect) {
            return false;
        }
        self.events.add(Events::of(effect));
        if let Some(lease) = effect.lease() {
            reclaim::note(self.ctx, self.name, lease.deadline_ms);
        }
        if pool.is_empty() {
            self.pool = None;
            // SAFETY: the key is open for writing. This frees the pool, to which no reference is left.
            unsafe { api!(RedisModule_DeleteKey)(handle.as_ptr().cast()) };
            reclaim::forget(self.ctx.selected_database(), self.name.bytes());
            self.events.add(Events::DEL);
        }
        self.ctx.signal_modified(self.name);
        true
    }

    fn create(&mut self, handle: NonNull<raw::RedisModuleKey>, seats: i64) -> NonNull<Pool> {
        let value = into_value(Pool::new(seats));
        // SAFETY: the key is open for writing and empty; the server owns the value from now on.
        unsafe {
            let pool_type = *POOL_TYPE.raw_type.borrow();
            api!(RedisModule_ModuleTypeSetValue)(handle.as_ptr().cast(), pool_type, value);
        }
        let pool = NonNull::new(value.cast::<Pool>()).expect("a box is not null");
        self.pool = Some(pool);
        pool
    }
}

impl Drop for PoolKey<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            // SAFETY: the handle is open and not used again.
            unsafe { api!(RedisModule_CloseKey)(handle.as_ptr().cast()) };
        }
        self.events.notify(self.ctx, self.name);
    }
}

/// The pool of an open key, `None` for an empty key.
fn pool_behind(handle: NonNull<raw::RedisModuleKey>) -> Result<Option<NonNull<Pool>>, Error> {
    let handle = handle.as_ptr().cast();
    // SAFETY: the handle is open.
    unsafe {
        if api!(RedisModule_KeyType)(handle) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            return Ok(None);
        }
        if api!(RedisModule_ModuleTypeGetType)(handle) != *POOL_TYPE.raw_type.borrow() {
            return Err(Error::WrongType);
        }
        let value: *mut c_void = api!(RedisModule_ModuleTypeGetValue)(handle);
        Ok(NonNull::new(value.cast::<Pool>()))
    }
}

/// The keyspace events that a command has caused so far, each at most once as with the server's own commands.
#[derive(Clone, Copy, Default)]
struct Events(u8);

impl Events {
    const EXPIRED: Events = Events(1);
    const REVOKED: Events = Events(1 << 1);
    const RELEASED: Events = Events(1 << 2);
    const HEARTBEAT: Events = Events(1 << 3);
    const RENEWED: Events = Events(1 << 4);
    const ACQUIRED: Events = Events(1 << 5);
    const DEL: Events = Events(1 << 6);

    /// In the order in which they are told: a seat is freed before it is granted again.
    const OWN: [(Events, &'static CStr); 6] = [
        (Events::EXPIRED, c"seat.expired"),
        (Events::REVOKED, c"seat.revoked"),
        (Events::RELEASED, c"seat.released"),
        (Events::HEARTBEAT, c"seat.heartbeat"),
        (Events::RENEWED, c"seat.renewed"),
        (Events::ACQUIRED, c"seat.acquired"),
    ];

    fn of(effect: &Effect<'_>) -> Events {
        match effect {
            Effect::Grant(_) => Events::ACQUIRED,
            Effect::Beat(_) => Events::HEARTBEAT,
            Effect::Renew { .. } => Events::RENEWED,
            Effect::Free { why, .. } => match why {
                Freed::Released => Events::RELEASED,
                Freed::Revoked => Events::REVOKED,
                Freed::Expired => Events::EXPIRED,
            },
        }
    }

    fn add(&mut self, others: Events) {
        self.0 |= others.0;
    }

    fn has(self, event: Events) -> bool {
        self.0 & event.0 != 0
    }

    fn notify(self, ctx: Ctx<'_>, key: Str<'_>) {
        if self.0 == 0 {
            return;
        }
        for (event, name) in Events::OWN {
            if self.has(event) {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, name, key);
            }
        }
        if self.has(Events::DEL) {
            ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", key);
        }
    }
}
