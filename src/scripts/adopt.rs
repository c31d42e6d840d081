//! Sessions between the scripts' keys and the pool: taking them over, and giving them back.

use std::sync::Arc;

use redis_module::raw;
use seat_pool::{Import, Moment};

use super::keys::BadRows;
use super::rows::{BATCH, Rows, write};
use super::{ScriptKeys, keys, same_slot};
use crate::error::Error;
use crate::ffi::{Ctx, Kind, OwnedStr, Str};
use crate::pool_key::{PoolKey, Withheld};
use crate::{queue, rights, stats};

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

/// What taking over and giving back need to do with the scripts' keys.
const RIGHTS: u32 = raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE;

/// Opens a pool to change it, and first takes over what is in the scripts' keys for it: nothing is granted past their sessions.
/// While some cannot be taken over, nothing is granted at all.
///
/// Those who wait for sessions that have come to hold seats are told so before anything else happens.
pub(crate) fn open<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    moment: Moment,
    caller: Caller,
) -> Result<PoolKey<'a>, Error> {
    let is_worth_a_look = keys::may_exist(ctx.selected_database(), name.bytes())
        && !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE);
    let mut key = if is_worth_a_look {
        adopt(ctx, name, moment, caller)?
    } else {
        caller.open(ctx, name, moment)?
    };
    key.find_holders();
    Ok(key)
}

/// Takes over what can be, and leaves in the scripts' keys what cannot. O(n) in what is there, unless that was looked at before.
fn adopt<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    moment: Moment,
    caller: Caller,
) -> Result<PoolKey<'a>, Error> {
    let database = ctx.selected_database();
    let names = ScriptKeys::of(name.bytes());
    let value = PoolKey::look(ctx, name, moment)?.value();
    // To look at other keys may end their time to live, and whoever listens to that may open the pool: so it is not open meanwhile.
    let found = rows_to_adopt(ctx, name, value, &names, caller);
    let mut key = caller.open(ctx, name, moment)?;
    let rows = match found {
        Ok(Some(rows)) => rows,
        Ok(None) => {
            keys::forget(database, name.bytes());
            return Ok(key);
        }
        Err(withheld) => {
            key.withhold_grants(withheld);
            return Ok(key);
        }
    };
    let (imports, bad) = rows.check(&key);
    let Some(first) = bad.first() else {
        rows.unlink(&mut key);
        import(&mut key, &imports);
        keys::forget(database, name.bytes());
        return Ok(key);
    };
    let sessions = bad.iter().map(|row| row.session.into());
    let withheld = Withheld::by(sessions, first.error());
    key.withhold_grants(withheld.clone());
    let others = rows.all_but(&bad);
    if others.are_none() {
        let rows = BadRows {
            kinds: rows.kinds,
            value: key.value(),
            withheld,
        };
        keys::note_bad(database, name.bytes(), rows);
        return Ok(key);
    }
    if let Err(why) = others.can_be_removed(ctx) {
        key.withhold_grants(Withheld::from_all(why));
        return Ok(key);
    }
    import(&mut key, &imports);
    // Whoever listens to what follows may open it.
    drop(key);
    others.remove(&rows);
    let mut key = caller.open(ctx, name, moment)?;
    key.withhold_grants(withheld);
    Ok(key)
}

/// What the scripts keep of a pool, if anything, and if the caller may touch it. `value` is what is at the pool's own name.
fn rows_to_adopt<'a>(
    ctx: Ctx<'a>,
    name: Str<'_>,
    value: usize,
    names: &'a ScriptKeys,
    caller: Caller,
) -> Result<Option<Rows<'a>>, Arc<Withheld>> {
    let [sessions, _] = names.both();
    let kinds = ctx.kinds_of(names.both());
    let is_there = kinds[0] == Kind::Set || kinds[1] == Kind::Hash;
    if !is_there || !same_slot(ctx, name, sessions) {
        return Ok(None);
    }
    if caller == Caller::Client && !rights::caller_may(ctx, &names.both(), RIGHTS) {
        let whose = "the scripts' keys, whose sessions come first";
        return Err(Withheld::from_all(Error::NotAllowed(whose)));
    }
    let bad = keys::bad(ctx.selected_database(), name.bytes());
    if let Some(bad) = bad.filter(|bad| bad.kinds == kinds && bad.value == value) {
        return Err(bad.withheld);
    }
    let rows = Rows::read(ctx, names.both(), kinds).map_err(Withheld::from_all)?;
    Ok(Some(rows))
}

/// Refuses a key that holds another type than the scripts keep there; it may be missing.
pub(crate) fn check_types(ctx: Ctx<'_>, sessions: Str<'_>, metadata: Str<'_>) -> Result<(), Error> {
    for (key, kind) in [(sessions, Kind::Set), (metadata, Kind::Hash)] {
        if ![Kind::Nothing, kind].contains(&ctx.kind_of(key)) {
            return Err(Error::WrongType);
        }
    }
    Ok(())
}

/// Takes over the sessions of a SET and the metadata of a HASH, deletes both, and returns how many sessions that were. A key that
/// is not of its type is left alone. All or nothing: an error has changed nothing. O(n).
pub(crate) fn take_over(
    key: &mut PoolKey<'_>,
    sessions: Str<'_>,
    metadata: Str<'_>,
) -> Result<usize, Error> {
    let names = [sessions, metadata];
    let rows = Rows::read(key.ctx, names, key.ctx.kinds_of(names))?;
    let (imports, bad) = rows.check(key);
    if let Some(row) = bad.first() {
        return Err(row.error());
    }
    rows.unlink(key);
    // What was bad in the pool's own keys may be known now.
    keys::forget_bad(key.database, key.name.bytes());
    Ok(import(key, &imports))
}

/// Has sessions hold seats, and returns how many of them did not before.
fn import(key: &mut PoolKey<'_>, imports: &[Import<'_>]) -> usize {
    // The scripts' keys do not say what the limit was. It was no lower than those who wait say, or than what was granted under it.
    let waiting = key
        .line()
        .first()
        .and_then(|place| queue::seats_of(place.waiting));
    let seats = if key.exists() {
        key.pool().seats()
    } else {
        waiting.unwrap_or(0).max(imports.len() as i64)
    };
    let mut imported = 0;
    for import in imports {
        if let Some(effect) = import.effect(key.pool(), key.moment, seats) {
            key.commit(&effect);
            stats::IMPORTED.add();
            imported += 1;
        }
    }
    for import in imports {
        key.wake_holder(import.session());
    }
    imported
}

/// Writes the live sessions of a pool into a SET and a HASH, as the scripts would have them, removes the pool, and returns how many
/// sessions that were. What is in the two already stays, unless it is of the same session. All or nothing. O(n).
pub(crate) fn export_to(
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
    let used = key.pool().used(moment);
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
    for _ in 0..used {
        stats::EXPORTED.add();
    }
    Ok(used)
}
