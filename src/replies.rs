//! Replies that more than one command gives, at once or after a client was blocked.

use seat_pool::{AlreadyActive, Granted, Lease, Session};

use crate::ffi::Ctx;

pub(crate) fn acquired(ctx: Ctx<'_>, granted: &Granted) {
    ctx.reply_array(4 + usize::from(granted.lease.is_some()));
    ctx.reply_integer(1);
    ctx.reply_bulk(b"ACQUIRED");
    ctx.reply_integer(granted.used as i64);
    ctx.reply_integer(granted.seats);
    lease(ctx, granted.lease);
}

pub(crate) fn already_active(ctx: Ctx<'_>, holder: &AlreadyActive) {
    ctx.reply_array(3 + usize::from(holder.renewed.is_some()));
    ctx.reply_integer(1);
    ctx.reply_bulk(b"ALREADY_ACTIVE");
    ctx.reply_integer(holder.used as i64);
    lease(ctx, holder.renewed);
}

pub(crate) fn no_seats(ctx: Ctx<'_>, used: u64, seats: i64) {
    ctx.reply_array(4);
    ctx.reply_integer(0);
    ctx.reply_bulk(b"NO_SEATS_AVAILABLE");
    ctx.reply_integer(used as i64);
    ctx.reply_integer(seats);
}

pub(crate) fn queued(ctx: Ctx<'_>, used: u64, seats: i64, position: usize) {
    ctx.reply_array(5);
    ctx.reply_integer(0);
    ctx.reply_bulk(b"QUEUED");
    ctx.reply_integer(used as i64);
    ctx.reply_integer(seats);
    ctx.reply_integer(position as i64);
}

/// The element that ends a success reply if a lease was asked for: its milliseconds.
pub(crate) fn lease(ctx: Ctx<'_>, lease: Option<Lease>) {
    if let Some(lease) = lease {
        ctx.reply_integer(lease.length_ms as i64);
    }
}

/// A session's id and its JSON.
pub(crate) fn session_and_json(ctx: Ctx<'_>, session: &Session) {
    ctx.reply_bulk(session.id());
    session_json(ctx, session);
}

/// The JSON of a session, nil for one without metadata.
pub(crate) fn session_json(ctx: Ctx<'_>, session: &Session) {
    match session.json() {
        Some(json) => ctx.reply_bulk(&json),
        None => ctx.reply_null(),
    }
}
