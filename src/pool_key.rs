//! The one way to a pool: opens the key, checks its type, lends the pool and commits effects to it.

mod entries;

use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

use seat_pool::{
    Applied, BlockedQueue, Effect, Freed, Grant, Heartbeat, Host, Join, Machine, Moment, Notice,
    Outcome, Pool, Queue, Waiter,
};

pub(crate) use self::entries::Denial;
use crate::after_close::AfterClose;
use crate::effects;
use crate::error::Error;
use crate::feed::{Arguments, Change, Event, Feeds};
use crate::ffi::{Ctx, Mode, OpenKey, OwnedStr, Str};
use crate::migration::InvalidEntries;
use crate::notifications::Events;
use crate::pool_type::POOL_TYPE;
use crate::queue::{self, BlockClient, WaiterId};
use crate::replies::Asked;
use crate::stats::{self, Total};
use crate::text::CallerText;
use crate::{deadlines, feed, grace};

/// How often to look whether the legacy keys still stand in the way of those who wait.
const LEGACY_CHECK_MS: i64 = 1000;

/// An open key that holds a pool or nothing.
///
/// What changes a pool is decided by the [`Machine`], for which the open key is the host. Changes
/// are committed one effect at a time; what others hear of them follows when the key is closed, as
/// [`AfterClose`].
pub(crate) struct PoolKey<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) name: Str<'a>,
    pub(crate) database: c_int,
    /// The moment for which it is open, by the server's clock: all that is decided here holds for
    /// this one.
    pub(crate) moment: Moment,
    key: OpenKey<Pool>,
    mode: Mode,
    feeds: Feeds,
    /// The clients that are blocked at this name, if any.
    blocked: Option<Box<BlockedQueue<WaiterId>>>,
    /// What the command for which it is open brings along, if it is one.
    caller: Caller<'a>,
    /// Absent where nobody else holds seats, which is mostly so: an open key is moved around.
    others: Option<Box<OtherHolders>>,
    /// The blocked client that is being served, if it is to be known.
    served: Option<Box<Served>>,
    after: AfterClose,
}

/// A blocked client that is being served.
struct Served {
    connection: u64,
    since_ms: i64,
}

/// What became of an effect that came from a primary or an AOF.
pub(crate) struct Replicated {
    /// Whether it has changed the pool.
    pub(crate) is_applied: bool,
    /// Whether it met all that it changes.
    pub(crate) is_complete: bool,
}

/// What a command brings along.
#[derive(Default)]
struct Caller<'a> {
    text: CallerText<'a>,
    /// How its client is blocked, and for how many milliseconds at most; 0 is for ever. Absent
    /// where it may not be.
    blocking: Option<Box<(BlockClient, i64, Asked)>>,
}

/// Who holds seats here in addition to the pool's sessions.
#[derive(Default)]
struct OtherHolders {
    /// Why grants are suspended, if they are: it is not known who else holds seats.
    unknown: Option<Error>,
    /// The invalid entries that take seats, if there are any.
    invalid: Option<Arc<InvalidEntries>>,
}

