//! redis-seat: a native seat pool for Redis, as a module.
//!
//! The pool itself is the crate `seat-pool`, which decides everything about seats. This crate is
//! thin: it makes the pool a data type of the server ([`pool_type`]), opens it behind a key
//! ([`pool_key`]), turns commands into decisions ([`commands`]) and decisions into replicated
//! effects ([`effects`]).

mod after_close;
mod arrivals;
mod command_filter;
mod commands;
mod config;
mod data_sets;
mod deadlines;
mod effects;
mod error;
mod events;
mod feed;
mod ffi;
mod grace;
mod lazy_free;
mod memory;
mod migration;
mod notifications;
mod old_servers;
mod pool_key;
mod pool_type;
mod queue;
mod replies;
mod server;
mod sha;
mod slot;
mod stats;
mod text;
mod timer;

use std::ffi::{CStr, c_int};

use redis_module::raw;

use crate::ffi::{Args, Ctx, guard};
use crate::pool_type::POOL_TYPE;

const NAME: &CStr = c"seat";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version as the server's MODULE LIST shows it: two decimal digits each for minor and patch.
const VERSION_NUMBER: c_int = 100;

/// The option by which Valkey, from 9 on, is told that the module's values may be in slots that it
/// migrates in one step. Older headers lack it, and other servers give this bit no meaning.
const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// The server's allocator, so that pools count into its memory limit. Unit tests have no server.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

/// The module's entry point.
///
/// # Safety
/// For the server alone to call, with the context and the arguments of `loadmodule`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the server looks for this name")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    const OK: c_int = raw::Status::Ok as c_int;
    const ERR: c_int = raw::Status::Err as c_int;
    let api_version = raw::REDISMODULE_APIVER_1 as c_int;
    // SAFETY: this is the call that an entry point begins with; nothing of the API, allocation
    // included, works before it.
    let status =
        unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION_NUMBER, api_version) };
    if status != OK {
        return ERR;
    }
    // SAFETY: the server passes the context and the arguments of this call.
    let (ctx, args) = unsafe { (Ctx::new(ctx), Args::new(argv, argc)) };
    match guard("loading", || load(ctx, args)) {
        Some(Ok(())) => OK,
        Some(Err(error)) => {
            ctx.log_warning(&error);
            ERR
        }
        None => ERR,
    }
}

fn load(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
    quiet_panics();
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | HANDLE_ATOMIC_SLOT_MIGRATION;
    ctx.set_options(options);
    seat_pool::calibrate_memory(ffi::bytes_for_one());
    POOL_TYPE.register(ctx)?;
    config::init(ctx, args, settings_changed)?;
    commands::register(ctx)?;
    grace::register(ctx);
    timer::register();
    ctx.make_module_context();
    if events::register(ctx)? {
        // A replica may then show its old data set while it loads the new one.
        options |= raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
        ctx.set_options(options);
    }
    migration::register();
    settings_changed();
    config::listen(ctx);
    stats::register(ctx);
    ctx.log_notice(&format!(
        "seat {VERSION} on {}: {}",
        server::describe(ctx),
        config::describe()
    ));
    server::warn(ctx);
    config::warn_of_missing_lists(ctx);
    Ok(())
}

/// Has what the settings say take effect, once the module is loaded.
fn settings_changed() {
    ffi::with_module_context(|ctx| {
        command_filter::settings_changed(ctx);
        migration::settings_changed(ctx);
    });
}

/// A panic is caught before it reaches the server, and logged where it is caught. The standard hook
/// would print a backtrace first, which stops the server for a tenth of a second.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        ffi::log_panic(&panic.to_string());
    }));
}
