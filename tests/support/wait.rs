//! Waiting for conditions, never for time.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// This machine's clock, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_millis()).expect("not that long after 1970")
}
