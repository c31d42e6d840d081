//! Strings on their way to others: where the caller's own argument says the same, it is passed on
//! rather than copied.

use crate::ffi::{OwnedStr, Str};

/// The arguments of the command that is carried out which may be passed on, where what is sent says
/// the same.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallerText<'a> {
    pub(crate) session: Option<Str<'a>>,
    pub(crate) metadata: Option<Str<'a>>,
    pub(crate) owner: Option<Str<'a>>,
}

/// A string that is sent.
pub(crate) enum Sent<'a> {
    /// It is there already, such as an argument of the command that is carried out.
    Known(Str<'a>),
    Copied(OwnedStr),
}

impl<'a> Sent<'a> {
    pub(crate) fn of(bytes: &[u8], argument: Option<Str<'a>>) -> Sent<'a> {
        match argument.filter(|argument| argument.bytes() == bytes) {
            Some(argument) => Sent::Known(argument),
            None => Sent::Copied(OwnedStr::new(bytes)),
        }
    }

    pub(crate) fn number(number: impl itoa::Integer) -> Sent<'a> {
        Sent::Copied(OwnedStr::new(itoa::Buffer::new().format(number).as_bytes()))
    }

    pub(crate) fn get(&self) -> Str<'_> {
        match self {
            Sent::Known(known) => *known,
            Sent::Copied(copy) => copy.get(),
        }
    }
}
