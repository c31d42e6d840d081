//! What a session can have beyond a seat: an owner with a limit, a weight, a token.

mod bad_input;
mod details;
mod events;
mod owners;
mod persistence;
mod takeover;
mod tokens;
mod weights;

use crate::support::{Builder, Dialog, Server};

/// A server that records, and takes effects from clients.
fn recording() -> Builder {
    Server::builder()
        .recording()
        .module_args("allow-effects yes")
}

impl Dialog {
    /// A grant with WITHTOKEN alone of the options that answer. Returns the token.
    #[track_caller]
    fn token(&mut self, command: &str) -> u64 {
        let reply = self.ask(command);
        let last = reply.trim_end_matches(']').rsplit(", ").next();
        let token = last.and_then(|last| last.parse().ok());
        token.unwrap_or_else(|| panic!("{command}: no token: {reply}"))
    }
}
