//! `SEAT.GET key session`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Get;

impl Command for Get {
    const SPEC: Spec = Spec {
        name: c"seat.get",
        summary: c"Returns a session's metadata with its timestamps and heartbeat count.",
        complexity: c"O(N) in the length of the metadata",
        since: SINCE,
        flags: c"readonly fast",
        arity: 3,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY, Argument::string(c"session")],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let session = call.arg(2)?.bytes();
        let key = call.pool_to_read()?;
        replies::session_json(call.ctx, key.pool().get(call.moment, session));
        Ok(())
    }
}
