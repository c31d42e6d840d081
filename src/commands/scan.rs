//! `SEAT.SCAN key cursor [COUNT n] [WITHMETADATA | WITHDETAILS]`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use super::sessions::{SHOWN, shown_by};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::replies::{self, Shown};

/// As with Redis's own SCAN.
const DEFAULT_COUNT: usize = 10;

pub(super) struct Scan;

impl Command for Scan {
    const SPEC: Spec = Spec {
        name: c"seat.scan",
        summary: c"Lists the sessions that hold a seat, some at a time.",
        complexity: c"O(COUNT) for every call, O(N) for a complete iteration where N is the number of sessions",
        since: SINCE,
        flags: c"readonly",
        arity: -3,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[
            Argument::KEY,
            Argument::integer(c"cursor"),
            Argument::integer(c"count").after(c"COUNT").optional(),
            SHOWN,
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let cursor = call.arg(2)?.integer();
        let cursor = cursor
            .and_then(|cursor| u64::try_from(cursor).ok())
            .ok_or(Error::Cursor)?;
        let mut count = DEFAULT_COUNT;
        let mut shown = None;
        let mut options = call.args.iter().skip(3);
        while let Some(option) = options.next() {
            if option.is_word("COUNT") {
                let value = options.next().ok_or(Error::Count)?.integer();
                let value = value.and_then(|value| usize::try_from(value).ok());
                count = value.filter(|&value| value > 0).ok_or(Error::Count)?;
            } else if let by_option @ Some(_) = shown_by(option)
                && (shown.is_none() || shown == by_option)
            {
                shown = by_option;
            } else {
                return Err(Error::Syntax(
                    "COUNT, WITHMETADATA or WITHDETAILS after the cursor",
                ));
            }
        }

        let key = call.pool_to_read()?;
        let mut found = Vec::new();
        let next = if key.exists() {
            key.pool()
                .scan(call.moment, cursor, count, |session| found.push(session))?
        } else {
            // Whatever the cursor was of, nobody has stayed.
            0
        };
        let listed = replies::Sessions {
            ctx,
            pool: key.pool(),
            moment: call.moment,
            shown: shown.unwrap_or(Shown::Ids),
        };
        listed.step(next, &found);
        Ok(())
    }
}
