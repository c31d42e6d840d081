//! Effects on the wire: the internal command `SEAT.EFFECT`, as it is sent to the AOF and the
//! replicas and as it is read back.
//!
//! `docs/design.md` lists the forms. A missing value is a dash, which neither an integer nor a JSON
//! object can be. The numbers of an effect stand in one argument, since the server makes an object
//! of each argument.
//!
//! What a session has or asks for beyond one seat follows only where it does, so that an older
//! replica understands all that is said of the others. Each effect has one form.

use std::ffi::CStr;

use seat_pool::{
    Claim, Effect, Freed, Grant, Heartbeat, Holder, Join, Lease, MAX_ARRIVAL, MAX_METADATA_BYTES,
    MAX_SECOND, MAX_SESSION_BYTES, MAX_TOKEN, MAX_WEIGHT, Metadata, Ticket,
};
use smallvec::SmallVec;

use crate::error::Error;
use crate::ffi::{Args, Ctx, Io, OwnedStr, Str};
use crate::text::{CallerText, Sent};

const ABSENT: &[u8] = b"-";

/// Sends an effect to the AOF and the replicas in place of the command that caused it. Also when
/// nobody listens: the server's save points and its backlog depend on it.
///
/// The feed's entries of what it does travel in it, as the arguments that [`crate::feed`] made of
/// them. They come first: each begins with a digit, which no kind does.
pub(crate) fn replicate(
    ctx: Ctx<'_>,
    key: Str<'_>,
    entries: &[OwnedStr],
    effect: &Effect<'_>,
    caller: CallerText<'_>,
) {
    with_arguments(key, effect, caller, |arguments| {
        match (entries, arguments) {
            ([], _) | (_, []) => ctx.replicate(NAME, arguments),
            (_, [key, change @ ..]) => {
                let mut all = SmallVec::<[Str<'_>; 8]>::new();
                all.push(*key);
                all.extend(entries.iter().map(OwnedStr::get));
                all.extend_from_slice(change);
                ctx.replicate(NAME, &all);
            }
        }
    });
}

/// Sends an entry of the feed that no effect goes with.
pub(crate) fn replicate_entry(ctx: Ctx<'_>, key: Str<'_>, entry: Str<'_>) {
    ctx.replicate(NAME, &[key, entry]);
}

/// Writes an effect to an AOF that is being rewritten.
pub(crate) fn emit_to_aof(io: Io<'_>, key: Str<'_>, effect: &Effect<'_>) {
    with_arguments(key, effect, CallerText::default(), |arguments| {
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
    token: OwnedStr,
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
        token: OwnedStr::new(b"TOKEN"),
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
    caller: CallerText<'_>,
    send: impl FnOnce(&[Str<'_>]),
) {
    WORDS.with(|words| {
        let mut numbers = NumbersWritten::default();
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
                let holder = grant.holder;
                if holder != Holder::PLAIN {
                    numbers.add(holder.weight);
                    numbers.add_optional(holder.token);
                }
                let numbers = numbers.string();
                let session = Sent::of(grant.session, caller.session);
                let metadata = grant
                    .metadata
                    .map(|metadata| Sent::of(metadata, caller.metadata));
                let metadata = metadata.as_ref().map_or(words.absent.get(), Sent::get);
                let arguments = [key, kind.get(), session.get(), numbers.get(), metadata];
                send_with_owner(arguments, holder.owner, grant.replaces, caller, send);
            }
            Effect::Join(join) => {
                numbers.add(join.seats);
                numbers.add(join.arrival);
                numbers.add(join.ticket.since_ms);
                numbers.add(join.ticket.length_ms);
                numbers.add(join.ticket.deadline_ms);
                let claim = join.claim;
                if claim != Claim::PLAIN {
                    numbers.add(claim.weight);
                    numbers.add_optional(claim.max_per_owner);
                    numbers.add(u8::from(claim.takeover));
                }
                let numbers = numbers.string();
                let session = Sent::of(join.session, caller.session);
                let arguments = [key, words.join.get(), session.get(), numbers.get()];
                send_with_owner(arguments, claim.owner, None, caller, send);
            }
            Effect::Heartbeat(Heartbeat { session, .. }) | Effect::Renew { session, .. } => {
                let kind = match effect {
                    Effect::Heartbeat(heartbeat) => {
                        numbers.add(heartbeat.last_heartbeat);
                        numbers.add(heartbeat.heartbeat_count);
                        numbers.add_lease(heartbeat.lease);
                        &words.heartbeat
                    }
                    _ => {
                        numbers.add_lease(effect.lease());
                        &words.renew
                    }
                };
                let (session, numbers) = (Sent::of(session, caller.session), numbers.string());
                send(&[key, kind.get(), session.get(), numbers.get()]);
            }
            Effect::Token { session, token } => {
                numbers.add(*token);
                let (session, numbers) = (Sent::of(session, caller.session), numbers.string());
                send(&[key, words.token.get(), session.get(), numbers.get()]);
            }
            Effect::Leave { session } => {
                let session = Sent::of(session, caller.session);
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
                let session = Sent::of(session, caller.session);
                send(&[key, words.free.get(), why.get(), session.get()]);
            }
        }
    });
}

/// Runs `send` with these arguments, and after them with the owner if there is one and the session
/// of that owner that is replaced, if there is one.
fn send_with_owner<const N: usize>(
    arguments: [Str<'_>; N],
    owner: Option<&[u8]>,
    replaced: Option<&[u8]>,
    caller: CallerText<'_>,
    send: impl FnOnce(&[Str<'_>]),
) {
    let Some(owner) = owner.map(|owner| Sent::of(owner, caller.owner)) else {
        return send(&arguments);
    };
    match replaced.map(OwnedStr::new) {
        Some(replaced) => send(&[&arguments[..], &[owner.get(), replaced.get()]].concat()),
        None => send(&[&arguments[..], &[owner.get()]].concat()),
    }
}

/// Numbers as they are written, with spaces between them.
struct NumbersWritten {
    text: [u8; MAX_NUMBERS_BYTES],
    len: usize,
}

/// A grant has the longest: six of 64 bits, the weight of 31 and the token of 52.
const MAX_NUMBERS_BYTES: usize = 6 * (20 + 1) + (10 + 1) + (16 + 1);

impl Default for NumbersWritten {
    fn default() -> Self {
        NumbersWritten {
            text: [b' '; MAX_NUMBERS_BYTES],
            len: 0,
        }
    }
}

impl NumbersWritten {
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

/// What a `SEAT.EFFECT` says.
pub(crate) struct Parsed<'a> {
    /// Entries of the feed.
    pub(crate) entries: Vec<Str<'a>>,
    /// What is changed; absent only where there are entries.
    pub(crate) effect: Option<Effect<'a>>,
}

/// Reads a `SEAT.EFFECT` back from its arguments: the name, the key, entries of the feed, the kind
/// and what belongs to the kind. The effect is held to what a pool can store, since a client may be
/// allowed to send it.
pub(crate) fn parse<'a>(args: Args<'a>) -> Result<Parsed<'a>, Error> {
    let is_entry = |argument: &Str<'_>| argument.bytes().first().is_some_and(u8::is_ascii_digit);
    let entries: Vec<Str<'a>> = args.iter().skip(2).take_while(is_entry).collect();
    let kind = 2 + entries.len();
    let effect = match args.get(kind) {
        None if !entries.is_empty() => None,
        None => return Err(Error::Arity),
        Some(word) => Some(parse_effect(args, word, kind + 1)?),
    };
    Ok(Parsed { entries, effect })
}

fn parse_effect<'a>(args: Args<'a>, kind: Str<'a>, next: usize) -> Result<Effect<'a>, Error> {
    let mut fields = Fields { args, next };
    let effect = if kind.is_word("GRANT") {
        let grant = fields.grant()?;
        let replaces = fields.optional_replaced(&grant)?;
        Effect::Grant(Grant { replaces, ..grant })
    } else if kind.is_word("IMPORT") {
        Effect::Import(fields.grant()?)
    } else if kind.is_word("BEAT") {
        let session = fields.session()?;
        fields.numbers(|numbers| {
            Ok(Effect::Heartbeat(Heartbeat {
                session,
                last_heartbeat: numbers.second("last_heartbeat")?,
                heartbeat_count: numbers.count()?,
                lease: numbers.optional_lease()?,
            }))
        })?
    } else if kind.is_word("RENEW") {
        let session = fields.session()?;
        let lease = fields.numbers(NumbersRead::optional_lease)?;
        Effect::Renew {
            session,
            lease: lease.ok_or(Error::MalformedEffect("lease"))?,
        }
    } else if kind.is_word("TOKEN") {
        Effect::Token {
            session: fields.session()?,
            token: fields.numbers(NumbersRead::token)?,
        }
    } else if kind.is_word("FREE") {
        let why = fields.freed()?;
        Effect::freeing(fields.session()?, why)
    } else if kind.is_word("JOIN") {
        Effect::Join(fields.join()?)
    } else if kind.is_word("LEAVE") {
        Effect::Leave {
            session: fields.session()?,
        }
    } else if kind.is_word("SEATS") {
        Effect::Seats(fields.numbers(|numbers| numbers.integer("seats"))?)
    } else if kind.is_word("RESIZE") {
        Effect::Resize(fields.numbers(|numbers| numbers.integer("seats"))?)
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

    fn grant(&mut self) -> Result<Grant<'a>, Error> {
        let session = self.session()?;
        let (grant, holder) = self.numbers(|numbers| {
            let grant = Grant {
                session,
                seats: numbers.integer("seats")?,
                acquired_at: numbers.optional(|numbers| numbers.second("acquired_at"))?,
                last_heartbeat: numbers.optional(|numbers| numbers.second("last_heartbeat"))?,
                heartbeat_count: numbers.optional(NumbersRead::count)?,
                lease: numbers.optional_lease()?,
                metadata: None,
                holder: Holder::PLAIN,
                replaces: None,
            };
            Ok((grant, numbers.holder()?))
        })?;
        let metadata = self.optional_metadata()?;
        let grant = Grant { metadata, ..grant };
        let Some(holder) = holder else {
            return Ok(grant);
        };
        let holder = Holder {
            owner: self.optional_owner()?,
            ..holder
        };
        if holder == Holder::PLAIN {
            return Err(Error::MalformedEffect("holder"));
        }
        Ok(Grant { holder, ..grant })
    }

    fn join(&mut self) -> Result<Join<'a>, Error> {
        let session = self.session()?;
        let (join, claim) = self.numbers(|numbers| {
            let join = Join {
                session,
                seats: numbers.integer("seats")?,
                arrival: numbers.arrival()?,
                ticket: numbers.ticket()?,
                claim: Claim::PLAIN,
            };
            Ok((join, numbers.claim()?))
        })?;
        let Some(claim) = claim else {
            return Ok(join);
        };
        let claim = Claim {
            owner: self.optional_owner()?,
            ..claim
        };
        if claim == Claim::PLAIN || claim.max_per_owner.is_some() && claim.owner.is_none() {
            return Err(Error::MalformedEffect("claim"));
        }
        Ok(Join { claim, ..join })
    }

    fn session(&mut self) -> Result<&'a [u8], Error> {
        self.id("session")
    }

    fn id(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        let id = self.take(what)?.bytes();
        if id.is_empty() || id.len() > MAX_SESSION_BYTES {
            return Err(Error::MalformedEffect(what));
        }
        Ok(id)
    }

    /// What `read` makes of the argument with the numbers, all of them.
    fn numbers<T>(
        &mut self,
        read: impl FnOnce(&mut NumbersRead<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut numbers = NumbersRead {
            rest: Some(self.take("numbers")?.bytes()),
        };
        let value = read(&mut numbers)?;
        match numbers.rest {
            None => Ok(value),
            Some(_) => Err(Error::MalformedEffect("more numbers than its kind has")),
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

    /// The owner, if there is one.
    fn optional_owner(&mut self) -> Result<Option<&'a [u8]>, Error> {
        self.optional_id("owner")
    }

    /// The session of its owner that a grant replaces, if there is one: the last argument.
    fn optional_replaced(&mut self, grant: &Grant<'a>) -> Result<Option<&'a [u8]>, Error> {
        if grant.holder.owner.is_none() {
            return Ok(None);
        }
        let replaced = self.optional_id("replaced session")?;
        if replaced == Some(grant.session) {
            return Err(Error::MalformedEffect("replaced session"));
        }
        Ok(replaced)
    }

    /// An id, unless there is no further argument.
    fn optional_id(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, Error> {
        if self.next == self.args.len() {
            return Ok(None);
        }
        self.id(what).map(Some)
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

/// The numbers of an effect, read one after the other.
struct NumbersRead<'a> {
    /// What follows, `None` after the last.
    rest: Option<&'a [u8]>,
}

impl<'a> NumbersRead<'a> {
    /// The next number, or what stands for an absent one.
    fn word(&mut self, what: &'static str) -> Result<&'a [u8], Error> {
        let rest = self.rest.ok_or(Error::MalformedEffect(what))?;
        let end = rest.iter().position(|&byte| byte == b' ');
        let word = &rest[..end.unwrap_or(rest.len())];
        self.rest = end.map(|end| &rest[end + 1..]);
        Ok(word)
    }

    fn integer(&mut self, what: &'static str) -> Result<i64, Error> {
        let text = self.word(what)?;
        let value = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok());
        // As strict as the server is with an integer: one has one form.
        let is_strict = |value: &i64| itoa::Buffer::new().format(*value).as_bytes() == text;
        value.filter(is_strict).ok_or(Error::MalformedEffect(what))
    }

    fn second(&mut self, what: &'static str) -> Result<u32, Error> {
        let second = u32::try_from(self.integer(what)?).ok();
        let second = second.filter(|&second| second <= MAX_SECOND);
        second.ok_or(Error::MalformedEffect(what))
    }

    fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let rest = self.rest;
        if self.word("number")? == ABSENT {
            return Ok(None);
        }
        self.rest = rest;
        read(self).map(Some)
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

    /// What a session has beyond a seat, without its owner; `None` in the short form.
    fn holder(&mut self) -> Result<Option<Holder<'a>>, Error> {
        if self.rest.is_none() {
            return Ok(None);
        }
        Ok(Some(Holder {
            owner: None,
            weight: self.weight()?,
            token: self.optional(NumbersRead::token)?,
        }))
    }

    /// What a waiter asks for beyond a seat, without its owner; `None` in the short form.
    fn claim(&mut self) -> Result<Option<Claim<'a>>, Error> {
        if self.rest.is_none() {
            return Ok(None);
        }
        let weight = self.weight()?;
        let max_per_owner = self.optional(|numbers| {
            let max = u64::try_from(numbers.integer("max")?).ok();
            max.filter(|&max| max > 0)
                .ok_or(Error::MalformedEffect("max"))
        })?;
        let takeover = match self.word("takeover")? {
            b"0" => false,
            b"1" if max_per_owner.is_some() => true,
            _ => return Err(Error::MalformedEffect("takeover")),
        };
        Ok(Some(Claim {
            owner: None,
            max_per_owner,
            takeover,
            weight,
        }))
    }

    fn weight(&mut self) -> Result<u32, Error> {
        let weight = u32::try_from(self.integer("weight")?).ok();
        let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight));
        weight.ok_or(Error::MalformedEffect("weight"))
    }

    fn token(&mut self) -> Result<u64, Error> {
        let token = u64::try_from(self.integer("token")?).ok();
        let token = token.filter(|token| (1..MAX_TOKEN).contains(token));
        token.ok_or(Error::MalformedEffect("token"))
    }
}
