//! The module API as the rest of the crate sees it: what `redis-module` does not wrap, or wraps at
//! the price of an allocation for each argument and reply.
//!
//! Every pointer here comes from the server for the length of one callback, and the types below
//! carry that as a lifetime. All of it runs on the main thread, with two exceptions: the server may
//! call `free` from a background thread, and it may call what saves a value (`rdb_save`,
//! `aof_rewrite`) in a child that it has forked.

mod call;
mod callback;
mod clock;
mod data_type;
mod filter;
mod info;
mod keyspace;
mod memory;
mod module_context;
mod server_events;
mod settings;
mod spec;
mod stream;
mod user;
mod value;

pub(crate) use call::Reply;
pub(crate) use callback::{BlockedClient, TimerId};
pub(crate) use clock::{server_ms, uptime_ms};
pub(crate) use data_type::{DataType, OpenKey, Value};
pub(crate) use filter::Incoming;
pub(crate) use info::{Info, has_function, server_version};
pub(crate) use keyspace::{Kind, Mode, Walk};
pub(crate) use module_context::with_module_context;
pub(crate) use server_events::ServerEvent;
pub(crate) use settings::TextSetting;
pub(crate) use spec::{Argument, Spec};
pub(crate) use stream::{AppendError, EntryId, OpenStream};
pub(crate) use user::{User, has_users};
pub(crate) use value::{Digest, Io};

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_longlong};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use redis_module::raw;

/// A function of the module API. All that are used without a check exist in every supported server,
/// from 6.2 on.
macro_rules! api {
    ($name:ident) => {
        // The statics are set once, before the module's first callback.
        redis_module::raw::$name.expect(concat!(stringify!($name), " exists since Redis 6.2"))
    };
}
pub(crate) use api;

/// Runs a callback's body and keeps a panic from crossing into C, where it would abort the server.
pub(crate) fn guard<T>(what: &str, body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body))
        .inspect_err(|_| {
            log(None, c"warning", &format!("seat: panic in {what}"));
        })
        .ok()
}

fn log(ctx: Option<Ctx<'_>>, level: &CStr, message: &str) {
    let ctx = ctx.map_or(ptr::null_mut(), Ctx::as_ptr);
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: the context is null or valid, and the message is an argument of the format, never the
    // format itself.
    unsafe {
        api!(RedisModule_Log)(ctx, level.as_ptr(), c"%s".as_ptr(), message.as_ptr());
    }
}

/// Logs what a panic said and where, for the report that its caller is asked to send.
pub(crate) fn log_panic(message: &str) {
    log(None, c"warning", message);
}

/// The context of one callback.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    raw: NonNull<raw::RedisModuleCtx>,
    callback: PhantomData<&'a ()>,
}

/// A string of the server's, such as an argument. A pointer to it, and nothing else, so that a
/// slice of them is what the server takes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Str<'a> {
    raw: NonNull<raw::RedisModuleString>,
    callback: PhantomData<&'a ()>,
}

