//! What the server reports about itself.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::callback::only;
use super::{Ctx, api, guard};

/// Something that happens to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// It has become a primary.
    Promoted,
    /// It has become a replica.
    Demoted,
    /// A database was emptied, or all if it is -1.
    Flushed(c_int),
    /// Two databases have been swapped.
    DatabasesSwapped(c_int, c_int),
    /// A turn of its cron, of which there are so many a second.
    Cron(c_int),
    /// A data set has been loaded.
    Loaded,
    /// A data set is about to be loaded while another is shown (7.0 and later).
    SecondLoadBegun,
    /// It replaces the one that was shown.
    SecondLoadCompleted,
    /// It goes.
    SecondLoadAborted,
    /// The data set is set aside while another is loaded in its place (6.2).
    BackupMade,
    /// It comes back.
    BackupRestored,
    /// It goes.
    BackupDiscarded,
    /// `CONFIG SET` has set all that it sets (7.0 and later).
    ConfigChanged,
}

impl ServerEvent {
    /// `None` for a phase of an event that nobody asks for.
    ///
    /// # Safety
    /// All must be what the server passes for one event.
    unsafe fn read(id: u64, phase: u64, data: *const c_void) -> Option<ServerEvent> {
        Some(match id {
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => match phase {
                raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER => ServerEvent::Promoted,
                _ => ServerEvent::Demoted,
            },
            raw::REDISMODULE_EVENT_FLUSHDB if phase == raw::REDISMODULE_SUBEVENT_FLUSHDB_END => {
                // SAFETY: this event comes with this structure.
                let flushed = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
                ServerEvent::Flushed(flushed.dbnum)
            }
            raw::REDISMODULE_EVENT_SWAPDB => {
                // SAFETY: as above.
                let swapped = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
                ServerEvent::DatabasesSwapped(swapped.dbnum_first, swapped.dbnum_second)
            }
            raw::REDISMODULE_EVENT_CRON_LOOP => {
                // SAFETY: as above.
                let cron = unsafe { &*data.cast::<raw::RedisModuleCronLoopInfo>() };
                ServerEvent::Cron(cron.hz)
            }
            raw::REDISMODULE_EVENT_LOADING if phase == raw::REDISMODULE_SUBEVENT_LOADING_ENDED => {
                ServerEvent::Loaded
            }
            raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD => match phase {
                raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED => ServerEvent::SecondLoadBegun,
                raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED => {
                    ServerEvent::SecondLoadCompleted
                }
                raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_ABORTED => ServerEvent::SecondLoadAborted,
                _ => return None,
            },
            raw::REDISMODULE_EVENT_REPL_BACKUP => match phase {
                raw::REDISMODULE_SUBEVENT_REPL_BACKUP_CREATE => ServerEvent::BackupMade,
                raw::REDISMODULE_SUBEVENT_REPL_BACKUP_RESTORE => ServerEvent::BackupRestored,
                raw::REDISMODULE_SUBEVENT_REPL_BACKUP_DISCARD => ServerEvent::BackupDiscarded,
                _ => return None,
            },
            raw::REDISMODULE_EVENT_CONFIG => ServerEvent::ConfigChanged,
            _ => return None,
        })
    }
}

impl Ctx<'_> {
    /// Subscribes `callback` to the events of a class (`REDISMODULE_EVENT_*`), and returns whether
    /// the server has such.
    pub(crate) fn subscribe_to_server_events<F>(self, class: u64, _callback: F) -> bool
    where
        F: Fn(Ctx<'_>, ServerEvent) + Copy,
    {
        let event = raw::RedisModuleEvent {
            id: class,
            dataver: 1,
        };
        // SAFETY: the context is valid, and the callback has the right type.
        let status = unsafe {
            api!(RedisModule_SubscribeToServerEvent)(self.as_ptr(), event, Some(on_event::<F>))
        };
        status == raw::Status::Ok as c_int
    }
}

unsafe extern "C" fn on_event<F: Fn(Ctx<'_>, ServerEvent) + Copy>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    phase: u64,
    data: *mut c_void,
) {
    guard("a server event", || {
        // SAFETY: the server passes the context and the event of this call, and `F` was given with
        // the subscription.
        let (ctx, event, callback) = unsafe {
            let event = ServerEvent::read(event.id, phase, data);
            (Ctx::new(ctx), event, only::<F>())
        };
        if let Some(event) = event {
            callback(ctx, event);
        }
    });
}
