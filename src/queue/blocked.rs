//! Blocked clients as the server knows them: blocking, waking, and the callbacks that end a wait.

use std::ffi::c_int;

use redis_module::raw;
use seat_pool::WaitEnd;

use super::departed::has_departed;
use super::waking::unblock;
use super::{
    Deferred, Name, Outcome, SLOT_CHECK_MS, STATE, Waiter, WaiterId, forget_unconfirmed,
    is_unconfirmed, put, take,
};
use crate::error::Error;
use crate::ffi::{Ctx, OwnedStr, Str};
use crate::migration::{self, Caller};
use crate::pool_key::PoolKey;
use crate::replies::Asked;
use crate::{deadlines, feed, grace, old_servers, replies, server, stats};

/// Blocks the client of this call for `session` until it is woken, for at most `timeout_ms`; 0 is
/// for ever. It must then join the queue of `key`, which is open, and [`finish_join`] must follow
/// once that is closed. `None` if the server does not let this client be blocked.
pub(crate) fn block(
    ctx: Ctx<'_>,
    database: c_int,
    key: Str<'_>,
    session: &[u8],
    timeout_ms: i64,
    asked: Asked,
) -> Option<WaiterId> {
    let id = STATE.with_borrow_mut(|state| {
        state.last_id += 1;
        state.last_id
    });
    let shadow_key = old_servers::shadow_key(ctx, key.bytes());
    let name = shadow_key.as_ref().map_or(key, OwnedStr::get);
    let client = ctx.block_on_key(name, timeout_ms, reply, on_free, id)?;
    let waiter = Waiter {
        name: (database, key.bytes().into()),
        session: session.into(),
        client,
        may_be_woken: false,
        connection: ctx.connection(),
        asked,
        outcome: Outcome::Waiting,
        left: None,
    };
    STATE.with_borrow_mut(|state| state.add_waiter(id, waiter));
    Some(id)
}

/// A blocked client has joined the queue of `key`, which is closed: it can be woken from now on.
pub(crate) fn finish_join(ctx: Ctx<'_>, key: Str<'_>, id: WaiterId) {
    if ctx.is_in_cluster() {
        let check_ms = ctx.now_ms() + SLOT_CHECK_MS;
        deadlines::note(ctx, ctx.selected_database(), key.bytes(), check_ms);
    }
    let is_waiting = STATE.with_borrow_mut(|state| {
        state.waiters.get_mut(&id).is_none_or(|waiter| {
            waiter.may_be_woken = true;
            matches!(waiter.outcome, Outcome::Waiting)
        })
    });
    if !is_waiting {
        // It was served at once. The timer wakes it: 7.2 aborts if a client is woken before the
        // command that blocks it has ended.
        STATE.with_borrow_mut(|state| state.late.push(id));
        deadlines::run_soon(ctx);
    }
}

/// Answers those whose command had not ended when their answers were decided. For the
/// timer.
pub(crate) fn unblock_late() {
    unblock(&STATE.with_borrow_mut(|state| std::mem::take(&mut state.late)));
}

/// Does what had to wait for a moment in which the server can be written to, until time is over.
pub(crate) fn run_deferred(ctx: Ctx<'_>, out_of_time: impl Fn() -> bool) {
    while let Some(action) = STATE.with_borrow_mut(|state| state.deferred.pop_front()) {
        match action {
            Deferred::TakeBack(id, waiter) => {
                let grant = forget_unconfirmed(id).filter(|grant| !grant.is_detached);
                // Up to 7.2, a client that was answered and then unblocked by somebody else looks
                // as if it were gone.
                let was_answered = matches!(waiter.outcome, Outcome::Answered);
                let is_there = was_answered && ctx.has_connection(waiter.connection);
                if let Some(grant) = grant.filter(|_| !is_there)
                    && let Some(left) = waiter.left
                {
                    with_key(ctx, &grant.name, |key| {
                        if key.value() == grant.value {
                            key.machine().take_back(&left);
                        }
                    });
                }
            }
            Deferred::RenewTicket(name, session, ticket_ms) => {
                with_key(ctx, &name, |key| {
                    key.machine().after_wait(&session, ticket_ms);
                });
            }
            Deferred::PublishLeft(name) => publish_left(ctx, &name),
        }
        if out_of_time() {
            return;
        }
    }
}

/// Publishes that a client has left the queue. Its pool stays closed: to open it for a change might
/// adopt many sessions.
fn publish_left(ctx: Ctx<'_>, name: &Name) {
    ctx.select_database(name.0);
    let key = OwnedStr::new(&name.1);
    if ctx.may_serve(key.get()) {
        stats::LEFT.add();
        ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, c"seat.left", key.get());
    }
}

fn with_key(ctx: Ctx<'_>, name: &Name, body: impl FnOnce(&mut PoolKey<'_>)) {
    ctx.select_database(name.0);
    let key = OwnedStr::new(&name.1);
    if !ctx.may_serve(key.get()) {
        return;
    }
    if let Ok(mut key) =
        migration::open_for_write(ctx, key.get(), grace::moment(ctx), Caller::Module)
    {
        body(&mut key);
    }
}

