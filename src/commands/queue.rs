//! `SEAT.QUEUE key` and `SEAT.POSITION key session`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Queue;

impl Command for Queue {
    const SPEC: Spec = Spec {
        name: c"seat.queue",
        summary: c"Lists the sessions that wait for a seat, with how long they have.",
        complexity: c"O(N*log(N)) where N is the number of sessions that wait",
        since: SINCE,
        flags: c"readonly",
        arity: 2,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, moment, .. } = call;
        let key = call.pool_to_read()?;
        replies::waiters(ctx, &key.queue().list(), moment.now_ms);
        Ok(())
    }
}

pub(super) struct Position;

impl Command for Position {
    const SPEC: Spec = Spec {
        name: c"seat.position",
        summary: c"Returns a session's position in the queue; 1 is the first.",
        complexity: c"O(log(N)) where N is the number of sessions that wait",
        since: SINCE,
        flags: c"readonly fast",
        arity: 3,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY, Argument::string(c"session")],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let session = call.arg(2)?.bytes();
        let key = call.pool_to_read()?;
        replies::position(call.ctx, key.queue().position(session));
        Ok(())
    }
}
