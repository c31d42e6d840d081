//! Entries that cannot be written where their cause is heard of: pools that go, come or are copied
//! by the server's own commands, and clients whose waits end.
//!
//! They are written before the next entry of their database, so that the feed has everything in the
//! order in which it happened, or else by the timer. A crash before that loses them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;

use seat_pool::Wait;

use super::entry::{Entry, Event, Field};
use super::{Feeds, News, append, has_stream, is_on, send_alone};
use crate::ffi::{Ctx, OwnedStr, Str, with_module_context};
use crate::text::Sent;

/// Something that is to be written. In which database is not known on a server that does not tell
/// where a pool has gone (6.2), until an event of the key does.
struct Note {
    pool: Box<[u8]>,
    what: What,
    /// How many seats were taken then and how many there were, if that was known.
    seats: Option<(u64, i64)>,
}

enum What {
    /// The pool has gone. It is known by its address, since it may come under another name.
    Dropped(usize),
    /// It has gone from one of the databases, perhaps this one, and that may have been written.
    MayBeDropped,
    /// It has come from another name.
    Renamed(Box<[u8]>),
    /// A copy of the pool of this name has come, or a pool from elsewhere.
    Copied(Option<Box<[u8]>>),
    /// A session has left the queue.
    Left {
        session: Box<[u8]>,
        seats: i64,
        since_ms: i64,
        left_ms: i64,
        owner: Option<Box<[u8]>>,
        weight: u32,
        user: Option<OwnedStr>,
    },
}

/// By the database in which each is to be written, `None` where that is not known; with their
/// numbers in the order in which they happened.
type Notes = BTreeMap<Option<c_int>, VecDeque<(u64, Note)>>;

/// What a change writes at most of what was put off before it, unless more is about its own pool.
const BATCH: usize = 128;

thread_local! {
    static NOTES: RefCell<Notes> = const { RefCell::new(BTreeMap::new()) };
    /// The number of the next.
    static NEXT: Cell<u64> = const { Cell::new(0) };
    /// Whether there are any.
    static ARE_ANY: Cell<bool> = const { Cell::new(false) };
    /// Whether the pool that goes is written about by whoever removes it.
    static IS_ANNOUNCED: Cell<bool> = const { Cell::new(false) };
    /// The address and the name of the pool that was copied last.
    static COPIED: RefCell<Option<(usize, Box<[u8]>)>> = const { RefCell::new(None) };
}

/// Whether something waits for [`write_pending`].
pub(crate) fn has_pending() -> bool {
    ARE_ANY.get()
}

fn put_off(database: Option<c_int>, note: Note) {
    let number = NEXT.get();
    NEXT.set(number + 1);
    change(|notes| notes.entry(database).or_default().push_back((number, note)));
}

fn change<T>(change: impl FnOnce(&mut Notes) -> T) -> T {
    NOTES.with_borrow_mut(|notes| {
        let result = change(notes);
        notes.retain(|_, notes| !notes.is_empty());
        ARE_ANY.set(!notes.is_empty());
        result
    })
}

/// A pool that has sessions or tickets goes from a name, whatever the reason. Returns whether the
/// timer is to come.
pub(crate) fn unlinked(value: usize, pool: &[u8], database: Option<c_int>) -> bool {
    let mut is_noted = false;
    with_module_context(|ctx| is_noted = is_on(ctx) && !IS_ANNOUNCED.get());
    if is_noted {
        let note = Note {
            pool: pool.into(),
            what: What::Dropped(value),
            seats: None,
        };
        put_off(database, note);
    }
    is_noted
}

/// Runs `remove`, which removes a pool and is written about by its caller.
pub(crate) fn without_drop<T>(remove: impl FnOnce() -> T) -> T {
    IS_ANNOUNCED.set(true);
    let removed = remove();
    IS_ANNOUNCED.set(false);
    removed
}

/// A pool is copied from this name.
pub(crate) fn copying(value: usize, pool: &[u8]) {
    COPIED.set(Some((value, pool.into())));
}

/// A key has gone or has come, by which the database of a pool that has gone from there is known.
pub(crate) fn heard(database: c_int, key: &[u8]) {
    let has_unknown = || NOTES.with_borrow(|notes| notes.contains_key(&None));
    if has_pending() && has_unknown() {
        change(|notes| {
            let unknown = notes.remove(&None).unwrap_or_default();
            let is_here = |(_, note): &(u64, Note)| {
                matches!(note.what, What::Dropped(_)) && *note.pool == *key
            };
            let (here, unknown): (VecDeque<_>, _) = unknown.into_iter().partition(is_here);
            notes.insert(None, unknown);
            let notes = notes.entry(Some(database)).or_default();
            for note in here {
                let at = notes.partition_point(|(number, _)| *number < note.0);
                notes.insert(at, note);
            }
        });
    }
}

