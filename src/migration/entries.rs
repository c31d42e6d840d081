//! The legacy keys of one pool: reading and removing their entries, and writing such entries.

use std::collections::HashMap;
use std::ffi::CStr;

use seat_pool::Import;

use super::invalid_entries::InvalidEntries;
use crate::error::Error;
use crate::ffi::{Ctx, Kind, OwnedStr, Reply, Str};
use crate::pool_key::PoolKey;

/// Sessions and fields that one command carries.
pub(super) const BATCH: usize = 500;

/// What the scripts keep of one pool: the members of a SET, and the fields of a HASH.
pub(super) struct Entries<'a> {
    ctx: Ctx<'a>,
    sessions: Str<'a>,
    metadata: Str<'a>,
    /// What was at the two keys when they were read.
    pub(super) kinds: [Kind; 2],
    /// Absent where the key is not of its type.
    members: Option<Reply>,
    fields: Option<Reply>,
}

/// Members and fields that are to be removed.
pub(super) struct Others {
    members: Vec<OwnedStr>,
    fields: Vec<OwnedStr>,
}

impl<'a> Entries<'a> {
    /// Reads the two keys, at which `kinds` were found.
    pub(super) fn read(
        ctx: Ctx<'a>,
        [sessions, metadata]: [Str<'a>; 2],
        kinds: [Kind; 2],
    ) -> Result<Entries<'a>, Error> {
        for command in [c"SMEMBERS", c"HGETALL", c"UNLINK"] {
            ctx.needs(command)?;
        }
        let read = |command, key, is_there: bool| {
            if !is_there {
                return Ok(None);
            }
            // No session is given up for a reply that is none.
            let reply = ctx.call(command, &[key]);
            let reply = reply.filter(|reply| reply.strings().is_some());
            reply.ok_or(Error::TryAgain).map(Some)
        };
        Ok(Entries {
            ctx,
            sessions,
            metadata,
            kinds,
            members: read(c"SMEMBERS", sessions, kinds[0] == Kind::Set)?,
            fields: read(c"HGETALL", metadata, kinds[1] == Kind::Hash)?,
        })
    }

    /// The sessions that a pool can hold, and the invalid entries. Those that hold seats of `key`
    /// already are among the former whatever is stored of them, and fields without a member are
    /// nobody's.
    pub(super) fn check(&self, key: &PoolKey<'_>) -> (Vec<Import<'_>>, InvalidEntries) {
        let mut stored = HashMap::new();
        let mut fields = strings_of(&self.fields);
        while let (Some(session), Some(json)) = (fields.next(), fields.next()) {
            stored.insert(session, json);
        }
        let (mut imports, mut invalid) = (Vec::new(), Vec::new());
        for session in strings_of(&self.members) {
            let is_known = key.pool().get(key.moment, session).is_some();
            let json = stored.get(session).copied().filter(|_| !is_known);
            match Import::read(session, json) {
                Ok(import) => imports.push(import),
                Err(why) => invalid.push((session.into(), why)),
            }
        }
        (imports, InvalidEntries::new(invalid))
    }

    /// Removes both keys.
    pub(super) fn unlink(&self, key: &mut PoolKey<'_>) {
        for (name, reply) in [
            (self.sessions, &self.members),
            (self.metadata, &self.fields),
        ] {
            if reply.is_some() {
                key.unlink_other(name);
            }
        }
    }

    pub(super) fn all_but(&self, kept: &InvalidEntries) -> Others {
        let is_other = |session: &&[u8]| !kept.has(session);
        let members = strings_of(&self.members).filter(is_other);
        let fields = strings_of(&self.fields).step_by(2).filter(is_other);
        Others {
            members: members.map(OwnedStr::new).collect(),
            fields: fields.map(OwnedStr::new).collect(),
        }
    }
}

impl Others {
    pub(super) fn are_none(&self) -> bool {
        self.members.is_empty() && self.fields.is_empty()
    }

    pub(super) fn can_be_removed(&self, ctx: Ctx<'_>) -> Result<(), Error> {
        if self.are_none() {
            return Ok(());
        }
        ctx.needs(c"SREM")?;
        ctx.needs(c"HDEL")
    }

    /// Removes them from the keys of `entries`. No pool may be open.
    pub(super) fn remove(&self, entries: &Entries<'_>) {
        for batch in self.members.chunks(BATCH) {
            write(entries.ctx, c"SREM", entries.sessions, batch);
        }
        for batch in self.fields.chunks(BATCH) {
            write(entries.ctx, c"HDEL", entries.metadata, batch);
        }
    }
}

/// The strings of an array, none where nothing was read.
fn strings_of(reply: &Option<Reply>) -> impl Iterator<Item = &[u8]> {
    reply.iter().filter_map(Reply::strings).flatten()
}

/// Carries a command of the server's out, here and on whoever follows, if there is anything to
/// carry out.
pub(super) fn write(ctx: Ctx<'_>, command: &'static CStr, key: Str<'_>, parts: &[OwnedStr]) {
    let parts = parts.iter().map(OwnedStr::get);
    let arguments: Vec<_> = std::iter::once(key).chain(parts).collect();
    if arguments.len() > 1 {
        ctx.call_and_replicate(command, &arguments);
    }
}