thread_local! {
    /// Whether the command that runs is the one by which [`Ctx::may_serve`] asks.
    static IS_ASKED_FOR_SLOT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the running command is the module's own question whether this node may serve the key. It
/// is answered by now, so the key need not be opened.
pub(crate) fn is_asked_for_slot() -> bool {
    IS_ASKED_FOR_SLOT.get()
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` must be the context of the running callback, which lasts for `'a`.
    pub(crate) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Ctx<'a> {
        Ctx {
            raw: NonNull::new(raw).expect("the server passes a context"),
            callback: PhantomData,
        }
    }

    pub(crate) fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    /// Whether any of `flags` (`REDISMODULE_CTX_FLAGS_*`) is set.
    pub(crate) fn has_any_flag(self, flags: u32) -> bool {
        // SAFETY: the context is valid for 'a.
        let set = unsafe { api!(RedisModule_GetContextFlags)(self.as_ptr()) };
        set as u32 & flags != 0
    }

    /// Sets `REDISMODULE_OPTION*` for the module.
    pub(crate) fn set_options(self, options: u32) {
        // SAFETY: the context is valid for 'a.
        unsafe { api!(RedisModule_SetModuleOptions)(self.as_ptr(), options as c_int) };
    }

    /// Sends this command on as it came, to the AOF and the replicas' replicas.
    pub(crate) fn replicate_verbatim(self) {
        // SAFETY: the context is valid for 'a.
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.as_ptr()) };
    }

    /// Lets WATCH and client-side caching know that the key has changed.
    pub(crate) fn signal_modified(self, key: Str<'_>) {
        // SAFETY: context and string are valid.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.as_ptr(), key.as_ptr()) };
    }

    /// Publishes a keyspace event of one of the classes `REDISMODULE_NOTIFY_*`.
    pub(crate) fn notify(self, class: c_int, event: &CStr, key: Str<'_>) {
        // SAFETY: context and strings are valid; the server copies what it keeps.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent)(
                self.as_ptr(),
                class,
                event.as_ptr(),
                key.as_ptr(),
            )
        };
    }

    pub(crate) fn selected_database(self) -> c_int {
        // SAFETY: the context is valid for 'a.
        unsafe { api!(RedisModule_GetSelectedDb)(self.as_ptr()) }
    }

    /// Selects a database for the rest of the callback, and returns whether there is such a
    /// database.
    pub(crate) fn select_database(self, database: c_int) -> bool {
        // SAFETY: the context is valid for 'a; the server refuses a number that it does not have.
        let status = unsafe { api!(RedisModule_SelectDb)(self.as_ptr(), database) };
        status == raw::Status::Ok as c_int
    }

    /// Whether any database but the first holds keys. O(1) for each database.
    pub(crate) fn has_keys_beyond_database_0(self) -> bool {
        let own = self.selected_database();
        let mut others = (1..).take_while(|&database| self.select_database(database));
        // SAFETY: the context is valid for 'a.
        let found = others.any(|_| unsafe { api!(RedisModule_DbSize)(self.as_ptr()) } != 0);
        self.select_database(own);
        found
    }

    /// Whether replicating now, outside a command, would crash the server: during CLIENT PAUSE and
    /// FAILOVER, and while it loads.
    pub(crate) fn must_not_replicate(self) -> bool {
        // SAFETY: the function has no conditions.
        let paused = unsafe { api!(RedisModule_AvoidReplicaTraffic)() } != 0;
        paused || self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// The number of the connection that this call came by.
    pub(crate) fn connection(self) -> u64 {
        // SAFETY: the context is valid for 'a.
        unsafe { api!(RedisModule_GetClientId)(self.as_ptr()) }
    }

    /// Whether a connection of this number is there.
    pub(crate) fn has_connection(self, connection: u64) -> bool {
        // SAFETY: without a structure to fill, the server only looks the number up.
        let status = unsafe { api!(RedisModule_GetClientInfoById)(ptr::null_mut(), connection) };
        status == raw::Status::Ok as c_int
    }

    /// Whether the client of this blocked client's last callback is gone.
    pub(crate) fn client_is_gone(self) -> bool {
        // SAFETY: the context is that of a blocked client's callback.
        unsafe { api!(RedisModule_BlockedClientDisconnected)(self.as_ptr()) != 0 }
    }

    /// Whether the server is a node of a cluster.
    pub(crate) fn is_in_cluster(self) -> bool {
        self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// Whether this node may serve the key at all: in a cluster its slot may be another's.
    pub(crate) fn may_serve(self, key: Str<'_>) -> bool {
        if !self.is_in_cluster() {
            return true;
        }
        IS_ASKED_FOR_SLOT.set(true);
        // A command of the module's own, which nobody can have renamed.
        let may_serve = self.call(c"SEAT.COUNT", &[key]).is_some();
        IS_ASKED_FOR_SLOT.set(false);
        may_serve
    }

    pub(crate) fn log_warning(self, message: &str) {
        log(Some(self), c"warning", message);
    }

    pub(crate) fn log_notice(self, message: &str) {
        log(Some(self), c"notice", message);
    }

    pub(crate) fn reply_array(self, len: usize) {
        // SAFETY: the context is valid for 'a, as in all replies below.
        unsafe { api!(RedisModule_ReplyWithArray)(self.as_ptr(), len as c_long) };
    }

    /// Begins a map of `len` pairs: a RESP3 map, or flat pairs for RESP2 and on servers whose
    /// modules have no maps.
    pub(crate) fn reply_map(self, len: usize) {
        raw::reply_with_map(self.as_ptr(), len as c_long);
    }

    /// Begins a set: a RESP3 set, or an array for RESP2 and on servers whose modules have no sets.
    pub(crate) fn reply_set(self, len: usize) {
        // SAFETY: as above; the function is absent before 7.0.
        unsafe {
            match raw::RedisModule_ReplyWithSet {
                Some(reply) => reply(self.as_ptr(), len as c_long),
                None => api!(RedisModule_ReplyWithArray)(self.as_ptr(), len as c_long),
            }
        };
    }

    pub(crate) fn reply_integer(self, value: i64) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.as_ptr(), value) };
    }

    pub(crate) fn reply_bulk(self, bytes: &[u8]) {
        // SAFETY: as above; the server copies the bytes.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer)(
                self.as_ptr(),
                bytes.as_ptr().cast::<c_char>(),
                bytes.len(),
            )
        };
    }

    pub(crate) fn reply_null(self) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithNull)(self.as_ptr()) };
    }

    pub(crate) fn reply_error(self, message: &str) {
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: as above; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError)(self.as_ptr(), message.as_ptr()) };
    }

    pub(crate) fn reply_wrong_arity(self) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_WrongArity)(self.as_ptr()) };
    }
}

