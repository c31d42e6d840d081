//! `SEAT.COUNT key`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec, is_asked_for_slot};

pub(super) struct Count;

impl Command for Count {
    const SPEC: Spec = Spec {
        name: c"seat.count",
        summary: c"Counts the sessions that hold a seat.",
        complexity: c"O(1)",
        since: SINCE,
        flags: c"readonly fast",
        arity: 2,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        if is_asked_for_slot() {
            call.ctx.reply_null();
            return Ok(());
        }
        let key = call.pool_to_read()?;
        let count = key.pool().count(call.moment);
        call.ctx.reply_integer(count as i64);
        Ok(())
    }
}
