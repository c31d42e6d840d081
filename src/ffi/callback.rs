//! What the server calls back. Each function here makes what the callback is given, runs it, and
//! keeps a panic from crossing into C, all of that under one guard.
//!
//! A callback is the name of a `fn`, of which there is one value only, so that the server needs no
//! data to find it again.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use redis_module::raw;

use super::{Args, Ctx, Str, api, guard};
use crate::error::Error;

/// The one value of a type that has no size.
///
/// # Safety
/// There must have been such a value.
pub(super) unsafe fn only<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "a callback captures nothing") };
    // SAFETY: the type has no size, so that its value is read from nowhere; by this function's
    // contract it has one, and it may be copied.
    unsafe { NonNull::<F>::dangling().read() }
}

/// What runs as a command's function. A panic is answered with an error.
pub(super) unsafe extern "C" fn command<F: Fn(Ctx<'_>, Args<'_>) + Copy>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let outcome = guard("a command", || {
        // SAFETY: the server passes the context and the arguments of this call, and `F` was given
        // when the command was registered.
        let (ctx, args, run) = unsafe { (Ctx::new(ctx), Args::new(argv, argc), only::<F>()) };
        run(ctx, args);
    });
    if outcome.is_none() {
        guard("the reply to a command", || {
            // SAFETY: as above.
            unsafe { Ctx::new(ctx) }.reply_error(&Error::Internal.to_string());
        });
    }
    raw::Status::Ok as c_int
}

pub(crate) type TimerId = raw::RedisModuleTimerID;

impl Ctx<'_> {
    /// Has `callback` run once, `wait_ms` from now by the monotonic clock.
    pub(crate) fn create_timer(self, wait_ms: i64, callback: fn(Ctx<'_>)) -> TimerId {
        let data = (callback as *const ()).cast_mut().cast::<c_void>();
        // SAFETY: the context is valid, and the data is a function of the type that `on_timer`
        // expects.
        unsafe { api!(RedisModule_CreateTimer)(self.as_ptr(), wait_ms, Some(on_timer), data) }
    }

    /// Stops a timer that has not run yet.
    pub(crate) fn stop_timer(self, id: TimerId) {
        // SAFETY: the context is valid; the server refuses a number that it does not know.
        unsafe { api!(RedisModule_StopTimer)(self.as_ptr(), id, ptr::null_mut()) };
    }

    /// Subscribes `callback` to the keyspace events of some classes (`REDISMODULE_NOTIFY_*`): which
    /// event it is, and of which key.
    pub(crate) fn subscribe_to_key_events<F>(
        self,
        classes: u32,
        _callback: F,
    ) -> Result<(), &'static str>
    where
        F: Fn(Ctx<'_>, &CStr, Str<'_>) + Copy,
    {
        // SAFETY: the context is valid, and the callback has the right type.
        let status = unsafe {
            api!(RedisModule_SubscribeToKeyspaceEvents)(
                self.as_ptr(),
                classes as c_int,
                Some(on_key_event::<F>),
            )
        };
        if status == raw::Status::Ok as c_int {
            Ok(())
        } else {
            Err("cannot subscribe to keyspace events")
        }
    }
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, callback: *mut c_void) {
    guard("a timer", || {
        // SAFETY: the server passes the context of this call, and `create_timer` gave it a function
        // of this type.
        let (ctx, callback) = unsafe {
            let callback = std::mem::transmute::<*mut c_void, fn(Ctx<'_>)>(callback);
            (Ctx::new(ctx), callback)
        };
        callback(ctx);
    });
}

unsafe extern "C" fn on_key_event<F: Fn(Ctx<'_>, &CStr, Str<'_>) + Copy>(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard("a keyspace event", || {
        // SAFETY: the server passes the context, the event's name and the key of this call, and `F`
        // was given with the subscription.
        let (ctx, event, key, callback) = unsafe {
            (
                Ctx::new(ctx),
                CStr::from_ptr(event),
                Str::new(key),
                only::<F>(),
            )
        };
        callback(ctx, event, key);
    });
    raw::Status::Ok as c_int
}

/// A blocked client. The handle is valid until the server has called `on_free` for it.
#[derive(Clone, Copy)]
pub(crate) struct BlockedClient {
    handle: *mut raw::RedisModuleBlockedClient,
}

impl BlockedClient {
    /// Has the client be answered by `on_reply`: up to 7.0 at once, later at the end of this turn
    /// of the event loop.
    pub(crate) fn unblock(self) {
        // SAFETY: whoever keeps a handle drops it in `on_free`.
        unsafe { api!(RedisModule_UnblockClient)(self.handle, ptr::null_mut()) };
    }
}

impl Ctx<'_> {
    /// Blocks the client of this call on `key` until its handle is unblocked, for at most
    /// `timeout_ms` (0 is for ever). `on_reply` then answers it, when it was woken, when its time
    /// is over or when CLIENT UNBLOCK ended its wait, and `on_free` ends every path. Both get
    /// `data`, which must not be 0.
    ///
    /// `None` if the server refuses, which it does without a word to the client: Valkey does from
    /// 8.1 on where a client of RESP3 is subscribed.
    pub(crate) fn block_on_key<R, F>(
        self,
        key: Str<'_>,
        timeout_ms: i64,
        _on_reply: R,
        _on_free: F,
        data: u64,
    ) -> Option<BlockedClient>
    where
        R: Fn(Ctx<'_>, u64) + Copy,
        F: Fn(Ctx<'_>, u64) + Copy,
    {
        let mut keys = [key.as_ptr()];
        // SAFETY: context and key are valid, the callbacks have the right types, and the data is a
        // number, not a pointer.
        let handle = unsafe {
            api!(RedisModule_BlockClientOnKeys)(
                self.as_ptr(),
                Some(on_ready),
                Some(on_reply::<R>),
                Some(on_free::<F>),
                timeout_ms,
                keys.as_mut_ptr(),
                1,
                ptr::without_provenance_mut(data as usize),
            )
        };
        (!handle.is_null()).then_some(BlockedClient { handle })
    }
}

/// The key was created by somebody. Clients are woken by handle alone, so nobody is served here.
unsafe extern "C" fn on_ready(
    _: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    raw::Status::Err as c_int
}

unsafe extern "C" fn on_reply<R: Fn(Ctx<'_>, u64) + Copy>(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    guard("a blocked client's reply", || {
        // SAFETY: the server passes the context of this call, which is that of a blocked client,
        // and `R` was given when it was blocked.
        let (ctx, data, reply) = unsafe {
            let data = api!(RedisModule_GetBlockedClientPrivateData)(ctx);
            (Ctx::new(ctx), data.addr() as u64, only::<R>())
        };
        reply(ctx, data);
    });
    raw::Status::Ok as c_int
}

unsafe extern "C" fn on_free<F: Fn(Ctx<'_>, u64) + Copy>(
    ctx: *mut raw::RedisModuleCtx,
    data: *mut c_void,
) {
    guard("the end of a blocked client", || {
        // SAFETY: the server passes the context of this call, and `F` was given when the client was
        // blocked.
        let (ctx, free) = unsafe { (Ctx::new(ctx), only::<F>()) };
        free(ctx, data.addr() as u64);
    });
}
