//! What the server says about its memory.

use std::ptr;
use std::slice;

use redis_module::raw;

use super::{Ctx, api};

impl Ctx<'_> {
    /// Whether the server found, before the command that it runs now, that it has to refuse commands that need memory. `None` if it
    /// does not tell: up to 7.0.0, and where SET goes by another name.
    pub(crate) fn refuses_what_needs_memory(self) -> Option<bool> {
        // SAFETY: the statics are set once before the module's first callback.
        let knows_formats = unsafe { raw::RedisModule_ReplyWithSet }.is_some();
        if !knows_formats {
            return None;
        }
        // `M` has SET refused for want of memory, then `W` as a write, so it never runs; `E` asks for the error as the reply.
        // SAFETY: the context is valid, and each `c` is a C string; the server answers a format that it does not know with null.
        let reply = unsafe {
            let (format, word) = (c"MWEcc".as_ptr(), c"x".as_ptr());
            api!(RedisModule_Call)(self.as_ptr(), c"SET".as_ptr(), format, word, word)
        };
        if reply.is_null() {
            return None;
        }
        let mut len = 0;
        // SAFETY: the reply is valid until it is freed, and so is its text, of which nothing is kept.
        unsafe {
            let start = api!(RedisModule_CallReplyStringPtr)(reply, ptr::from_mut(&mut len));
            let error = if start.is_null() {
                &[]
            } else {
                slice::from_raw_parts(start.cast::<u8>(), len)
            };
            let verdict = if error.starts_with(b"OOM ") {
                Some(true)
            } else {
                error.starts_with(b"ERR Write command ").then_some(false)
            };
            api!(RedisModule_FreeCallReply)(reply);
            verdict
        }
    }
}
