//! `SEAT.ACQUIRE key session seats [metadata] [EX seconds | PX milliseconds]`

use redis_module::raw;
use seat_pool::{Acquire as Decision, Effect, Metadata};

use super::options::{self, Options, reply_lease};
use super::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::pool_key::PoolKey;
use crate::{config, stats};

pub(super) struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"seat.acquire",
        summary: c"Takes a seat of a pool for a session, if one is free.",
        complexity: c"O(N) in the length of the metadata",
        since: SINCE,
        flags: c"write fast",
        arity: -4,
        key: raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_INSERT,
        arguments: &[
            Argument::KEY,
            Argument::string(c"session"),
            Argument::integer(c"seats"),
            Argument::string(c"metadata").optional(),
            options::LEASE,
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, args } = call;
        let session = call.new_session(2)?;
        let seats = call.arg(3)?.integer().ok_or(Error::Seats)?;
        let options = Options::parse(args, 4)?;
        let now_ms = ctx.now_ms();
        let lease = options.lease(now_ms)?;

        let mut key = PoolKey::write(ctx, call.key()?)?;
        let used = key.pool().used(now_ms) as i64;
        match key.pool().acquire(now_ms, session, seats) {
            Decision::AlreadyActive => {
                if let Some(lease) = lease {
                    key.commit(&Effect::Renew { session, lease });
                }
                stats::ALREADY_ACTIVE.add();
                ctx.reply_array(3 + usize::from(lease.is_some()));
                ctx.reply_integer(1);
                ctx.reply_bulk(b"ALREADY_ACTIVE");
                ctx.reply_integer(used);
                reply_lease(ctx, lease);
            }
            Decision::NoSeats => {
                stats::DENIED.add();
                ctx.reply_array(4);
                ctx.reply_integer(0);
                ctx.reply_bulk(b"NO_SEATS_AVAILABLE");
                ctx.reply_integer(used);
                ctx.reply_integer(seats);
            }
            Decision::Vacant => {
                let metadata = match options.metadata {
                    Some(raw) => Metadata::parse(raw.bytes(), config::MAX_METADATA.get())?,
                    None => Metadata::NONE,
                };
                if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_OOM) {
                    return Err(Error::OutOfMemory);
                }
                if key.pool().contains(session) {
                    // The session's own lease has lapsed and not been reclaimed yet; the grant takes the place of its row.
                    stats::EXPIRED.add();
                }
                key.commit(&Effect::granting(now_ms, session, seats, &metadata, lease));
                stats::ACQUIRED.add();
                ctx.reply_array(4 + usize::from(lease.is_some()));
                ctx.reply_integer(1);
                ctx.reply_bulk(b"ACQUIRED");
                ctx.reply_integer(used + 1);
                ctx.reply_integer(seats);
                reply_lease(ctx, lease);
            }
        }
        Ok(())
    }
}
