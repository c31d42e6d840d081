//! The scripts' keys of one pool: reading and removing their rows, and writing such rows.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;

use seat_pool::{Import, ImportError};

use crate::error::Error;
use crate::ffi::{Ctx, Kind, OwnedStr, Reply, Str};
use crate::pool_key::PoolKey;

/// Sessions and fields that one command carries.
pub(super) const BATCH: usize = 500;

/// What the scripts keep of one pool: the members of a SET, and the fields of a HASH.
pub(super) struct Rows<'a> {
    ctx: Ctx<'a>,
    sessions: Str<'a>,
    metadata: Str<'a>,
    /// Absent where the key is not of its type.
    members: Option<Reply>,
    fields: Option<Reply>,
}

/// A row that no pool can hold.
pub(super) struct BadRow<'a> {
    session: &'a [u8],
    why: ImportError,
}

impl BadRow<'_> {
    pub(super) fn error(&self) -> Error {
        Error::NotImportable {
            session: self.session.into(),
            why: self.why,
        }
    }
}

impl<'a> Rows<'a> {
    pub(super) fn read(
        ctx: Ctx<'a>,
        sessions: Str<'a>,
        metadata: Str<'a>,
    ) -> Result<Rows<'a>, Error> {
        for command in [c"SMEMBERS", c"HGETALL", c"UNLINK"] {
            ctx.needs(command)?;
        }
        // No session is given up for a reply that is none.
        let read = |command, key, kind| {
            let is_there = ctx.kind_of(key) == kind;
            let reply = is_there.then(|| ctx.call(command, &[key]).ok_or(Error::TryAgain));
            reply.transpose()
        };
        Ok(Rows {
            ctx,
            sessions,
            metadata,
            members: read(c"SMEMBERS", sessions, Kind::Set)?,
            fields: read(c"HGETALL", metadata, Kind::Hash)?,
        })
    }

    /// The sessions that a pool can hold, and those that it cannot. Fields without a member are nobody's.
    pub(super) fn check(&self) -> Result<(Vec<Import<'_>>, Vec<BadRow<'_>>), Error> {
        let mut stored = HashMap::new();
        let mut fields = strings_of(&self.fields)?;
        while let (Some(session), Some(json)) = (fields.next(), fields.next()) {
            stored.insert(session, json);
        }
        let (mut imports, mut bad) = (Vec::new(), Vec::new());
        for session in strings_of(&self.members)? {
            match Import::read(session, stored.get(session).copied()) {
                Ok(import) => imports.push(import),
                Err(why) => bad.push(BadRow { session, why }),
            }
        }
        Ok((imports, bad))
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

    /// Removes all but some rows from both keys. No pool may be open.
    pub(super) fn remove_all_but(&self, kept: &[BadRow<'_>]) -> Result<(), Error> {
        let kept: HashSet<&[u8]> = kept.iter().map(|row| row.session).collect();
        let members = strings_of(&self.members)?;
        let fields = strings_of(&self.fields)?.step_by(2);
        let gone = |session: &&[u8]| !kept.contains(session);
        let members: Vec<OwnedStr> = members.filter(gone).map(OwnedStr::new).collect();
        let fields: Vec<OwnedStr> = fields.filter(gone).map(OwnedStr::new).collect();
        for batch in members.chunks(BATCH) {
            write(self.ctx, c"SREM", self.sessions, batch);
        }
        for batch in fields.chunks(BATCH) {
            write(self.ctx, c"HDEL", self.metadata, batch);
        }
        Ok(())
    }
}

/// The strings of an array, none where nothing was read.
fn strings_of(reply: &Option<Reply>) -> Result<impl Iterator<Item = &[u8]>, Error> {
    let strings = reply
        .as_ref()
        .map(|reply| reply.strings().ok_or(Error::TryAgain));
    Ok(strings.transpose()?.into_iter().flatten())
}

/// Carries a command of the server's out, here and on whoever follows, if there is anything to carry out.
pub(super) fn write(ctx: Ctx<'_>, command: &'static CStr, key: Str<'_>, parts: &[OwnedStr]) {
    let parts = parts.iter().map(OwnedStr::get);
    let arguments: Vec<_> = std::iter::once(key).chain(parts).collect();
    if arguments.len() > 1 {
        ctx.call(command, &arguments);
        ctx.replicate(command, &arguments);
    }
}
