//! What ACQUIRE, HEARTBEAT and RELEASE take after their own arguments: metadata, and options in any
//! order.

use redis_module::raw;
use seat_pool::{Claim, Lease, MAX_TOKEN, MAX_WEIGHT};

use super::call::check_id;
use crate::config;
use crate::error::Error;
use crate::ffi::{Args, Argument, Str};
use crate::replies::Asked;

/// `[EX seconds | PX milliseconds]`, as COMMAND DOCS shows it.
pub(super) const LEASE: Argument = Argument {
    kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
    parts: &[
        Argument::integer(c"seconds").after(c"EX"),
        Argument::integer(c"milliseconds").after(c"PX"),
    ],
    ..Argument::string(c"lease").optional()
};

/// `[WEIGHT weight]`
pub(super) const WEIGHT: Argument = Argument::integer(c"weight").after(c"WEIGHT").optional();

/// `[OWNER owner [MAX max [TAKEOVER]]]`
pub(super) const OWNER: Argument = Argument::group(
    c"owner-limit",
    &[
        Argument::string(c"owner").after(c"OWNER"),
        Argument::group(
            c"limit",
            &[
                Argument::integer(c"max").after(c"MAX"),
                Argument::word(c"takeover", c"TAKEOVER").optional(),
            ],
        )
        .optional(),
    ],
)
.optional();

/// `[WITHTOKEN]`
pub(super) const WITH_TOKEN: Argument = Argument::word(c"withtoken", c"WITHTOKEN").optional();

/// `[TOKEN token]`
pub(super) const TOKEN: Argument = Argument::integer(c"token").after(c"TOKEN").optional();

/// `[QUEUE milliseconds]`
pub(super) const QUEUE: Argument = Argument::integer(c"milliseconds")
    .after(c"QUEUE")
    .optional();

/// `[BLOCK milliseconds]`
pub(super) const BLOCK: Argument = Argument::integer(c"milliseconds")
    .after(c"BLOCK")
    .optional();

/// An option of one command or several. Its word cannot be metadata of any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Ex,
    Px,
    Weight,
    Owner,
    Max,
    Takeover,
    WithToken,
    Token,
    Queue,
    Block,
}

const NAMES: [(&str, Name); 10] = [
    ("EX", Name::Ex),
    ("PX", Name::Px),
    ("WEIGHT", Name::Weight),
    ("OWNER", Name::Owner),
    ("MAX", Name::Max),
    ("TAKEOVER", Name::Takeover),
    ("WITHTOKEN", Name::WithToken),
    ("TOKEN", Name::Token),
    ("QUEUE", Name::Queue),
    ("BLOCK", Name::Block),
];

/// The length of the longest word.
const LONGEST_WORD: usize = {
    let (mut longest, mut at) = (0, 0);
    while at < NAMES.len() {
        if NAMES[at].0.len() > longest {
            longest = NAMES[at].0.len();
        }
        at += 1;
    }
    longest
};

/// What a command takes.
pub(super) struct Known {
    has_metadata: bool,
    names: &'static [Name],
    /// What may stand where something else does.
    expected: &'static str,
}

pub(super) const ACQUIRE: Known = Known {
    has_metadata: true,
    names: &[
        Name::Ex,
        Name::Px,
        Name::Weight,
        Name::Owner,
        Name::Max,
        Name::Takeover,
        Name::WithToken,
        Name::Queue,
        Name::Block,
    ],
    expected: "EX, PX, WEIGHT, OWNER, MAX, TAKEOVER, WITHTOKEN, QUEUE or BLOCK, or nothing, after the metadata",
};

pub(super) const HEARTBEAT: Known = Known {
    has_metadata: true,
    names: &[Name::Ex, Name::Px, Name::Token],
    expected: "EX, PX or TOKEN, or nothing, after the metadata",
};

pub(super) const RELEASE: Known = Known {
    has_metadata: false,
    names: &[Name::Token],
    expected: "TOKEN and a token, or nothing, after the session",
};

/// The arguments from a place on where metadata may stand, or an option directly.
#[derive(Default)]
pub(super) struct Options<'a> {
    pub(super) metadata: Option<Str<'a>>,
    lease: Option<Length>,
    weight: Option<u32>,
    pub(super) owner: Option<Str<'a>>,
    max_per_owner: Option<u64>,
    takeover: bool,
    pub(super) with_token: bool,
    /// The token that the session must have.
    pub(super) token: Option<u64>,
    /// How long a ticket is valid after each poll.
    pub(super) ticket_ms: Option<u64>,
    /// How long the client may be blocked, if it may be at all; 0 is for ever.
    pub(super) block_ms: Option<i64>,
}

/// The length of a lease, and the option that gave it.
struct Length {
    option: &'static str,
    ms: u64,
}

