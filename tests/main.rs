//! The promises of redis-seat, each on a real `redis-server`.

mod docs;
mod documents;
mod overbooking;
mod parity;
mod support;
