//! What an open key writes to the feeds.

use seat_pool::{AcquireRequest, Effect, Wait};

use super::PoolKey;
use crate::deadlines;
use crate::feed::{self, Arguments, Change, Entry, Event, Field, Scene};
use crate::ffi::{Mode, OwnedStr};
use crate::text::Sent;

/// Why a call was refused.
#[derive(Clone, Copy)]
pub(crate) enum Denial {
    /// There is no seat for it.
    NoSeats,
    /// Its owner has reached its limit.
    OwnerLimit {
        /// The owner's live sessions.
        held: u64,
        /// How many there may be.
        max: u64,
    },
}

impl PoolKey<'_> {
    /// The entries of an effect that was carried out, as they travel in it.
    pub(super) fn write_entries(&mut self, change: Change, effect: &Effect<'_>) -> Arguments {
        let scene = Scene {
            feeds: self.feeds,
            pool: self.name,
            caller: self.caller.text,
            now_ms: self.moment.now_ms,
            used: self.used(),
            seats: self.pool().seats(),
            user: self.user(),
            waits_since_ms: self.served.as_ref().map(|served| served.since_ms),
        };
        let wrote = change.write(self.ctx, effect, &scene);
        self.after.publish_feed(wrote.news);
        wrote.arguments
    }

    /// Writes that a session has joined the queue or left it. `user` is who has done so, or has
    /// taken it out.
    pub(super) fn write_wait(&mut self, event: Event, wait: Wait<'_>, user: Option<OwnedStr>) {
        let now_ms = self.moment.now_ms;
        if !matches!(self.mode, Mode::Write | Mode::Tend) {
            let name = (self.database, self.name.bytes());
            feed::put_off_left(self.ctx, name, wait, Some(self.used()), user, now_ms);
            return deadlines::run_soon(self.ctx);
        }
        let caller = self.caller.text;
        let session = Sent::of(wait.session, caller.session);
        let seats = Some(wait.seats);
        let mut entry = Entry::new(
            self.ctx,
            event,
            self.name,
            Some(session),
            self.used(),
            seats,
        );
        let owner = wait.claim.owner.map(|owner| Sent::of(owner, caller.owner));
        entry.add_holder(owner, wait.claim.weight);
        if event != Event::Queued {
            entry.add_wait(now_ms, wait.since_ms);
        }
        entry.add_user(user.as_ref());
        let appended = self.feeds.append(self.ctx, &entry);
        (self.after).publish_feed(feed::send_alone(self.ctx, self.name, appended));
    }

    /// Writes what a call was refused.
    pub(crate) fn write_denial(&mut self, request: &AcquireRequest<'_>, denial: Denial) {
        if !self.feeds.have_denials() {
            return;
        }
        let (caller, claim, user) = (self.caller.text, request.claim, self.user());
        let session = Some(Sent::of(request.session, caller.session));
        let (used, seats) = (self.used(), Some(request.seats));
        let mut entry = Entry::new(self.ctx, Event::Denied, self.name, session, used, seats);
        let owner = claim.owner.map(|owner| Sent::of(owner, caller.owner));
        entry.add_holder(owner, claim.weight);
        match denial {
            Denial::NoSeats => entry.add(Field::Reason, Sent::of(b"NO_SEATS_AVAILABLE", None)),
            Denial::OwnerLimit { held, max } => {
                entry.add(Field::Reason, Sent::of(b"OWNER_LIMIT", None));
                entry.add_number(Field::Held, held);
                entry.add_number(Field::Max, max);
            }
        }
        entry.add_user(user.as_ref());
        let appended = self.feeds.append_denial(self.ctx, &entry);
        (self.after).publish_feed(feed::send_alone(self.ctx, self.name, appended));
    }

    /// Writes that the pool was given back to the legacy keys, with so many seats taken.
    pub(super) fn write_export(&mut self, used: u64) {
        if !self.feeds.have_changes() {
            return;
        }
        let user = self.user();
        let mut entry = Entry::new(self.ctx, Event::Exported, self.name, None, used, None);
        entry.add_user(user.as_ref());
        let appended = self.feeds.append(self.ctx, &entry);
        (self.after).publish_feed(feed::send_alone(self.ctx, self.name, appended));
    }

    /// How many seats are taken and how many there are, if there is a pool.
    pub(crate) fn seats_taken(&self) -> Option<(u64, i64)> {
        self.exists().then(|| (self.used(), self.pool().seats()))
    }

    /// The user whose client the change is about, if it is one's: the one who is served, or who
    /// calls.
    pub(super) fn user(&self) -> Option<OwnedStr> {
        match &self.served {
            Some(served) => self.ctx.user_of(served.connection),
            None if self.mode == Mode::Tend => None,
            None => self.ctx.user_of_connection().or_else(|| self.ctx.user()),
        }
    }
}
