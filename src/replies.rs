//! The replies of the commands, given at once or after a client was blocked.

use seat_pool::{AlreadyActive, Granted, Lease, Session, Waiting};

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

pub(crate) fn heartbeat_updated(ctx: Ctx<'_>, heartbeat_count: i64, asked: Option<Lease>) {
    ctx.reply_array(3 + usize::from(asked.is_some()));
    ctx.reply_integer(1);
    ctx.reply_bulk(b"HEARTBEAT_UPDATED");
    ctx.reply_integer(heartbeat_count);
    lease(ctx, asked);
}

pub(crate) fn released(ctx: Ctx<'_>, used: u64) {
    ctx.reply_array(3);
    ctx.reply_integer(1);
    ctx.reply_bulk(b"RELEASED");
    ctx.reply_integer(used as i64);
}

/// The answer about a session that cannot be acted on: why not, in a word of the scripts.
pub(crate) fn refused(ctx: Ctx<'_>, why: &[u8]) {
    ctx.reply_array(2);
    ctx.reply_integer(0);
    ctx.reply_bulk(why);
}

pub(crate) fn cleaned(ctx: Ctx<'_>, cleaned: usize, used: u64) {
    ctx.reply_array(2);
    ctx.reply_integer(cleaned as i64);
    ctx.reply_integer(used as i64);
}

/// The element that ends a success reply if a lease was asked for: its milliseconds.
fn lease(ctx: Ctx<'_>, lease: Option<Lease>) {
    if let Some(lease) = lease {
        ctx.reply_integer(lease.length_ms as i64);
    }
}

/// A position in the queue, nil for a session that does not wait.
pub(crate) fn position(ctx: Ctx<'_>, position: Option<usize>) {
    match position {
        Some(position) => ctx.reply_integer(position as i64),
        None => ctx.reply_null(),
    }
}

/// The waiters, each with how long it has waited by `now_ms`.
pub(crate) fn waiters(ctx: Ctx<'_>, waiters: &[Waiting<'_>], now_ms: i64) {
    ctx.reply_array(waiters.len());
    for waiter in waiters {
        ctx.reply_array(2);
        ctx.reply_bulk(waiter.session);
        ctx.reply_integer(now_ms.saturating_sub(waiter.since_ms).max(0));
    }
}

/// A map of names to numbers.
pub(crate) fn numbers(ctx: Ctx<'_>, fields: &[(&[u8], i64)]) {
    ctx.reply_map(fields.len());
    for (name, value) in fields {
        ctx.reply_bulk(name);
        ctx.reply_integer(*value);
    }
}

/// The ids of `len` sessions.
pub(crate) fn ids<'a>(ctx: Ctx<'_>, len: usize, sessions: impl Iterator<Item = &'a Session>) {
    ctx.reply_array(len);
    sessions.for_each(|session| ctx.reply_bulk(session.id()));
}

/// A map of the ids of `len` sessions to their JSON.
pub(crate) fn ids_to_json<'a>(
    ctx: Ctx<'_>,
    len: usize,
    sessions: impl Iterator<Item = &'a Session>,
) {
    ctx.reply_map(len);
    sessions.for_each(|session| id_and_json(ctx, session));
}

/// What a step of a scan has found, with the cursor to go on from.
pub(crate) fn scanned(ctx: Ctx<'_>, next: u64, found: &[&Session], with_metadata: bool) {
    ctx.reply_array(2);
    ctx.reply_bulk(itoa::Buffer::new().format(next).as_bytes());
    let sessions = found.iter().copied();
    if with_metadata {
        ctx.reply_array(found.len() * 2);
        sessions.for_each(|session| id_and_json(ctx, session));
    } else {
        ids(ctx, found.len(), sessions);
    }
}

fn id_and_json(ctx: Ctx<'_>, session: &Session) {
    ctx.reply_bulk(session.id());
    session_json(ctx, Some(session));
}

/// The JSON of a session, nil for one without metadata and for none.
pub(crate) fn session_json(ctx: Ctx<'_>, session: Option<&Session>) {
    match session.and_then(Session::json) {
        Some(json) => ctx.reply_bulk(&json),
        None => ctx.reply_null(),
    }
}
