//! `SEAT.SESSIONS key [OWNER owner] [WITHMETADATA | WITHDETAILS]`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec, Str};
use crate::replies::{self, Shown};

/// The option that SCAN has, too.
pub(super) const SHOWN: Argument = Argument {
    kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
    parts: &[
        Argument::word(c"withmetadata", c"WITHMETADATA"),
        Argument::word(c"withdetails", c"WITHDETAILS"),
    ],
    ..Argument::string(c"shown").optional()
};

/// What is to be shown, if this is an option that says so.
pub(super) fn shown_by(option: Str<'_>) -> Option<Shown> {
    if option.is_word("WITHMETADATA") {
        Some(Shown::Metadata)
    } else if option.is_word("WITHDETAILS") {
        Some(Shown::Details)
    } else {
        None
    }
}

pub(super) struct Sessions;

impl Command for Sessions {
    const SPEC: Spec = Spec {
        name: c"seat.sessions",
        summary: c"Lists the sessions that hold seats, of all owners or of one.",
        complexity: c"O(N) where N is the number of sessions, with OWNER of those of this owner",
        since: SINCE,
        flags: c"readonly",
        arity: -2,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[
            Argument::KEY,
            Argument::string(c"owner").after(c"OWNER").optional(),
            SHOWN,
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, moment, .. } = call;
        let mut owner = None;
        let mut shown = None;
        let mut options = call.args.iter().skip(2);
        while let Some(option) = options.next() {
            let by_option = shown_by(option);
            if by_option.is_some() && shown.is_none() {
                shown = by_option;
            } else if option.is_word("OWNER") && owner.is_none() {
                let value = options.next();
                owner = Some(value.ok_or(Error::Option("OWNER", "needs a value"))?);
            } else {
                return Err(Error::Syntax(
                    "OWNER, and WITHMETADATA or WITHDETAILS, or nothing, after the key",
                ));
            }
        }

        let key = call.pool_to_read()?;
        let pool = key.pool();
        let listed = replies::Sessions {
            ctx,
            pool,
            moment,
            shown: shown.unwrap_or(Shown::Ids),
        };
        match owner.map(Str::bytes) {
            Some(owner) => {
                let held = pool.held(moment, owner) as usize;
                listed.all(held, pool.owned(moment, owner));
            }
            None => listed.all(pool.count(moment), pool.live(moment)),
        }
        Ok(())
    }
}
