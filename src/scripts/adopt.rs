//! Sessions between the scripts' keys and the pool: taking them over, and giving them back.

use std::collections::HashMap;

use redis_module::raw;
use seat_pool::Import;

use super::{ScriptKeys, keys, same_slot};
use crate::error::Error;
use crate::ffi::{Ctx, Kind, OwnedStr, Reply, Str};
use crate::pool_key::PoolKey;
use crate::{queue, rights, stats};

/// For whom a pool is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A client, whose rights count.
    Client,
    /// The module itself: a timer.
    Module,
}

/// What taking over and giving back need to do with the scripts' keys.
const RIGHTS: u32 = raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE;

/// Sessions and fields that one command carries when a pool is given back.
const BATCH: usize = 500;

/// Opens a pool to change it, and first takes over what is in the scripts' keys for it: nothing is granted past their sessions.
///
/// For a client, what cannot be taken over is an error. For the module itself the key then grants nothing.
pub(crate) fn open<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    now_ms: i64,
    caller: Caller,
) -> Result<PoolKey<'a>, Error> {
    let mut key = PoolKey::write(ctx, name, now_ms)?;
    if keys::may_exist(key.database, name.bytes())
        && !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE)
        && let Err(error) = adopt(&mut key, caller)
    {
        match caller {
            Caller::Client => return Err(error),
            Caller::Module => key.hold_grants(),
        }
    }
    Ok(key)
}

fn adopt(key: &mut PoolKey<'_>, caller: Caller) -> Result<(), Error> {
    let (ctx, database, name) = (key.ctx, key.database, key.name.bytes());
    let names = ScriptKeys::of(name);
    let [sessions, metadata] = names.both();
    if !same_slot(ctx, key.name, sessions) {
        keys::forget(database, name);
        return Ok(());
    }
    let has_sessions = ctx.kind_of(sessions) == Kind::Set;
    let has_metadata = ctx.kind_of(metadata) == Kind::Hash;
    if has_sessions || has_metadata {
        if caller == Caller::Client && !rights::caller_may(ctx, &names.both(), RIGHTS) {
            return Err(Error::NotAllowed(
                "the scripts' keys, whose sessions come first",
            ));
        }
        take_over(key, sessions, metadata)?;
    }
    keys::forget(database, name);
    Ok(())
}

/// The strings of an array that the server must have answered with: no session is given up for a reply that is none.
fn strings_of(reply: Option<&Reply>) -> Result<impl Iterator<Item = &[u8]>, Error> {
    reply.and_then(Reply::strings).ok_or(Error::TryAgain)
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
    let ctx = key.ctx;
    let has_sessions = ctx.kind_of(sessions) == Kind::Set;
    let has_metadata = ctx.kind_of(metadata) == Kind::Hash;
    for command in [c"SMEMBERS", c"HGETALL", c"UNLINK"] {
        ctx.needs(command)?;
    }
    let read = |command, key, exists: bool| exists.then(|| ctx.call(command, &[key])).flatten();
    let members = read(c"SMEMBERS", sessions, has_sessions);
    let fields = read(c"HGETALL", metadata, has_metadata);
    let mut stored = HashMap::new();
    if has_metadata {
        let mut fields = strings_of(fields.as_ref())?;
        while let (Some(session), Some(json)) = (fields.next(), fields.next()) {
            stored.insert(session, json);
        }
    }
    let members: Vec<&[u8]> = if has_sessions {
        strings_of(members.as_ref())?.collect()
    } else {
        Vec::new()
    };
    let imports = members.into_iter().map(|session| {
        Import::read(session, stored.get(session).copied()).map_err(|why| Error::NotImportable {
            session: session.into(),
            why,
        })
    });
    let imports: Vec<Import<'_>> = imports.collect::<Result<_, _>>()?;

    for (taken, exists) in [(sessions, has_sessions), (metadata, has_metadata)] {
        if exists {
            key.unlink_other(taken);
        }
    }
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
    let now_ms = key.now_ms;
    let mut imported = 0;
    for import in &imports {
        if let Some(effect) = import.effect(key.pool(), now_ms, seats) {
            key.commit(&effect);
            stats::IMPORTED.add();
            imported += 1;
        }
    }
    Ok(imported)
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
    let now_ms = key.now_ms;
    let used = key.pool().used(now_ms);
    let mut batches = Vec::new();
    let mut live = key.pool().live(now_ms).peekable();
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
    let write = |command, destination: Str<'_>, parts: &[OwnedStr]| {
        if parts.is_empty() {
            return;
        }
        let parts = parts.iter().map(OwnedStr::get);
        let arguments: Vec<_> = std::iter::once(destination).chain(parts).collect();
        ctx.call(command, &arguments);
        ctx.replicate(command, &arguments);
    };
    for (members, fields) in &batches {
        write(c"SADD", sessions, members);
        write(c"HSET", metadata, fields);
    }
    // A grant to those who wait would not count the sessions that have gone.
    while queue::fail(database, name.bytes(), || Error::TryAgain) {}
    for _ in 0..used {
        stats::EXPORTED.add();
    }
    Ok(used)
}
