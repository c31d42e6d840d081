//! The data type `seat-pool`: what the server does with a pool as a value.

use std::ffi::{c_int, c_void};
use std::ptr;

use redis_module::native_types::RedisType;
use redis_module::raw;
use seat_pool::{DecodeError, Decoder, Moment, Pool};

use crate::data_sets::is_second_loading;
use crate::effects::emit_to_aof;
use crate::ffi::{Digest, Io, OwnedStr, Str, guard, with_module_context};
use crate::{arrivals, deadlines, queue, server, stats};

/// The version of the RDB encoding that is written. The layout within has a version of its own, `seat_pool`'s.
const ENCODING_VERSION: i32 = 1;

/// The type, registered when the module is loaded.
pub(crate) static POOL_TYPE: RedisType = RedisType::new(
    "seat-pool",
    ENCODING_VERSION,
    raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        free_effort: Some(free_effort),
        copy: Some(copy),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        unlink: Some(unlink),
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: Some(unlink2),
        copy2: Some(copy2),
        aux_save2: None,
    },
);

/// A pool as the server keeps it.
pub(crate) fn into_value(pool: Pool) -> *mut c_void {
    let value = Box::into_raw(Box::new(pool)).cast::<c_void>();
    queue::value_made(value.addr());
    value
}

/// # Safety
/// `value` must come from [`into_value`] and not be freed or changed during `'a`.
unsafe fn from_value<'a>(value: *const c_void) -> &'a Pool {
    // SAFETY: by this function's contract.
    unsafe { &*value.cast::<Pool>() }
}

unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    guard("rdb_load", || {
        // SAFETY: the server passes the io of this call.
        let io = unsafe { Io::new(io) };
        if version > ENCODING_VERSION {
            io.log_error("a seat-pool of a newer version of the module");
            return ptr::null_mut();
        }
        match load(io) {
            Ok(pool) => into_value(pool),
            Err(error) => {
                io.log_error(&format!("not a seat-pool: {error}"));
                ptr::null_mut()
            }
        }
    })
    .unwrap_or(ptr::null_mut())
}

fn load(io: Io<'_>) -> Result<Pool, DecodeError> {
    let blob = || io.load_blob().ok_or(DecodeError::Malformed);
    let mut decoder = Decoder::new(blob()?.bytes())?;
    while decoder.wants_more() {
        decoder.batch(blob()?.bytes())?;
    }
    let pool = decoder.finish()?;
    stats::add_loaded_tickets(pool.tickets() as i64);
    if !is_second_loading() {
        arrivals::value_read();
    } else if let Some((database, key)) = io.database_and_key()
        && let Some(deadline_ms) = pool.earliest_deadline_ms(Moment::at(i64::MIN))
    {
        // No event can tell of it, since the key does not show yet.
        deadlines::note_loaded(database, key.bytes(), deadline_ms);
    }
    if let Some(arrival) = pool.last_arrival() {
        queue::saw_arrival(arrival);
    }
    Ok(pool)
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard("rdb_save", || {
        // SAFETY: the server passes the io of this call and a value of this type, unchanged during the call.
        let (io, pool) = unsafe { (Io::new(io), from_value(value)) };
        if let Some(key) = io.key() {
            queue::value_saved(value.addr(), key.bytes());
        }
        for blob in pool.encode() {
            io.save_blob(&blob);
        }
    });
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard("aof_rewrite", || {
        // SAFETY: the server passes the io of this call, and a key and a value of this type, unchanged during the call.
        let (io, key, pool) = unsafe { (Io::new(io), Str::new(key), from_value(value)) };
        // The key is an object on the server's stack, which 6.2 cannot keep in a command.
        let key = OwnedStr::new(key.bytes());
        for session in pool.iter() {
            emit_to_aof(io, key.get(), &pool.grant_of(session));
        }
        for ticket in pool.all_tickets() {
            emit_to_aof(io, key.get(), &pool.join_of(ticket));
        }
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of this type, unchanged during the call.
    guard("mem_usage", || unsafe { from_value(value) }.memory_bytes()).unwrap_or(0)
}

/// Each persisted field of each session counts; the order of the sessions does not, since a reload may change it. The tickets
/// count in their order.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard("digest", || {
        // SAFETY: the server passes the digest of this call and a value of this type, unchanged during the call.
        let (digest, pool) = unsafe { (Digest::new(digest), from_value(value)) };
        let optional = |value: Option<i64>| {
            digest.integer(value.is_some().into());
            digest.integer(value.unwrap_or_default());
        };
        digest.integer(pool.seats());
        digest.end_sequence();
        for session in pool.iter() {
            let lease = pool.lease_of(session);
            digest.bytes(session.id());
            digest.bytes(session.metadata().unwrap_or_default());
            optional(session.acquired_at().map(i64::from));
            optional(session.last_heartbeat().map(i64::from));
            optional(session.heartbeat_count());
            optional(lease.map(|lease| lease.length_ms as i64));
            optional(lease.map(|lease| lease.deadline_ms));
            digest.end_sequence();
        }
        for ticket in pool.all_tickets() {
            digest.bytes(ticket.session());
            digest.integer(ticket.waiting.since_ms);
            digest.integer(ticket.waiting.length_ms as i64);
            digest.integer(ticket.waiting.deadline_ms);
        }
        digest.end_sequence();
    });
}

