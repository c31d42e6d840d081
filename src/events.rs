//! What the server calls back for: keys that come, data sets that are replaced, and the server's
//! role.
//!
//! The module keeps some things outside the key space: the deadline registry
//! ([`crate::deadlines`]), which legacy keys there are ([`crate::migration`]), grants that no
//! client has confirmed ([`crate::queue`]) and the number of tickets ([`crate::stats`]). They are
//! about the data set that is shown. These are the ways in which its keys come, go and come back,
//! and what the server reports of each:
//!
//! - **A command on one key** (`RESTORE`, `COPY`, `MOVE`, `RENAME`, `MIGRATE`), all servers: an
//!   event of the key that came, which is looked at then.
//! - **`DEL`, `UNLINK`, a key that expires, eviction, a value that is overwritten**, all servers:
//!   the type's `unlink`, with the database from 7.0 on. The key's deadline is forgotten.
//! - **`FLUSHDB`, `FLUSHALL`**, all servers: the flush of one database or of all, and nothing for
//!   each key. What is kept is forgotten.
//! - **`SWAPDB`**, all servers: the numbers of both databases. What is kept of them is swapped.
//! - **An RDB at start, `DEBUG RELOAD`**, all servers: a flush for `RELOAD`, then `loaded` for each
//!   key.
//! - **An AOF at start, `DEBUG LOADAOF`**, all servers: a flush for `LOADAOF`, then the AOF's
//!   commands are run.
//! - **A full synchronisation** from disk or with `repl-diskless-load on-empty-db`, all servers: a
//!   flush of all, then `loaded` for each key. If it breaks off, all is flushed once more, or what
//!   was loaded stays.
//! - **A full synchronisation with `repl-diskless-load swapdb`, 6.2**: `REPL_BACKUP` says that the
//!   old data set is set aside, and what is kept of it is set aside, too. There follow a flush,
//!   `loaded` for each key, and the end of the old data set. If it breaks off, there follow a flush
//!   and the return of the old data set, with no event for any key. What was set aside comes back
//!   with it.
//! - **The same from 7.0 on**: `REPL_ASYNC_LOAD` says that a load has started. The old data set is
//!   shown meanwhile, there is no flush, and `loaded` comes for each key that is not shown yet.
//!   What is kept of the new data set is kept apart. It replaces the old when the load
//!   has completed, and is dropped when it was aborted.
//! - **A partial synchronisation, a failover**, all servers: the primary's effects are run, and the
//!   role may change. No data set is replaced.
//!
//! While a second data set is loaded and not shown yet, its keys cannot be opened: by name, the
//! server finds those that are shown. So `loaded` is no use then, and the deadlines come from the
//! type's `rdb_load`. Up to 7.2, neither names the right database: it is always 0. If there turn
//! out to be others, the legacy keys are looked for anew, and a deadline stands for its name in
//! each database.
//!
//! On a demotion all that waited for a chance to write is dropped, since the session may live on
//! elsewhere: the seat of a client that died at its grant stays held, as in a crash. On a promotion
//! the timer starts, and looks at each queue once. A replica that takes its clients' writes
//! (`replica-read-only no`) keeps what it has to write until then.

use std::cell::Cell;
use std::ffi::CStr;

use redis_module::raw;

use crate::data_sets::{Second, is_second_loading, set_second_loading};
use crate::ffi::{Ctx, OwnedStr, ServerEvent, Str, guard};
use crate::pool_key::PoolKey;
use crate::{arrivals, deadlines, feed, grace, migration, queue, server, stats, timer};

thread_local! {
    /// Whether the server has reported a key in another database than 0 since the load of a second
    /// data set began.
    static REPORTS_DATABASES: Cell<bool> = const { Cell::new(false) };
}

/// Asks the server for all that the module needs to know, and returns whether it reports a data
/// set that is loaded while another is shown (7.0 and later).
pub(crate) fn register(ctx: Ctx<'_>) -> Result<bool, String> {
    let classes = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_LOADED;
    ctx.subscribe_to_key_events(classes as u32, on_key_event)?;
    let subscribe = |class| ctx.subscribe_to_server_events(class, on_server_event);
    let reports_loads = subscribe(raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD);
    let needed = [
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_CRON_LOOP,
        raw::REDISMODULE_EVENT_LOADING,
    ];
    let reports_data_sets = reports_loads || subscribe(raw::REDISMODULE_EVENT_REPL_BACKUP);
    if reports_data_sets && needed.into_iter().all(subscribe) {
        Ok(reports_loads)
    } else {
        Err("cannot subscribe to server events".into())
    }
}

/// Events of a key that has gone.
const GOES: [&[u8]; 3] = [b"del", b"rename_from", b"move_from"];

