//! One call of a command: its arguments, the moment of the call, and the pool that it opens.

use std::collections::BTreeSet;
use std::ffi::CStr;

use seat_pool::{Freed, Moment};

use crate::config;
use crate::error::Error;
use crate::ffi::{Args, Ctx, Spec, Str};
use crate::migration::{self, Caller};
use crate::pool_key::PoolKey;
use crate::text::CallerText;

/// The version that brought the commands of this one.
pub(crate) const SINCE: &CStr = c"0.1.0";

/// A command of the module.
pub(crate) trait Command {
    /// What it is registered with.
    const SPEC: Spec;

    /// Answers one call. Either it replies in full and returns `Ok`, or it has not replied at all.
    fn run(call: Call<'_>) -> Result<(), Error>;
}

/// One call of a command.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) args: Args<'a>,
    /// The moment of the call, by the server's clock: the only one that it goes by.
    pub(crate) moment: Moment,
}

impl<'a> Call<'a> {
    /// The argument at `index`; 0 is the command's name.
    pub(crate) fn arg(&self, index: usize) -> Result<Str<'a>, Error> {
        self.args.get(index).ok_or(Error::Arity)
    }

    pub(crate) fn key(&self) -> Result<Str<'a>, Error> {
        self.arg(1)
    }

    /// Opens the key to read its pool.
    pub(crate) fn pool_to_read(&self) -> Result<PoolKey<'a>, Error> {
        PoolKey::read(self.ctx, self.key()?, self.moment)
    }

    /// Opens the key to change its pool. An error while grants are suspended there.
    #[inline]
    pub(crate) fn pool_to_change(&self) -> Result<PoolKey<'a>, Error> {
        let key = self.open()?;
        match key.suspended() {
            Some(why) => Err(why.clone()),
            None => Ok(key),
        }
    }

    /// As [`Call::pool_to_change`], and first ends the holds of those of `sessions` that have their
    /// seats by invalid entries. Returns how many those were as well.
    pub(crate) fn pool_to_free(
        &self,
        sessions: impl Iterator<Item = &'a [u8]>,
        why: Freed,
    ) -> Result<(PoolKey<'a>, usize), Error> {
        let key = self.pool_to_change()?;
        let holders: BTreeSet<&[u8]> = sessions
            .filter(|session| key.invalid_entry(session).is_some())
            .collect();
        if holders.is_empty() {
            return Ok((key, 0));
        }
        migration::remove_invalid(key, &holders)?;
        // Not an error any more, whatever is found now: these holds have ended.
        let mut key = self.open()?;
        key.freed_elsewhere(why, holders.len());
        Ok((key, holders.len()))
    }

    #[inline]
    fn open(&self) -> Result<PoolKey<'a>, Error> {
        if migration::is_outdated(self.arg(0)?) {
            return Err(Error::TryAgain);
        }
        let mut key =
            migration::open_for_write(self.ctx, self.key()?, self.moment, Caller::Client)?;
        // All commands that change a session name it first.
        key.pass_on(CallerText {
            session: self.args.get(2),
            ..CallerText::default()
        });
        Ok(key)
    }

    /// A session id that may be granted a seat.
    pub(crate) fn new_session(&self, index: usize) -> Result<&'a [u8], Error> {
        let session = self.arg(index)?;
        check_id("session", session)?;
        Ok(session.bytes())
    }
}

/// Refuses an id of a session or an owner with which no seat is granted.
pub(super) fn check_id(what: &'static str, id: Str<'_>) -> Result<(), Error> {
    let (len, limit) = (id.bytes().len(), config::MAX_SESSION.get());
    if len == 0 {
        Err(Error::Empty(what))
    } else if len > limit {
        Err(Error::TooLong(what, limit))
    } else {
        Ok(())
    }
}
