//! Blocked clients as the server knows them: blocking, waking, and the callbacks that end a wait.

use redis_module::raw;

use super::departed::has_departed;
use super::waking::unblock;
use super::{
    Blocked, Deferred, Name, Outcome, SLOT_LOOK_MS, STATE, Waiter, WaiterId, forget_unconfirmed,
    is_unconfirmed, put_line, take_line,
};
use crate::error::Error;
use crate::ffi::{Ctx, OwnedStr, Str};
use crate::migration::{self, Caller};
use crate::pool_key::PoolKey;
use crate::{deadlines, grace, old_servers, replies, server, stats};

/// Blocks the client of this call until it is woken, for at most `timeout_ms`; 0 is for ever. It
/// must then join the queue of `key`, which is open. `None` if the server does not let this client
/// be blocked.
pub(crate) fn block(ctx: Ctx<'_>, key: Str<'_>, timeout_ms: i64) -> Option<Blocked> {
    let id = STATE.with_borrow_mut(|state| {
        state.last_id += 1;
        state.last_id
    });
    let shadow_key = old_servers::shadow_key(ctx, key.bytes());
    let name = shadow_key.as_ref().map_or(key, OwnedStr::get);
    let client = ctx.block_on_key(name, timeout_ms, reply, on_free, id)?;
    Some(Blocked { id, client })
}

/// A blocked client has joined the queue of `key`, which is closed: it can be woken from now on.
pub(crate) fn has_joined(ctx: Ctx<'_>, key: Str<'_>, blocked: &Blocked) {
    if ctx.is_in_cluster() {
        let look_ms = ctx.now_ms() + SLOT_LOOK_MS;
        deadlines::note(ctx, ctx.selected_database(), key.bytes(), look_ms);
    }
    let is_waiting = STATE.with_borrow_mut(|state| {
        state.waiters.get_mut(&blocked.id).is_none_or(|waiter| {
            waiter.client = Some(blocked.client);
            matches!(waiter.outcome, Outcome::Waiting)
        })
    });
    if !is_waiting {
        // Whoever heard that it joined has had it served. The timer wakes it: 7.2 aborts if a
        // client is woken before the command that blocks it has ended.
        STATE.with_borrow_mut(|state| state.late.push(blocked.id));
        deadlines::run_soon(ctx);
    }
}

/// Has those be told what became of them whose command had not ended when that was decided. For the
/// timer.
pub(crate) fn unblock_late() {
    unblock(&STATE.with_borrow_mut(|state| std::mem::take(&mut state.late)));
}

/// Does what had to wait for a moment in which the server can be written to, until time is over.
pub(crate) fn run_deferred(ctx: Ctx<'_>, out_of_time: impl Fn() -> bool) {
    while let Some(action) = STATE.with_borrow_mut(|state| state.deferred.pop_front()) {
        match action {
            Deferred::TakeBack(id, waiter) => {
                let grant = forget_unconfirmed(id).filter(|grant| !grant.is_adrift);
                // Up to 7.2, a client that was told and then unblocked by somebody else looks as if
                // it were gone.
                let was_told = matches!(waiter.outcome, Outcome::Told);
                let is_there = was_told && ctx.has_connection(waiter.connection);
                if let Some(grant) = grant.filter(|_| !is_there) {
                    with_key(ctx, &grant.name, |key| {
                        if key.value() == grant.value {
                            key.take_back(&waiter.request, waiter.arrival);
                        }
                    });
                }
            }
            Deferred::KeepPlace(name, session, ticket_ms) => {
                with_key(ctx, &name, |key| key.keep_place(&session, ticket_ms));
            }
            Deferred::TellLeft(name) => tell_left(ctx, &name),
        }
        if out_of_time() {
            return;
        }
    }
}

