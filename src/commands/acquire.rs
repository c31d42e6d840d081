//! `SEAT.ACQUIRE key session seats [metadata] [EX seconds | PX milliseconds] [WEIGHT weight]
//! [OWNER owner [MAX max [TAKEOVER]]] [WITHTOKEN] [QUEUE milliseconds] [BLOCK milliseconds]`

use redis_module::raw;
use seat_pool::{AcquireRequest, Acquired, Conditions, Metadata, Refusal};

use super::call::{Call, Command, SINCE};
use super::options::{self, Options};
use crate::error::Error;
use crate::ffi::{Argument, Ctx, Spec, Str};
use crate::pool_key::Denial;
use crate::text::CallerText;
use crate::{config, memory, queue, replies, stats};

pub(super) struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"seat.acquire",
        summary: c"Takes seats of a pool for a session, if they are free, or waits for them.",
        complexity:
            c"O(N) in the length of the metadata, and O(log N) in the length of the queue, with OWNER also in the number of sessions",
        since: SINCE,
        flags: c"write fast blocking",
        arity: -4,
        keys: &[raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_INSERT],
        arguments: &[
            Argument::KEY,
            Argument::string(c"session"),
            Argument::integer(c"seats"),
            Argument::string(c"metadata").optional(),
            options::LEASE,
            options::WEIGHT,
            options::OWNER,
            options::WITH_TOKEN,
            options::QUEUE,
            options::BLOCK,
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let session = call.new_session(2)?;
        let seats = call.arg(3)?.integer().ok_or(Error::Seats)?;
        let options = Options::parse(call.args, 4, &options::ACQUIRE)?;
        if options.with_token && !queue::has_token_left() {
            return Err(Error::NoTokenLeft);
        }
        let asked = options.asked();
        let request = AcquireRequest {
            lease: options.lease(call.moment.now_ms)?,
            ticket_ms: options.ticket_ms,
            claim: options.claim(),
            with_token: asked.token,
            blocks: options.block_ms.is_some() && may_block(ctx),
            longest_queue: config::MAX_QUEUE_LENGTH.get(),
            ..AcquireRequest::plain(session, seats)
        };
        let conditions = Checks {
            ctx,
            metadata: options.metadata,
        };

        let mut key = call.pool_to_change()?;
        key.pass_on(CallerText {
            session: Some(call.arg(2)?),
            metadata: options.metadata,
            owner: options.owner,
        });
        if let Some(timeout_ms) = options.block_ms {
            key.may_block(queue::block, timeout_ms, asked);
        }
        let acquired = key.machine().acquire(&request, &conditions);
        match acquired.map_err(|refusal| match refusal {
            Refusal::HeldElsewhere => key.invalid_entry(session).unwrap_or(Error::Internal),
            Refusal::QueueFull => Error::QueueFull,
            Refusal::TooManyFigures => Error::TooManyFigures,
            Refusal::Unmet(error) => error,
        })? {
            Acquired::Granted(granted) => replies::acquired(ctx, &granted, asked),
            Acquired::AlreadyActive(active) => {
                stats::ALREADY_ACTIVE.add();
                replies::already_active(ctx, &active, asked);
            }
            Acquired::NoSeats { used } => {
                stats::DENIED.add();
                key.write_denial(&request, Denial::NoSeats);
                replies::no_seats(ctx, used, seats);
            }
            Acquired::OwnerLimit { held, max } => {
                stats::DENIED.add();
                stats::OWNER_LIMIT.add();
                key.write_denial(&request, Denial::OwnerLimit { held, max });
                replies::owner_limit(ctx, held, max);
            }
            Acquired::Queued { used, position } => {
                queue::note_poll(key.database, key.name.bytes(), session);
                replies::queued(ctx, used, seats, position);
            }
            Acquired::Blocked(client) => {
                if request.ticket_ms.is_some() {
                    queue::note_poll(key.database, key.name.bytes(), session);
                }
                let name = key.name;
                drop(key);
                queue::finish_join(ctx, name, client);
            }
        }
        Ok(())
    }
}

/// What is looked at only where it matters.
struct Checks<'a> {
    ctx: Ctx<'a>,
    metadata: Option<Str<'a>>,
}

impl<'a> Conditions<'a> for Checks<'a> {
    type Error = Error;

    fn metadata(&self) -> Result<Metadata<'a>, Error> {
        match self.metadata {
            Some(raw) => Ok(Metadata::parse(raw.bytes(), config::MAX_METADATA.get())?),
            None => Ok(Metadata::NONE),
        }
    }

    fn memory(&self) -> Result<(), Error> {
        match memory::refuses_growth(self.ctx) {
            true => Err(Error::OutOfMemory),
            false => Ok(()),
        }
    }
}

/// Whether the client may be blocked in the context of its call.
fn may_block(ctx: Ctx<'_>) -> bool {
    let must_not = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    !ctx.has_any_flag(must_not)
}
