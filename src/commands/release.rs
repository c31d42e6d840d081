//! `SEAT.RELEASE key session [TOKEN token]`

use redis_module::raw;
use seat_pool::Freed;

use super::call::{Call, Command, SINCE};
use super::options::{self, Options};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"seat.release",
        summary: c"Gives a session's seats back.",
        complexity: c"O(1), and O(log(N)) where N is the number of sessions that wait",
        since: SINCE,
        flags: c"write fast",
        arity: -3,
        keys: &[raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_DELETE],
        arguments: &[Argument::KEY, Argument::string(c"session"), options::TOKEN],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let session = call.arg(2)?.bytes();

        let options = Options::parse(call.args, 3, &options::RELEASE)?;

        // An invalid entry has no token, so it is not released by one.
        let invalid = options.token.is_none().then_some(session);
        let (mut key, freed) = call.pool_to_free(invalid.into_iter(), Freed::Released)?;
        let released = key.machine().release(session, options.token);
        match (released, freed) {
            (None, 0) => replies::refused(ctx, b"SESSION_NOT_FOUND"),
            _ => replies::released(ctx, key.used()),
        }
        Ok(())
    }
}