/// Publishes that a client has left the queue. Its pool stays closed: to open it for a change might take much over.
fn tell_left(ctx: Ctx<'_>, name: &Name) {
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
    let told = STATE.with_borrow_mut(|state| {
        let waiter = state.waiters.get_mut(&id)?;
        let is_later = state.waking == Some(id) && server::replies_later();
        let told = if is_later {
            Outcome::ToldLater
        } else {
            Outcome::Told
        };
        let outcome = std::mem::replace(&mut waiter.outcome, told);
        let request = &waiter.request;
        Some((
            outcome,
            waiter.name.clone(),
            request.session.clone(),
            request.seats,
            request.ticket_ms,
        ))
    });
    let Some((outcome, name, session, seats, ticket_ms)) = told else {
        ctx.reply_error(&Error::Internal.to_string());
        return;
    };
    match outcome {
        Outcome::Granted(granted) => replies::acquired(ctx, &granted),
        Outcome::AlreadyActive(holder) => replies::already_active(ctx, &holder),
        Outcome::Failed(error) => ctx.reply_error(&error.to_string()),
        Outcome::Told | Outcome::ToldLater => ctx.reply_error(&Error::Internal.to_string()),
        outcome => {
            let key = OwnedStr::new(&name.1);
            let is_here = ctx.may_serve(key.get()) && !has_departed(name.0, &name.1);
            if matches!(outcome, Outcome::Waiting) && !is_here {
                // Its time was over in the very turn in which the pool went to another server,
                // perhaps with its ticket.
                leave_line(ctx, &name, &session, id);
                return ctx.reply_error(&Error::TryAgain.to_string());
            }
            let moment = grace::moment(ctx);
            let mut key = match migration::open_as_known(ctx, key.get(), moment, PoolKey::look) {
                Ok(key) => key,
                Err(error) => {
                    // Another type has come to the name, and nobody will be served there.
                    leave_line(ctx, &name, &session, id);
                    return ctx.reply_error(&error.to_string());
                }
            };
            if matches!(outcome, Outcome::Waiting) && key.pool().get(moment, &session).is_some() {
                // Its session came in in this very turn, or while the server may not be written to: so without a lease.
                key.leave_line(&session);
                let holder = key.answer_holder(&session, None);
                return replies::already_active(ctx, &holder);
            }
            let used = key.used();
            let has_ticket = key.pool().ticket(moment, &session).is_some();
            match (outcome, ticket_ms.filter(|_| has_ticket)) {
                (Outcome::Waiting, Some(ticket_ms)) => {
                    let position = key.pool().position(moment, &session, key.line());
                    key.leave_line(&session);
                    replies::queued(ctx, used, seats, position.unwrap_or(1));
                    drop(key);
                    defer(ctx, Deferred::KeepPlace(name, session, ticket_ms));
                }
                (outcome, _) => {
                    if matches!(outcome, Outcome::Waiting) {
                        key.leave_line(&session);
                        if !has_ticket {
                            key.tell_left();
                        }
                    }
                    replies::no_seats(ctx, used, seats);
                }
            }
        }
    }
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

/// The server is done with a blocked client: it was told, or it is gone. Nothing may be replicated here.
fn on_free(ctx: Ctx<'_>, id: WaiterId) {
    let Some(waiter) = STATE.with_borrow_mut(|state| state.take_waiter(id)) else {
        return;
    };
    if let Outcome::Waiting = waiter.outcome {
        let Waiter { name, request, .. } = waiter;
        if leave_line(ctx, &name, &request.session, id) {
            defer(
                ctx,
                match request.ticket_ms {
                    Some(ticket_ms) => Deferred::KeepPlace(name, request.session, ticket_ms),
                    None => Deferred::TellLeft(name),
                },
            );
        }
    } else if is_unconfirmed(id) && is_gone(ctx, &waiter) {
        // Whatever it was told has not reached it. If nothing confirms the grant until it can
        // be undone, it is. A replica that takes its clients' writes can when it is promoted.
        STATE.with_borrow_mut(|state| {
            let action = Deferred::TakeBack(id, waiter);
            state.deferred.push_back(action);
        });
        deadlines::run_soon(ctx);
    } else {
        // It was told, or a demotion has ended its wait: what was granted stays so then, as with any lost reply.
        forget_unconfirmed(id);
    }
}

/// Whether the client of a waiter that the server is done with is gone, so that it has not read what it was told.
fn is_gone(ctx: Ctx<'_>, waiter: &Waiter) -> bool {
    ctx.client_is_gone() || old_servers::is_closing(ctx, waiter.connection)
}

/// Takes a waiter out of its line, unless a newer one has taken its place over.
fn leave_line(ctx: Ctx<'_>, name: &Name, session: &[u8], id: WaiterId) -> bool {
    let Some(mut line) = take_line(name.0, &name.1) else {
        return false;
    };
    let is_own = line.get(session).is_some_and(|place| place.waiting == id);
    if is_own {
        line.leave(session);
    }
    let somebody_is_left = !line.is_empty();
    put_line(name.0, &name.1, line);
    if is_own && somebody_is_left {
        // At a name without a pool, the limit is that of the first in line, who is another now.
        deadlines::note(ctx, name.0, &name.1, ctx.now_ms());
    }
    is_own
}