/// Called from a background thread for a large pool. Nothing in a pool belongs to a thread.
unsafe extern "C" fn free(value: *mut c_void) {
    guard("free", || {
        // SAFETY: the value comes from `into_value`, and the server gives it up.
        let pool = unsafe { Box::from_raw(value.cast::<Pool>()) };
        stats::add_tickets(-(pool.tickets() as i64));
    });
}

/// A pool goes from its name, whatever the reason: since 7.0 with the number of the database.
unsafe extern "C" fn unlink2(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    guard("unlink", || {
        // SAFETY: the server passes the key's context, and the functions to read it exist where this callback is called.
        let (database, key) = unsafe {
            let database = raw::RedisModule_GetDbIdFromOptCtx.map_or(0, |database| database(key));
            let name = raw::RedisModule_GetKeyNameFromOptCtx.map(|name| name(key));
            (database, name.map(|name| Str::new(name.cast_mut())))
        };
        if let Some(key) = key {
            deadlines::forget(database, key.bytes());
            // SAFETY: the server passes a value of this type, unchanged during the call.
            unsafe { left(key, value) };
        }
    });
}

/// As [`unlink2`], up to 6.2.
unsafe extern "C" fn unlink(key: *mut raw::RedisModuleString, value: *const c_void) {
    guard("unlink", || {
        // SAFETY: the server passes a key and a value of this type, unchanged during the call.
        let (key, pool) = unsafe { (Str::new(key), from_value(value)) };
        let deadlines = pool.has_deadlines();
        with_module_context(|ctx| {
            deadlines::forget_somewhere(ctx, key.bytes(), deadlines);
        });
        // SAFETY: as above.
        unsafe { left(key, value) };
    });
}

/// Whoever is blocked at the name is served under what comes after the value.
///
/// # Safety
/// `value` must be of this type, unchanged during the call.
unsafe fn left(key: Str<'_>, value: *const c_void) {
    queue::value_left(value.addr());
    // SAFETY: by this function's contract.
    if !unsafe { from_value(value) }.is_empty() {
        queue::value_deleted(value.addr(), key.bytes());
    }
    with_module_context(|ctx| queue::look_soon(ctx, key.bytes()));
}

/// The number of allocations, by which the server decides whether to free a value in the background. 0 would mean always.
unsafe extern "C" fn free_effort(_: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    guard("free_effort", || {
        // SAFETY: the server passes a value of this type, unchanged during the call.
        let pool = unsafe { from_value(value) };
        pool.rows_and_tickets().max(1)
    })
    .unwrap_or(1)
}

/// As [`copy`], since 7.0, with the database that the copy is made from.
unsafe extern "C" fn copy2(
    key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
) -> *mut c_void {
    guard("copy", || {
        // SAFETY: the server passes the key's context, and the function to read it exists where
        // this callback is called.
        let database = unsafe { raw::RedisModule_GetDbIdFromOptCtx.map(|database| database(key)) };
        if let Some(database) = database {
            server::copies_from(database);
        }
    });
    // SAFETY: the server passes a value of this type, unchanged during the call; the names are not
    // read.
    unsafe { copy(ptr::null_mut(), ptr::null_mut(), value) }
}

unsafe extern "C" fn copy(
    _: *mut raw::RedisModuleString,
    _: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    guard("copy", || {
        // SAFETY: the server passes a value of this type, unchanged during the call.
        let pool = unsafe { from_value(value) }.clone();
        stats::add_tickets(pool.tickets() as i64);
        into_value(pool)
    })
    .unwrap_or(ptr::null_mut())
}
