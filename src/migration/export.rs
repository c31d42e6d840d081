//! `SEAT.EXPORT key sessions-key metadata-key`
//!
//! The scripts count a seat for each session, so they would overbook one that weighs more. Leases,
//! owners and tokens do not change who holds how many seats, and are left behind.

use redis_module::raw;

use super::adoption::export_to;
use crate::commands::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::memory;
use crate::pool_key::PoolKey;

pub(crate) struct Export;

/// What EXPORT does with the two keys that it writes to.
const FILLED: u32 = raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT;

impl Command for Export {
    const SPEC: Spec = Spec {
        name: c"seat.export",
        summary: c"Writes a pool's sessions into a set and a hash, and removes the pool.",
        complexity: c"O(N) where N is the number of sessions and the length of their metadata",
        since: SINCE,
        flags: c"write",
        arity: 4,
        keys: &[
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_DELETE,
            FILLED,
            FILLED,
        ],
        arguments: &[
            Argument::KEY,
            Argument::key(c"sessions-key", 1),
            Argument::key(c"metadata-key", 2),
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let (sessions, metadata) = (call.arg(2)?, call.arg(3)?);
        let name = call.key()?;
        let names = [name.bytes(), sessions.bytes(), metadata.bytes()];
        if names[0] == names[1] || names[1] == names[2] || names[0] == names[2] {
            return Err(Error::SameKey);
        }

        let key = PoolKey::write(ctx, name, call.moment)?;
        let exported = if key.exists() {
            if memory::refuses_growth(ctx) {
                return Err(Error::OutOfMemory);
            }
            let pool = key.pool();
            if pool.used(call.moment) > pool.count(call.moment) as u64 {
                return Err(Error::HeavySessions);
            }
            export_to(key, sessions, metadata)?
        } else {
            0
        };
        ctx.reply_integer(exported as i64);
        Ok(())
    }
}
