//! What is left to do once a key is closed.

use crate::ffi::{Ctx, OwnedStr, Str};
use crate::notifications::Events;
use crate::queue::{self, WaiterId};

/// Work that an open key puts off until it is closed: whoever hears of it may open the key again.
#[derive(Default)]
pub(crate) struct AfterClose {
    /// The keyspace events of the key itself.
    pub(crate) events: Events,
    /// Other keys that were removed, whose events follow those of the key.
    pub(crate) removed: Vec<OwnedStr>,
    /// Blocked clients whose answers are decided. They come last, since up to 7.0 their callbacks
    /// run at once.
    pub(crate) wakes: Vec<WaiterId>,
}

impl AfterClose {
    /// Does it, for the key of this name.
    pub(crate) fn run(self, ctx: Ctx<'_>, name: Str<'_>) {
        self.events.notify(ctx, name);
        for key in &self.removed {
            ctx.notify_del(key.get());
        }
        queue::unblock(&self.wakes);
    }
}
