//! `SEAT.SESSIONS key [WITHMETADATA]`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

/// The option that SCAN has, too.
pub(super) const WITH_METADATA: Argument =
    Argument::word(c"withmetadata", c"WITHMETADATA").optional();

pub(super) struct Sessions;

impl Command for Sessions {
    const SPEC: Spec = Spec {
        name: c"seat.sessions",
        summary: c"Lists the sessions that hold a seat.",
        complexity: c"O(N) where N is the number of sessions",
        since: SINCE,
        flags: c"readonly",
        arity: -2,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY, WITH_METADATA],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, args, moment } = call;
        let with_metadata = match (args.get(2), args.len()) {
            (None, _) => false,
            (Some(option), 3) if option.is_word("WITHMETADATA") => true,
            _ => return Err(Error::Syntax("WITHMETADATA or nothing after the key")),
        };

        let key = call.pool_to_read()?;
        let count = key.pool().count(moment);
        let live = key.pool().live(moment);
        if with_metadata {
            replies::ids_to_json(ctx, count, live);
        } else {
            replies::ids(ctx, count, live);
        }
        Ok(())
    }
}
