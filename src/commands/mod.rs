//! The `SEAT.*` commands, a file each.
//!
//! A command reads from top to bottom as its documentation does: it parses its arguments, opens the
//! key, has the machine decide and commit, and replies. An error is the only reply then, and the
//! command has changed nothing; what was due when it opened the key stays done.

mod acquire;
pub(crate) mod call;
mod cleanup;
mod count;
mod effect;
mod get;
mod heartbeat;
mod info;
#[cfg(feature = "bench")]
mod noop;
mod options;
mod owners;
mod pttl;
mod queue;
mod release;
mod resize;
mod revoke;
mod revoke_owner;
mod scan;
mod sessions;

use self::call::{Call, Command};
use crate::error::Error;
use crate::ffi::{Args, Ctx};
use crate::{grace, migration};

/// Registers all commands, under an ACL category of their own where the server has such.
pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    let category = ctx.add_acl_category(c"seat").then_some("seat");
    register_one::<acquire::Acquire>(ctx, category)?;
    register_one::<release::Release>(ctx, category)?;
    register_one::<heartbeat::Heartbeat>(ctx, category)?;
    register_one::<count::Count>(ctx, category)?;
    register_one::<sessions::Sessions>(ctx, category)?;
    register_one::<scan::Scan>(ctx, category)?;
    register_one::<get::Get>(ctx, category)?;
    register_one::<owners::Owners>(ctx, category)?;
    register_one::<info::Info>(ctx, category)?;
    register_one::<pttl::Pttl>(ctx, category)?;
    register_one::<cleanup::Cleanup>(ctx, category)?;
    register_one::<revoke::Revoke>(ctx, category)?;
    register_one::<revoke_owner::RevokeOwner>(ctx, category)?;
    register_one::<resize::Resize>(ctx, category)?;
    register_one::<queue::Queue>(ctx, category)?;
    register_one::<queue::Position>(ctx, category)?;
    register_one::<migration::Import>(ctx, category)?;
    register_one::<migration::Export>(ctx, category)?;
    register_one::<migration::View<0>>(ctx, category)?;
    register_one::<migration::View<1>>(ctx, category)?;
    register_one::<migration::View<2>>(ctx, category)?;
    register_one::<migration::View<3>>(ctx, category)?;
    register_one::<migration::View<4>>(ctx, category)?;
    register_one::<migration::View<5>>(ctx, category)?;
    register_one::<migration::View<6>>(ctx, category)?;
    register_one::<migration::View<7>>(ctx, category)?;
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

fn dispatch<C: Command>(ctx: Ctx<'_>, args: Args<'_>) {
    let moment = grace::moment(ctx);
    let spec = const { &C::SPEC };
    let outcome = if spec.accepts(args.len()) {
        C::run(Call { ctx, args, moment })
    } else {
        Err(Error::Arity)
    };
    match outcome {
        Ok(()) => {}
        Err(Error::Arity) => ctx.reply_wrong_arity(),
        Err(error) => ctx.reply_error(&error.to_string()),
    }
}
