//! Sessions between the legacy keys and the pool: adopting them, and giving them back.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis_module::raw;
use seat_pool::{Host, Import, Moment};

use super::entries::{BATCH, Entries, write};
use super::invalid_entries::InvalidEntries;
use super::legacy_keys::{self, KnownInvalid};
use super::names::LegacyKeys;
use super::rights;
use crate::error::Error;
use crate::ffi::{Ctx, Kind, OwnedStr, Str};
use crate::pool_key::PoolKey;
use crate::{queue, slot, stats};

/// For whom a pool is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A client, whose rights count.
    Client,
    /// The module itself: a timer.
    Module,
}

impl Caller {
    /// Opens a pool to change it. Only what a client opens counts as used.
    fn open<'a>(self, ctx: Ctx<'a>, name: Str<'a>, moment: Moment) -> Result<PoolKey<'a>, Error> {
        match self {
            Caller::Client => PoolKey::write(ctx, name, moment),
            Caller::Module => PoolKey::tend(ctx, name, moment),
        }
    }
}

/// What adopting and giving back need to do with the legacy keys.
const RIGHTS: u32 = raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE;

/// How often one command looks at the legacy keys, at most: whoever hears of the entries that go
/// may add others.
const MAX_CHECKS: usize = 3;

/// Opens a pool to change it, and first adopts what is in its legacy keys: nothing is granted past
/// those sessions. Invalid entries stay there, and count as taken seats. While the entries cannot
/// be known or adopted, grants are suspended.
///
/// Those who wait for sessions that have come to hold seats are told so before anything else
/// happens.
#[inline]
pub(crate) fn open_for_write<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    moment: Moment,
    caller: Caller,
) -> Result<PoolKey<'a>, Error> {
    let is_worth_a_look = legacy_keys::may_exist(ctx.selected_database(), name.bytes())
        && !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE);
    let mut key = if is_worth_a_look {
        adopt(ctx, name, moment, caller)?
    } else {
        caller.open(ctx, name, moment)?
    };
    if key.has_blocked()
        && queue::have_sessions_moved(key.database, name.bytes())
        && key.machine().answer_holders()
    {
        queue::schedule_check_at(ctx, (key.database, name.bytes().into()));
    }
    Ok(key)
}

/// Opens a pool by `open`, adopts nothing, and counts the invalid entries that a command before
/// this one has found, unless something may have changed since. On a replica there are none.
pub(crate) fn open_as_known<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    moment: Moment,
    open: impl Fn(Ctx<'a>, Str<'a>, Moment) -> Result<PoolKey<'a>, Error>,
) -> Result<PoolKey<'a>, Error> {
    let mut key = open(ctx, name, moment)?;
    let known = legacy_keys::known_invalid(key.database, name.bytes());
    let Some(known) = known.filter(|_| !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE)) else {
        return Ok(key);
    };
    let value = key.value();
    // As in `adopt`.
    drop(key);
    let kinds = ctx.kinds_of(LegacyKeys::of(name.bytes()).both());
    key = open(ctx, name, moment)?;
    if known.is_of(kinds, value) {
        key.count_invalid(known.invalid);
    }
    Ok(key)
}

/// What is in the legacy keys of a pool.
enum Found<'a> {
    /// Nothing, or nothing that is in reach.
    Nothing,
    /// These entries, of which it is not known yet which are invalid.
    Entries(Entries<'a>),
    /// Invalid entries alone, which were read before.
    Invalid(Arc<InvalidEntries>),
    /// What cannot be known, or is not the caller's to adopt.
    Unknown(Error),
}

