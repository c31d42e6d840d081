//! Real servers for the tests.
//!
//! ```ignore
//! let server = Server::start();                       // the module loaded, a unix socket only
//! let scripts = Server::plain();                      // no module
//! let mut server = Server::builder()
//!     .module_args("max-metadata-bytes 100")          // what follows the path in `loadmodule`
//!     .config("appendonly yes")                       // any line of redis.conf; a later line wins
//!     .tcp()                                          // a port as well: replication, cluster
//!     .start();                                       // or try_start(): Err is the log
//! let replica = Server::builder().replica_of(&server).start();
//! let (primary, replica) = Server::with_replica();
//! let newer = Server::builder().binary(path).data_of(&server).start();
//! let sentinel = Server::builder().sentinel().config("sentinel monitor ..").start();
//! ```
//!
//! - A scene is written with [`Dialog`]: `let (server, mut dialog) = Server::scene()`, then
//!   `dialog.expect("SEAT.COUNT pool", "0")`. `Server::full_pool()` has `pool`, whose only seat `a`
//!   holds; both are methods of a builder as well. [`Waiter`] is a client that is blocked for a
//!   seat, `cluster` has nodes of clusters, `workload` random commands.
//! - [`Events`] hears keyspace events.
//! - What was replicated is read by [`replicated`], [`effects_of`] and [`units`].
//! - `client()` is a `redis::Connection`; `client_resp3()` the same in RESP3. `wire()` sends
//!   argument bytes and gives back the raw bytes of exactly one reply:
//!   `server.wire().call(&[b"SEAT.COUNT", b"pool"])`.
//! - `kill9()`, `shutdown()` (as `SHUTDOWN`), then `restart()` or `try_restart()`: the same
//!   directory, port and configuration. Between the two, `dir()` may be changed at will (a cut
//!   RDB). `restart()` of a running server shuts it down first.
//! - `version()` is a tuple: `if server.version() >= (7, 0, 0) { .. } else { .. }` decides *what*
//!   must hold, not whether to look. It is Redis's version also on Valkey, which has what 7.2.4
//!   had; `product()` says which of the two it is, where nothing else does.
//! - `eventually("the seat is free", || ..)` waits for a condition and panics, naming it, at the
//!   deadline. Never sleep for order.
//! - No step may need to be quick: a machine at work may hold up any process for a second.
//!   Commands that must not lie apart go to the server at once (`at_once`, `pipeline`), those of
//!   several clients while it `stands_still`. Where that cannot be, `staged("the lease runs when
//!   the server is stopped", || ..)` plays the scene until it took place, and how quick something
//!   is `mostly_within` says.
//! - `primary.wait_for_offset(&replica)` returns when the replica has applied what the primary has
//!   written so far; `primary.replica_agrees(&replica)` compares their data then.
//! - `server.reloads_the_same("DEBUG RELOAD")` compares the data before and after.
//! - `server.stream_of(|| ..)` is the exact list of commands that the server replicated in the
//!   meantime. It reads the append-only file, so the server needs `builder().recording()`;
//!   `commands_in_aof()` reads the whole file.
//! - Every server allows DEBUG, has `save ""` and no AOF by default, and belongs to its
//!   value: dropping it kills the process and removes the directory. A test that panics prints the
//!   end of its servers' logs. A server that died by itself fails the test even where no assertion
//!   noticed. Whatever ends the test's own process, a signal or an abort, ends its servers.
//!
//! The binary is `REDIS_SERVER` (default `redis-server` from PATH). The module is
//! `REDIS_SEAT_MODULE`, else the fixture lets cargo build it, in the profile of the test binary.

pub mod cluster;
mod dialog;
mod events;
mod process;
mod server;
mod stream;
mod wait;
mod waiter;
mod wire;
pub mod workload;

pub use dialog::{
    Dialog, Traces, arguments, busy_seconds, number_after, total, total_becomes, totals,
    wait_for_reclaim,
};
pub use events::Events;
pub use process::Process;
pub use server::{Builder, Product, Server, default_binary};
pub use stream::{Command, effects_of, line, replicated, units, without_time, words};
pub use wait::{eventually, eventually_within, mostly_within, now_ms, staged};
pub use waiter::{Waiter, nobody_is_blocked};
pub use wire::Wire;

mod self_tests;
