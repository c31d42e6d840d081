//! `SEAT.CLEANUP key [IDLE seconds]`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Cleanup;

impl Command for Cleanup {
    const SPEC: Spec = Spec {
        name: c"seat.cleanup",
        summary: c"Takes back the seats of sessions that were silent for too long.",
        complexity:
            c"O(N) where N is the number of seats taken back, with IDLE the number of sessions",
        since: SINCE,
        flags: c"write",
        arity: -2,
        keys: &[raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_DELETE],
        arguments: &[
            Argument::KEY,
            Argument::integer(c"seconds").after(c"IDLE").optional(),
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, args, .. } = call;
        let idle_seconds = match (args.get(2), args.get(3)) {
            (None, _) => None,
            (Some(option), _) if !option.is_word("IDLE") || args.len() > 4 => {
                return Err(Error::Syntax("IDLE and seconds, or nothing, after the key"));
            }
            (Some(_), None) => return Err(Error::Option("IDLE", "needs a value")),
            (Some(_), Some(value)) => {
                let value = value.integer().and_then(|value| u64::try_from(value).ok());
                Some(value.ok_or(Error::Option("IDLE", "must be an integer of 0 or more"))?)
            }
        };

        let mut key = call.pool_to_change()?;
        let cleaned = key.machine().cleanup(idle_seconds);
        replies::cleaned(ctx, cleaned, key.used());
        Ok(())
    }
}
