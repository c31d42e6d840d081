//! `SEAT.ACQUIRE key session seats [metadata] [EX seconds | PX milliseconds] [QUEUE milliseconds] [BLOCK milliseconds]`

use std::cell::OnceCell;

use redis_module::raw;
use seat_pool::{Acquire as Decision, Effect, Lease, Metadata, Ticket};

use super::call::{Call, Command, SINCE};
use super::options::{self, Options};
use crate::error::Error;
use crate::ffi::{Argument, Spec};
use crate::pool_key::PoolKey;
use crate::queue::{self, Request};
use crate::replies::{self, Granted};
use crate::{config, memory, stats};

pub(super) struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"seat.acquire",
        summary: c"Takes a seat of a pool for a session, if one is free, or waits for one.",
        complexity: c"O(N) in the length of the metadata, and O(log N) in the length of the queue",
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
            options::QUEUE,
            options::BLOCK,
        ],
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let ctx = call.ctx;
        let session = call.new_session(2)?;
        let seats = call.arg(3)?.integer().ok_or(Error::Seats)?;
        let options = Options::parse_with_queue(call.args, 4)?;
        let request = Attempt {
            call,
            session,
            seats,
            lease: options.lease(call.moment.now_ms)?,
            options,
            lacks_memory: OnceCell::new(),
        };

        let mut key = call.pool_to_change()?;
        if let Some(why) = key.invalid_entry(session) {
            // The scripts would say the same. But there is no lease that could be renewed.
            if request.lease.is_some() {
                return Err(why);
            }
            let holder = key.answer_holder(session, None);
            replies::already_active(ctx, &holder);
            return Ok(());
        }
        let mut decision = request.decide(&key);
        if decision != Decision::AlreadyActive && request.lets_waiters_in(&mut key) {
            decision = request.decide(&key);
        }
        match decision {
            Decision::AlreadyActive => {
                let holder = key.answer_holder(session, request.lease);
                replies::already_active(ctx, &holder);
            }
            Decision::Vacant => request.grant(key)?,
            Decision::NoSeats { position } if request.waits() => request.join(key, position)?,
            Decision::NoSeats { .. } => request.deny(&key),
        }
        Ok(())
    }
}

/// One call, parsed.
struct Attempt<'a> {
    call: Call<'a>,
    session: &'a [u8],
    seats: i64,
    lease: Option<Lease>,
    options: Options<'a>,
    /// Found out once: those who are let in first take some of the memory, and a call that has changed something must not be refused.
    lacks_memory: OnceCell<bool>,
}

impl<'a> Attempt<'a> {
    fn decide(&self, key: &PoolKey<'_>) -> Decision {
        let limit = key.limit(self.seats);
        key.pool()
            .acquire(self.call.moment, self.session, limit, key.line())
    }

    /// A higher limit than the one so far is for those first who have waited for it. Returns whether that changed anything.
    fn lets_waiters_in(&self, key: &mut PoolKey<'_>) -> bool {
        let pool = key.pool();
        let is_higher = !key.exists() || self.seats > pool.seats();
        let matters = is_higher
            && !self.call.moment.holds_grants
            && pool.waiting(self.call.moment, key.line()) > 0
            && self.seats > key.used()
            && self.metadata().is_ok()
            && self.refuse_when_out_of_memory().is_ok()
            && self.refuse_when_queue_is_full(key).is_ok();
        if matters {
            if key.exists() {
                key.commit(&Effect::Seats(self.seats));
            }
            // The place of the session itself, if it has one, is this call's to take.
            key.serve_under(Some(self.seats), Some(self.session));
        }
        matters
    }

