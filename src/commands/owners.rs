//! `SEAT.OWNERS key`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Owners;

impl Command for Owners {
    const SPEC: Spec = Spec {
        name: c"seat.owners",
        summary: c"Lists the owners of sessions, with how many each has and what seats these take.",
        complexity: c"O(M*log(N)) where M is the number of owners and N that of their sessions",
        since: SINCE,
        flags: c"readonly",
        arity: 2,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let key = call.pool_to_read()?;
        let owners: Vec<_> = key.pool().owners(call.moment).collect();
        replies::owners(call.ctx, &owners);
        Ok(())
    }
}
