//! `SEAT.EFFECT key [entry ...] [kind ...]`: what a primary decided, for replicas and the AOF.

use redis_module::raw;

use super::call::{Call, Command, SINCE};
use crate::effects::Parsed;
use crate::error::Error;
use crate::feed::{News, Travelling};
use crate::ffi::{Argument, Spec};
use crate::pool_key::{PoolKey, Replicated};
use crate::{config, effects, feed, migration, queue, stats};

pub(super) struct Effect;

impl Command for Effect {
    const SPEC: Spec = Spec {
        name: c"seat.effect",
        summary: c"An internal command for replication and the AOF.",
        complexity: c"O(N) in the length of the metadata",
        since: SINCE,
        flags: c"write fast",
        arity: -3,
        // The server takes only one of insert, update and delete.
        keys: &[raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE],
        arguments: &[Argument::KEY, Argument::string(c"field").repeated()],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let trusted = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        if !ctx.has_any_flag(trusted) && !config::ALLOW_EFFECTS.get() {
            return Err(Error::EffectFromClient);
        }
        let Parsed { entries, effect } = effects::parse(call.args)?;
        let entries = entries
            .into_iter()
            .map(|entry| Travelling::read(entry.bytes()));
        let entries: Option<Vec<_>> = entries.collect();
        let entries = entries.ok_or(Error::MalformedEffect("entry"))?;

        let is_applied = match effect {
            Some(effect) => apply(call, &effect)?,
            None => false,
        };
        if is_applied || !entries.is_empty() {
            ctx.replicate_verbatim();
        }
        let news: Vec<News> = entries
            .iter()
            .filter_map(|entry| feed::append_travelled(ctx, entry))
            .collect();
        for news in news {
            news.publish(ctx);
        }
        // Somebody pipes effects into a primary by hand: whoever waits there is served by the
        // timer.
        queue::schedule_check(ctx, call.key()?.bytes());
        ctx.reply_integer(1);
        Ok(())
    }
}

/// Applies an effect, and returns whether it has changed the pool.
fn apply(call: Call<'_>, effect: &seat_pool::Effect<'_>) -> Result<bool, Error> {
    let ctx = call.ctx;
    let mut key = PoolKey::write(ctx, call.key()?, call.moment)?;
    let Replicated {
        is_applied,
        is_complete,
    } = key.commit_replicated(effect);
    if !is_complete {
        let ignored = stats::IGNORED_EFFECTS.add();
        // A node that has diverged would otherwise fill its log.
        if ignored.is_power_of_two() {
            ctx.log_warning(&format!(
                    "{ignored} effects so far were for unknown sessions: this node has diverged from its primary or its AOF"
                ));
        }
    }
    if let seat_pool::Effect::Grant(_) | seat_pool::Effect::Import(_) = effect {
        migration::forget_invalid(key.database, key.name.bytes());
    }
    Ok(is_applied)
}
