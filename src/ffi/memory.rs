//! What the server says about its memory.

use std::ffi::CStr;

use redis_module::raw;

use super::{Ctx, OwnedStr, Str};

impl Ctx<'_> {
    /// Whether the server found, before the command that it runs now, that it has to refuse
    /// commands that need memory. `None` if it does not tell: up to 7.0.0, and where SET goes by
    /// another name.
    pub(crate) fn refuses_what_needs_memory(self) -> Option<bool> {
        let word = OwnedStr::new(b"x");
        self.verdict(c"SET", &[word.get(), word.get()])
    }

    /// Whether the server is one that knows of [`Ctx::refuses_what_needs_memory`].
    pub(crate) fn tells_its_verdict(self) -> bool {
        // SAFETY: the statics are set once before the module's first callback.
        unsafe { raw::RedisModule_ReplyWithSet }.is_some()
    }

    /// Whether a script, which `command` calls, is flagged as one that may write though memory is
    /// full. The server knows that of a script that it has run.
    pub(crate) fn may_run_out(self, command: &CStr, script: Str<'_>) -> bool {
        // With this number of keys the server does not run a script that it would not have refused,
        // whatever its flags are.
        let keys = OwnedStr::new(b"-1");
        self.verdict(command, &[script, keys.get()]) == Some(false)
    }

    /// Whether a function of the server's runs, and no script that was sent to it.
    pub(crate) fn runs_function(self) -> bool {
        let stats = OwnedStr::new(b"STATS");
        // While a script runs, it is an error.
        let reply = self.call(c"FUNCTION", &[stats.get()]);
        reply.is_some_and(|reply| !reply.is_error())
    }

    /// Whether the server refuses a command that writes for want of memory; `None` if it does not
    /// tell, or if the command is none that writes. The arguments must be such that it does nothing
    /// then.
    fn verdict(self, command: &CStr, arguments: &[Str<'_>]) -> Option<bool> {
        if !self.tells_its_verdict() {
            return None;
        }
        // `M` has it refused for want of memory, then `W` as a write, so it never runs; `E` asks
        // for the error as the reply. A server that does not know the format answers with nothing.
        let reply = self.call_with(c"MWEv", command, arguments)?;
        let error = reply.error();
        if error.starts_with(b"OOM ") {
            Some(true)
        } else {
            error.starts_with(b"ERR Write command ").then_some(false)
        }
    }
}
