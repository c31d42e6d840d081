//! The `SEAT.*` commands, a file each.
//!
//! A command reads from top to bottom as its documentation does: it parses its arguments, opens the key, asks the pool, commits
//! the effect and replies. An error is the only reply then, and the command has changed nothing; what was due when it opened the key
//! stays done.

mod acquire;
mod cleanup;
mod count;
mod effect;
mod export;
mod get;
mod heartbeat;
mod import;
mod info;
#[cfg(feature = "bench")]
mod noop;
mod options;
mod pttl;
mod queue;
mod release;
mod resize;
mod revoke;
mod scan;
mod sessions;
mod view;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};

use redis_module::raw;
use seat_pool::{Freed, Moment};

use crate::config;
use crate::error::Error;
use crate::ffi::{Args, Ctx, Spec, Str, guard};
use crate::grace;
use crate::pool_key::PoolKey;
use crate::scripts::{self, Caller};

/// The version that brought the commands of this one.
const SINCE: &CStr = c"0.1.0";

trait Command {
    const SPEC: Spec;

    /// Answers one call. Either it replies in full and returns `Ok`, or it has not replied at all.
    fn run(call: Call<'_>) -> Result<(), Error>;
}

/// One call of a command.
#[derive(Clone, Copy)]
struct Call<'a> {
    ctx: Ctx<'a>,
    args: Args<'a>,
    /// The moment of the call, by the server's clock: the only one that it goes by.
    moment: Moment,
}

impl<'a> Call<'a> {
    /// The argument at `index`; 0 is the command's name.
    fn arg(&self, index: usize) -> Result<Str<'a>, Error> {
        self.args.get(index).ok_or(Error::Arity)
    }

    fn key(&self) -> Result<Str<'a>, Error> {
        self.arg(1)
    }

    /// Opens the key to read its pool.
    fn pool_to_read(&self) -> Result<PoolKey<'a>, Error> {
        PoolKey::read(self.ctx, self.key()?, self.moment)
    }

    /// Opens the key to change its pool. An error while grants are suspended there.
    fn pool_to_change(&self) -> Result<PoolKey<'a>, Error> {
        let key = self.open()?;
        key.may_grant()?;
        Ok(key)
    }

    /// As [`Call::pool_to_change`], and first ends the holds of those of `sessions` that have their
    /// seats by invalid entries. Returns how many those were as well.
    fn pool_to_free(
        &self,
        sessions: impl Iterator<Item = &'a [u8]>,
        why: Freed,
    ) -> Result<(PoolKey<'a>, usize), Error> {
        let key = self.pool_to_change()?;
        let holders: BTreeSet<&[u8]> = sessions
            .filter(|session| key.invalid_entry(session).is_some())
            .collect();
        if holders.is_empty() {
            return Ok((key, 0));
        }
        scripts::remove_invalid(key, &holders)?;
        // Not an error any more, whatever is found now: these holds have ended.
        let mut key = self.open()?;
        key.tell_freed(why);
        Ok((key, holders.len()))
    }

    fn open(&self) -> Result<PoolKey<'a>, Error> {
        if scripts::is_outdated(self.arg(0)?) {
            return Err(Error::TryAgain);
        }
        let mut key = scripts::open(self.ctx, self.key()?, self.moment, Caller::Client)?;
        key.carry(self.args);
        Ok(key)
    }

    /// A session id that may be granted a seat.
    fn new_session(&self, index: usize) -> Result<&'a [u8], Error> {
        let session = self.arg(index)?.bytes();
        let limit = config::MAX_SESSION.get();
        if session.is_empty() {
            Err(Error::EmptySession)
        } else if session.len() > limit {
            Err(Error::SessionTooLong(limit))
        } else {
            Ok(session)
        }
    }
}

/// Registers all commands, under an ACL category of their own where the server has such.
pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    // SAFETY: the function is absent before 7.4; context and string are valid.
    let category = unsafe {
        raw::RedisModule_AddACLCategory
            .filter(|add| add(ctx.as_ptr(), c"seat".as_ptr()) == raw::Status::Ok as c_int)
            .map(|_| "seat")
    };
    register_one::<acquire::Acquire>(ctx, category)?;
    register_one::<release::Release>(ctx, category)?;
    register_one::<heartbeat::Heartbeat>(ctx, category)?;
    register_one::<count::Count>(ctx, category)?;
    register_one::<sessions::Sessions>(ctx, category)?;
    register_one::<scan::Scan>(ctx, category)?;
    register_one::<get::Get>(ctx, category)?;
    register_one::<info::Info>(ctx, category)?;
    register_one::<pttl::Pttl>(ctx, category)?;
    register_one::<cleanup::Cleanup>(ctx, category)?;
    register_one::<revoke::Revoke>(ctx, category)?;
    register_one::<resize::Resize>(ctx, category)?;
    register_one::<queue::Queue>(ctx, category)?;
    register_one::<queue::Position>(ctx, category)?;
    register_one::<import::Import>(ctx, category)?;
    register_one::<export::Export>(ctx, category)?;
    register_one::<view::View<0>>(ctx, category)?;
    register_one::<view::View<1>>(ctx, category)?;
    register_one::<view::View<2>>(ctx, category)?;
    register_one::<view::View<3>>(ctx, category)?;
    register_one::<view::View<4>>(ctx, category)?;
    register_one::<view::View<5>>(ctx, category)?;
    register_one::<view::View<6>>(ctx, category)?;
    register_one::<view::View<7>>(ctx, category)?;
    #[cfg(feature = "bench")]
    register_one::<noop::Noop>(ctx, category)?;
    register_one::<effect::Effect>(ctx, category)
}

fn register_one<C: Command>(ctx: Ctx<'_>, category: Option<&str>) -> Result<(), String> {
    let name = C::SPEC.name.to_string_lossy();
    C::SPEC
        .register(ctx, dispatch::<C>, category)
        .map_err(|error| format!("{name}: {error}"))
}

unsafe extern "C" fn dispatch<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server passes the context and the arguments of this call.
    let (ctx, args) = unsafe { (Ctx::new(ctx), Args::new(argv, argc)) };
    let moment = grace::moment(ctx);
    let call = Call { ctx, args, moment };
    let spec = const { &C::SPEC };
    let outcome = if spec.accepts(call.args.len()) {
        guard("a command", || C::run(call)).unwrap_or(Err(Error::Internal))
    } else {
        Err(Error::Arity)
    };
    match outcome {
        Ok(()) => {}
        Err(Error::Arity) => call.ctx.reply_wrong_arity(),
        Err(error) => call.ctx.reply_error(&error.to_string()),
    }
    raw::Status::Ok as c_int
}
