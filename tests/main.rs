//! The promises of redis-seat, each on a real `redis-server`.

mod documents;
mod overbooking;
mod parity;
mod support;
