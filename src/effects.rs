//! Effects on the wire: the internal command `SEAT.EFFECT`, as it is sent to the AOF and the
//! replicas and as it is read back.
//!
//! `docs/design.md` lists the forms. A missing value is a dash, which neither an integer nor a JSON
//! object can be. The numbers of an effect stand in one argument, since the server makes objects of
//! arguments one by one; they are read also where they stand apart.

use std::ffi::CStr;

use seat_pool::{
    Effect, Freed, Grant, Heartbeat, Join, Lease, MAX_ARRIVAL, MAX_METADATA_BYTES, MAX_SECOND,
    MAX_SESSION_BYTES, Metadata, Ticket,
};

use crate::error::Error;
use crate::ffi::{Args, Ctx, Io, OwnedStr, Str};

const ABSENT: &[u8] = b"-";

/// Sends an effect to the AOF and the replicas in place of the command that caused it. Also when
/// nobody listens: the server's save points and its backlog depend on it. What came as one of
/// `args` is sent on as it is, rather than copied.
pub(crate) fn replicate(ctx: Ctx<'_>, key: Str<'_>, effect: &Effect<'_>, args: Args<'_>) {
    with_arguments(key, effect, args, |arguments| {
        ctx.replicate(NAME, arguments);
    });
}

/// Writes an effect to an AOF that is being rewritten.
pub(crate) fn emit_to_aof(io: Io<'_>, key: Str<'_>, effect: &Effect<'_>) {
    with_arguments(key, effect, Args::NONE, |arguments| {
        io.emit_to_aof(NAME, arguments);
    });
}

const NAME: &CStr = c"SEAT.EFFECT";

/// The words of effects, made once.
struct Words {
    grant: OwnedStr,
    import: OwnedStr,
    heartbeat: OwnedStr,
    renew: OwnedStr,
    join: OwnedStr,
    leave: OwnedStr,
    seats: OwnedStr,
    resize: OwnedStr,
    free: OwnedStr,
    released: OwnedStr,
    revoked: OwnedStr,
    expired: OwnedStr,
    absent: OwnedStr,
}

thread_local! {
    static WORDS: Words = Words {
        grant: OwnedStr::new(b"GRANT"),
        import: OwnedStr::new(b"IMPORT"),
        heartbeat: OwnedStr::new(b"BEAT"),
        renew: OwnedStr::new(b"RENEW"),
        join: OwnedStr::new(b"JOIN"),
        leave: OwnedStr::new(b"LEAVE"),
        seats: OwnedStr::new(b"SEATS"),
        resize: OwnedStr::new(b"RESIZE"),
        free: OwnedStr::new(b"FREE"),
        released: OwnedStr::new(b"released"),
        revoked: OwnedStr::new(b"revoked"),
        expired: OwnedStr::new(b"expired"),
        absent: OwnedStr::new(ABSENT),
    };
}