impl<'a> Str<'a> {
    /// # Safety
    /// `raw` must be a string of the server's that lasts for `'a` unchanged.
    pub(crate) unsafe fn new(raw: *mut raw::RedisModuleString) -> Str<'a> {
        Str {
            raw: NonNull::new(raw).expect("the server passes a string"),
            callback: PhantomData,
        }
    }

    pub(crate) fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw.as_ptr()
    }

    /// Whether the two are one string of the server's, not only equal.
    pub(crate) fn is_same_as(self, other: Str<'_>) -> bool {
        self.raw == other.raw
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string is valid for 'a, and the server gives the pointer and the length of
        // its bytes.
        unsafe {
            let start = api!(RedisModule_StringPtrLen)(self.as_ptr(), &raw mut len);
            std::slice::from_raw_parts(start.cast::<u8>(), len)
        }
    }

    /// The value of an integer in Redis's strict form: no spaces, no plus sign, no leading zeros,
    /// 64 bits.
    pub(crate) fn integer(self) -> Option<i64> {
        let mut value: c_longlong = 0;
        // SAFETY: the string is valid, and the server writes the value only.
        let status = unsafe { api!(RedisModule_StringToLongLong)(self.as_ptr(), &raw mut value) };
        (status == raw::Status::Ok as c_int).then_some(value)
    }

    /// Whether the string is this word, in any case.
    pub(crate) fn is_word(self, word: &str) -> bool {
        self.bytes().eq_ignore_ascii_case(word.as_bytes())
    }
}

/// A string of the server's that the module made.
pub(crate) struct OwnedStr {
    raw: *mut raw::RedisModuleString,
}

impl OwnedStr {
    pub(crate) fn new(bytes: &[u8]) -> OwnedStr {
        // SAFETY: without a context the string is this value's alone; the server copies the bytes.
        let raw = unsafe {
            let start = bytes.as_ptr().cast::<c_char>();
            api!(RedisModule_CreateString)(ptr::null_mut(), start, bytes.len())
        };
        OwnedStr { raw }
    }

    /// The string for as long as the process lives.
    pub(crate) fn leak(self) -> Str<'static> {
        // SAFETY: nobody frees it.
        unsafe { Str::new(self.into_raw()) }
    }

    /// The string for the server, which frees it.
    pub(crate) fn into_raw(self) -> *mut raw::RedisModuleString {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }

    pub(crate) fn get(&self) -> Str<'_> {
        // SAFETY: the string lives as long as `self`.
        unsafe { Str::new(self.raw) }
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        // SAFETY: the string was made in `new`, and no borrow of it is left.
        unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), self.raw) };
    }
}

/// The arguments of a command, its name first.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    argv: &'a [*mut raw::RedisModuleString],
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` must point to `argc` strings that last for `'a`, as a command's callback gets them.
    pub(crate) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Args<'a> {
        let len = usize::try_from(argc).unwrap_or(0);
        if len == 0 {
            // `loadmodule` without arguments comes with a null pointer.
            return Args { argv: &[] };
        }
        // SAFETY: by this function's contract.
        let argv = unsafe { std::slice::from_raw_parts(argv.cast_const(), len) };
        Args { argv }
    }

    pub(crate) fn len(self) -> usize {
        self.argv.len()
    }

    pub(crate) fn get(self, index: usize) -> Option<Str<'a>> {
        // SAFETY: `Args::new` demands strings that last for 'a.
        self.argv.get(index).map(|&raw| unsafe { Str::new(raw) })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Str<'a>> {
        // SAFETY: as above.
        self.argv.iter().map(|&raw| unsafe { Str::new(raw) })
    }
}

/// What the server's allocator really sets aside for one byte.
pub(crate) fn bytes_for_one() -> usize {
    // SAFETY: the allocation is measured and freed, and nothing else knows it.
    unsafe {
        let allocation = api!(RedisModule_Alloc)(1);
        let size = api!(RedisModule_MallocSize)(allocation);
        api!(RedisModule_Free)(allocation);
        size
    }
}
