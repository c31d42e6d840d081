//! `SEAT.REVOKEOWNER key owner`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};

pub(super) struct RevokeOwner;

impl Command for RevokeOwner {
    const SPEC: Spec = Spec {
        name: c"seat.revokeowner",
        summary:
            c"Takes the seats of all sessions of an owner away, and their positions in the queue.",
        complexity:
            c"O(M*log(N)) where M is the number of the owner's sessions and N that of all sessions",
        since: SINCE,
        flags: c"write",
        arity: 3,
        keys: &[raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE],
        arguments: &[Argument::KEY, Argument::string(c"owner")],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let owner = call.arg(2)?.bytes();
        let mut key = call.pool_to_change()?;
        let revoked = key.machine().revoke_owner(owner);
        call.ctx.reply_integer(revoked as i64);
        Ok(())
    }
}
