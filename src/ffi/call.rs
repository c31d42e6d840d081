//! Calling the server's own commands, and sending them on.

use std::ffi::{CStr, c_char};
use std::io;
use std::ptr::NonNull;
use std::slice;

use redis_module::raw;

use super::{Ctx, Io, Str, api};
use crate::error::Error;

/// What `errno` is when a call is to run as the context's user and there is none: ENOTSUP.
const NO_USER: i32 = if cfg!(target_os = "macos") { 45 } else { 95 };

/// Calls a function that takes a command and its arguments by a format: `s` is a string, and `v` a
/// pointer to strings and their number. The server makes room for the latter twice, so the few
/// arguments of an effect, which each change sends, are named.
macro_rules! send {
    ($function:expr, $to:expr, $command:expr, $arguments:expr) => {{
        let command = $command.as_ptr();
        match $arguments {
            [a, b, c] => $function(
                $to,
                command,
                c"sss".as_ptr(),
                a.as_ptr(),
                b.as_ptr(),
                c.as_ptr(),
            ),
            [a, b, c, d] => {
                let format = c"ssss".as_ptr();
                $function(
                    $to,
                    command,
                    format,
                    a.as_ptr(),
                    b.as_ptr(),
                    c.as_ptr(),
                    d.as_ptr(),
                )
            }
            [a, b, c, d, e] => {
                let format = c"sssss".as_ptr();
                let (a, b, c, d, e) = (a.as_ptr(), b.as_ptr(), c.as_ptr(), d.as_ptr(), e.as_ptr());
                $function($to, command, format, a, b, c, d, e)
            }
            [a, b, c, d, e, f] => {
                let format = c"ssssss".as_ptr();
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_ptr());
                let (d, e, f) = (d.as_ptr(), e.as_ptr(), f.as_ptr());
                $function($to, command, format, a, b, c, d, e, f)
            }
            [a, b, c, d, e, f, g] => {
                let format = c"sssssss".as_ptr();
                let (a, b, c, d) = (a.as_ptr(), b.as_ptr(), c.as_ptr(), d.as_ptr());
                let (e, f, g) = (e.as_ptr(), f.as_ptr(), g.as_ptr());
                $function($to, command, format, a, b, c, d, e, f, g)
            }
            // A `Str` is a pointer to a string.
            all => $function($to, command, c"v".as_ptr(), all.as_ptr(), all.len()),
        };
    }};
}

/// The reply to a call.
pub(crate) struct Reply {
    raw: NonNull<raw::RedisModuleCallReply>,
}

