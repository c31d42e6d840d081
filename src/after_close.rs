//! What is left to do once a key is closed.

use crate::feed::News;
use crate::ffi::{Ctx, OwnedStr, Str};
use crate::notifications::Events;
use crate::queue::{self, WaiterId};

/// Work that an open key puts off until it is closed: whoever hears of it may open the key again.
#[derive(Default)]
pub(crate) struct AfterClose {
    events: Events,
    /// Absent for most calls, which have none of it.
    rarities: Option<Box<Rarities>>,
}

#[derive(Default)]
struct Rarities {
    removed: Vec<OwnedStr>,
    feed: Vec<News>,
    wakes: Vec<WaiterId>,
}

impl AfterClose {
    /// Publishes keyspace events of the key.
    pub(crate) fn publish(&mut self, events: Events) {
        self.events.add(events);
    }

    /// Publishes that another key was removed.
    pub(crate) fn publish_del_of(&mut self, key: OwnedStr) {
        self.rarities.get_or_insert_default().removed.push(key);
    }

    /// Publishes what was appended to a feed.
    pub(crate) fn publish_feed(&mut self, news: impl IntoIterator<Item = News>) {
        let mut news = news.into_iter().peekable();
        if news.peek().is_some() {
            self.rarities.get_or_insert_default().feed.extend(news);
        }
    }

    /// Wakes a blocked client, whose answer is decided.
    pub(crate) fn wake(&mut self, waiter: WaiterId) {
        self.rarities.get_or_insert_default().wakes.push(waiter);
    }

    /// Does it all, for the key of this name.
    pub(crate) fn run(self, ctx: Ctx<'_>, name: Str<'_>) {
        self.events.notify(ctx, name);
        if let Some(rarities) = self.rarities {
            for key in &rarities.removed {
                ctx.notify_del(key.get());
            }
            for news in &rarities.feed {
                news.publish(ctx);
            }
            // Last, since up to 7.0 the callbacks of those who are woken run at once.
            queue::unblock(&rarities.wakes);
        }
    }
}
