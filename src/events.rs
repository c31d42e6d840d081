//! What the server calls back for: keys that come, data sets that are replaced, and the server's
//! role.
//!
//! The module keeps some things outside the key space: the deadline registry ([`crate::deadlines`]),
//! which legacy keys there are ([`crate::migration`]), grants that no client has confirmed
//! ([`crate::queue`]) and the number of tickets ([`crate::stats`]). They are about the data set
//! that is shown. These are the ways in which its keys come, go and come back, and what the server
//! tells of each:
//!
//! - **A command on one key** (`RESTORE`, `COPY`, `MOVE`, `RENAME`, `MIGRATE`), all servers: an
//!   event of the key that came, which is looked at then.
//! - **`DEL`, `UNLINK`, a key that expires, eviction, a value that is overwritten**, all servers:
//!   the type's `unlink`, with the database from 7.0 on. The key's deadline is forgotten.
//! - **`FLUSHDB`, `FLUSHALL`**, all servers: the flush of one database or of all, and nothing for
//!   each key. What is kept is forgotten.
//! - **`SWAPDB`**, all servers: the numbers of both databases. What is kept of them changes places.
//! - **An RDB at start, `DEBUG RELOAD`**, all servers: a flush for `RELOAD`, then `loaded` for each
//!   key.
//! - **An AOF at start, `DEBUG LOADAOF`**, all servers: a flush for `LOADAOF`, then the AOF's
//!   commands are run.
//! - **A full synchronisation** from disk or with `repl-diskless-load on-empty-db`, all servers: a
//!   flush of all, then `loaded` for each key. If it breaks off, all is flushed once more, or what
//!   was loaded stays.
//! - **A full synchronisation with `repl-diskless-load swapdb`, 6.2**: `REPL_BACKUP` tells that the
//!   old data set is set aside, and what is kept of it is set aside, too. There follow a flush,
//!   `loaded` for each key, and the end of the old data set. If it breaks off, there follow a flush
//!   and the return of the old data set, with no event for any key. What was set aside comes back
//!   with it.
//! - **The same from 7.0 on**: `REPL_ASYNC_LOAD` tells that a load has started. The old data set is
//!   shown meanwhile, there is no flush, and `loaded` is told of each key that is not shown yet.
//!   What is kept of the new data set is kept apart. It takes the place of the old when the load
//!   has completed, and is dropped when it was aborted.
//! - **A partial synchronisation, a failover**, all servers: the primary's effects are run, and the
//!   role may change. No data set is replaced.
//!
//! While a second data set is loaded and not shown yet, its keys cannot be opened: by name, the
//! server finds those that are shown. So `loaded` is no use then, and the deadlines come from the
//! type's `rdb_load`. Up to 7.2, neither tells the right database: it is always 0. If there turn
//! out to be others, the legacy keys are looked for anew, and a deadline stands for its name in
//! each database.
//!
//! On a demotion all that waited for a chance to write is dropped, since the session may live on
//! elsewhere: the seat of a client that died at its grant stays held, as in a crash. On a promotion
//! the timer starts, and looks at each queue once. A replica that takes its clients' writes
//! (`replica-read-only no`) keeps what it has to write until then.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use crate::data_sets::{Second, is_second_loading, set_second_loading};
use crate::ffi::{Ctx, OwnedStr, Str, api, guard};
use crate::pool_key::PoolKey;
use crate::{arrivals, deadlines, grace, migration, queue, server, stats, timer};

thread_local! {
    /// Whether the server has told of a key in another database than 0 since the load of a second
    /// data set began.
    static TELLS_DATABASES: Cell<bool> = const { Cell::new(false) };
}

/// Asks the server for all that the module needs to hear of, and returns whether it tells of a data
/// set that is loaded while another is shown (7.0 and later).
pub(crate) fn register(ctx: Ctx<'_>) -> Result<bool, String> {
    let classes = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_LOADED;
    ctx.subscribe_to_events(classes as u32, Some(on_key_event))?;
    let needed: [(u64, raw::RedisModuleEventCallback); 5] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(on_flush)),
        (
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            Some(on_role_change),
        ),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(on_swapdb)),
        (raw::REDISMODULE_EVENT_CRON_LOOP, Some(on_cron)),
        (raw::REDISMODULE_EVENT_LOADING, Some(on_loading)),
    ];
    let subscribe = |event, callback| {
        let event = raw::RedisModuleEvent {
            id: event,
            dataver: 1,
        };
        // SAFETY: the context is valid, and the callback has the right type.
        let status =
            unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx.as_ptr(), event, callback) };
        status == raw::Status::Ok as c_int
    };
    let loads = raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD;
    let tells_of_loads = subscribe(loads, Some(on_second_load));
    let backups = raw::REDISMODULE_EVENT_REPL_BACKUP;
    let tells = tells_of_loads || subscribe(backups, Some(on_backup));
    if tells
        && needed
            .into_iter()
            .all(|(event, callback)| subscribe(event, callback))
    {
        Ok(tells_of_loads)
    } else {
        Err("cannot subscribe to server events".into())
    }
}

