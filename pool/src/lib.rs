//! The seat pool of redis-seat: who holds a seat, until when, and how that is written down.
//!
//! The crate knows no Redis and no clock. The [`Machine`] decides everything about seats and the
//! queue at the [`Moment`] it is given. What follows from a decision is an [`Effect`] in absolute
//! terms, and [`Pool::apply`] carries an effect out. A primary applies the effects of its own
//! decisions, a replica and a loading server apply the same effects from the stream, so all of them
//! reach the same state by the same code.
//!
//! Units: milliseconds of unix time in `*_ms`, except the two timestamps of a session, which are
//! whole seconds because the Lua scripts that the pool replaces wrote them so.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blocked;
mod claims;
mod codec;
mod cursor;
mod effect;
mod entries;
mod figures;
mod holders;
mod import;
mod index;
mod json_fast_path;
mod machine;
mod memory;
mod metadata;
mod moment;
mod order;
mod pool;
mod queue;
mod schedule;
mod session;
mod slab;
mod waiting;

pub use blocked::{Blocked, BlockedQueue, Request, Wait, Waiter};
pub use claims::{Claim, KeptClaim};
pub use codec::{DecodeError, Decoder};
pub use cursor::StaleCursor;
pub use effect::{Effect, Freed, Grant, Heartbeat, Holder, Join, Lease};
pub use entries::QueueEntry;
pub use import::{Import, ImportError};
pub use machine::{
    AcquireRequest, Acquired, AlreadyActive, Conditions, Granted, Host, Machine, Notice, Outcome,
    Refusal, WaitEnd,
};
pub use memory::calibrate as calibrate_memory;
pub use metadata::{MAX_NESTING, Metadata, MetadataError, Stored};
pub use moment::Moment;
pub use pool::{Applied, HeartbeatOutcome, Pool};
pub use queue::Ticket;
pub use schedule::Schedule;
pub use session::Session;
pub use waiting::{MAX_FIGURES, Queue, Waiting};

/// The longest session id that a pool can store, in bytes. Deployments set a lower limit of their
/// own.
pub const MAX_SESSION_BYTES: usize = u16::MAX as usize;

/// The last second of unix time that a session's timestamps can hold; it lies in the year 2106.
pub const MAX_SECOND: u32 = u32::MAX - 1;

/// Where the numbers in the order of arrival end. A number from elsewhere must be below, so that
/// those that follow it have room.
pub const MAX_ARRIVAL: u64 = 1 << 62;

/// The most seats that one session can take.
pub const MAX_WEIGHT: u32 = i32::MAX as u32;

/// Where tokens end. All are below, so that Lua and JavaScript, whose integers are exact up to
/// 2^53, hold each of them.
pub const MAX_TOKEN: u64 = 1 << 52;

/// The largest metadata object that a pool can store, in bytes. Deployments set a lower limit of
/// their own.
pub const MAX_METADATA_BYTES: usize = 1 << 20;