impl<'a> PoolKey<'a> {
    /// Opens a key to read its pool for a client.
    pub(crate) fn read(ctx: Ctx<'a>, name: Str<'a>, moment: Moment) -> Result<PoolKey<'a>, Error> {
        PoolKey::open(ctx, name, moment, Mode::Read)
    }

    /// Opens a key to change its pool, or to create one, for a client. That alone disturbs no WATCH
    /// and no tracking client.
    #[inline]
    pub(crate) fn write(ctx: Ctx<'a>, name: Str<'a>, moment: Moment) -> Result<PoolKey<'a>, Error> {
        PoolKey::open(ctx, name, moment, Mode::Write)
    }

    /// Opens a key to look at its pool for the module itself: it does not count as used. It must
    /// not be changed.
    pub(crate) fn look(ctx: Ctx<'a>, name: Str<'a>, moment: Moment) -> Result<PoolKey<'a>, Error> {
        PoolKey::open(ctx, name, moment, Mode::Look)
    }

    /// As [`PoolKey::write`], for the module itself: the key does not count as used.
    pub(crate) fn tend(ctx: Ctx<'a>, name: Str<'a>, moment: Moment) -> Result<PoolKey<'a>, Error> {
        PoolKey::open(ctx, name, moment, Mode::Tend)
    }

    #[inline]
    fn open(ctx: Ctx<'a>, name: Str<'a>, moment: Moment, mode: Mode) -> Result<PoolKey<'a>, Error> {
        let feeds = match mode {
            Mode::Write | Mode::Tend => feed::prepare(ctx, name, |other| {
                let other = OwnedStr::new(other);
                PoolKey::look(ctx, other.get(), moment).ok()?.seats_taken()
            }),
            Mode::Look => Feeds::to_note(ctx),
            Mode::Read => Feeds::OFF,
        };
        let (key, database) = OpenKey::open(ctx, name, mode);
        let mut key = PoolKey {
            ctx,
            name,
            database,
            moment,
            key,
            mode,
            feeds,
            blocked: None,
            caller: Caller::default(),
            others: None,
            served: None,
            after: AfterClose::default(),
        };
        key.key.find(&POOL_TYPE)?;
        if !key.exists() && matches!(mode, Mode::Write | Mode::Tend) {
            let news = feed::write_expiry(ctx, feeds, key.database, name);
            key.after.publish_feed(news);
        }
        key.blocked = queue::take(key.database, name.bytes());
        if key.blocked.is_some() {
            if queue::have_tickets_moved(key.database, name.bytes()) {
                key.machine().pool_changed();
            }
            if matches!(mode, Mode::Write | Mode::Tend) && queue::lacks_tokens() {
                key.refuse_tokens();
            }
        }
        Ok(key)
    }

    /// Answers those who wait for a token that none is left.
    fn refuse_tokens(&mut self) {
        let blocked = self.blocked().iter();
        let waiting = blocked.filter(|entry| entry.waiting.request.with_token);
        let waiting: Vec<Box<[u8]>> = waiting.map(|entry| entry.session().into()).collect();
        for session in &waiting {
            let waiter = self.pool_and_blocked().1.remove(session);
            let Some(waiter) = waiter else { continue };
            if !self.pool().has_ticket(session) {
                self.notice(Notice::Left(waiter.wait()));
            }
            self.answer(waiter, queue::Outcome::Failed(Error::NoTokenLeft));
        }
        // It may be the turn of others.
        self.note(self.moment.now_ms);
    }

    /// Has a client that has left the queue be woken with its answer, once the key is closed.
    fn answer(&mut self, waiter: Waiter<WaiterId>, outcome: queue::Outcome) {
        self.after.wake(waiter.client);
        queue::set_outcome(waiter, outcome);
    }

    /// The pool, or an empty one for a missing key: a pool with no session does not exist.
    pub(crate) fn pool(&self) -> &Pool {
        lend(&self.key)
    }

    /// The machine that decides about this pool and its queue. Nobody is granted a seat while
    /// grants are suspended.
    pub(crate) fn machine(&mut self) -> Machine<'_, Self> {
        let moment = match self.suspended() {
            Some(_) => self.moment.holding_grants(),
            None => self.moment,
        };
        Machine::new(self, moment)
    }

    /// Lets effects pass on what the command for which the key is open has said.
    pub(crate) fn pass_on(&mut self, text: CallerText<'a>) {
        self.caller.text = text;
    }

    /// Lets the client of the command be blocked, by `block`, for at most `timeout_ms`; 0 is for
    /// ever. Its reply will have what was `asked` for.
    pub(crate) fn may_block(&mut self, block: BlockClient, timeout_ms: i64, asked: Asked) {
        self.caller.blocking = Some(Box::new((block, timeout_ms, asked)));
    }

    /// Suspends grants while this key is open: who else holds seats cannot be known.
    pub(crate) fn suspend_grants(&mut self, why: Error) {
        self.others.get_or_insert_default().unknown = Some(why);
    }

    /// Why grants are suspended here, if they are.
    pub(crate) fn suspended(&self) -> Option<&Error> {
        self.others.as_ref()?.unknown.as_ref()
    }

    /// Has invalid entries count as taken seats while this key is open.
    pub(crate) fn count_invalid(&mut self, entries: Arc<InvalidEntries>) {
        self.others.get_or_insert_default().invalid = Some(entries);
    }

    /// What is wrong with the invalid entry by which `session` holds a seat, if it does so.
    pub(crate) fn invalid_entry(&self, session: &[u8]) -> Option<Error> {
        let error = self.invalid()?.error_of(session)?;
        self.pool()
            .get(self.moment, session)
            .is_none()
            .then_some(error)
    }

    fn invalid(&self) -> Option<&InvalidEntries> {
        self.others.as_ref()?.invalid.as_deref()
    }

    /// How many seats are taken, by live sessions and by invalid entries.
    pub(crate) fn used(&self) -> u64 {
        self.pool().used(self.moment) + self.taken_elsewhere()
    }

    /// Whether clients are blocked at this name.
    pub(crate) fn has_blocked(&self) -> bool {
        !self.blocked().is_empty()
    }

    /// The queue of this name.
    pub(crate) fn queue(&self) -> Queue<'_, WaiterId> {
        Queue::new(
            self.pool(),
            self.blocked(),
            self.moment,
            self.taken_elsewhere(),
        )
    }

    /// The value, as a number by which it is known wherever it moves; 0 without a pool.
    pub(crate) fn value(&self) -> usize {
        self.key.address()
    }

    /// Whether the key holds a pool, if only until it is closed.
    pub(crate) fn exists(&self) -> bool {
        self.key.value().is_some()
    }

    /// Reports `count` seats that were freed and that no session of the pool had.
    pub(crate) fn freed_elsewhere(&mut self, why: Freed, count: usize) {
        self.after.publish(Events::of_freeing(why));
        for _ in 0..count {
            total_of_freeing(why).add();
        }
    }

    /// Has the timer look at this key at `at_ms`.
    pub(crate) fn note(&self, at_ms: i64) {
        deadlines::note(self.ctx, self.database, self.name.bytes(), at_ms);
    }

    /// Removes the pool with all that is in it, here and on whoever follows.
    pub(crate) fn remove(mut self) {
        let used = self.used();
        if feed::without_drop(|| self.key.unlink()) {
            self.ctx.replicate(c"UNLINK", &[self.name]);
            self.ctx.signal_modified(self.name);
            self.after.publish(Events::DEL);
            self.write_export(used);
        }
    }

    /// Removes another key that exists, here and on whoever follows.
    pub(crate) fn unlink_other(&mut self, other: Str<'_>) {
        self.ctx.unlink(other);
        self.after.publish_del_of(OwnedStr::new(other.bytes()));
    }

    /// As [`Host::commit`], for an effect that came from a primary or an AOF and is to be sent on
    /// as it came. A grant is carried out also where it has not met the session that it replaces.
    pub(crate) fn commit_replicated(&mut self, effect: &Effect<'_>) -> Replicated {
        let is_missed = match effect {
            Effect::Grant(grant) => {
                let replaced = grant.replaces;
                replaced.is_some_and(|session| !self.pool().contains(session))
            }
            _ => false,
        };
        if self.apply(effect) == Applied::Missed {
            return Replicated {
                is_applied: false,
                is_complete: false,
            };
        }
        if self.blocked.is_some() {
            // Somebody pipes effects in by hand. The tickets of those who are blocked may be
            // others.
            self.machine().pool_changed();
        }
        Replicated {
            is_applied: true,
            is_complete: !is_missed,
        }
    }

    fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        let had_pool = self.exists();
        match effect {
            _ if had_pool => {}
            Effect::Grant(Grant { seats, .. })
            | Effect::Import(Grant { seats, .. })
            | Effect::Join(Join { seats, .. }) => self.key.insert(&POOL_TYPE, Pool::new(*seats)),
            _ => return Applied::Missed,
        }
        let Some(pool) = self.key.value_mut() else {
            return Applied::Missed;
        };
        let was_emptied = had_pool && pool.is_empty();
        let event = match effect {
            // Only the first poll is published; those that follow keep the ticket's position.
            Effect::Join(join) if pool.has_ticket(join.session) => Events::default(),
            _ => Events::of(effect),
        };
        let tickets = pool.tickets() as i64;
        let applied = pool.apply(effect);
        match applied {
            Applied::Missed => return applied,
            Applied::Done => {}
            // A grant to a session whose own lease had expired takes that seat back first.
            Applied::Replaced => self.after.publish(Events::EXPIRED),
        }
        stats::add_tickets(pool.tickets() as i64 - tickets);
        if was_emptied && !pool.is_empty() {
            // Whoever follows has removed the key with what emptied the pool, its time to live
            // included, and makes another now.
            self.key.persist();
        }
        self.after.publish(event);
        if let Some(deadline_ms) = effect.deadline_ms() {
            self.note(deadline_ms);
        }
        if let Some(token) = token_of(effect) {
            queue::note_token(token);
        }
        if let Effect::Grant(grant) = effect
            && let Some(replaced) = grant.replaces
        {
            queue::confirm(self.value(), replaced);
        }
        match effect {
            Effect::Grant(Grant { session, .. })
            | Effect::Import(Grant { session, .. })
            | Effect::Heartbeat(Heartbeat { session, .. })
            | Effect::Token { session, .. }
            | Effect::Renew { session, .. }
            | Effect::Free { session, .. } => {
                queue::confirm(self.value(), session);
            }
            Effect::Join(join) => queue::note_arrival(join.arrival),
            Effect::Leave { .. } | Effect::Seats(_) | Effect::Resize(_) => {}
        }
        self.ctx.signal_modified(self.name);
        applied
    }
}

