//! What ACQUIRE and HEARTBEAT take after their own arguments: `[metadata] [EX seconds | PX milliseconds]`

use seat_pool::Lease;

use crate::error::Error;
use crate::ffi::{Args, Argument, Ctx, Str};
use redis_module::raw;

/// `[EX seconds | PX milliseconds]`, as COMMAND DOCS shows it.
pub(super) const LEASE: Argument = Argument {
    kind: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
    alternatives: &[
        Argument::integer(c"seconds").after(c"EX"),
        Argument::integer(c"milliseconds").after(c"PX"),
    ],
    ..Argument::string(c"lease").optional()
};

/// The words that are options, and so cannot be metadata. What the latter two do comes with the queue.
const WORDS: [&str; 4] = ["EX", "PX", "QUEUE", "BLOCK"];

/// The arguments from a place on where metadata may stand, or an option directly.
pub(super) struct Options<'a> {
    pub(super) metadata: Option<Str<'a>>,
    lease: Option<Length>,
}

/// The length of a lease, and the option that gave it.
struct Length {
    option: &'static str,
    ms: u64,
}

impl<'a> Options<'a> {
    pub(super) fn parse(args: Args<'a>, from: usize) -> Result<Options<'a>, Error> {
        let is_option = |arg: &Str<'_>| WORDS.iter().any(|word| arg.is_word(word));
        let metadata = args.get(from).filter(|arg| !is_option(arg));
        let mut options = Options {
            metadata,
            lease: None,
        };
        let mut rest = args.iter().skip(from + usize::from(metadata.is_some()));
        while let Some(word) = rest.next() {
            let (option, ms_per_unit) = if word.is_word("EX") {
                ("EX", 1000)
            } else if word.is_word("PX") {
                ("PX", 1)
            } else {
                return Err(Error::Syntax("EX or PX, or nothing, after the metadata"));
            };
            match &options.lease {
                Some(earlier) if earlier.option == option => {
                    return Err(Error::Option(option, "is given twice"));
                }
                Some(_) => return Err(Error::Option("EX", "and PX exclude each other")),
                None => {}
            }
            let value = rest.next().ok_or(Error::Option(option, "needs a value"))?;
            let ms = value
                .integer()
                .and_then(|value| u64::try_from(value).ok())
                .filter(|&value| value > 0)
                .and_then(|value| value.checked_mul(ms_per_unit));
            let ms = ms.ok_or(Error::Option(option, BAD_LENGTH))?;
            options.lease = Some(Length { option, ms });
        }
        Ok(options)
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

/// The element that ends a success reply if a lease was asked for: its milliseconds.
pub(super) fn reply_lease(ctx: Ctx<'_>, lease: Option<Lease>) {
    if let Some(lease) = lease {
        ctx.reply_integer(lease.length_ms as i64);
    }
}
