//! Entries that cannot be written where their cause is heard of: pools that go, come or are copied
//! by the server's own commands, and clients whose waits end.
//!
//! They are written before the next entry of their database, so that the feed has everything in the
//! order in which it happened, or else by the timer. A crash before that loses them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_int;

use seat_pool::Wait;

use super::entry::{Entry, Event, Field};
use super::{News, append, has_stream, is_on, send_alone};
use crate::ffi::{Ctx, OwnedStr, Str, with_module_context};
use crate::text::Sent;

/// Something that is to be written.
struct Note {
    /// Absent on a server that does not tell where a pool has gone (6.2), until an event of the key
    /// does.
    database: Option<c_int>,
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

thread_local! {
    static NOTES: RefCell<VecDeque<Note>> = const { RefCell::new(VecDeque::new()) };
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

fn put_off(note: Note) {
    NOTES.with_borrow_mut(|notes| notes.push_back(note));
    ARE_ANY.set(true);
}

fn change<T>(change: impl FnOnce(&mut VecDeque<Note>) -> T) -> T {
    NOTES.with_borrow_mut(|notes| {
        let result = change(notes);
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
        put_off(Note {
            database,
            pool: pool.into(),
            what: What::Dropped(value),
            seats: None,
        });
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
    if has_pending() {
        change(|notes| {
            let unknown = notes.iter_mut().filter(|note| note.database.is_none());
            let gone = unknown.filter(|note| matches!(note.what, What::Dropped(_)));
            for note in gone.filter(|note| *note.pool == *key) {
                note.database = Some(database);
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
    let is_renamed = change(|notes| {
        // The last, since a pool may be where one was that went before it.
        let mut notes = notes.iter_mut().rev();
        let gone = notes.find(|note| match note.what {
            What::Dropped(gone) => gone == value && event == b"rename_to",
            _ => false,
        });
        let Some(gone) = gone else { return false };
        let from = std::mem::replace(&mut gone.pool, pool.into());
        gone.database = Some(database);
        gone.what = What::Renamed(from);
        gone.seats = seats;
        true
    });
    if !is_renamed {
        let copied = COPIED.take().filter(|_| event == b"copy_to");
        // The copy may be in another database than the pool, and says nothing of that there.
        let from = copied.filter(|(source, from)| address_of(from) == Some(*source));
        put_off(Note {
            database: Some(database),
            pool: pool.into(),
            what: What::Copied(from.map(|(_, from)| from)),
            seats,
        });
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
        put_off(Note {
            database: Some(database),
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
        });
    }
}

/// A database was emptied, or all if it is -1: the feed has gone as well.
pub(crate) fn flushed(database: c_int) {
    if has_pending() {
        change(|notes| {
            notes.retain(|note| database != -1 && note.database.is_some_and(|own| own != database));
        });
    }
}

/// Two databases have been swapped, with the feeds in them.
pub(crate) fn databases_swapped(one: c_int, other: c_int) {
    change(|notes| {
        for database in notes.iter_mut().filter_map(|note| note.database.as_mut()) {
            if *database == one {
                *database = other;
            } else if *database == other {
                *database = one;
            }
        }
    });
}

/// Drops what was not written. The server is not the primary any more.
pub(crate) fn forget() {
    change(VecDeque::clear);
}

/// Writes what is put off for a database, as it was when it happened: all of it, or no more than
/// `limit` of what is to come first. `at` is how many seats of a pool of the selected database are
/// taken now and how many there are, if it exists.
pub(crate) fn write_pending(
    ctx: Ctx<'_>,
    database: c_int,
    limit: usize,
    at: impl Fn(&[u8]) -> Option<(u64, i64)>,
) -> Vec<News> {
    if !has_pending() {
        return Vec::new();
    }
    let mut due = take_due(database, limit);
    // That there is none of a name is true after all that has happened, not before a rename.
    let is_last = |note: &Note| matches!(note.what, What::MayBeDropped);
    due.make_contiguous().sort_by_key(is_last);
    let mut news = Vec::new();
    let mut elsewhere = Vec::new();
    for note in due {
        let now = at(&note.pool);
        // Where a pool has gone may not be known. That there is none of its name is true wherever
        // it is said, but only as long as none has come.
        let is_known = note.database.is_some() && !matches!(note.what, What::MayBeDropped);
        if is_known || now.is_none() && has_stream(ctx) {
            let pool = OwnedStr::new(&note.pool);
            let appended = append(ctx, &note.entry(ctx, pool.get(), now));
            news.extend(send_alone(ctx, pool.get(), appended));
        }
        if note.database.is_none() {
            elsewhere.push(note);
        }
    }
    for note in elsewhere {
        let what = What::MayBeDropped;
        put_off(Note { what, ..note });
    }
    news
}

fn take_due(database: c_int, limit: usize) -> VecDeque<Note> {
    let is_due = |note: &Note| note.database.is_none_or(|own| own == database);
    change(|notes| {
        if limit < notes.len() {
            let len = notes
                .iter()
                .take(limit)
                .take_while(|note| is_due(note))
                .count();
            return notes.drain(..len).collect();
        }
        let (due, others) = std::mem::take(notes).into_iter().partition(is_due);
        *notes = others;
        due
    })
}

/// The database for which something is to be written first, if anything is. What is put off for one
/// that is not known is, once it comes to that, for all of the given ones.
pub(crate) fn next_database(all: impl Iterator<Item = c_int>) -> Option<c_int> {
    change(|notes| {
        if notes.front()?.database.is_none() {
            let note = notes.pop_front()?;
            notes.extend(all.map(|database| Note {
                database: Some(database),
                pool: note.pool.clone(),
                what: What::MayBeDropped,
                seats: None,
            }));
        }
        notes.front()?.database
    })
}

impl Note {
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
