//! The feed: every change of a pool as an entry of a stream, and refusals as entries of another.
//!
//! A primary appends an entry when it carries out the effect that it is about, and the entry
//! travels inside the effect: whoever follows, and an AOF that is loaded, appends the same entry
//! from it, with the same id. What no effect is about, such as that a client has begun to wait,
//! travels in an effect that has nothing else.
//!
//! Ids only rise: above the stream's last, above this process's last, and never below the clock. So
//! they go on rising where the clock steps back, or somebody removes the stream.
//!
//! What cannot be written at once, since it is only heard of, waits in [`pending`].

mod change;
mod entry;
mod pending;

use std::cell::Cell;
use std::ffi::c_int;

use redis_module::raw;

pub(crate) use change::{Arguments, Change, Scene};
pub(crate) use entry::{Entry, Event, Field, Travelling};
pub(crate) use pending::{
    arrived, copying, databases_swapped, flushed, forget, has_pending, heard, next_database,
    prepare, put_off_left, unlinked, without_drop, write_expiry, write_pending,
};

use crate::config::{self, Number, StreamName};
use crate::error::Error;
use crate::ffi::{AppendError, Ctx, EntryId, Info, Kind, OpenStream, OwnedStr, Str};
use crate::{effects, stats};

/// Entries by which one append shortens a stream at most, where it is longer than it may be: the
/// limit may have been lowered by millions.
const TRIM_BATCH: usize = 100;

/// The part of a full stream that goes at once, if that is less than [`TRIM_BATCH`]. To remove a
/// single entry the server goes through those of its node that were removed before, which takes
/// several times what the rest of a change does.
const TRIM_PART: usize = 16;

thread_local! {
    /// The last id that was given out here or came from elsewhere.
    static LAST: Cell<EntryId> = const { Cell::new(EntryId { ms: 0, seq: 0 }) };

    /// By which the entries of this process are known.
    static NODE: Cell<Option<Str<'static>>> = const { Cell::new(None) };
}

/// One of the two feeds.
struct Feed {
    name: &'static StreamName,
    maxlen: &'static Number,
}

const CHANGES: Feed = Feed {
    name: &config::FEED,
    maxlen: &config::FEED_MAXLEN,
};

const DENIALS: Feed = Feed {
    name: &config::DENIAL_FEED,
    maxlen: &config::DENIAL_FEED_MAXLEN,
};

/// Whether there is a feed in the selected database.
pub(crate) fn has_stream(ctx: Ctx<'_>) -> bool {
    let name = CHANGES.name.get();
    name.is_some_and(|name| ctx.kind_of(name.get()) != Kind::Nothing)
}

/// Whether the changes that are decided here are to be written to the feed: a replica that takes
/// its clients' writes leaves the feed to its primary.
pub(crate) fn is_on(ctx: Ctx<'_>) -> bool {
    config::FEED.is_on() && is_primary(ctx)
}

fn is_primary(ctx: Ctx<'_>) -> bool {
    !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_LOADING)
}

/// The feeds as they are to a pool's key while that is open.
#[derive(Clone, Copy)]
pub(crate) struct Feeds {
    changes: State,
    denials: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is off.
    Off,
    /// It can be appended to.
    Ready,
    /// It cannot, since its name is the pool's own.
    OwnName,
    /// It cannot, since it may end its time to live meanwhile. Whoever hears of that may remove the
    /// pool that is open.
    Ending,
}

/// A stream that has less to live may end while a key is open.
const ENDING_MS: i64 = 1000;

impl Feeds {
    pub(crate) const OFF: Feeds = Feeds {
        changes: State::Off,
        denials: State::Off,
    };

    /// For a key with which nothing is written.
    pub(crate) fn to_note(ctx: Ctx<'_>) -> Feeds {
        let changes = match is_on(ctx) {
            true => State::Ready,
            false => State::Off,
        };
        Feeds {
            changes,
            ..Feeds::OFF
        }
    }

    /// The feeds for what is written while the key of this name will be open. Before it is opened:
    /// opening a stream whose time to live is over removes it, and whoever hears of that may remove
    /// any pool.
    #[inline]
    fn of(ctx: Ctx<'_>, pool: Str<'_>) -> Feeds {
        let is_any_on = config::FEED.is_on() || config::DENIAL_FEED.is_on();
        if !is_any_on || !is_primary(ctx) {
            return Feeds::OFF;
        }
        Feeds {
            changes: CHANGES.state(ctx, pool),
            denials: DENIALS.state(ctx, pool),
        }
    }