/// A pool has come to be under a name by other means than a grant.
unsafe extern "C" fn on_key_event(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes the context, the event's name and the key of this call.
    let (ctx, event, key) = unsafe { (Ctx::new(ctx), CStr::from_ptr(event), Str::new(key)) };
    if is_second_loading() && event == c"loaded" {
        if ctx.selected_database() != 0 {
            TELLS_DATABASES.set(true);
        }
    } else if arrivals::may_be_pool(event.to_bytes()) {
        guard("a keyspace event", || {
            // The key may be an object on the server's stack, which 6.2 cannot open.
            let name = OwnedStr::new(key.bytes());
            let moment = grace::moment(ctx);
            let opened = PoolKey::look(ctx, name.get(), moment);
            let is_pool = opened.as_ref().is_ok_and(|key| key.exists());
            arrivals::seen(ctx, event.to_bytes(), is_pool);
            let Ok(key) = opened else {
                return;
            };
            queue::value_came(key.value(), key.database, name.get().bytes());
            if let Some(deadline_ms) = key.pool().earliest_deadline_ms(moment) {
                key.note(deadline_ms);
            }
            drop(key);
            queue::look_soon(ctx, name.get().bytes());
        });
    }
    server::puts_back_the_client(ctx, event, !migration::hears_of_keys());
    raw::Status::Ok as c_int
}

unsafe extern "C" fn on_cron(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    cron: *mut c_void,
) {
    // SAFETY: the server passes the context of this call, and this event comes with this structure.
    let (ctx, cron) = unsafe { (Ctx::new(ctx), &*cron.cast::<raw::RedisModuleCronLoopInfo>()) };
    guard("cron", || {
        grace::on_cron(ctx, cron.hz, || {
            queue::look_soon_everywhere(ctx, |_| true);
        });
        timer::on_cron(ctx);
    });
}

unsafe extern "C" fn on_role_change(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    role: u64,
    _: *mut c_void,
) {
    // SAFETY: the server passes the context of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        guard("a promotion", || {
            grace::on_promotion(ctx);
            queue::look_soon_everywhere(ctx, |_| true);
            timer::start(ctx);
        });
    } else {
        guard("a demotion", || {
            grace::on_demotion();
            queue::forget_what_to_write();
        });
    }
}

unsafe extern "C" fn on_flush(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    phase: u64,
    flushed: *mut c_void,
) {
    if phase != raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
        return;
    }
    // SAFETY: the server passes the context of this call, and this event comes with this structure.
    let (ctx, flushed) = unsafe { (Ctx::new(ctx), &*flushed.cast::<raw::RedisModuleFlushInfo>()) };
    guard("a flush", || {
        let database = flushed.dbnum;
        grace::on_flush(ctx, database);
        deadlines::flushed(database);
        migration::flushed(database);
        queue::look_soon_everywhere(ctx, |other| database == -1 || other == database);
    });
}

unsafe extern "C" fn on_swapdb(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    databases: *mut c_void,
) {
    // SAFETY: the server passes the context of this call, and this event comes with this structure.
    let (ctx, databases) = unsafe {
        (
            Ctx::new(ctx),
            &*databases.cast::<raw::RedisModuleSwapDbInfo>(),
        )
    };
    let (one, other) = (databases.dbnum_first, databases.dbnum_second);
    guard("SWAPDB", || {
        grace::databases_swapped(one, other);
        deadlines::databases_swapped(one, other);
        queue::databases_swapped(one, other);
        migration::databases_swapped(ctx, one, other);
        queue::look_soon_everywhere(ctx, |database| database == one || database == other);
    });
}

unsafe extern "C" fn on_loading(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    phase: u64,
    _: *mut c_void,
) {
    if phase == raw::REDISMODULE_SUBEVENT_LOADING_ENDED {
        // SAFETY: the server passes the context of this call.
        let ctx = unsafe { Ctx::new(ctx) };
        guard("a load", || grace::on_load(ctx));
    }
}

/// A data set is loaded while another is shown: 7.0 and later.
unsafe extern "C" fn on_second_load(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    phase: u64,
    _: *mut c_void,
) {
    // SAFETY: the server passes the context of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    guard("a load of a second data set", || {
        let second = match phase {
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED => Second::Made,
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED => Second::Shown,
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_ABORTED => Second::Dropped,
            _ => return,
        };
        set_second_loading(second == Second::Made);
        if second == Second::Made {
            TELLS_DATABASES.set(false);
        }
        let are_told = TELLS_DATABASES.get() || !ctx.has_keys_beyond_database_0();
        follow(ctx, second, are_told);
    });
}

/// The old data set is set aside while another is loaded in its place: 6.2.
unsafe extern "C" fn on_backup(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    phase: u64,
    _: *mut c_void,
) {
    // SAFETY: the server passes the context of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    guard("a backup of the data set", || {
        let second = match phase {
            raw::REDISMODULE_SUBEVENT_REPL_BACKUP_CREATE => Second::SetAside,
            raw::REDISMODULE_SUBEVENT_REPL_BACKUP_RESTORE => Second::Shown,
            raw::REDISMODULE_SUBEVENT_REPL_BACKUP_DISCARD => Second::Dropped,
            _ => return,
        };
        follow(ctx, second, true);
    });
}

/// Has everybody follow the second data set. `are_databases_told` is whether what is kept of it
/// stands in the right databases.
fn follow(ctx: Ctx<'_>, second: Second, are_databases_told: bool) {
    stats::follow(second);
    deadlines::follow(second, are_databases_told);
    migration::follow(ctx, second, are_databases_told);
    if second == Second::Shown {
        // Whoever is blocked on a replica that takes writes finds other values under the names.
        queue::look_soon_everywhere(ctx, |_| true);
        timer::start(ctx);
    }
}