/// A pool has come under a name, by the event of the server's that says so. `seats` is how many of
/// it are taken and how many there are, and `address_of` where the pool of another name of the
/// database is.
pub(crate) fn arrived(
    ctx: Ctx<'_>,
    event: &[u8],
    value: usize,
    (database, pool): (c_int, &[u8]),
    seats: Option<(u64, i64)>,
    address_of: impl FnOnce(&[u8]) -> Option<usize>,
) {
    if event == b"loaded" || !is_on(ctx) {
        return;
    }
    let is_renamed = event == b"rename_to"
        && change(|notes| {
            // The last, since a pool may be where one was that went before it.
            let mut notes = notes.values_mut().flat_map(|notes| notes.iter_mut().rev());
            let gone =
                notes.find(|(_, note)| matches!(note.what, What::Dropped(gone) if gone == value));
            let Some((_, gone)) = gone else { return false };
            let from = std::mem::replace(&mut gone.pool, pool.into());
            gone.what = What::Renamed(from);
            gone.seats = seats;
            true
        });
    if !is_renamed {
        let copied = COPIED.take().filter(|_| event == b"copy_to");
        // The copy may be in another database than the pool, and says nothing of that there.
        let from = copied.filter(|(source, from)| address_of(from) == Some(*source));
        let note = Note {
            pool: pool.into(),
            what: What::Copied(from.map(|(_, from)| from)),
            seats,
        };
        put_off(Some(database), note);
    }
}

/// A session has left the queue of a pool where nothing can be written. `taken` is how many seats
/// are taken, if that is known, and `user` whose client it is, if that is still there.
pub(crate) fn put_off_left(
    ctx: Ctx<'_>,
    (database, pool): (c_int, &[u8]),
    wait: Wait<'_>,
    taken: Option<u64>,
    user: Option<OwnedStr>,
    now_ms: i64,
) {
    if is_on(ctx) {
        let note = Note {
            pool: pool.into(),
            what: What::Left {
                session: wait.session.into(),
                seats: wait.seats,
                since_ms: wait.since_ms,
                left_ms: now_ms,
                owner: wait.claim.owner.map(Box::from),
                weight: wait.claim.weight,
                user,
            },
            seats: taken.map(|taken| (taken, wait.seats)),
        };
        put_off(Some(database), note);
    }
}

/// A database was emptied, or all if it is -1: the feed has gone as well.
pub(crate) fn flushed(database: c_int) {
    if has_pending() {
        change(|notes| {
            notes.retain(|own, _| database != -1 && own.is_some_and(|own| own != database));
        });
    }
}

/// Two databases have been swapped, with the feeds in them.
pub(crate) fn databases_swapped(one: c_int, other: c_int) {
    change(|notes| {
        let of_one = notes.remove(&Some(one));
        let of_other = notes.remove(&Some(other));
        notes.extend(of_one.map(|notes| (Some(other), notes)));
        notes.extend(of_other.map(|notes| (Some(one), notes)));
    });
}

/// Drops what was not written. The server is not the primary any more.
pub(crate) fn forget() {
    change(BTreeMap::clear);
}

/// Prepares the feeds for what is written while the key of this name will be open, and writes what
/// was put off, so that the entries of what follows come later. Before it is opened, since whoever
/// hears of that may remove any pool. `at` is as with [`write_pending`], of the selected database.
#[inline]
pub(crate) fn prepare(
    ctx: Ctx<'_>,
    pool: Str<'_>,
    at: impl Fn(&[u8]) -> Option<(u64, i64)>,
) -> Feeds {
    let feeds = Feeds::of(ctx, pool);
    if feeds.are_ready() && has_pending() {
        write_before(ctx, ctx.selected_database(), pool.bytes(), at);
    }
    feeds
}

/// Writes what was put off for a database: no more than a part of it, unless more is about the pool
/// that is to be changed.
#[inline(never)]
fn write_before(
    ctx: Ctx<'_>,
    database: c_int,
    pool: &[u8],
    at: impl Fn(&[u8]) -> Option<(u64, i64)>,
) {
    write_pending(ctx, database, BATCH, &at);
    let is_about_pool = NOTES.with_borrow(|notes| {
        let mut left = notes.get(&Some(database)).into_iter().flatten();
        left.any(|(_, note)| note.is_about(pool))
    });
    if is_about_pool {
        write_pending(ctx, database, usize::MAX, &at);
    }
    let unknown = change(|notes| notes.remove(&None)).unwrap_or_default();
    for (_, note) in unknown {
        if let What::Dropped(_) = note.what {
            write_if_gone(ctx, &note, &at);
        }
        let what = What::MayBeDropped;
        put_off(None, Note { what, ..note });
    }
}