/// Runs `send` with the arguments that an effect is written as.
fn with_arguments(
    key: Str<'_>,
    effect: &Effect<'_>,
    args: Args<'_>,
    send: impl FnOnce(&[Str<'_>]),
) {
    WORDS.with(|words| {
        let mut numbers = Numbers::default();
        match effect {
            Effect::Grant(grant) | Effect::Import(grant) => {
                let kind = match effect {
                    Effect::Import(_) => &words.import,
                    _ => &words.grant,
                };
                numbers.add(grant.seats);
                numbers.add_optional(grant.acquired_at);
                numbers.add_optional(grant.last_heartbeat);
                numbers.add_optional(grant.heartbeat_count);
                numbers.add_lease(grant.lease);
                let numbers = numbers.string();
                let session = Sent::of(grant.session, args);
                let metadata = grant.metadata.map(|metadata| Sent::of(metadata, args));
                let metadata = metadata.as_ref().map_or(words.absent.get(), Sent::get);
                send(&[key, kind.get(), session.get(), numbers.get(), metadata]);
            }
            Effect::Heartbeat(Heartbeat { session, .. })
            | Effect::Renew { session, .. }
            | Effect::Join(Join { session, .. }) => {
                let kind = match effect {
                    Effect::Heartbeat(heartbeat) => {
                        numbers.add(heartbeat.last_heartbeat);
                        numbers.add(heartbeat.heartbeat_count);
                        numbers.add_lease(heartbeat.lease);
                        &words.heartbeat
                    }
                    Effect::Join(join) => {
                        numbers.add(join.seats);
                        numbers.add(join.arrival);
                        numbers.add(join.ticket.since_ms);
                        numbers.add(join.ticket.length_ms);
                        numbers.add(join.ticket.deadline_ms);
                        &words.join
                    }
                    _ => {
                        numbers.add_lease(effect.lease());
                        &words.renew
                    }
                };
                let (session, numbers) = (Sent::of(session, args), numbers.string());
                send(&[key, kind.get(), session.get(), numbers.get()]);
            }
            Effect::Leave { session } => {
                let session = Sent::of(session, args);
                send(&[key, words.leave.get(), session.get()]);
            }
            Effect::Seats(seats) | Effect::Resize(seats) => {
                let kind = match effect {
                    Effect::Resize(_) => &words.resize,
                    _ => &words.seats,
                };
                numbers.add(*seats);
                send(&[key, kind.get(), numbers.string().get()]);
            }
            Effect::Free { session, why } => {
                let why = match why {
                    Freed::Released => &words.released,
                    Freed::Revoked => &words.revoked,
                    Freed::Expired => &words.expired,
                };
                let session = Sent::of(session, args);
                send(&[key, words.free.get(), why.get(), session.get()]);
            }
        }
    });
}

/// Bytes on their way into the stream.
enum Sent<'a> {
    /// They are an argument of the command that is carried out.
    Argument(Str<'a>),
    Copied(OwnedStr),
}

impl<'a> Sent<'a> {
    fn of(bytes: &[u8], args: Args<'a>) -> Sent<'a> {
        match args.holding(bytes) {
            Some(argument) => Sent::Argument(argument),
            None => Sent::Copied(OwnedStr::new(bytes)),
        }
    }

    fn get(&self) -> Str<'_> {
        match self {
            Sent::Argument(argument) => *argument,
            Sent::Copied(copy) => copy.get(),
        }
    }
}

/// Numbers as they are written, with spaces between them.
struct Numbers {
    /// Six of 64 bits fit, the most that an effect has.
    text: [u8; 6 * (20 + 1)],
    len: usize,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers {
            text: [b' '; 126],
            len: 0,
        }
    }
}

impl Numbers {
    fn add(&mut self, number: impl itoa::Integer) {
        self.add_word(itoa::Buffer::new().format(number).as_bytes());
    }

    fn add_optional(&mut self, number: Option<impl itoa::Integer>) {
        match number {
            Some(number) => self.add(number),
            None => self.add_word(ABSENT),
        }
    }

    fn add_lease(&mut self, lease: Option<Lease>) {
        self.add(lease.map_or(0, |lease| lease.length_ms));
        self.add(lease.map_or(0, |lease| lease.deadline_ms));
    }

    fn add_word(&mut self, word: &[u8]) {
        let end = self.len + word.len();
        self.text[self.len..end].copy_from_slice(word);
        // The space is there already.
        self.len = end + 1;
    }

    fn string(&self) -> OwnedStr {
        OwnedStr::new(&self.text[..self.len.saturating_sub(1)])
    }
}

/// Reads an effect back from the arguments of a `SEAT.EFFECT`: the name, the key, the kind and what
/// belongs to the kind. It is held to what a pool can store, since a client may be allowed to send
/// it.
pub(crate) fn parse<'a>(args: Args<'a>) -> Result<Effect<'a>, Error> {
    let mut fields = Fields {
        args,
        next: 3,
        numbers: &[],
    };
    let kind = args.get(2).ok_or(Error::Arity)?;
    let effect = if kind.is_word("GRANT") {
        Effect::Grant(fields.grant()?)
    } else if kind.is_word("IMPORT") {
        Effect::Import(fields.grant()?)
    } else if kind.is_word("BEAT") {
        Effect::Heartbeat(Heartbeat {
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
    } else if kind.is_word("RESIZE") {
        Effect::Resize(fields.integer("seats")?)
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
    /// What is left of an argument with numbers.
    numbers: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, what: &'static str) -> Result<Str<'a>, Error> {
        let field = self.args.get(self.next).filter(|_| self.numbers.is_empty());
        self.next += 1;
        field.ok_or(Error::MalformedEffect(what))
    }

    /// The next number, or what stands for an absent one.
    fn number(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        if self.numbers.is_empty() {
            self.numbers = self.take(what)?.bytes();
        }
        let end = self.numbers.iter().position(|&byte| byte == b' ');
        let (number, rest) = match end {
            Some(end) => (&self.numbers[..end], &self.numbers[end + 1..]),
            None => (self.numbers, &[][..]),
        };
        self.numbers = rest;
        Ok(number)
    }

    fn grant(&mut self) -> Result<Grant<'a>, Error> {
        Ok(Grant {
            session: self.session()?,
            seats: self.integer("seats")?,
            acquired_at: self.optional(|fields| fields.seconds("acquired_at"))?,
            last_heartbeat: self.optional(|fields| fields.seconds("last_heartbeat"))?,
            heartbeat_count: self.optional(Self::count)?,
            lease: self.optional_lease()?,
            metadata: self.optional_metadata()?,
        })
    }

    fn session(&mut self) -> Result<&'a [u8], Error> {
        let session = self.take("session")?.bytes();
        if session.is_empty() || session.len() > MAX_SESSION_BYTES {
            return Err(Error::MalformedEffect("session"));
        }
        Ok(session)
    }

    fn integer(&mut self, what: &'static str) -> Result<i64, Error> {
        let text = self.number(what)?;
        let value = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok());
        // As strict as the server is with an integer: one has one form.
        let is_strict = |value: &i64| itoa::Buffer::new().format(*value).as_bytes() == text;
        value.filter(is_strict).ok_or(Error::MalformedEffect(what))
    }

    fn seconds(&mut self, what: &'static str) -> Result<u32, Error> {
        let seconds = u32::try_from(self.integer(what)?).ok();
        let seconds = seconds.filter(|&seconds| seconds <= MAX_SECOND);
        seconds.ok_or(Error::MalformedEffect(what))
    }

    fn optional<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let (next, numbers) = (self.next, self.numbers);
        if self.number("number")? == ABSENT {
            return Ok(None);
        }
        (self.next, self.numbers) = (next, numbers);
        take(self).map(Some)
    }

    fn count(&mut self) -> Result<i64, Error> {
        match self.integer("heartbeat_count")? {
            i64::MIN => Err(Error::MalformedEffect("heartbeat_count")),
            count => Ok(count),
        }
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
        if self.numbers.is_empty() && self.next == self.args.len() {
            Ok(())
        } else {
            Err(Error::MalformedEffect("more arguments than its kind has"))
        }
    }
}
