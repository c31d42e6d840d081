//! `SEAT.INFO key`

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::migration;
use crate::pool_key::PoolKey;
use crate::replies;

pub(super) struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"seat.info",
        summary: c"Describes a pool: its seats, who uses them, and what it costs.",
        complexity:
            c"O(N/256+M) for the memory, where N is the number of sessions and M that of tickets, and O(K*log(N)) where K is the number of sessions that have expired and were not reclaimed yet",
        since: SINCE,
        flags: c"readonly",
        arity: 2,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: &[Argument::KEY],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let key = migration::open_as_known(ctx, call.key()?, call.moment, PoolKey::read)?;
        let pool = key.pool();
        if pool.is_empty() {
            ctx.reply_null();
            return Ok(());
        }
        let moment = call.moment;
        let queue = key.queue();
        let used = key.used() as i64;
        let peak_used = pool.peak_used(moment).max(key.used());
        let fields: [(&[u8], i64); 12] = [
            (b"seats", pool.seats()),
            (b"used", used),
            (b"available", pool.seats().saturating_sub(used).max(0)),
            (b"kept", queue.kept() as i64),
            (b"waiting", queue.waiting() as i64),
            (b"leased", pool.leased(moment) as i64),
            (
                b"next_deadline_ms",
                pool.next_deadline_ms(moment).unwrap_or(-1),
            ),
            (b"memory_bytes", pool.memory_bytes() as i64),
            (b"sessions", pool.count(moment) as i64),
            (b"owners", pool.count_owners(moment) as i64),
            (b"denied", pool.denied() as i64),
            (b"peak_used", peak_used as i64),
        ];
        replies::numbers(ctx, &fields);
        Ok(())
    }
}
