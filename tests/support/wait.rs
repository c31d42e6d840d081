//! Waiting for conditions, never for time.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing waits this long unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(2);

/// Returns as soon as `holds`; panics with `what` if it does not within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(PATIENCE, what, holds);
}

/// The same with another patience.
#[track_caller]
pub fn eventually_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        thread::sleep(POLL);
    }
}
