//! `SEAT.GET key session [DETAILS]`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Get;

impl Command for Get {
    const SPEC: Spec = Spec {
        name: c"seat.get",
        summary: c"Returns a session's metadata with its timestamps and heartbeat count, or all about it.",
        complexity: c"O(N) in the length of the metadata",
        since: SINCE,
        flags: c"readonly fast",
        arity: -3,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[
            Argument::KEY,
            Argument::string(c"session"),
            Argument::word(c"details", c"DETAILS").optional(),
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, args, moment } = call;
        let session = call.arg(2)?.bytes();
        let with_details = match (args.get(3), args.len()) {
            (None, _) => false,
            (Some(option), 4) if option.is_word("DETAILS") => true,
            _ => return Err(Error::Syntax("DETAILS or nothing after the session")),
        };

        let key = call.pool_to_read()?;
        match key.pool().get(moment, session) {
            Some(session) if with_details => replies::details(ctx, key.pool(), moment, session),
            session => replies::session_json(ctx, session),
        }
        Ok(())
    }
}