/// A pool has come to be under a name by other means than a grant, or a key has gone.
fn on_key_event(ctx: Ctx<'_>, event: &CStr, key: Str<'_>) {
    if is_second_loading() && event == c"loaded" {
        if ctx.selected_database() != 0 {
            REPORTS_DATABASES.set(true);
        }
    } else if arrivals::may_be_pool(event.to_bytes()) {
        guard("a keyspace event", || {
            feed::heard(ctx.selected_database(), key.bytes());
            // The key may be an object on the server's stack, which 6.2 cannot open.
            let name = OwnedStr::new(key.bytes());
            let moment = grace::moment(ctx);
            let opened = PoolKey::look(ctx, name.get(), moment);
            let is_pool = opened.as_ref().is_ok_and(|key| key.exists());
            arrivals::seen(ctx, event.to_bytes(), is_pool);
            let Ok(key) = opened else {
                return;
            };
            queue::pool_arrived(key.value(), key.database, name.get().bytes());
            if key.exists() {
                let address_of = |other: &[u8]| {
                    let name = OwnedStr::new(other);
                    let key = PoolKey::look(ctx, name.get(), moment).ok()?;
                    Some(key.value())
                };
                feed::arrived(
                    ctx,
                    event.to_bytes(),
                    key.value(),
                    (key.database, key.name.bytes()),
                    key.seats_taken(),
                    address_of,
                );
            }
            if let Some(deadline_ms) = key.pool().earliest_deadline_ms(moment) {
                key.note(deadline_ms);
            }
            drop(key);
            queue::schedule_check(ctx, name.get().bytes());
            if feed::has_pending() {
                deadlines::run_soon(ctx);
            }
        });
    } else if GOES.contains(&event.to_bytes()) {
        feed::heard(ctx.selected_database(), key.bytes());
    }
    server::restore_client_database(ctx, event, !migration::is_subscribed_to_keys());
}

fn on_server_event(ctx: Ctx<'_>, event: ServerEvent) {
    match event {
        ServerEvent::Promoted => {
            grace::on_promotion(ctx);
            queue::schedule_checks(ctx, |_| true);
            timer::start(ctx);
        }
        ServerEvent::Demoted => {
            grace::on_demotion();
            queue::forget_what_to_write();
            feed::forget();
        }
        ServerEvent::Flushed(database) => {
            grace::on_flush(ctx, database);
            deadlines::flushed(database);
            migration::flushed(database);
            feed::flushed(database);
            queue::schedule_checks(ctx, |other| database == -1 || other == database);
        }
        ServerEvent::DatabasesSwapped(one, other) => {
            grace::databases_swapped(one, other);
            deadlines::databases_swapped(one, other);
            queue::databases_swapped(one, other);
            feed::databases_swapped(one, other);
            migration::databases_swapped(ctx, one, other);
            queue::schedule_checks(ctx, |database| database == one || database == other);
        }
        ServerEvent::Cron(hz) => {
            grace::on_cron(ctx, hz, || {
                queue::schedule_checks(ctx, |_| true);
            });
            timer::on_cron(ctx);
        }
        ServerEvent::Loaded => grace::on_load(ctx),
        ServerEvent::SecondLoadBegun => on_second_load(ctx, Second::Made),
        ServerEvent::SecondLoadCompleted => on_second_load(ctx, Second::Shown),
        ServerEvent::SecondLoadAborted => on_second_load(ctx, Second::Dropped),
        ServerEvent::BackupMade => follow(ctx, Second::SetAside, true),
        ServerEvent::BackupRestored => follow(ctx, Second::Shown, true),
        ServerEvent::BackupDiscarded => follow(ctx, Second::Dropped, true),
        ServerEvent::ConfigChanged => {}
    }
}

/// A data set is loaded while another is shown.
fn on_second_load(ctx: Ctx<'_>, second: Second) {
    set_second_loading(second == Second::Made);
    if second == Second::Made {
        REPORTS_DATABASES.set(false);
    }
    let are_known = REPORTS_DATABASES.get() || !ctx.has_keys_beyond_database_0();
    follow(ctx, second, are_known);
}

/// Has everybody follow the second data set. `are_databases_known` is whether what is kept of it
/// stands in the right databases.
fn follow(ctx: Ctx<'_>, second: Second, are_databases_known: bool) {
    stats::follow(second);
    deadlines::follow(second, are_databases_known);
    migration::follow(ctx, second, are_databases_known);
    if second == Second::Shown {
        // Whoever is blocked on a replica that takes writes finds other values under the names.
        queue::schedule_checks(ctx, |_| true);
        timer::start(ctx);
    }
}