/// The waiter was woken, or its time is over, or CLIENT UNBLOCK ended it.
fn reply(ctx: Ctx<'_>, id: WaiterId) {
    let ended = STATE.with_borrow_mut(|state| {
        let waiter = state.waiters.get_mut(&id)?;
        let is_later = state.waking == Some(id) && server::replies_later();
        let answered = if is_later {
            Outcome::AnsweredLater
        } else {
            Outcome::Answered
        };
        let outcome = std::mem::replace(&mut waiter.outcome, answered);
        let seats = waiter.left.as_ref().map(|left| left.seats);
        Some((
            outcome,
            waiter.name.clone(),
            waiter.session.clone(),
            waiter.asked,
            seats.unwrap_or_default(),
        ))
    });
    let Some((outcome, name, session, asked, seats)) = ended else {
        ctx.reply_error(&Error::Internal.to_string());
        return;
    };
    let answered = match outcome {
        Outcome::Granted(granted) => {
            replies::acquired(ctx, &granted, asked);
            Ok(())
        }
        Outcome::AlreadyActive(active) => {
            replies::already_active(ctx, &active, asked);
            Ok(())
        }
        Outcome::OwnerLimit(held, max) => {
            replies::owner_limit(ctx, held, max);
            Ok(())
        }
        Outcome::NoSeats => {
            let key = OwnedStr::new(&name.1);
            migration::open_as_known(ctx, key.get(), grace::moment(ctx), PoolKey::look)
                .map(|key| replies::no_seats(ctx, key.used(), seats))
        }
        Outcome::Failed(error) => Err(error),
        Outcome::Waiting => end_wait(ctx, &name, &session, asked, id),
        Outcome::Answered | Outcome::AnsweredLater => Err(Error::Internal),
    };
    if let Err(error) = answered {
        ctx.reply_error(&error.to_string());
    }
}

/// The wait of a client ends without an outcome: its time is over, or somebody else unblocked it.
fn end_wait(
    ctx: Ctx<'_>,
    name: &Name,
    session: &[u8],
    asked: Asked,
    id: WaiterId,
) -> Result<(), Error> {
    let string = OwnedStr::new(&name.1);
    let is_here = ctx.may_serve(string.get()) && !has_departed(name.0, &name.1);
    let opened = if is_here {
        migration::open_as_known(ctx, string.get(), grace::moment(ctx), PoolKey::look)
    } else {
        // Its time was over in the very turn in which the pool went to another server, perhaps with
        // its ticket.
        Err(Error::TryAgain)
    };
    let mut key = opened.inspect_err(|_| {
        // Nobody will be served here, as where another type has come to the name.
        remove_client(ctx, name, session, id);
    })?;
    let end = key.machine().end_wait(session, &id);
    match end.ok_or(Error::Internal)? {
        WaitEnd::AlreadyActive(active) => {
            stats::ALREADY_ACTIVE.add();
            replies::already_active(ctx, &active, asked);
        }
        WaitEnd::Queued {
            used,
            position,
            seats,
            ticket_ms,
        } => {
            replies::queued(ctx, used, seats, position);
            drop(key);
            defer(
                ctx,
                Deferred::RenewTicket(name.clone(), session.into(), ticket_ms),
            );
        }
        WaitEnd::NoSeats { used, seats } => replies::no_seats(ctx, used, seats),
    }
    Ok(())
}

fn defer(ctx: Ctx<'_>, action: Deferred) {
    if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
        // A demotion has ended the wait, and the primary is another now.
        return;
    }
    STATE.with_borrow_mut(|state| state.deferred.push_back(action));
    deadlines::run_soon(ctx);
}

/// Whether something waits for [`run_deferred`] or [`unblock_late`].
pub(crate) fn has_deferred() -> bool {
    STATE.with_borrow(|state| !(state.deferred.is_empty() && state.late.is_empty()))
}

/// The server is done with a blocked client: it was answered, or it is gone. Nothing may be
/// replicated here.
fn on_free(ctx: Ctx<'_>, id: WaiterId) {
    let Some(waiter) = STATE.with_borrow_mut(|state| state.take_waiter(id)) else {
        return;
    };
    if let Outcome::Waiting = waiter.outcome {
        let Waiter { name, session, .. } = waiter;
        if let Some(left) = remove_client(ctx, &name, &session, id) {
            defer(
                ctx,
                match left.request.ticket_ms {
                    Some(ticket_ms) => Deferred::RenewTicket(name, session, ticket_ms),
                    None => {
                        let pool = (name.0, &*name.1);
                        feed::put_off_left(ctx, pool, left.wait(), None, None, ctx.now_ms());
                        Deferred::PublishLeft(name)
                    }
                },
            );
        }
    } else if is_unconfirmed(id) && is_gone(ctx, &waiter) {
        // Whatever it was answered has not reached it. If nothing confirms the grant until it can
        // be undone, it is. A replica that takes its clients' writes can when it is promoted.
        STATE.with_borrow_mut(|state| {
            let action = Deferred::TakeBack(id, Box::new(waiter));
            state.deferred.push_back(action);
        });
        deadlines::run_soon(ctx);
    } else {
        // It was answered, or a demotion has ended its wait: what was granted stays so then, as
        // with any lost reply.
        forget_unconfirmed(id);
    }
}

/// Whether the client of a waiter that the server is done with is gone, so that it has not read
/// its answer.
fn is_gone(ctx: Ctx<'_>, waiter: &Waiter) -> bool {
    ctx.client_is_gone() || old_servers::is_closing(ctx, waiter.connection)
}

/// Takes a waiter out of the queue, unless a newer one has replaced it.
fn remove_client(
    ctx: Ctx<'_>,
    name: &Name,
    session: &[u8],
    id: WaiterId,
) -> Option<seat_pool::Waiter<WaiterId>> {
    let mut blocked = take(name.0, &name.1)?;
    let left = blocked.remove_client(session, &id);
    let somebody_is_left = !blocked.is_empty();
    put(name.0, &name.1, blocked);
    if left.is_some() && somebody_is_left {
        // It may be the turn of another now.
        deadlines::note(ctx, name.0, &name.1, ctx.now_ms());
    }
    left
}