/// Adopts what can be, and leaves the invalid entries where they are. O(n) in what is there, unless
/// that was looked at before.
fn adopt<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    moment: Moment,
    caller: Caller,
) -> Result<PoolKey<'a>, Error> {
    let database = ctx.selected_database();
    let names = LegacyKeys::of(name.bytes());
    for _ in 0..MAX_CHECKS {
        let value = PoolKey::look(ctx, name, moment)?.value();
        // To look at other keys may end their time to live, and whoever listens to that may open
        // the pool: so it is not open meanwhile.
        let found = find(ctx, name, value, &names, caller);
        let mut key = caller.open(ctx, name, moment)?;
        let entries = match found {
            Found::Entries(entries) => entries,
            Found::Nothing => {
                legacy_keys::forget(database, name.bytes());
                return Ok(key);
            }
            Found::Invalid(invalid) => {
                key.count_invalid(invalid);
                return Ok(key);
            }
            Found::Unknown(why) => {
                key.suspend_grants(why);
                return Ok(key);
            }
        };
        let (imports, invalid) = entries.check(&key);
        if invalid.len() == 0 {
            entries.unlink(&mut key);
            import(&mut key, &imports);
            key.machine().serve();
            legacy_keys::forget(database, name.bytes());
            return Ok(key);
        }
        let others = entries.all_but(&invalid);
        if let Err(why) = others.can_be_removed(ctx) {
            key.suspend_grants(why);
            return Ok(key);
        }
        let invalid = Arc::new(invalid);
        key.count_invalid(invalid.clone());
        import(&mut key, &imports);
        for session in invalid.sessions() {
            key.machine().became_holder(session);
        }
        key.machine().serve();
        if others.are_none() {
            let known = KnownInvalid {
                kinds: entries.kinds,
                value: key.value(),
                invalid,
            };
            legacy_keys::note_invalid(database, name.bytes(), known);
            return Ok(key);
        }
        // Whoever listens to what follows may open it, or add entries that are to be counted as
        // well.
        drop(key);
        others.remove(&entries);
    }
    let mut key = caller.open(ctx, name, moment)?;
    key.suspend_grants(Error::TryAgain);
    Ok(key)
}

/// What the scripts keep of a pool, if the caller may touch it. `value` is what is at the pool's
/// own name.
fn find<'a>(
    ctx: Ctx<'a>,
    name: Str<'_>,
    value: usize,
    names: &'a LegacyKeys,
    caller: Caller,
) -> Found<'a> {
    let [sessions, _] = names.both();
    let kinds = ctx.kinds_of(names.both());
    let is_there = kinds[0] == Kind::Set || kinds[1] == Kind::Hash;
    if !is_there || !slot::is_shared(ctx, name.bytes(), sessions.bytes()) {
        return Found::Nothing;
    }
    if caller == Caller::Client && !rights::caller_may(ctx, &names.both(), RIGHTS) {
        let whose = "the legacy keys, whose sessions must be adopted first";
        return Found::Unknown(Error::NotAllowed(whose));
    }
    let known = legacy_keys::known_invalid(ctx.selected_database(), name.bytes());
    if let Some(known) = known.filter(|known| known.is_of(kinds, value)) {
        return Found::Invalid(known.invalid);
    }
    match Entries::read(ctx, names.both(), kinds) {
        Ok(entries) => Found::Entries(entries),
        Err(why) => Found::Unknown(why),
    }
}

/// Removes the invalid entries of `sessions` from the legacy keys of an open pool: what the scripts
/// do when a session ends. The pool is closed then, since whoever listens may open it. An error has
/// changed nothing.
pub(crate) fn remove_invalid(key: PoolKey<'_>, sessions: &BTreeSet<&[u8]>) -> Result<(), Error> {
    let ctx = key.ctx;
    ctx.needs(c"SREM")?;
    ctx.needs(c"HDEL")?;
    let names = LegacyKeys::of(key.name.bytes());
    drop(key);
    let sessions: Vec<OwnedStr> = sessions.iter().copied().map(OwnedStr::new).collect();
    let ways = [(c"SREM", Kind::Set), (c"HDEL", Kind::Hash)];
    for (name, (command, kind)) in names.both().into_iter().zip(ways) {
        for batch in sessions.chunks(BATCH) {
            // Whoever follows could not carry it out on another type.
            if ctx.kind_of(name) == kind {
                write(ctx, command, name, batch);
            }
        }
    }
    Ok(())
}

