//! `SEAT.SISMEMBER`, `SEAT.SMEMBERS`, `SEAT.SCARD`, `SEAT.HGET`, `SEAT.HGETALL`, `SEAT.HEXISTS`,
//! `SEAT.HLEN`, `SEAT.HKEYS`: what readers of the legacy keys become, and answered as these keys
//! would be.
//!
//! Where the pool exists it counts, together with what others have put into the legacy keys since
//! and no command has adopted yet. Where it does not, the keys are read as they are.

use std::ffi::CStr;

use redis_module::raw;
use seat_pool::{Moment, Pool};

use super::names::pool_of;
use super::rewrite::READERS;
use super::rights;
use crate::commands::call::{Call, Command, SINCE};
use crate::error::Error;
use crate::ffi::{Argument, Ctx, Kind, OwnedStr, Reply, Spec, Str};
use crate::pool_key::PoolKey;
use crate::{replies, stats};

/// The reader of this number in [`READERS`].
pub(crate) struct View<const READER: usize>;

impl<const READER: usize> Command for View<READER> {
    const SPEC: Spec = Spec {
        name: READERS[READER].command,
        summary: c"Reads a key of the scripts' from the pool.",
        complexity: READERS[READER].complexity,
        since: SINCE,
        flags: READERS[READER].flags,
        arity: READERS[READER].arity,
        keys: &[raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS],
        arguments: if READERS[READER].arity == 3 {
            &[Argument::KEY, Argument::string(c"session")]
        } else {
            &[Argument::KEY]
        },
    };

    fn run(call: Call<'_>) -> Result<(), Error> {
        let Call { ctx, args, moment } = call;
        let name = call.key()?;
        let arguments: Vec<Str<'_>> = args.iter().skip(1).collect();
        let native = READERS[READER].native;
        stats::SCRIPT_READS.add();

        if let Some(pool_name) = pool_of(name.bytes()) {
            let pool_name = OwnedStr::new(pool_name);
            // Where no pool is, the keys are read in its place, and only they are hit or missed.
            let is_pool = PoolKey::look(ctx, pool_name.get(), moment).is_ok_and(|key| key.exists());
            if is_pool {
                let key = PoolKey::read(ctx, pool_name.get(), moment)?;
                let read = raw::REDISMODULE_CMD_KEY_ACCESS;
                if !rights::caller_may(ctx, &[pool_name.get()], read) {
                    return Err(Error::NotAllowed("the pool that now holds the sessions"));
                }
                let view = Seen {
                    ctx,
                    pool: key.pool(),
                    moment,
                    native,
                    arguments: &arguments,
                };
                return view.answer();
            }
        }
        let reply = ctx.call_for_client(native, &arguments);
        ctx.reply_with(&reply.ok_or(Error::TryAgain)?);
        Ok(())
    }
}

/// A pool as the legacy keys would show it.
struct Seen<'a> {
    ctx: Ctx<'a>,
    pool: &'a Pool,
    moment: Moment,
    native: &'static CStr,
    arguments: &'a [Str<'a>],
}

impl Seen<'_> {
    fn answer(&self) -> Result<(), Error> {
        let ctx = self.ctx;
        match self.native.to_bytes() {
            b"SISMEMBER" => {
                let is_member = self.pool.get(self.moment, self.session()).is_some();
                self.integer_or_native(is_member);
            }
            b"HEXISTS" => match self.pool.get(self.moment, self.session()) {
                Some(session) => ctx.reply_integer(i64::from(session.metadata().is_some())),
                None => self.integer_or_native(false),
            },
            b"HGET" => match self.pool.get(self.moment, self.session()) {
                live @ Some(_) => replies::session_json(ctx, live),
                None => match self.ask_native(self.native) {
                    Some(reply) => ctx.reply_with(&reply),
                    None => ctx.reply_null(),
                },
            },
            b"SCARD" => {
                let others = self.others(c"SMEMBERS", 1)?.len();
                ctx.reply_integer((self.pool.count(self.moment) + others) as i64);
            }
            b"HLEN" => {
                let others = self.others(c"HGETALL", 2)?.len() / 2;
                ctx.reply_integer((self.pool.with_metadata(self.moment) + others) as i64);
            }
            b"SMEMBERS" => {
                let others = self.others(c"SMEMBERS", 1)?;
                ctx.reply_set(self.pool.count(self.moment) + others.len());
                let live = self.pool.live(self.moment);
                live.for_each(|session| ctx.reply_bulk(session.id()));
                others.iter().for_each(|session| ctx.reply_bulk(session));
            }
            fields => {
                let with_values = fields == b"HGETALL";
                let others = self.others(c"HGETALL", 2)?;
                let len = self.pool.with_metadata(self.moment) + others.len() / 2;
                if with_values {
                    ctx.reply_map(len);
                } else {
                    ctx.reply_array(len);
                }
                for session in self.pool.live(self.moment) {
                    if let Some(json) = session.json() {
                        ctx.reply_bulk(session.id());
                        if with_values {
                            ctx.reply_bulk(&json);
                        }
                    }
                }
                for field in others.chunks(2) {
                    ctx.reply_bulk(&field[0]);
                    if with_values {
                        ctx.reply_bulk(&field[1]);
                    }
                }
            }
        }
        Ok(())
    }

    fn session(&self) -> &[u8] {
        self.arguments.get(1).map_or(&[], |session| session.bytes())
    }

    fn integer_or_native(&self, is_so: bool) {
        let native = || self.ask_native(self.native)?.integer();
        let answer = if is_so { 1 } else { native().unwrap_or(0) };
        self.ctx.reply_integer(answer);
    }

    /// Whether the key itself is there. Mostly it is not, and a read of it would count as a miss.
    fn has_others(&self) -> bool {
        self.ctx.kind_of(self.arguments[0]) != Kind::Nothing
    }

    /// The reply of a command on the key itself, if it holds what the scripts keep there.
    fn ask_native(&self, command: &CStr) -> Option<Reply> {
        if !self.has_others() {
            return None;
        }
        self.ctx.call_for_client(command, self.arguments)
    }

    /// What the key itself has of sessions that are not in the pool: groups of `width` strings, the
    /// session first.
    fn others(&self, command: &'static CStr, width: usize) -> Result<Vec<Vec<u8>>, Error> {
        if !self.has_others() {
            return Ok(Vec::new());
        }
        let reply = self.ctx.call(command, &self.arguments[..1]);
        if reply.is_none() {
            self.ctx.needs(command)?;
        }
        // A key of another type has none.
        let strings = reply.iter().filter_map(Reply::strings).flatten();
        let strings: Vec<&[u8]> = strings.collect();
        let others = strings
            .chunks_exact(width)
            .filter(|group| self.pool.get(self.moment, group[0]).is_none())
            .flat_map(|group| group.iter().map(|string| string.to_vec()));
        Ok(others.collect())
    }
}
