//! `SEAT.EFFECT key kind ...`: what a primary decided, for replicas and the AOF.

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::pool_key::PoolKey;
use crate::{config, effects, migration, queue, stats};

pub(super) struct Effect;

impl Command for Effect {
    const SPEC: Spec = Spec {
        name: c"seat.effect",
        summary: c"An internal command for replication and the AOF.",
        complexity: c"O(N) in the length of the metadata",
        since: SINCE,
        flags: c"write fast",
        arity: -4,
        // The server takes only one of insert, update and delete.
        keys: &[raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE],
        arguments: &[
            Argument::KEY,
            Argument::string(c"kind"),
            Argument::string(c"field").repeated(),
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let trusted = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        if !ctx.has_any_flag(trusted) && !config::ALLOW_EFFECTS.get() {
            return Err(Error::EffectFromClient);
        }
        let change = effects::parse(call.args)?;

        let mut key = PoolKey::write(ctx, call.key()?, call.moment)?;
        if !key.commit_replicated(&change) {
            let ignored = stats::IGNORED_EFFECTS.add();
            // A node that has diverged would otherwise fill its log.
            if ignored.is_power_of_two() {
                ctx.log_warning(&format!(
                    "{ignored} effects so far were for unknown sessions: this node has diverged from its primary or its AOF"
                ));
            }
        }
        if let seat_pool::Effect::Grant(_) | seat_pool::Effect::Import(_) = change {
            migration::forget_invalid(key.database, key.name.bytes());
        }
        drop(key);
        // Somebody pipes effects into a primary by hand: whoever waits there is served by the
        // timer.
        queue::schedule_check(ctx, call.key()?.bytes());
        ctx.reply_integer(1);
        Ok(())
    }
}
