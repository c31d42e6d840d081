//! The one way to a pool: opens the key, checks its type, lends the pool and commits effects to it.

use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

use seat_pool::{Applied, Beat, Effect, Freed, Grant, Join, Limit, Line, Moment, Pool};

use crate::effects;
use crate::error::Error;
use crate::ffi::{Args, Ctx, Mode, OpenKey, OwnedStr, Str};
use crate::migration::InvalidEntries;
use crate::notifications::Events;
use crate::pool_type::POOL_TYPE;
use crate::queue::{self, WaiterId};
use crate::{deadlines, grace, stats};

/// How often to look whether the legacy keys still stand in the way of those who wait.
const LEGACY_LOOK_MS: i64 = 1000;

/// An open key that holds a pool or nothing.
///
/// Changes are committed one effect at a time; their keyspace events follow when the key is closed, since whoever listens may
/// open it again.
pub(crate) struct PoolKey<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) name: Str<'a>,
    pub(crate) database: c_int,
    /// The moment for which it is open, by the server's clock: all that is decided here holds for this one.
    pub(crate) moment: Moment,
    /// The arguments of the command that is carried out, if it is one.
    args: Args<'a>,
    key: OpenKey<Pool>,
    /// The clients that are blocked at this name, if any.
    pub(crate) line: Option<Box<Line<WaiterId>>>,
    /// Whether somebody has left that line, so that another may be first now.
    has_line_moved: bool,
    /// Blocked clients to be told what became of them, once the key is closed.
    pub(crate) wakes: Vec<WaiterId>,
    events: Events,
    /// Other keys that were removed while this one is open, of which is told when it is closed.
    gone: Vec<OwnedStr>,
    /// Why grants are suspended here, if they are: it is not known who else holds seats.
    suspended: Option<Error>,
    /// The invalid entries that take seats here beside the pool's sessions, if there are any.
    invalid: Option<Arc<InvalidEntries>>,
}

