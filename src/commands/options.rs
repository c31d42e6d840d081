//! What ACQUIRE and HEARTBEAT take after their own arguments: metadata, and options in any order.

use redis_module::raw;
use seat_pool::Lease;

use crate::config;
use crate::error::Error;
use crate::ffi::{Args, Argument, Str};

/// `[EX seconds | PX milliseconds]`, as COMMAND DOCS shows it.
pub(super) const LEASE: Argument = Argument {
    kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
    alternatives: &[
        Argument::integer(c"seconds").after(c"EX"),
        Argument::integer(c"milliseconds").after(c"PX"),
    ],
    ..Argument::string(c"lease").optional()
};

/// `[QUEUE milliseconds]`
pub(super) const QUEUE: Argument = Argument::integer(c"milliseconds")
    .after(c"QUEUE")
    .optional();

/// `[BLOCK milliseconds]`
pub(super) const BLOCK: Argument = Argument::integer(c"milliseconds")
    .after(c"BLOCK")
    .optional();

/// The words that are options, and so cannot be metadata.
const WORDS: [&str; 4] = ["EX", "PX", "QUEUE", "BLOCK"];

/// The arguments from a place on where metadata may stand, or an option directly.
#[derive(Default)]
pub(super) struct Options<'a> {
    pub(super) metadata: Option<Str<'a>>,
    lease: Option<Length>,
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
    /// Metadata, `EX` and `PX`.
    pub(super) fn parse(args: Args<'a>, from: usize) -> Result<Options<'a>, Error> {
        Options::parse_known(args, from, false)
    }

    /// Metadata, `EX`, `PX`, `QUEUE` and `BLOCK`.
    pub(super) fn parse_with_queue(args: Args<'a>, from: usize) -> Result<Options<'a>, Error> {
        Options::parse_known(args, from, true)
    }

    fn parse_known(args: Args<'a>, from: usize, queue: bool) -> Result<Options<'a>, Error> {
        let word_of = |arg: Str<'_>| {
            let text = arg.bytes();
            WORDS
                .into_iter()
                .find(|word| text.eq_ignore_ascii_case(word.as_bytes()))
        };
        let metadata = args.get(from).filter(|&arg| word_of(arg).is_none());
        let mut options = Options {
            metadata,
            ..Options::default()
        };
        let mut rest = args.iter().skip(from + usize::from(metadata.is_some()));
        while let Some(arg) = rest.next() {
            let option = match word_of(arg) {
                Some(option @ ("EX" | "PX")) => option,
                Some(option) if queue => option,
                _ if queue => {
                    return Err(Error::Syntax(
                        "EX, PX, QUEUE or BLOCK, or nothing, after the metadata",
                    ));
                }
                _ => return Err(Error::Syntax("EX or PX, or nothing, after the metadata")),
            };
            options.check_not_given(option)?;
            let value = rest.next().ok_or(Error::Option(option, "needs a value"))?;
            let number = value.integer().and_then(|value| u64::try_from(value).ok());
            options.set(option, number)?;
        }
        Ok(options)
    }

    fn check_not_given(&self, option: &'static str) -> Result<(), Error> {
        let is_twice = match option {
            "QUEUE" => self.ticket_ms.is_some(),
            "BLOCK" => self.block_ms.is_some(),
            _ => self
                .lease
                .as_ref()
                .is_some_and(|lease| lease.option == option),
        };
        if is_twice {
            Err(Error::Option(option, "is given twice"))
        } else if matches!(option, "EX" | "PX") && self.lease.is_some() {
            Err(Error::Option("EX", "and PX exclude each other"))
        } else {
            Ok(())
        }
    }

    fn set(&mut self, option: &'static str, number: Option<u64>) -> Result<(), Error> {
        match option {
            "QUEUE" => {
                let longest = config::MAX_QUEUE_MS.get() as u64;
                let ms = number.filter(|ms| (1..=longest).contains(ms));
                self.ticket_ms = Some(ms.ok_or(Error::Option(option, BAD_TICKET))?);
            }
            "BLOCK" => {
                let ms = number.and_then(|ms| i64::try_from(ms).ok());
                let ms = ms.filter(|&ms| ms <= LONGEST_BLOCK_MS);
                self.block_ms = Some(ms.ok_or(Error::Option(option, BAD_TIMEOUT))?);
            }
            _ => {
                let ms_per_unit = if option == "EX" { 1000 } else { 1 };
                let ms = number
                    .filter(|&number| number > 0)
                    .and_then(|number| number.checked_mul(ms_per_unit));
                let ms = ms.ok_or(Error::Option(option, BAD_LENGTH))?;
                self.lease = Some(Length { option, ms });
            }
        }
        Ok(())
    }

    /// The lease that was asked for, from `now_ms` on.
    pub(super) fn lease(&self, now_ms: i64) -> Result<Option<Lease>, Error> {
        let Some(Length { option, ms }) = self.lease else {
            return Ok(None);
        };
        let lease = Lease::starting(now_ms, ms);
        lease.map(Some).ok_or(Error::Option(option, BAD_LENGTH))
    }
}

const BAD_LENGTH: &str =
    "must be a positive integer, and end within the 64 bits of unix time in milliseconds";

const BAD_TICKET: &str = "must be an integer of milliseconds from 1 to seat.max-queue-ms";

/// The server adds its own clock to it, and refuses what it cannot add only when it is too late for
/// the module.
const LONGEST_BLOCK_MS: i64 = 1 << 52;

const BAD_TIMEOUT: &str = "must be an integer of milliseconds from 0 to 4503599627370496";
