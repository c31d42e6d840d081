//! The replies of the commands, given at once or after a client was blocked.

use seat_pool::{AlreadyActive, Granted, Lease, Moment, Pool, Session, Waiting};

use crate::ffi::Ctx;

/// What the reply to a call that asks for it ends with if the session holds a seat: one element
/// for each, whatever it came to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    /// The lease's milliseconds.
    pub(crate) lease: bool,
    pub(crate) token: bool,
    /// The session that has ended for this one.
    pub(crate) takeover: bool,
}

impl Asked {
    fn len(self) -> usize {
        [self.lease, self.token, self.takeover]
            .into_iter()
            .map(usize::from)
            .sum()
    }

    fn answer(
        self,
        ctx: Ctx<'_>,
        lease: Option<Lease>,
        token: Option<u64>,
        replaced: Option<&[u8]>,
    ) {
        if self.lease {
            optional_integer(ctx, lease.map(|lease| lease.length_ms as i64));
        }
        if self.token {
            optional_integer(ctx, token.map(|token| token as i64));
        }
        if self.takeover {
            optional_bulk(ctx, replaced);
        }
    }
}

pub(crate) fn acquired(ctx: Ctx<'_>, granted: &Granted, asked: Asked) {
    ctx.reply_array(4 + asked.len());
    ctx.reply_integer(1);
    ctx.reply_bulk(b"ACQUIRED");
    ctx.reply_integer(granted.used as i64);
    ctx.reply_integer(granted.seats);
    let replaced = granted.replaced.as_deref();
    asked.answer(ctx, granted.lease, granted.token, replaced);
}

pub(crate) fn already_active(ctx: Ctx<'_>, holder: &AlreadyActive, asked: Asked) {
    ctx.reply_array(3 + asked.len());
    ctx.reply_integer(1);
    ctx.reply_bulk(b"ALREADY_ACTIVE");
    ctx.reply_integer(holder.used as i64);
    asked.answer(ctx, holder.renewed, holder.token, None);
}

pub(crate) fn no_seats(ctx: Ctx<'_>, used: u64, seats: i64) {
    ctx.reply_array(4);
    ctx.reply_integer(0);
    ctx.reply_bulk(b"NO_SEATS_AVAILABLE");
    ctx.reply_integer(used as i64);
    ctx.reply_integer(seats);
}

/// The owner has `held` live sessions, as many as `max` or more.
pub(crate) fn owner_limit(ctx: Ctx<'_>, held: u64, max: u64) {
    ctx.reply_array(4);
    ctx.reply_integer(0);
    ctx.reply_bulk(b"OWNER_LIMIT");
    ctx.reply_integer(held as i64);
    ctx.reply_integer(max as i64);
}

pub(crate) fn queued(ctx: Ctx<'_>, used: u64, seats: i64, position: usize) {
    ctx.reply_array(5);
    ctx.reply_integer(0);
    ctx.reply_bulk(b"QUEUED");
    ctx.reply_integer(used as i64);
    ctx.reply_integer(seats);
    ctx.reply_integer(position as i64);
}

pub(crate) fn heartbeat_updated(ctx: Ctx<'_>, heartbeat_count: i64, lease: Option<Lease>) {
    let asked = Asked {
        lease: lease.is_some(),
        ..Asked::default()
    };
    ctx.reply_array(3 + asked.len());
    ctx.reply_integer(1);
    ctx.reply_bulk(b"HEARTBEAT_UPDATED");
    ctx.reply_integer(heartbeat_count);
    asked.answer(ctx, lease, None, None);
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

fn optional_integer(ctx: Ctx<'_>, value: Option<i64>) {
    match value {
        Some(value) => ctx.reply_integer(value),
        None => ctx.reply_null(),
    }
}

fn optional_bulk(ctx: Ctx<'_>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => ctx.reply_bulk(bytes),
        None => ctx.reply_null(),
    }
}

/// A position in the queue, nil for a session that does not wait.
pub(crate) fn position(ctx: Ctx<'_>, position: Option<usize>) {
    optional_integer(ctx, position.map(|position| position as i64));
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

/// What is shown of the sessions that are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Ids,
    Metadata,
    Details,
}

/// Sessions of a pool, as they are at a moment.
#[derive(Clone, Copy)]
pub(crate) struct Sessions<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) pool: &'a Pool,
    pub(crate) moment: Moment,
    pub(crate) shown: Shown,
}

impl Sessions<'_> {
    /// The ids of `len` sessions, or a map of them to what is shown.
    pub(crate) fn all<'s>(self, len: usize, sessions: impl Iterator<Item = &'s Session>) {
        match self.shown {
            Shown::Ids => self.ctx.reply_array(len),
            Shown::Metadata | Shown::Details => self.ctx.reply_map(len),
        }
        sessions.for_each(|session| self.one(session));
    }

    /// What a step of a scan has found, with the cursor to go on from.
    pub(crate) fn step(self, next: u64, found: &[&Session]) {
        self.ctx.reply_array(2);
        self.ctx
            .reply_bulk(itoa::Buffer::new().format(next).as_bytes());
        self.ctx.reply_array(match self.shown {
            Shown::Ids => found.len(),
            Shown::Metadata | Shown::Details => found.len() * 2,
        });
        found.iter().for_each(|session| self.one(session));
    }

    fn one(self, session: &Session) {
        self.ctx.reply_bulk(session.id());
        match self.shown {
            Shown::Ids => {}
            Shown::Metadata => session_json(self.ctx, Some(session)),
            Shown::Details => details(self.ctx, self.pool, self.moment, session),
        }
    }
}

/// A map of all that a pool knows of a session but its id, nil for what it does not have.
pub(crate) fn details(ctx: Ctx<'_>, pool: &Pool, moment: Moment, session: &Session) {
    let holder = pool.holder_of(session);
    let lease = pool.lease_of(session);
    let left_ms =
        |lease: Lease| (moment.effective(lease.deadline_ms)).saturating_sub(moment.now_ms);
    let number = |name: &[u8], value: Option<i64>| {
        ctx.reply_bulk(name);
        optional_integer(ctx, value);
    };
    ctx.reply_map(9);
    ctx.reply_bulk(b"owner");
    optional_bulk(ctx, holder.owner);
    number(b"weight", Some(holder.weight.into()));
    number(b"acquired_at", session.acquired_at().map(i64::from));
    number(b"last_heartbeat", session.last_heartbeat().map(i64::from));
    number(b"heartbeats", Some(session.heartbeat_count().unwrap_or(0)));
    number(b"lease_ms", lease.map(|lease| lease.length_ms as i64));
    number(b"expires_in_ms", lease.map(left_ms));
    number(b"token", holder.token.map(|token| token as i64));
    ctx.reply_bulk(b"metadata");
    optional_bulk(ctx, session.metadata());
}

/// A map of owners to the number of their sessions and of the seats that these take.
pub(crate) fn owners(ctx: Ctx<'_>, owners: &[(&[u8], u64, u64)]) {
    ctx.reply_map(owners.len());
    for (owner, sessions, used) in owners {
        ctx.reply_bulk(owner);
        ctx.reply_array(2);
        ctx.reply_integer(*sessions as i64);
        ctx.reply_integer(*used as i64);
    }
}

/// The JSON of a session, nil for one without metadata and for none.
pub(crate) fn session_json(ctx: Ctx<'_>, session: Option<&Session>) {
    match session.and_then(Session::json) {
        Some(json) => ctx.reply_bulk(&json),
        None => ctx.reply_null(),
    }
}