impl Ctx<'_> {
    /// Runs a command of the server's as the server itself, in the selected database, and
    /// replicates nothing. `None` if there is no such command, or if this node may not serve its
    /// keys.
    pub(crate) fn call(self, command: &CStr, arguments: &[Str<'_>]) -> Option<Reply> {
        self.call_with(c"v", command, arguments)
    }

    /// Runs a command here and on whoever follows. What other modules do on hearing of it follows,
    /// too, after it.
    pub(crate) fn call_and_replicate(self, command: &'static CStr, arguments: &[Str<'_>]) {
        self.replicate(command, arguments);
        // Without `!` the server would let nothing follow that comes of it; `A` and `R` keep the
        // command itself from following twice.
        self.call_with(c"!ARv", command, arguments);
    }

    /// As [`Ctx::call`], with the reply in the protocol of the client of this callback where the
    /// server can (7.0 and later).
    pub(crate) fn call_for_client(self, command: &CStr, arguments: &[Str<'_>]) -> Option<Reply> {
        // SAFETY: the statics are set once before the module's first callback.
        let knows_protocols = unsafe { raw::RedisModule_ReplyWithSet }.is_some();
        let format = if knows_protocols { c"0v" } else { c"v" };
        self.call_with(format, command, arguments)
    }

    pub(super) fn call_with(
        self,
        format: &CStr,
        command: &CStr,
        arguments: &[Str<'_>],
    ) -> Option<Reply> {
        // SAFETY: the context and the arguments are valid, `v` takes a pointer to strings and their
        // number, and a `Str` is such a pointer.
        let reply = unsafe {
            api!(RedisModule_Call)(
                self.as_ptr(),
                command.as_ptr(),
                format.as_ptr(),
                arguments.as_ptr(),
                arguments.len(),
            )
        };
        NonNull::new(reply).map(|raw| Reply { raw })
    }

    /// Whether the callback runs for a user, so that there are rights to be asked for. For servers
    /// of 7.0 and later only.
    pub(crate) fn has_user(self) -> bool {
        // `C` asks for the rights of the context's user. That there is none is found before the
        // command is looked at.
        let reply = self.call_with(c"Cv", c"HELLO", &[]);
        reply.is_some() || io::Error::last_os_error().raw_os_error() != Some(NO_USER)
    }

    /// Refuses if the server has no command of this name, one that takes arguments: whoever runs
    /// the server may have renamed it.
    pub(crate) fn needs(self, command: &'static CStr) -> Result<(), Error> {
        // Without its arguments it is refused either way, and the reason differs.
        let reply = self.call(command, &[]);
        let is_unknown = io::Error::last_os_error().kind() == io::ErrorKind::NotFound;
        if reply.is_none() && is_unknown {
            return Err(Error::NoCommand(command));
        }
        Ok(())
    }

    /// Sends a command to the AOF and the replicas.
    pub(crate) fn replicate(self, command: &CStr, arguments: &[Str<'_>]) {
        // SAFETY: the context and the arguments are valid.
        unsafe {
            send!(
                api!(RedisModule_Replicate),
                self.as_ptr(),
                command,
                arguments
            )
        };
    }

    /// Answers the client with the reply to a call, errors included.
    pub(crate) fn reply_with(self, reply: &Reply) {
        // SAFETY: context and reply are valid.
        unsafe {
            let kind = api!(RedisModule_CallReplyType)(reply.raw.as_ptr());
            if kind == raw::REDISMODULE_REPLY_NULL as i32 {
                // 6.2 would pass on RESP2's, whatever the client speaks.
                return self.reply_null();
            }
            api!(RedisModule_ReplyWithCallReply)(self.as_ptr(), reply.raw.as_ptr());
        }
    }
}

impl Io<'_> {
    /// Writes a command to an AOF that is being rewritten.
    pub(crate) fn emit_to_aof(self, command: &CStr, arguments: &[Str<'_>]) {
        // SAFETY: the io and the arguments are valid.
        unsafe { send!(api!(RedisModule_EmitAOF), self.as_ptr(), command, arguments) };
    }
}

impl Reply {
    /// The number, of an integer reply.
    pub(crate) fn integer(&self) -> Option<i64> {
        // SAFETY: the reply is valid.
        unsafe {
            let kind = api!(RedisModule_CallReplyType)(self.raw.as_ptr());
            (kind == raw::REDISMODULE_REPLY_INTEGER as i32)
                .then(|| api!(RedisModule_CallReplyInteger)(self.raw.as_ptr()))
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        // SAFETY: the reply is valid.
        let kind = unsafe { api!(RedisModule_CallReplyType)(self.raw.as_ptr()) };
        kind == raw::REDISMODULE_REPLY_ERROR as i32
    }

    /// The text of an error; empty for any other reply.
    pub(super) fn error(&self) -> &[u8] {
        if !self.is_error() {
            return &[];
        }
        // SAFETY: the reply is valid, and lasts as long as `self`.
        unsafe { bytes(self.raw.as_ptr()) }.unwrap_or_default()
    }

    /// The string, of a string reply; empty for any other.
    pub(crate) fn text(&self) -> &[u8] {
        // SAFETY: the reply is valid, and lasts as long as `self`.
        unsafe { bytes(self.raw.as_ptr()) }.unwrap_or_default()
    }

    /// The strings, of an array of such; `None` for any other reply, such as an error.
    pub(crate) fn strings(&self) -> Option<impl Iterator<Item = &[u8]>> {
        // SAFETY: the reply is valid.
        let len = unsafe {
            let kind = api!(RedisModule_CallReplyType)(self.raw.as_ptr());
            (kind == raw::REDISMODULE_REPLY_ARRAY as i32)
                .then(|| api!(RedisModule_CallReplyLength)(self.raw.as_ptr()))
        };
        Some((0..len?).filter_map(|index| {
            // SAFETY: the index is within the array, and an element lasts as long as its reply.
            unsafe {
                bytes(api!(RedisModule_CallReplyArrayElement)(
                    self.raw.as_ptr(),
                    index,
                ))
            }
        }))
    }

    /// What follows `name` in an array reply of names and values: a string alone, or the strings of
    /// an array. Empty without it.
    pub(crate) fn array_after(&self, name: &[u8]) -> Vec<Vec<u8>> {
        // SAFETY: the reply is valid, and so are its elements for as long as it is.
        unsafe {
            let len = api!(RedisModule_CallReplyLength)(self.raw.as_ptr());
            let element = |index| api!(RedisModule_CallReplyArrayElement)(self.raw.as_ptr(), index);
            let found =
                (0..len.saturating_sub(1)).find(|&index| bytes(element(index)) == Some(name));
            let Some(value) = found.map(|index| element(index + 1)) else {
                return Vec::new();
            };
            if let Some(text) = bytes(value) {
                return vec![text.to_vec()];
            }
            let len = api!(RedisModule_CallReplyLength)(value);
            let items = (0..len).map(|index| api!(RedisModule_CallReplyArrayElement)(value, index));
            items
                .filter_map(|item| bytes(item).map(<[u8]>::to_vec))
                .collect()
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is owned, and no borrow of it is left.
        unsafe { api!(RedisModule_FreeCallReply)(self.raw.as_ptr()) };
    }
}

/// The string of a string reply, `None` for any other and for null.
///
/// # Safety
/// `reply` must be null or a reply that lasts for `'a`.
unsafe fn bytes<'a>(reply: *mut raw::RedisModuleCallReply) -> Option<&'a [u8]> {
    let mut len = 0;
    // SAFETY: by this function's contract; the server answers null with null.
    unsafe {
        let start: *const c_char = api!(RedisModule_CallReplyStringPtr)(reply, &raw mut len);
        (!start.is_null()).then(|| slice::from_raw_parts(start.cast::<u8>(), len))
    }
}