impl Host for PoolKey<'_> {
    type Client = WaiterId;
    const BATCH: usize = queue::BATCH;

    fn pool(&self) -> &Pool {
        PoolKey::pool(self)
    }

    fn blocked(&self) -> &BlockedQueue<WaiterId> {
        static NOBODY: LazyLock<BlockedQueue<WaiterId>> = LazyLock::new(BlockedQueue::new);
        self.blocked.as_deref().unwrap_or(&NOBODY)
    }

    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<WaiterId>) {
        (lend(&self.key), self.blocked.get_or_insert_default())
    }

    fn taken_elsewhere(&self) -> u64 {
        self.invalid().map_or(0, |entries| entries.len() as u64)
    }

    fn holds_elsewhere(&self, session: &[u8]) -> bool {
        self.invalid_entry(session).is_some()
    }

    /// Where the pool has moved to another server, the timer answers those who wait.
    fn serves_queue(&self) -> bool {
        self.pool().has_sessions() || !queue::has_departed(self.database, self.name.bytes())
    }

    fn next_arrival(&mut self) -> u64 {
        queue::next_arrival()
    }

    fn next_token(&mut self) -> u64 {
        queue::next_token(self.moment.now_ms)
    }

    fn observe(&mut self, used: u64) {
        if let Some(pool) = self.key.value_mut() {
            pool.note_used(used);
        }
    }

    fn count_denial(&mut self) {
        if let Some(pool) = self.key.value_mut() {
            pool.count_denial();
        }
    }

    fn block_client(&mut self, session: &[u8]) -> Option<WaiterId> {
        let (block, timeout_ms, asked) = **self.caller.blocking.as_ref()?;
        let (ctx, database, name) = (self.ctx, self.database, self.name);
        block(ctx, database, name, session, timeout_ms, asked)
    }

    fn commit(&mut self, effect: &Effect<'_>) {
        let change = if self.feeds.have_changes() {
            Change::of(effect, self.pool(), self.moment.now_ms)
        } else {
            None
        };
        match self.apply(effect) {
            Applied::Missed => return,
            Applied::Done => {}
            Applied::Replaced => {
                stats::EXPIRED.add();
            }
        }
        if let Some(total) = total_of(effect) {
            total.add();
        }
        if let Effect::Grant(grant) = effect
            && grant.replaces.is_some()
        {
            stats::REPLACED.add();
        }
        let entries = match change {
            Some(change) => self.write_entries(change, effect),
            None => Arguments::new(),
        };
        effects::replicate(self.ctx, self.name, &entries, effect, self.caller.text);
    }

    fn confirm(&mut self, session: &[u8]) {
        queue::confirm(self.value(), session);
    }

    fn serving(&mut self, waiter: &Waiter<WaiterId>) {
        if self.feeds.have_changes() {
            self.served = queue::connection_of(waiter.client).map(|connection| {
                Box::new(Served {
                    connection,
                    since_ms: waiter.request.since_ms,
                })
            });
        }
    }

    fn wake(&mut self, waiter: Waiter<WaiterId>, outcome: Outcome) {
        self.served = None;
        let outcome = match outcome {
            Outcome::Granted(granted) => {
                queue::granted(self.database, self.name.bytes(), self.value(), &waiter);
                queue::Outcome::Granted(granted)
            }
            Outcome::AlreadyActive(active) => {
                stats::ALREADY_ACTIVE.add();
                queue::Outcome::AlreadyActive(active)
            }
            Outcome::HeldElsewhere => {
                let why = self.invalid_entry(&waiter.session);
                queue::Outcome::Failed(why.unwrap_or(Error::Internal))
            }
            Outcome::OwnerLimit { held, max } => queue::Outcome::OwnerLimit(held, max),
            Outcome::NoSeats => queue::Outcome::NoSeats,
        };
        self.answer(waiter, outcome);
    }

    fn notice(&mut self, notice: Notice<'_>) {
        let (event, total) = match notice {
            Notice::Joined(_) => (Events::QUEUED, &stats::QUEUED),
            Notice::Left(_) | Notice::Lost(_) => (Events::LEFT, &stats::LEFT),
            Notice::Served => (Events::GRANTED, &stats::GRANTED),
            Notice::OwnerLimit(_) => {
                self.after.publish(Events::LEFT);
                stats::LEFT.add();
                (Events::OWNER_LIMIT, &stats::OWNER_LIMIT)
            }
        };
        self.after.publish(event);
        total.add();
        if self.feeds.have_changes() {
            match notice {
                Notice::Joined(wait) => self.write_wait(Event::Queued, wait, self.user()),
                Notice::Left(wait) => self.write_wait(Event::Left, wait, self.user()),
                Notice::Lost(wait) => self.write_wait(Event::Left, wait, None),
                Notice::OwnerLimit(wait) => self.write_wait(Event::OwnerLimit, wait, None),
                Notice::Served => {}
            }
        }
    }

    fn schedule(&mut self, at_ms: i64) {
        self.note(at_ms);
    }
}