impl<'a> PoolKey<'a> {
    /// Opens a key to read its pool for a client.
    pub(crate) fn read(ctx: Ctx<'a>, name: Str<'a>, moment: Moment) -> Result<PoolKey<'a>, Error> {
        PoolKey::open(ctx, name, moment, Mode::Read)
    }

    /// Opens a key to change its pool, or to create one, for a client. That alone disturbs no WATCH
    /// and no tracking client.
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

    fn open(ctx: Ctx<'a>, name: Str<'a>, moment: Moment, mode: Mode) -> Result<PoolKey<'a>, Error> {
        let (key, database) = OpenKey::open(ctx, name, mode);
        let mut key = PoolKey {
            ctx,
            name,
            database,
            moment,
            args: Args::NONE,
            key,
            line: None,
            has_line_moved: false,
            wakes: Vec::new(),
            events: Events::default(),
            gone: Vec::new(),
            suspended: None,
            invalid: None,
        };
        key.key.find(&POOL_TYPE)?;
        key.line = queue::take_line(key.database, name.bytes());
        if key.line.is_some() && queue::have_tickets_moved(key.database, name.bytes()) {
            key.find_tickets();
        }
        Ok(key)
    }

    /// The pool, or an empty one for a missing key: a pool with no session does not exist.
    pub(crate) fn pool(&self) -> &Pool {
        static EMPTY: LazyLock<Pool> = LazyLock::new(|| Pool::new(0));
        self.key.value().unwrap_or_else(|| &EMPTY)
    }

    /// Tells of the arguments of the command for which the key is open, which effects may then send on without a copy.
    pub(crate) fn carry(&mut self, args: Args<'a>) {
        self.args = args;
    }

    /// Suspends grants while this key is open: who else holds seats cannot be known.
    pub(crate) fn suspend_grants(&mut self, why: Error) {
        self.suspended = Some(why);
    }

    /// Whether [`PoolKey::suspend_grants`] was called.
    pub(crate) fn suspends_grants(&self) -> bool {
        self.suspended.is_some()
    }

    /// Whether seats may be granted here; the error says why not.
    pub(crate) fn may_grant(&self) -> Result<(), Error> {
        match &self.suspended {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Has invalid entries count as taken seats while this key is open.
    pub(crate) fn count_invalid(&mut self, entries: Arc<InvalidEntries>) {
        self.invalid = Some(entries);
    }

    /// What is wrong with the invalid entry by which `session` holds a seat, if it does so.
    pub(crate) fn invalid_entry(&self, session: &[u8]) -> Option<Error> {
        let error = self.invalid.as_ref()?.error_of(session)?;
        self.pool()
            .get(self.moment, session)
            .is_none()
            .then_some(error)
    }

    /// How many seats are taken, by live sessions and by invalid entries.
    pub(crate) fn used(&self) -> i64 {
        (self.pool().used(self.moment) + self.taken_elsewhere()) as i64
    }

    /// How many seats invalid entries take.
    pub(crate) fn taken_elsewhere(&self) -> usize {
        self.invalid.as_ref().map_or(0, |entries| entries.len())
    }

    /// What a decision goes by that states `seats`.
    pub(crate) fn limit(&self, seats: i64) -> Limit {
        Limit {
            seats,
            taken_elsewhere: self.taken_elsewhere(),
        }
    }

    /// The clients that are blocked at this name.
    pub(crate) fn line(&self) -> &Line<WaiterId> {
        static NOBODY: LazyLock<Line<WaiterId>> = LazyLock::new(Line::default);
        self.line.as_deref().unwrap_or(&NOBODY)
    }

    /// Takes the client of `session` out of the line, if one is blocked there.
    pub(crate) fn leave_line(&mut self, session: &[u8]) -> Option<WaiterId> {
        let place = self.line.as_mut()?.leave(session)?;
        self.has_line_moved = true;
        Some(place.waiting)
    }

    /// The value, as a number by which it is known wherever it moves; 0 without a pool.
    pub(crate) fn value(&self) -> usize {
        self.key.address()
    }

    /// Whether the key holds a pool, if only until it is closed.
    pub(crate) fn exists(&self) -> bool {
        self.key.value().is_some()
    }

    /// Tells of a place that was given up.
    pub(crate) fn tell_left(&mut self) {
        self.events.add(Events::LEFT);
        stats::LEFT.add();
    }

    /// Tells of a seat that was freed and that no session of the pool had.
    pub(crate) fn tell_freed(&mut self, why: Freed) {
        self.events.add(Events::of_freeing(why));
    }

    /// Tells of a blocked client that joined the queue.
    pub(crate) fn tell_joined(&mut self) {
        self.events.add(Events::QUEUED);
    }

    /// Tells of a grant that the queue made.
    pub(crate) fn granted_from_queue(&mut self) {
        self.events.add(Events::GRANTED);
        stats::GRANTED.add();
    }

    /// Has the timer look at this key at `at_ms`.
    pub(crate) fn note(&self, at_ms: i64) {
        deadlines::note(self.ctx, self.database, self.name.bytes(), at_ms);
    }

    /// Carries out an effect, here and on whoever follows. A grant creates a missing pool; the end of the last session removes the
    /// key.
    pub(crate) fn commit(&mut self, effect: &Effect<'_>) {
        if let Effect::Grant(grant) = effect {
            self.reclaim_for(grant);
        }
        match self.apply(effect) {
            Applied::Missed => return,
            Applied::Done => {}
            Applied::Replaced => {
                stats::EXPIRED.add();
            }
        }
        effects::replicate(self.ctx, self.name, effect, self.args);
    }

    /// Removes the pool with all that is in it, here and on whoever follows.
    pub(crate) fn remove(mut self) {
        if self.key.unlink() {
            self.ctx.replicate(c"UNLINK", &[self.name]);
            self.ctx.signal_modified(self.name);
            self.events.add(Events::DEL);
        }
    }

    /// Removes another key that exists, here and on whoever follows.
    pub(crate) fn unlink_other(&mut self, other: Str<'_>) {
        self.ctx.unlink(other);
        self.gone.push(OwnedStr::new(other.bytes()));
    }

    /// As [`PoolKey::commit`], for an effect that came from a primary or an AOF and is sent on as it came. Returns whether it met what
    /// it changes.
    pub(crate) fn commit_replicated(&mut self, effect: &Effect<'_>) -> bool {
        if self.apply(effect) == Applied::Missed {
            return false;
        }
        self.ctx.replicate_verbatim();
        true
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
            // Only the first call of a poller is told; those that follow keep its place.
            Effect::Join(join) if pool.has_ticket(join.session) => Events::default(),
            _ => Events::of(effect),
        };
        let tickets = pool.tickets() as i64;
        let applied = pool.apply(effect);
        match applied {
            Applied::Missed => return applied,
            Applied::Done => {}
            // A grant to a session whose own lease had lapsed takes that seat back first.
            Applied::Replaced => self.events.add(Events::EXPIRED),
        }
        stats::add_tickets(pool.tickets() as i64 - tickets);
        if was_emptied && !pool.is_empty() {
            // Whoever follows has removed the key with what emptied the pool, its time to live included, and makes another now.
            self.key.persist();
        }
        self.events.add(event);
        if let Some(deadline_ms) = effect.deadline_ms() {
            self.note(deadline_ms);
        }
        match effect {
            Effect::Grant(Grant { session, .. })
            | Effect::Import(Grant { session, .. })
            | Effect::Beat(Beat { session, .. })
            | Effect::Renew { session, .. }
            | Effect::Free { session, .. } => {
                queue::confirm(self.value(), session);
            }
            Effect::Join(join) => queue::saw_arrival(join.arrival),
            Effect::Leave { .. } | Effect::Seats(_) | Effect::Resize(_) => {}
        }
        self.ctx.signal_modified(self.name);
        applied
    }
}

impl Drop for PoolKey<'_> {
    fn drop(&mut self) {
        let mut was_emptied = false;
        if self.exists() && self.pool().is_empty() {
            // An effect has emptied the pool, so the key is open for writing.
            was_emptied = true;
            self.key.delete();
            deadlines::forget(self.database, self.name.bytes());
            self.events.add(Events::DEL);
        }
        self.key.close();
        if let Some(line) = self.line.take() {
            let has_waiters = !line.is_empty();
            queue::put_line(self.database, self.name.bytes(), line);
            if has_waiters && self.moment.holds_grants {
                self.note(grace::hold_end_ms(self.database));
            } else if has_waiters && !self.exists() && (was_emptied || self.has_line_moved) {
                // Whoever emptied the pool took its limit along; now that of the first in line holds.
                self.note(self.moment.now_ms);
            } else if has_waiters && (self.suspended.is_some() || self.invalid.is_some()) {
                self.note(self.moment.now_ms + LEGACY_LOOK_MS);
            }
        }
        self.events.notify(self.ctx, self.name);
        for key in &self.gone {
            self.ctx.tell_gone(key.get());
        }
        queue::unblock(&self.wakes);
    }
}