    /// Whether changes can be written.
    fn are_ready(self) -> bool {
        self.changes == State::Ready
    }

    /// Whether changes are to be written.
    pub(crate) fn have_changes(self) -> bool {
        self.changes != State::Off
    }

    /// Whether refusals are to be written.
    pub(crate) fn have_denials(self) -> bool {
        self.denials != State::Off
    }

    /// Appends an entry to the feed. `None` if it could not take the entry, which is counted and
    /// logged.
    pub(crate) fn append(self, ctx: Ctx<'_>, entry: &Entry<'_>) -> Option<Appended> {
        append_to(ctx, &CHANGES, self.changes, entry)
    }

    /// As [`Feeds::append`], to the denial feed.
    pub(crate) fn append_denial(self, ctx: Ctx<'_>, entry: &Entry<'_>) -> Option<Appended> {
        append_to(ctx, &DENIALS, self.denials, entry)
    }
}

impl Feed {
    #[inline(never)]
    fn state(&self, ctx: Ctx<'_>, pool: Str<'_>) -> State {
        let Some(name) = self.name.get() else {
            return State::Off;
        };
        if name.get().bytes() == pool.bytes() {
            return State::OwnName;
        }
        match OpenStream::open(ctx, name.get()).map(|stream| stream.time_left_ms()) {
            Ok(Some(left_ms)) if left_ms < ENDING_MS => State::Ending,
            // What else it may be shows when it is appended to.
            _ => State::Ready,
        }
    }
}

/// An entry that was appended.
pub(crate) struct Appended {
    /// The form in which it travels.
    pub(crate) argument: OwnedStr,
    pub(crate) news: News,
}

/// What others are to hear of a stream that was appended to.
pub(crate) struct News {
    stream: OwnedStr,
    was_trimmed: bool,
}

impl News {
    /// Publishes it. While no key is open, since whoever listens may open one.
    pub(crate) fn publish(&self, ctx: Ctx<'_>) {
        let class = raw::REDISMODULE_NOTIFY_STREAM as c_int;
        ctx.notify(class, c"xadd", self.stream.get());
        if self.was_trimmed {
            ctx.notify(class, c"xtrim", self.stream.get());
        }
    }
}

/// Appends an entry to the feed while no key is open.
fn append(ctx: Ctx<'_>, entry: &Entry<'_>) -> Option<Appended> {
    let name = CHANGES.name.get()?;
    let state = match entry.is_about(name.get()) {
        true => State::OwnName,
        false => State::Ready,
    };
    append_to(ctx, &CHANGES, state, entry)
}

fn append_to(ctx: Ctx<'_>, feed: &Feed, state: State, entry: &Entry<'_>) -> Option<Appended> {
    let name = feed.name.get()?;
    let fields = entry.strings();
    let outcome = match state {
        State::Off => return None,
        State::Ready => try_append(ctx, feed, name.get(), &fields),
        State::OwnName => Err(Error::WrongType),
        State::Ending => Err(Error::StreamEnds),
    };
    match outcome {
        Ok((id, keep, was_trimmed)) => {
            let argument = entry.travelling(id, keep, name.get().bytes());
            Some(Appended {
                argument,
                news: News {
                    stream: name,
                    was_trimmed,
                },
            })
        }
        Err(error) => {
            count_error(ctx, name.get().bytes(), &error);
            None
        }
    }
}

