//! The keyspace events that the module publishes, such as `seat.released`.

use std::ffi::CStr;

use redis_module::raw;
use seat_pool::{Effect, Freed};

use crate::ffi::{Ctx, Str};

/// The keyspace events that a command has caused so far, each at most once as with the server's own
/// commands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Events(u16);

impl Events {
    pub(crate) const EXPIRED: Events = Events(1);
    pub(crate) const REVOKED: Events = Events(1 << 1);
    pub(crate) const RELEASED: Events = Events(1 << 2);
    pub(crate) const HEARTBEAT: Events = Events(1 << 3);
    pub(crate) const RENEWED: Events = Events(1 << 4);
    pub(crate) const ACQUIRED: Events = Events(1 << 5);
    pub(crate) const DEL: Events = Events(1 << 6);
    pub(crate) const LEFT: Events = Events(1 << 7);
    pub(crate) const GRANTED: Events = Events(1 << 8);
    pub(crate) const QUEUED: Events = Events(1 << 9);
    pub(crate) const RESIZED: Events = Events(1 << 10);
    pub(crate) const IMPORTED: Events = Events(1 << 11);
    pub(crate) const REPLACED: Events = Events(1 << 12);
    pub(crate) const OWNER_LIMIT: Events = Events(1 << 13);

    /// In the order in which they are published: a seat is freed before it is granted again.
    const OWN: [(Events, &'static CStr); 13] = [
        (Events::EXPIRED, c"seat.expired"),
        (Events::IMPORTED, c"seat.imported"),
        (Events::REVOKED, c"seat.revoked"),
        (Events::REPLACED, c"seat.replaced"),
        (Events::RELEASED, c"seat.released"),
        (Events::HEARTBEAT, c"seat.heartbeat"),
        (Events::RENEWED, c"seat.renewed"),
        (Events::LEFT, c"seat.left"),
        (Events::OWNER_LIMIT, c"seat.owner_limit"),
        (Events::RESIZED, c"seat.resized"),
        (Events::ACQUIRED, c"seat.acquired"),
        (Events::GRANTED, c"seat.granted"),
        (Events::QUEUED, c"seat.queued"),
    ];

    /// The events that an effect causes.
    pub(crate) fn of(effect: &Effect<'_>) -> Events {
        match effect {
            Effect::Grant(grant) => match grant.replaces {
                Some(_) => Events(Events::REPLACED.0 | Events::ACQUIRED.0),
                None => Events::ACQUIRED,
            },
            Effect::Import(_) => Events::IMPORTED,
            Effect::Heartbeat(_) => Events::HEARTBEAT,
            Effect::Token { .. } => Events::default(),
            Effect::Renew { .. } => Events::RENEWED,
            Effect::Join(_) => Events::QUEUED,
            Effect::Leave { .. } => Events::LEFT,
            Effect::Seats(_) | Effect::Resize(_) => Events::RESIZED,
            Effect::Free { why, .. } => Events::of_freeing(*why),
        }
    }

    /// The event of a seat that is freed.
    pub(crate) fn of_freeing(why: Freed) -> Events {
        match why {
            Freed::Released => Events::RELEASED,
            Freed::Revoked => Events::REVOKED,
            Freed::Expired => Events::EXPIRED,
        }
    }

    /// Adds those of `others` that are not among them.
    pub(crate) fn add(&mut self, others: Events) {
        self.0 |= others.0;
    }

    fn has(self, event: Events) -> bool {
        self.0 & event.0 != 0
    }

    /// Publishes them. For a closed key only, since whoever listens may open it.
    pub(crate) fn notify(self, ctx: Ctx<'_>, key: Str<'_>) {
        if self.0 == 0 {
            return;
        }
        for (event, name) in Events::OWN {
            if self.has(event) {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, name, key);
            }
        }
        if self.has(Events::DEL) {
            ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", key);
        }
    }
}