/// The pool behind an open key, or an empty one.
fn lend(key: &OpenKey<Pool>) -> &Pool {
    static EMPTY: LazyLock<Pool> = LazyLock::new(|| Pool::new(0));
    key.value().unwrap_or_else(|| &EMPTY)
}

/// The token that a session has by an effect.
fn token_of(effect: &Effect<'_>) -> Option<u64> {
    match effect {
        Effect::Grant(grant) | Effect::Import(grant) => grant.holder.token,
        Effect::Token { token, .. } => Some(*token),
        _ => None,
    }
}

/// The total that an effect counts for, if it is one of this server's own decisions.
fn total_of(effect: &Effect<'_>) -> Option<&'static Total> {
    match effect {
        Effect::Grant(_) => Some(&stats::ACQUIRED),
        Effect::Import(_) => Some(&stats::IMPORTED),
        Effect::Heartbeat(_) => Some(&stats::HEARTBEATS),
        Effect::Free { why, .. } => Some(total_of_freeing(*why)),
        Effect::Token { .. }
        | Effect::Renew { .. }
        | Effect::Join(_)
        | Effect::Leave { .. }
        | Effect::Seats(_)
        | Effect::Resize(_) => None,
    }
}

fn total_of_freeing(why: Freed) -> &'static Total {
    match why {
        Freed::Released => &stats::RELEASED,
        Freed::Revoked => &stats::REVOKED,
        Freed::Expired => &stats::EXPIRED,
    }
}

