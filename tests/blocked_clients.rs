//! Clients that are blocked for a seat: the ends that their wait can come to, and what becomes of
//! the queue then.

mod client_kinds;
pub mod crowd;
mod event_order;
mod key_changes;
mod killed_clients;
#[cfg(target_os = "linux")]
pub mod other_modules;
pub mod python;
mod stress;
mod wait_ends;

use crate::support::{Server, Waiter};

/// `b` and `c`, blocked in this order for a seat of `pool`.
#[track_caller]
fn two_waiters(server: &Server) -> [Waiter; 2] {
    ["b", "c"].map(|session| Waiter::of(server, &format!("SEAT.ACQUIRE pool {session} 1 BLOCK 0")))
}
