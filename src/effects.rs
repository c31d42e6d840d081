//! Effects on the wire: the internal command `SEAT.EFFECT`, as it is sent to the AOF and the replicas and as it is read back.
//!
//! `docs/design.md` lists the forms. A missing value is a dash, which neither an integer nor a JSON object can be.

use std::ffi::{c_char, c_longlong};

use redis_module::raw;
use seat_pool::{
    Beat, Effect, Freed, Grant, Join, Lease, MAX_ARRIVAL, MAX_METADATA_BYTES, MAX_SESSION_BYTES,
    Metadata, Ticket,
};

use crate::error::Error;
use crate::ffi::{Args, Ctx, Str, api};

const ABSENT: &[u8] = b"-";

/// Sends an effect to the AOF and the replicas in place of the command that caused it. Also when nobody listens: the server's save
/// points and its backlog depend on it.
pub(crate) fn replicate(ctx: Ctx<'_>, key: Str<'_>, effect: &Effect<'_>) {
    write(Sink::Replicas(ctx), key, effect);
}

/// Writes an effect to an AOF that is being rewritten.
pub(crate) fn emit_to_aof(io: *mut raw::RedisModuleIO, key: Str<'_>, effect: &Effect<'_>) {
    write(Sink::Aof(io), key, effect);
}

#[derive(Clone, Copy)]
enum Sink<'a> {
    Replicas(Ctx<'a>),
    Aof(*mut raw::RedisModuleIO),
}

/// Sends one `SEAT.EFFECT` with arguments by the API's format: `s` a string of the server's, `c` a C string, `l` a `long long`,
/// `b` a pointer and a length.
macro_rules! send {
    ($sink:expr, $format:literal, $($argument:expr),+) => {
        // SAFETY: the sink is that of the running callback, and the arguments fit the format and outlive the call.
        unsafe {
            match $sink {
                Sink::Replicas(ctx) => {
                    api!(RedisModule_Replicate)(ctx.as_ptr(), c"SEAT.EFFECT".as_ptr(), $format.as_ptr(), $($argument),+);
                }
                Sink::Aof(io) => {
                    api!(RedisModule_EmitAOF)(io, c"SEAT.EFFECT".as_ptr(), $format.as_ptr(), $($argument),+);
                }
            }
        }
    };
}

fn write(sink: Sink<'_>, key: Str<'_>, effect: &Effect<'_>) {
    let start = |bytes: &[u8]| bytes.as_ptr().cast::<c_char>();
    let lease_parts = |lease: Option<Lease>| {
        let (length, deadline) = lease.map_or((0, 0), |lease| (lease.length_ms, lease.deadline_ms));
        (length as c_longlong, deadline as c_longlong)
    };
    match effect {
        Effect::Grant(grant) => {
            let mut digits = itoa::Buffer::new();
            let count = grant
                .heartbeat_count
                .map_or(ABSENT, |count| digits.format(count).as_bytes());
            let metadata = grant.metadata.unwrap_or(ABSENT);
            let (length, deadline) = lease_parts(grant.lease);
            send!(
                sink,
                c"scblllbllb",
                key.as_ptr(),
                c"GRANT".as_ptr(),
                start(grant.session),
                grant.session.len(),
                grant.seats as c_longlong,
                c_longlong::from(grant.acquired_at),
                c_longlong::from(grant.last_heartbeat),
                start(count),
                count.len(),
                length,
                deadline,
                start(metadata),
                metadata.len()
            );
        }
        Effect::Beat(beat) => {
            let (length, deadline) = lease_parts(beat.lease);
            send!(
                sink,
                c"scbllll",
                key.as_ptr(),
                c"BEAT".as_ptr(),
                start(beat.session),
                beat.session.len(),
                c_longlong::from(beat.last_heartbeat),
                beat.heartbeat_count as c_longlong,
                length,
                deadline
            );
        }
        Effect::Renew { session, lease } => {
            let (length, deadline) = lease_parts(Some(*lease));
            send!(
                sink,
                c"scbll",
                key.as_ptr(),
                c"RENEW".as_ptr(),
                start(session),
                session.len(),
                length,
                deadline
            );
        }
        Effect::Join(join) => {
            send!(
                sink,
                c"scblllll",
                key.as_ptr(),
                c"JOIN".as_ptr(),
                start(join.session),
                join.session.len(),
                join.seats as c_longlong,
                join.arrival as c_longlong,
                join.ticket.since_ms as c_longlong,
                join.ticket.length_ms as c_longlong,
                join.ticket.deadline_ms as c_longlong
            );
        }
        Effect::Leave { session } => {
            send!(
                sink,
                c"scb",
                key.as_ptr(),
                c"LEAVE".as_ptr(),
                start(session),
                session.len()
            );
        }
        Effect::Seats(seats) => {
            send!(
                sink,
                c"scl",
                key.as_ptr(),
                c"SEATS".as_ptr(),
                *seats as c_longlong
            );
        }
        Effect::Free { session, why } => {
            let why = match why {
                Freed::Released => c"released",
                Freed::Revoked => c"revoked",
                Freed::Expired => c"expired",
            };
            send!(
                sink,
                c"sccb",
                key.as_ptr(),
                c"FREE".as_ptr(),
                why.as_ptr(),
                start(session),
                session.len()
            );
        }
    }
}

