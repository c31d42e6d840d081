//! `SEAT.NOOP key [argument ...]`, in builds for `make bench` only: what a call costs before a
//! command has done anything.

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};

pub(super) struct Noop;

impl Command for Noop {
    const SPEC: Spec = Spec {
        name: c"seat.noop",
        summary: c"Does nothing.",
        complexity: c"O(1)",
        since: SINCE,
        flags: c"write fast",
        arity: -2,
        keys: &[raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[
            Argument::KEY,
            Argument::string(c"argument").optional().repeated(),
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        call.ctx.reply_integer(0);
        Ok(())
    }
}