/// Writes that the pool has gone whose key was opened just now, since its time to live was over.
/// Returns what others are to hear of it once the key is closed.
pub(crate) fn write_expiry(
    ctx: Ctx<'_>,
    feeds: Feeds,
    database: c_int,
    pool: Str<'_>,
) -> Option<News> {
    if !feeds.have_changes() || !has_pending() {
        return None;
    }
    let (_, gone) = change(|notes| {
        [Some(database), None].into_iter().find_map(|database| {
            let notes = notes.get_mut(&database)?;
            let is_it = |(_, note): &(u64, Note)| {
                matches!(note.what, What::Dropped(_)) && *note.pool == *pool.bytes()
            };
            notes.back().is_some_and(is_it).then(|| notes.pop_back())?
        })
    })?;
    send_alone(ctx, pool, feeds.append(ctx, &gone.entry(ctx, pool, None)))
}

/// Writes what is put off for a database, the first `limit` of it, as it was when it happened, and
/// publishes it. While no key is open. `at` is how many seats of a pool of the selected database
/// are taken now and how many there are, if it exists.
pub(crate) fn write_pending(
    ctx: Ctx<'_>,
    database: c_int,
    limit: usize,
    at: impl Fn(&[u8]) -> Option<(u64, i64)>,
) {
    let due: Vec<(u64, Note)> = change(|notes| {
        let Some(notes) = notes.get_mut(&Some(database)) else {
            return Vec::new();
        };
        notes.drain(..limit.min(notes.len())).collect()
    });
    for (_, note) in due {
        match note.what {
            What::MayBeDropped => write_if_gone(ctx, &note, &at),
            _ => note.write(ctx, &at),
        }
    }
}

/// Writes that a pool has gone, perhaps from another database: that there is none of its name is
/// true wherever it is said, but only as long as none has come.
fn write_if_gone(ctx: Ctx<'_>, note: &Note, at: impl Fn(&[u8]) -> Option<(u64, i64)>) {
    if has_stream(ctx) && at(&note.pool).is_none() {
        note.write(ctx, at);
    }
}

/// A database for which something is to be written, if there is one. What is put off for one that
/// is not known is from now on for all of those that `all` gives.
pub(crate) fn next_database(all: impl FnOnce() -> Vec<c_int>) -> Option<c_int> {
    let known = || NOTES.with_borrow(|notes| notes.keys().find_map(|database| *database));
    if let Some(database) = known() {
        return Some(database);
    }
    let unknown = change(|notes| notes.remove(&None)).unwrap_or_default();
    for database in all() {
        for (_, note) in &unknown {
            let note = Note {
                pool: note.pool.clone(),
                what: What::MayBeDropped,
                seats: None,
            };
            put_off(Some(database), note);
        }
    }
    known()
}

impl Note {
    fn is_about(&self, pool: &[u8]) -> bool {
        let from = match &self.what {
            What::Renamed(from) | What::Copied(Some(from)) => Some(from),
            _ => None,
        };
        *self.pool == *pool || from.is_some_and(|from| **from == *pool)
    }

    fn write(&self, ctx: Ctx<'_>, at: impl Fn(&[u8]) -> Option<(u64, i64)>) {
        let now = match self.what {
            What::Left { .. } if self.seats.is_none() => at(&self.pool),
            _ => None,
        };
        let pool = OwnedStr::new(&self.pool);
        let appended = append(ctx, &self.entry(ctx, pool.get(), now));
        if let Some(news) = send_alone(ctx, pool.get(), appended) {
            news.publish(ctx);
        }
    }

    fn entry<'a>(&'a self, ctx: Ctx<'_>, pool: Str<'a>, now: Option<(u64, i64)>) -> Entry<'a> {
        let (event, session) = match &self.what {
            What::Dropped(_) | What::MayBeDropped => (Event::Dropped, None),
            What::Renamed(_) => (Event::Renamed, None),
            What::Copied(_) => (Event::Copied, None),
            What::Left { session, .. } => (Event::Left, Some(session)),
        };
        let session = session.map(|session| Sent::of(session, None));
        let (used, limit) = match self.what {
            // Another may have taken the name since.
            What::Dropped(_) | What::MayBeDropped => (0, None),
            What::Left { seats, .. } => {
                let (used, _) = self.seats.or(now).unwrap_or_default();
                (used, Some(seats))
            }
            What::Renamed(_) | What::Copied(_) => {
                let (used, seats) = self.seats.unwrap_or_default();
                (used, Some(seats))
            }
        };
        let mut entry = Entry::new(ctx, event, pool, session, used, limit);
        match &self.what {
            What::Dropped(_) | What::MayBeDropped | What::Copied(None) => {}
            What::Renamed(from) | What::Copied(Some(from)) => {
                entry.add(Field::From, Sent::of(from, None));
            }
            What::Left {
                since_ms,
                left_ms,
                owner,
                weight,
                user,
                ..
            } => {
                let owner = owner.as_ref().map(|owner| Sent::of(owner, None));
                entry.add_holder(owner, *weight);
                entry.add_wait(*left_ms, *since_ms);
                entry.add_user(user.as_ref());
            }
        }
        entry
    }
}