fn try_append(
    ctx: Ctx<'_>,
    feed: &Feed,
    name: Str<'_>,
    fields: &[Str<'_>],
) -> Result<(EntryId, usize, bool), Error> {
    let mut stream = OpenStream::open(ctx, name)?;
    let mut id = next_id(ctx.now_ms());
    match stream.append(id, fields) {
        Ok(()) => {}
        // It has higher ids than this process has given out.
        Err(AppendError::IdTooLow) => {
            id = stream.append_next(fields).map_err(|_| Error::StreamFull)?;
        }
        Err(AppendError::Full) => return Err(Error::StreamFull),
    }
    let keep = length_to_keep(stream.len(), feed.maxlen.get());
    let was_trimmed = stream.trim(keep);
    appended(ctx, name, id);
    Ok((id, keep, was_trimmed))
}

/// How many of its entries a stream keeps that may have `maxlen`.
fn length_to_keep(len: usize, maxlen: usize) -> usize {
    if len <= maxlen {
        return maxlen;
    }
    let least = maxlen - TRIM_BATCH.min(maxlen / TRIM_PART);
    least.max(len.saturating_sub(TRIM_BATCH))
}

fn next_id(now_ms: i64) -> EntryId {
    let last = LAST.get();
    let now_ms = u64::try_from(now_ms).unwrap_or(0);
    if now_ms > last.ms {
        EntryId { ms: now_ms, seq: 0 }
    } else {
        EntryId {
            ms: last.ms,
            seq: last.seq.saturating_add(1),
        }
    }
}

fn appended(ctx: Ctx<'_>, name: Str<'_>, id: EntryId) {
    // The last of all times is somebody's invention, and would be the last for all feeds.
    if id.ms < u64::MAX {
        LAST.set(LAST.get().max(id));
    }
    stats::FEED_ENTRIES.add();
    ctx.signal_modified(name);
}

/// Appends an entry that has travelled here. `None` if the stream could not take it, which is
/// counted and logged.
pub(crate) fn append_travelled(ctx: Ctx<'_>, entry: &Travelling<'_>) -> Option<News> {
    let name = OwnedStr::new(entry.stream);
    let fields: Vec<OwnedStr> = entry
        .fields
        .iter()
        .map(|field| OwnedStr::new(field))
        .collect();
    let fields: Vec<Str<'_>> = fields.iter().map(OwnedStr::get).collect();
    let opened = match ctx.is_in_cluster() {
        // It was written elsewhere. Here its slot is not the pool's.
        true => Err(Error::FeedInCluster),
        false => OpenStream::open(ctx, name.get()),
    };
    let outcome = opened.and_then(|mut stream| match stream.append(entry.id, &fields) {
        Ok(()) => Ok(stream.trim(entry.keep)),
        Err(AppendError::IdTooLow) => Err(Error::EntryIdTooLow),
        Err(AppendError::Full) => Err(Error::StreamFull),
    });
    match outcome {
        Ok(was_trimmed) => {
            appended(ctx, name.get(), entry.id);
            Some(News {
                stream: name,
                was_trimmed,
            })
        }
        Err(error) => {
            count_error(ctx, entry.stream, &error);
            None
        }
    }
}

/// An error of the feed is never one of whoever caused the entry.
fn count_error(ctx: Ctx<'_>, stream: &[u8], error: &Error) {
    let errors = stats::FEED_ERRORS.add();
    // Each call may bring another.
    if errors.is_power_of_two() {
        let stream = String::from_utf8_lossy(stream);
        ctx.log_warning(&format!(
            "{errors} entries so far could not be appended to a feed, the last to {stream:?}: {error}"
        ));
    }
}

/// The node by which the entries of this process are known: the beginning of its run id.
fn node(ctx: Ctx<'_>) -> Str<'static> {
    NODE.get().unwrap_or_else(|| {
        let run_id = Info::of(ctx, c"server").field(c"run_id");
        let node = OwnedStr::new(run_id.get(..8).unwrap_or_default().as_bytes()).leak();
        NODE.set(Some(node));
        node
    })
}

/// Sends an entry that no effect goes with to whoever follows, if it was appended.
pub(crate) fn send_alone(ctx: Ctx<'_>, pool: Str<'_>, appended: Option<Appended>) -> Option<News> {
    let appended = appended?;
    effects::replicate_entry(ctx, pool, appended.argument.get());
    Some(appended.news)
}

#[cfg(test)]
mod tests {
    use super::length_to_keep;

    #[test]
    fn a_full_stream_is_shortened_by_some_at_once_and_never_by_many() {
        for (len, maxlen, kept) in [
            (1, 1, 1),
            (2, 1, 1),
            (16, 15, 15),
            (17, 16, 15),
            (1000, 1000, 1000),
            (1001, 1000, 938),
            (100_001, 100_000, 99_901),
            (1_000_000, 10, 999_900),
            (109, 10, 10),
        ] {
            assert_eq!(length_to_keep(len, maxlen), kept, "{len} of {maxlen}");
        }
    }
}
