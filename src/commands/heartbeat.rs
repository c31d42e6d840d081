//! `SEAT.HEARTBEAT key session [metadata] [EX seconds | PX milliseconds] [TOKEN token]`

use redis_module::raw;
use seat_pool::HeartbeatOutcome as Decision;

use super::call::{Call, Command, SINCE};
use super::options::{self, Options};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies;

pub(super) struct Heartbeat;

impl Command for Heartbeat {
    const SPEC: Spec = Spec {
        name: c"seat.heartbeat",
        summary: c"Counts a session's sign of life and renews its lease.",
        complexity: c"O(1), with leases O(log N) where N is their number",
        since: SINCE,
        flags: c"write fast",
        arity: -3,
        keys: &[raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_UPDATE],
        arguments: &[
            Argument::KEY,
            Argument::string(c"session"),
            // As the script did, it takes metadata and ignores them.
            Argument::string(c"metadata").optional(),
            options::LEASE,
            options::TOKEN,
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, args, moment } = call;
        let session = call.arg(2)?.bytes();
        let options = Options::parse(args, 3, &options::HEARTBEAT)?;
        let lease = options.lease(moment.now_ms)?;

        let mut key = call.pool_to_change()?;
        // Such an entry has no token.
        if options.token.is_none()
            && let Some(why) = key.invalid_entry(session)
        {
            return Err(why);
        }
        match key.machine().heartbeat(session, lease, options.token) {
            Decision::NotActive => replies::refused(ctx, b"SESSION_NOT_ACTIVE"),
            Decision::NoMetadata => replies::refused(ctx, b"METADATA_NOT_FOUND"),
            Decision::Updated(heartbeat) => {
                replies::heartbeat_updated(ctx, heartbeat.heartbeat_count, lease);
            }
        }
        Ok(())
    }
}