    fn metadata(&self) -> Result<Metadata<'a>, Error> {
        match self.options.metadata {
            Some(raw) => Ok(Metadata::parse(raw.bytes(), config::MAX_METADATA.get())?),
            None => Ok(Metadata::NONE),
        }
    }

    fn refuse_when_out_of_memory(&self) -> Result<(), Error> {
        let ask = || memory::refuses_growth(self.call.ctx);
        if *self.lacks_memory.get_or_init(ask) {
            return Err(Error::OutOfMemory);
        }
        Ok(())
    }

    fn refuse_when_queue_is_full(&self, key: &PoolKey<'_>) -> Result<(), Error> {
        let (pool, line) = (key.pool(), key.line());
        let has_place = pool
            .arrival_of(self.call.moment, self.session, line)
            .is_some();
        let is_full = pool.waiting(self.call.moment, line) >= config::MAX_QUEUE_LENGTH.get();
        if self.waits() && !has_place && is_full {
            return Err(Error::QueueFull);
        }
        Ok(())
    }

    fn grant(&self, mut key: PoolKey<'_>) -> Result<(), Error> {
        let metadata = self.metadata()?;
        self.refuse_when_out_of_memory()?;
        let (session, seats, lease) = (self.session, self.seats, self.lease);
        let had_ticket = key.pool().ticket(self.call.moment, session).is_some();
        let was_blocked = key.dismiss(session);
        key.commit(&Effect::granting(
            self.call.moment.now_ms,
            session,
            seats,
            &metadata,
            lease,
        ));
        if had_ticket || was_blocked {
            key.granted_from_queue();
        }
        stats::ACQUIRED.add();
        // The grant may have brought a limit to a name that had none.
        key.serve();
        let used = key.used();
        replies::acquired(self.call.ctx, &Granted { used, seats, lease });
        Ok(())
    }

    fn deny(&self, key: &PoolKey<'_>) {
        stats::DENIED.add();
        let used = key.used();
        replies::no_seats(self.call.ctx, used, self.seats);
    }

    /// Whether the call asks for a place in the queue, in a context in which it can have one.
    fn waits(&self) -> bool {
        self.options.ticket_ms.is_some() || self.blocks()
    }

    fn blocks(&self) -> bool {
        let must_not = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        self.options.block_ms.is_some() && !self.call.ctx.has_any_flag(must_not)
    }

    /// Takes the place at `position`, or keeps the one that the session has there.
    fn join(&self, mut key: PoolKey<'_>, position: usize) -> Result<(), Error> {
        let (ctx, moment, session) = (self.call.ctx, self.call.moment, self.session);
        let metadata = self.metadata()?;
        let known = key.pool().arrival_of(moment, session, key.line());
        if known.is_none() {
            self.refuse_when_out_of_memory()?;
            self.refuse_when_queue_is_full(&key)?;
        }
        // Before anything changes, since the server may refuse it.
        let blocked = match self.options.block_ms {
            Some(timeout_ms) if self.blocks() => queue::block(ctx, key.name, timeout_ms),
            _ => None,
        };
        if blocked.is_none() && self.options.ticket_ms.is_none() {
            // As within a transaction.
            self.deny(&key);
            return Ok(());
        }
        if known.is_none() {
            stats::QUEUED.add();
            key.tell_joined();
        }
        let arrival = known.unwrap_or_else(queue::next_arrival);
        let since_ms = self.since_ms(&key).unwrap_or(moment.now_ms);
        // The client that waited for this session until now hears that its time is over.
        key.dismiss(session);
        if let Some(ticket_ms) = self.options.ticket_ms {
            let valid_ms = if blocked.is_some() {
                queue::attended_ms(ticket_ms)
            } else {
                ticket_ms
            };
            let ticket = Ticket {
                since_ms,
                length_ms: ticket_ms,
                deadline_ms: moment.now_ms,
            };
            if let Some(ticket) = ticket.kept(moment.now_ms, valid_ms) {
                key.commit(&Effect::joining(session, self.seats, arrival, ticket));
                queue::polled(key.database, key.name.bytes(), session);
            }
        } else {
            // The call takes the place over, and keeps it by waiting alone.
            key.drop_ticket(session);
            if !key.pool().is_empty() && key.pool().seats() != self.seats {
                key.commit(&Effect::Seats(self.seats));
            }
        }
        // Joining may have brought another limit.
        key.serve();
        let Some(blocked) = blocked else {
            replies::queued(ctx, key.used(), self.seats, position);
            return Ok(());
        };
        let request = Request {
            session: session.into(),
            seats: self.seats,
            metadata: metadata.into_owned(),
            lease_ms: self.lease.map(|lease| lease.length_ms),
            ticket_ms: self.options.ticket_ms,
            since_ms,
        };
        key.join_line(arrival, request, &blocked);
        let name = key.name;
        drop(key);
        queue::has_joined(ctx, name, &blocked);
        Ok(())
    }

    /// Since when the session waits already.
    fn since_ms(&self, key: &PoolKey<'_>) -> Option<i64> {
        let ticket = key.pool().ticket(self.call.moment, self.session);
        let blocked = key.line().get(self.session);
        ticket
            .map(|place| place.waiting.since_ms)
            .or_else(|| blocked.map(|place| queue::since_ms(place.waiting)))
    }
}
