//! `SEAT.IMPORT key sessions-key metadata-key`

use redis_module::raw;

use super::adoption::{adopt_keys, check_types, open_as_known};
use crate::commands::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::pool_key::PoolKey;

pub(crate) struct Import;

/// What IMPORT does with the two keys that it reads and deletes.
const TAKEN: u32 =
    raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE;

impl Command for Import {
    const SPEC: Spec = Spec {
        name: c"seat.import",
        summary: c"Takes the sessions of a set and a hash over into a pool.",
        complexity: c"O(N) where N is the number of sessions and the length of their metadata",
        since: SINCE,
        flags: c"write",
        arity: 4,
        keys: &[
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
            TAKEN,
            TAKEN,
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

        // What the settings would adopt by themselves is left for the next command: this one
        // grants nothing.
        let mut key = open_as_known(ctx, call.key()?, call.moment, PoolKey::write)?;
        check_types(ctx, sessions, metadata)?;
        let imported = adopt_keys(&mut key, sessions, metadata)?;
        ctx.reply_integer(imported as i64);
        Ok(())
    }
}
