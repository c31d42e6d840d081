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

/// How often [`staged`] begins anew.
const STAGINGS: usize = 10;

/// Plays a scene that takes place only where the machine is quick enough: a lease must still run
/// when the server is stopped, say. The scene asks about that itself, of something that the module
/// has no part in where it can, and returns `None` if it came too late; nothing is proved then, and
/// it is played anew, with servers of its own. What it asserts counts each time. Panics if the
/// scene never takes place.
#[track_caller]
pub fn staged<T>(what: &str, mut scene: impl FnMut() -> Option<T>) -> T {
    let played = (0..STAGINGS).find_map(|_| scene());
    played.unwrap_or_else(|| panic!("too late {STAGINGS} times: {what}"))
}

/// Has something happen until it was in time four times more often than not, `late` being how late
/// it was that time. What depends on a slower way than it should is in time by chance at best, and
/// so never this often. A moment in which this machine is busy elsewhere costs more turns, no more.
/// Returns how late it was each time.
#[track_caller]
pub fn mostly_within(bound: Duration, mut late: impl FnMut() -> Duration) -> Vec<Duration> {
    const AHEAD: i32 = 4;
    const TURNS: usize = 60;
    let (mut seen, mut ahead) = (Vec::new(), 0);
    while ahead < AHEAD {
        assert!(seen.len() < TURNS, "later than {bound:?}: {seen:?}");
        let by = late();
        seen.push(by);
        ahead += if by < bound { 1 } else { -1 };
    }
    seen
}

/// This machine's clock, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_millis()).expect("not that long after 1970")
}