impl PoolKey<'_> {
    /// Closes the key, without the pool if it was emptied, and returns what is left to do.
    fn close(&mut self) -> AfterClose {
        // An effect has emptied the pool, so the key is open for writing.
        let was_emptied = self.exists() && self.pool().is_empty();
        if was_emptied {
            self.key.delete();
            deadlines::forget(self.database, self.name.bytes());
            self.after.publish(Events::DEL);
        }
        self.key.close();
        if let Some(blocked) = self.blocked.take() {
            self.put_back(blocked, was_emptied);
        }
        std::mem::take(&mut self.after)
    }

    /// Gives the blocked clients back to the registry of the queue, and schedules what waits for
    /// them.
    fn put_back(&self, blocked: Box<BlockedQueue<WaiterId>>, was_emptied: bool) {
        let has_waiters = !blocked.is_empty();
        queue::put(self.database, self.name.bytes(), blocked);
        if !has_waiters {
            return;
        }
        if self.moment.holds_grants {
            self.note(grace::hold_end_ms(self.database));
        } else if was_emptied {
            // What was noted for those who wait has gone with the pool.
            self.note(self.moment.now_ms);
        } else if self.others.is_some() {
            self.note(self.moment.now_ms + LEGACY_CHECK_MS);
        }
    }
}

impl Drop for PoolKey<'_> {
    fn drop(&mut self) {
        self.close().run(self.ctx, self.name);
    }
}