/// Reads an effect back from the arguments of a `SEAT.EFFECT`: the name, the key, the kind and what belongs to the kind. It is held
/// to what a pool can store, since a client may be allowed to send it.
pub(crate) fn parse<'a>(args: Args<'a>) -> Result<Effect<'a>, Error> {
    let mut fields = Fields { args, next: 3 };
    let kind = args.get(2).ok_or(Error::Arity)?;
    let effect = if kind.is_word("GRANT") {
        Effect::Grant(Grant {
            session: fields.session()?,
            seats: fields.integer("seats")?,
            acquired_at: fields.seconds("acquired_at")?,
            last_heartbeat: fields.seconds("last_heartbeat")?,
            heartbeat_count: fields.optional_count()?,
            lease: fields.optional_lease()?,
            metadata: fields.optional_metadata()?,
        })
    } else if kind.is_word("BEAT") {
        Effect::Beat(Beat {
            session: fields.session()?,
            last_heartbeat: fields.seconds("last_heartbeat")?,
            heartbeat_count: fields.count()?,
            lease: fields.optional_lease()?,
        })
    } else if kind.is_word("RENEW") {
        Effect::Renew {
            session: fields.session()?,
            lease: fields
                .optional_lease()?
                .ok_or(Error::MalformedEffect("lease"))?,
        }
    } else if kind.is_word("FREE") {
        let why = fields.freed()?;
        Effect::freeing(fields.session()?, why)
    } else if kind.is_word("JOIN") {
        Effect::Join(Join {
            session: fields.session()?,
            seats: fields.integer("seats")?,
            arrival: fields.arrival()?,
            ticket: fields.ticket()?,
        })
    } else if kind.is_word("LEAVE") {
        Effect::Leave {
            session: fields.session()?,
        }
    } else if kind.is_word("SEATS") {
        Effect::Seats(fields.integer("seats")?)
    } else {
        return Err(Error::MalformedEffect("unknown kind"));
    };
    fields.finish()?;
    Ok(effect)
}

/// The arguments of an effect, taken one after the other.
struct Fields<'a> {
    args: Args<'a>,
    next: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, what: &'static str) -> Result<Str<'a>, Error> {
        let field = self.args.get(self.next);
        self.next += 1;
        field.ok_or(Error::MalformedEffect(what))
    }

    fn session(&mut self) -> Result<&'a [u8], Error> {
        let session = self.take("session")?.bytes();
        if session.is_empty() || session.len() > MAX_SESSION_BYTES {
            return Err(Error::MalformedEffect("session"));
        }
        Ok(session)
    }

    fn integer(&mut self, what: &'static str) -> Result<i64, Error> {
        let field = self.take(what)?;
        field.integer().ok_or(Error::MalformedEffect(what))
    }

    fn seconds(&mut self, what: &'static str) -> Result<u32, Error> {
        u32::try_from(self.integer(what)?).map_err(|_| Error::MalformedEffect(what))
    }

    fn count(&mut self) -> Result<i64, Error> {
        match self.integer("heartbeat_count")? {
            i64::MIN => Err(Error::MalformedEffect("heartbeat_count")),
            count => Ok(count),
        }
    }

    fn optional_count(&mut self) -> Result<Option<i64>, Error> {
        if self.args.get(self.next).map(Str::bytes) == Some(ABSENT) {
            self.next += 1;
            return Ok(None);
        }
        self.count().map(Some)
    }

    fn optional_lease(&mut self) -> Result<Option<Lease>, Error> {
        let length = self.integer("lease length")?;
        let deadline_ms = self.integer("lease deadline")?;
        match u64::try_from(length) {
            Ok(0) => Ok(None),
            Ok(length_ms) if deadline_ms < i64::MAX => Ok(Some(Lease {
                length_ms,
                deadline_ms,
            })),
            _ => Err(Error::MalformedEffect("lease")),
        }
    }

    fn arrival(&mut self) -> Result<u64, Error> {
        let arrival = u64::try_from(self.integer("arrival")?).ok();
        arrival
            .filter(|&arrival| arrival < MAX_ARRIVAL)
            .ok_or(Error::MalformedEffect("arrival"))
    }

    fn ticket(&mut self) -> Result<Ticket, Error> {
        let since_ms = self.integer("since")?;
        let length_ms = self.integer("ticket length")?;
        let deadline_ms = self.integer("ticket deadline")?;
        match u64::try_from(length_ms) {
            Ok(length_ms) if length_ms > 0 && deadline_ms < i64::MAX => Ok(Ticket {
                since_ms,
                length_ms,
                deadline_ms,
            }),
            _ => Err(Error::MalformedEffect("ticket")),
        }
    }

    fn optional_metadata(&mut self) -> Result<Option<&'a [u8]>, Error> {
        let metadata = self.take("metadata")?.bytes();
        if metadata == ABSENT {
            return Ok(None);
        }
        if metadata.len() > MAX_METADATA_BYTES || !Metadata::is_stored_form(metadata) {
            return Err(Error::MalformedEffect("metadata"));
        }
        Ok(Some(metadata))
    }

    fn freed(&mut self) -> Result<Freed, Error> {
        let why = self.take("reason")?;
        if why.is_word("released") {
            Ok(Freed::Released)
        } else if why.is_word("revoked") {
            Ok(Freed::Revoked)
        } else if why.is_word("expired") {
            Ok(Freed::Expired)
        } else {
            Err(Error::MalformedEffect("reason"))
        }
    }

    fn finish(self) -> Result<(), Error> {
        if self.next == self.args.len() {
            Ok(())
        } else {
            Err(Error::MalformedEffect("more arguments than its kind has"))
        }
    }
}
