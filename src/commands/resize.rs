//! `SEAT.RESIZE key seats`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};

pub(super) struct Resize;

impl Command for Resize {
    const SPEC: Spec = Spec {
        name: c"seat.resize",
        summary:
            c"Changes the limit now, for a pool and all who wait, and lets in who may have a seat.",
        complexity: c"O(N*log(N)) where N is the number of sessions that wait",
        since: SINCE,
        flags: c"write",
        arity: 3,
        keys: &[raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE],
        arguments: &[Argument::KEY, Argument::integer(c"seats")],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let seats = call.arg(2)?.integer().ok_or(Error::Seats)?;
        let mut key = call.pool_to_change()?;
        let granted = key.machine().resize(seats);
        call.ctx.reply_integer(granted as i64);
        Ok(())
    }
}