/// Refuses a key that holds another type than the scripts keep there; it may be missing.
pub(super) fn check_types(ctx: Ctx<'_>, sessions: Str<'_>, metadata: Str<'_>) -> Result<(), Error> {
    for (key, kind) in [(sessions, Kind::Set), (metadata, Kind::Hash)] {
        if ![Kind::Nothing, kind].contains(&ctx.kind_of(key)) {
            return Err(Error::WrongType);
        }
    }
    Ok(())
}

/// Adopts the sessions of a SET and the metadata of a HASH, deletes both, and returns how many
/// sessions that were. A key that is not of its type is left alone. All or nothing: an error has
/// changed nothing. O(n).
pub(super) fn adopt_keys(
    key: &mut PoolKey<'_>,
    sessions: Str<'_>,
    metadata: Str<'_>,
) -> Result<usize, Error> {
    let names = [sessions, metadata];
    let entries = Entries::read(key.ctx, names, key.ctx.kinds_of(names))?;
    let (imports, invalid) = entries.check(key);
    if let Some(why) = invalid.first_error() {
        return Err(why);
    }
    entries.unlink(key);
    legacy_keys::forget_invalid(key.database, key.name.bytes());
    let imported = import(key, &imports);
    key.machine().serve();
    Ok(imported)
}

/// Has sessions hold seats, and returns how many of them did not before. The queue is to be served
/// then.
fn import(key: &mut PoolKey<'_>, imports: &[Import<'_>]) -> usize {
    // The legacy keys do not say what the limit was. It was no lower than those who wait say, or
    // than what was granted under it.
    let blocked = key.blocked();
    let waiting = blocked.first().map(|entry| blocked.figure(entry));
    let seats = if key.exists() {
        key.pool().seats()
    } else {
        let held = imports.len() as u64 + key.taken_elsewhere();
        waiting.unwrap_or(0).max(held as i64)
    };
    let mut imported = 0;
    for import in imports {
        if let Some(effect) = import.effect(key.pool(), key.moment, seats) {
            key.commit(&effect);
            imported += 1;
        }
    }
    for import in imports {
        key.machine().became_holder(import.session());
    }
    imported
}

/// Writes the live sessions of a pool into a SET and a HASH, as the scripts would have them,
/// removes the pool, and returns how many sessions that were. What is in the two already stays,
/// unless it is of the same session. All or nothing. O(n).
pub(super) fn export_to(
    key: PoolKey<'_>,
    sessions: Str<'_>,
    metadata: Str<'_>,
) -> Result<usize, Error> {
    let ctx = key.ctx;
    check_types(ctx, sessions, metadata)?;
    for command in [c"SADD", c"HSET", c"UNLINK"] {
        ctx.needs(command)?;
    }
    let moment = key.moment;
    let count = key.pool().count(moment);
    let mut batches = Vec::new();
    let mut live = key.pool().live(moment).peekable();
    while live.peek().is_some() {
        let (mut members, mut fields) = (Vec::new(), Vec::new());
        for session in live.by_ref().take(BATCH) {
            members.push(OwnedStr::new(session.id()));
            if let Some(json) = session.json() {
                fields.extend([OwnedStr::new(session.id()), OwnedStr::new(&json)]);
            }
        }
        batches.push((members, fields));
    }
    drop(live);
    let (database, name) = (key.database, key.name);
    // First, since whoever listens to what follows may open the key.
    key.remove();
    for (members, fields) in &batches {
        write(ctx, c"SADD", sessions, members);
        write(ctx, c"HSET", metadata, fields);
    }
    // A grant to those who wait would not count the sessions that have gone.
    while queue::fail(database, name.bytes(), || Error::TryAgain) {}
    for _ in 0..count {
        stats::EXPORTED.add();
    }
    Ok(count)
}