impl<'a> Options<'a> {
    pub(super) fn parse(args: Args<'a>, from: usize, known: &Known) -> Result<Options<'a>, Error> {
        let may_be_metadata = |arg: &Str<'_>| known.has_metadata && name_of(*arg).is_none();
        let metadata = args.get(from).filter(may_be_metadata);
        let mut options = Options {
            metadata,
            ..Options::default()
        };
        let mut rest = args.iter().skip(from + usize::from(metadata.is_some()));
        let mut given = 0;
        while let Some(arg) = rest.next() {
            let named = name_of(arg).filter(|(_, name)| known.names.contains(name));
            let (word, name) = named.ok_or(Error::Syntax(known.expected))?;
            let bit = 1_u16 << name as u8;
            if given & bit != 0 {
                return Err(Error::Option(word, "is given twice"));
            }
            given |= bit;
            if matches!(name, Name::Ex | Name::Px) && options.lease.is_some() {
                return Err(Error::Option("EX", "and PX exclude each other"));
            }
            match name {
                Name::Takeover => options.takeover = true,
                Name::WithToken => options.with_token = true,
                _ => {
                    let value = rest.next().ok_or(Error::Option(word, "needs a value"))?;
                    options.set(name, word, value)?;
                }
            }
        }
        options.check_together()?;
        Ok(options)
    }

    fn set(&mut self, name: Name, word: &'static str, value: Str<'a>) -> Result<(), Error> {
        let number = || value.integer().and_then(|value| u64::try_from(value).ok());
        let must_be = |what| Error::Option(word, what);
        match name {
            Name::Ex | Name::Px => {
                let ms_per_unit = if name == Name::Ex { 1000 } else { 1 };
                let number = number().filter(|&number| number > 0);
                let ms = number.and_then(|number| number.checked_mul(ms_per_unit));
                let ms = ms.ok_or(must_be(BAD_LENGTH))?;
                self.lease = Some(Length { option: word, ms });
            }
            Name::Weight => {
                let weight = number().and_then(|weight| u32::try_from(weight).ok());
                let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight));
                self.weight = Some(weight.ok_or(must_be(BAD_WEIGHT))?);
            }
            Name::Owner => {
                check_id(word, value)?;
                self.owner = Some(value);
            }
            Name::Max => {
                let max = number().filter(|&max| max > 0);
                self.max_per_owner = Some(max.ok_or(must_be(BAD_MAX))?);
            }
            Name::Token => {
                let token = number().filter(|token| (1..MAX_TOKEN).contains(token));
                self.token = Some(token.ok_or(must_be(BAD_TOKEN))?);
            }
            Name::Queue => {
                let longest = config::MAX_QUEUE_MS.get() as u64;
                let ms = number().filter(|ms| (1..=longest).contains(ms));
                self.ticket_ms = Some(ms.ok_or(must_be(BAD_TICKET))?);
            }
            Name::Block => {
                let ms = number().and_then(|ms| i64::try_from(ms).ok());
                let ms = ms.filter(|&ms| ms <= LONGEST_BLOCK_MS);
                self.block_ms = Some(ms.ok_or(must_be(BAD_TIMEOUT))?);
            }
            // These stand for themselves.
            Name::Takeover | Name::WithToken => {}
        }
        Ok(())
    }

    fn check_together(&self) -> Result<(), Error> {
        if self.max_per_owner.is_some() && self.owner.is_none() {
            Err(Error::Option("MAX", "needs OWNER"))
        } else if self.takeover && self.max_per_owner.is_none() {
            Err(Error::Option("TAKEOVER", "needs MAX"))
        } else {
            Ok(())
        }
    }

    /// The lease that was asked for, from `now_ms` on.
    pub(super) fn lease(&self, now_ms: i64) -> Result<Option<Lease>, Error> {
        let Some(Length { option, ms }) = self.lease else {
            return Ok(None);
        };
        let lease = Lease::starting(now_ms, ms);
        lease.map(Some).ok_or(Error::Option(option, BAD_LENGTH))
    }

    /// What a reply that a seat is held ends with.
    pub(super) fn asked(&self) -> Asked {
        Asked {
            lease: self.lease.is_some(),
            token: self.with_token,
            takeover: self.takeover,
        }
    }

    /// What was asked for beyond a seat.
    pub(super) fn claim(&self) -> Claim<'a> {
        Claim {
            owner: self.owner.map(Str::bytes),
            max_per_owner: self.max_per_owner,
            takeover: self.takeover,
            weight: self.weight.unwrap_or(1),
        }
    }
}

/// The option whose word an argument is, in any case, with the word as it is documented.
fn name_of(arg: Str<'_>) -> Option<(&'static str, Name)> {
    let text = arg.bytes();
    // Metadata are looked at here in each call, and are mostly longer.
    if text.len() > LONGEST_WORD {
        return None;
    }
    let is_it = |(word, _): &&(&str, Name)| text.eq_ignore_ascii_case(word.as_bytes());
    NAMES.iter().find(is_it).copied()
}

const BAD_LENGTH: &str =
    "must be a positive integer, and end within the 64 bits of unix time in milliseconds";

const BAD_WEIGHT: &str = "must be an integer from 1 to 2147483647";

const BAD_MAX: &str = "must be a positive integer";

const BAD_TOKEN: &str = "must be one that WITHTOKEN has returned, from 1 to 4503599627370495";

const BAD_TICKET: &str = "must be an integer of milliseconds from 1 to seat.max-queue-ms";

/// The server adds its own clock to it, and refuses what it cannot add only when it is too late for
/// the module.
const LONGEST_BLOCK_MS: i64 = 1 << 52;

const BAD_TIMEOUT: &str = "must be an integer of milliseconds from 0 to 4503599627370496";
