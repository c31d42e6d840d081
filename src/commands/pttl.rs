//! `SEAT.PTTL key session`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};

const NO_LEASE: i64 = -1;
const NO_SESSION: i64 = -2;

pub(super) struct Pttl;

impl Command for Pttl {
    const SPEC: Spec = Spec {
        name: c"seat.pttl",
        summary: c"Returns how many milliseconds a session's lease has left.",
        complexity: c"O(1)",
        since: SINCE,
        flags: c"readonly fast",
        arity: 3,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY, Argument::string(c"session")],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let session = call.arg(2)?.bytes();
        let key = call.pool_to_read()?;
        let moment = call.moment;
        let left_ms = match key.pool().get(moment, session) {
            None => NO_SESSION,
            Some(session) => session.deadline_ms().map_or(NO_LEASE, |deadline_ms| {
                moment.effective(deadline_ms).saturating_sub(moment.now_ms)
            }),
        };
        call.ctx.reply_integer(left_ms);
        Ok(())
    }
}
