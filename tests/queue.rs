//! The queue: who is granted a seat, when, and in which order. What is special to tickets is in
//! `tickets`.

mod bad_input;
mod barging;
mod events;
mod figures;
mod freed_seats;
mod introspection;
mod limits;
mod persistence;
mod positions;

use crate::support::{Builder, Server};

/// A server that records, and takes effects from clients.
pub fn recording() -> Builder {
    Server::builder()
        .recording()
        .module_args("allow-effects yes")
}

pub const NOTHING: [Vec<String>; 0] = [];
