//! `SEAT.REVOKE key session [session ...]`

use redis_module::raw;
use seat_pool::Freed;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec, Str};

pub(super) struct Revoke;

impl Command for Revoke {
    const SPEC: Spec = Spec {
        name: c"seat.revoke",
        summary: c"Takes seats away from sessions, whoever holds them.",
        complexity: c"O(N) where N is the number of sessions given",
        since: SINCE,
        flags: c"write",
        arity: -3,
        keys: &[raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE],
        arguments: &[Argument::KEY, Argument::string(c"session").repeated()],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let sessions = || call.args.iter().skip(2).map(Str::bytes);
        let (mut key, freed) = call.pool_to_free(sessions(), Freed::Revoked)?;
        let revoked = freed + key.machine().revoke(sessions());
        call.ctx.reply_integer(revoked as i64);
        Ok(())
    }
}
