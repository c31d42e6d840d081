//! The moment by which a command, a callback or the timer decides: the time, the lease grace and
//! the grant hold.
//!
//! A holder must not lose its seat because the *server* was away. So there is a floor below which
//! no deadline counts, one number for all pools of this process. It is raised
//! - to the present and `lease-grace` after a promotion, after a load, and while and after the
//!   server refuses its clients' writes;
//! - to the present and as long as the event loop was away, at most `lease-grace`, where that was
//!   more than a second.
//!
//! How long the event loop is away is measured from its last sign of life, a turn of the server's
//! cron in which clients could write. A command that comes before the next one finds the gap as
//! well, so that nobody is granted a seat in between. The time that passed is taken from a clock
//! that never steps: that somebody sets the server's clock is no gap, and leases go by that as
//! EXPIRE does.
//!
//! A replica has no floor. It goes by the deadlines that it was sent, and is given its floor with
//! its promotion.
//!
//! The grant hold is the opposite caution: after a load, a promotion or a flush, others may hold
//! seats that this server does not know of, so for `grant-hold` nobody is granted one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use redis_module::raw;
use seat_pool::Moment;

use crate::config::{GRANT_HOLD, LEASE_GRACE};
use crate::ffi::{Ctx, uptime_ms};
use crate::{deadlines, server, stats};

/// The longest absence that prolongs nothing.
const SHORT_MS: i64 = 1000;

/// The time up to which a command need not ask whether the event loop was away.
static AWAKE_UNTIL_MS: AtomicI64 = AtomicI64::new(i64::MIN);

/// The floor.
static FLOOR_MS: AtomicI64 = AtomicI64::new(Moment::NO_FLOOR);

/// When the last hold of all databases ends.
static HELD_UNTIL_MS: AtomicI64 = AtomicI64::new(i64::MIN);

thread_local! {
    /// All of it belongs to the main thread. What each command reads stands in the atomics above.
    static STATE: RefCell<State> = const {
        RefCell::new(State {
            floor: Floor::NONE,
            signs: Signs::NONE,
            refuses: false,
            holds: Holds::NONE,
        })
    };
}

struct State {
    floor: Floor,
    signs: Signs,
    /// Whether the server refused its clients' writes when last asked. Until it is asked again, all
    /// that comes raises the floor.
    refuses: bool,
    holds: Holds,
}

/// Until when no deadline counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Floor {
    at_ms: i64,
    /// How far ahead of the clock it was put.
    ahead_ms: i64,
}

impl Floor {
    const NONE: Floor = Floor {
        at_ms: Moment::NO_FLOOR,
        ahead_ms: 0,
    };

    /// Has no deadline count for `ahead_ms` from now on, unless that is so for longer already.
    fn raise(&mut self, now_ms: i64, ahead_ms: i64) {
        let at_ms = now_ms.saturating_add(ahead_ms);
        if ahead_ms > 0 && at_ms > self.at_ms {
            *self = Floor { at_ms, ahead_ms };
        }
    }

    /// The clock may have stepped back: a floor lasts no longer than it was meant to.
    fn follow(&mut self, now_ms: i64) {
        self.at_ms = self.at_ms.min(now_ms.saturating_add(self.ahead_ms));
    }
}

/// The event loop's signs of life.
#[derive(Clone, Copy, Debug)]
struct Signs {
    /// When the last one was, by the clock that never steps.
    last_ms: i64,
    /// In how long the next one is due.
    interval_ms: i64,
}

impl Signs {
    const NONE: Signs = Signs {
        last_ms: 0,
        // The first turn of the cron comes at once.
        interval_ms: 0,
    };

    /// For how long there was none, if that is longer than it takes.
    fn away_ms(self, uptime_ms: i64) -> Option<i64> {
        let away_ms = uptime_ms.saturating_sub(self.last_ms);
        (away_ms > self.interval_ms + SHORT_MS).then_some(away_ms)
    }
}

/// Until when nobody is granted a seat.
struct Holds {
    everywhere_ms: i64,
    databases: BTreeMap<c_int, i64>,
}

impl Holds {
    const NONE: Holds = Holds {
        everywhere_ms: i64::MIN,
        databases: BTreeMap::new(),
    };

    /// Holds grants in a database, or in all if it is -1.
    fn begin(&mut self, database: c_int, end_ms: i64) {
        let own = match database {
            -1 => &mut self.everywhere_ms,
            _ => self.databases.entry(database).or_insert(i64::MIN),
        };
        *own = end_ms.max(*own);
    }

    fn end_ms(&self, database: c_int) -> i64 {
        let own = self.databases.get(&database);
        own.copied().unwrap_or(i64::MIN).max(self.everywhere_ms)
    }

    fn last_end_ms(&self) -> i64 {
        let ends = self.databases.values().copied();
        ends.fold(self.everywhere_ms, i64::max)
    }

    /// Ends all holds by `latest_ms`, forgets those that are over by now, and returns whether one
    /// ends earlier than before.
    fn follow(&mut self, now_ms: i64, latest_ms: i64) -> bool {
        let before_ms = self.last_end_ms();
        self.everywhere_ms = self.everywhere_ms.min(latest_ms);
        self.databases.retain(|_, end_ms| {
            *end_ms = latest_ms.min(*end_ms);
            *end_ms > now_ms
        });
        before_ms > latest_ms.max(now_ms)
    }
}

/// Begins to watch the event loop.
pub(crate) fn register(ctx: Ctx<'_>) {
    update(|state| state.signs.last_ms = uptime_ms());
    AWAKE_UNTIL_MS.store(ctx.now_ms(), Relaxed);
}

/// Whether there is a lease grace at all.
pub(crate) fn is_on() -> bool {
    LEASE_GRACE.get_ms() > 0
}

/// The present moment in the selected database. All that decides about leases, tickets or grants
/// goes by this one.
pub(crate) fn moment(ctx: Ctx<'_>) -> Moment {
    let now_ms = ctx.now_ms();
    if now_ms > AWAKE_UNTIL_MS.load(Relaxed) {
        find_gap(ctx, now_ms, uptime_ms());
    }
    let moment = Moment::with_floor(now_ms, FLOOR_MS.load(Relaxed));
    if now_ms < HELD_UNTIL_MS.load(Relaxed) && now_ms < hold_end_ms(ctx.selected_database()) {
        return moment.holding_grants();
    }
    moment
}

/// When the hold in a database ends, or ended.
pub(crate) fn hold_end_ms(database: c_int) -> i64 {
    STATE.with_borrow(|state| state.holds.end_ms(database))
}

/// Changes the state and shows it to those who read the atomics.
fn update<T>(change: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|state| {
        let result = change(state);
        FLOOR_MS.store(state.floor.at_ms, Relaxed);
        stats::LEASE_FLOOR.set_end(state.floor.at_ms);
        let held_until_ms = state.holds.last_end_ms();
        HELD_UNTIL_MS.store(held_until_ms, Relaxed);
        stats::GRANT_HOLD.set_end(held_until_ms);
        result
    })
}

/// Raises the floor if the event loop was away, or if the server refused writes when last asked.
/// Returns for how long it was away.
fn find_gap(ctx: Ctx<'_>, now_ms: i64, uptime_ms: i64) -> Option<i64> {
    let grace_ms = LEASE_GRACE.get_ms();
    if grace_ms == 0 || ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
        return None;
    }
    update(|state| {
        if state.refuses {
            state.floor.raise(now_ms, grace_ms);
        }
        let away_ms = state.signs.away_ms(uptime_ms)?;
        state.floor.raise(now_ms, away_ms.min(grace_ms));
        Some(away_ms)
    })
}

/// A turn of the server's cron, which runs `hz` times a second. `on_early_end` runs if a hold ends
/// earlier than it was meant to.
pub(crate) fn on_cron(ctx: Ctx<'_>, hz: c_int, on_early_end: impl FnOnce()) {
    // Asked once: a gap within this very turn is one between this sign of life and the next.
    let (now_ms, uptime_ms) = (ctx.now_ms(), uptime_ms());
    let away_ms = find_gap(ctx, now_ms, uptime_ms);
    let hold_ms = GRANT_HOLD.get_ms();
    let ends_earlier = update(|state| {
        state.floor.follow(now_ms);
        state.holds.follow(now_ms, now_ms.saturating_add(hold_ms))
    });
    if ends_earlier {
        // The clock has stepped back, or the setting is another.
        on_early_end();
    }
    let is_primary = !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE);
    if is_primary && ctx.must_not_replicate() {
        // Clients are paused, so this is no sign of life for them.
        return;
    }
    if let Some(away_ms) = away_ms.filter(|_| deadlines::are_any()) {
        ctx.log_notice(&format!(
            "the server was away for {away_ms} ms: no lease expires for as long (lease-grace)"
        ));
    }
    let has_stake = is_primary && is_on() && deadlines::are_any();
    let refuses = has_stake && (server::refuses_writes(ctx) || server::is_cluster_down(ctx));
    note_write_refusal(ctx, refuses);
    update(|state| {
        state.signs = Signs {
            last_ms: uptime_ms,
            interval_ms: i64::from(1000 / hz.clamp(1, 1000)),
        };
        let calm_ms = state.signs.interval_ms + SHORT_MS;
        let awake_until_ms = if refuses {
            i64::MIN
        } else {
            now_ms.saturating_add(calm_ms)
        };
        AWAKE_UNTIL_MS.store(awake_until_ms, Relaxed);
    });
}

/// Notes whether the server, a primary, refuses its clients' writes at present. The grace lasts
/// while it does and begins when it does so no longer.
pub(crate) fn note_write_refusal(ctx: Ctx<'_>, refuses: bool) {
    let now_ms = ctx.now_ms();
    let has_begun = update(|state| {
        if refuses || state.refuses {
            state.floor.raise(now_ms, LEASE_GRACE.get_ms());
        }
        let has_begun = refuses && !state.refuses;
        state.refuses = refuses;
        has_begun && is_on()
    });
    if has_begun {
        AWAKE_UNTIL_MS.store(i64::MIN, Relaxed);
        ctx.log_notice(
            "the server refuses writes: no lease expires until the lease-grace after it is over",
        );
    }
}

/// A data set has been loaded: at start, from a primary, or by DEBUG RELOAD.
pub(crate) fn on_load(ctx: Ctx<'_>) {
    update(|state| state.signs.last_ms = uptime_ms());
    begin(ctx, "a load");
}

/// A replica has become a primary.
pub(crate) fn on_promotion(ctx: Ctx<'_>) {
    begin(ctx, "a promotion");
}

/// A primary has become a replica: from now on it goes by the deadlines that it is sent.
pub(crate) fn on_demotion() {
    update(|state| {
        state.floor = Floor::NONE;
        state.refuses = false;
    });
}

/// A database was emptied, or all if it is -1.
pub(crate) fn on_flush(ctx: Ctx<'_>, database: c_int) {
    hold(ctx.now_ms(), database);
}

/// Two databases have been swapped.
pub(crate) fn databases_swapped(one: c_int, other: c_int) {
    update(|state| {
        let databases = &mut state.holds.databases;
        let ends_ms = (databases.remove(&one), databases.remove(&other));
        databases.extend(ends_ms.0.map(|end_ms| (other, end_ms)));
        databases.extend(ends_ms.1.map(|end_ms| (one, end_ms)));
    });
}

/// Clients must find their way back first. Without leases and tickets there is nothing to be lost
/// meanwhile.
fn begin(ctx: Ctx<'_>, after: &str) {
    let now_ms = ctx.now_ms();
    hold(now_ms, -1);
    let grace_ms = LEASE_GRACE.get_ms();
    let is_primary = !ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE);
    if is_primary && grace_ms > 0 && deadlines::are_any() {
        update(|state| state.floor.raise(now_ms, grace_ms));
        ctx.log_notice(&format!(
            "after {after} no lease expires for {grace_ms} ms (lease-grace)"
        ));
    }
}

fn hold(now_ms: i64, database: c_int) {
    let hold_ms = GRANT_HOLD.get_ms();
    if hold_ms > 0 {
        let end_ms = now_ms.saturating_add(hold_ms);
        update(|state| state.holds.begin(database, end_ms));
    }
}

#[cfg(test)]
mod tests {
    use seat_pool::Moment;

    use super::{Floor, Holds, Signs};

    #[test]
    fn a_floor_rises_and_follows_a_clock_that_steps_back() {
        let mut floor = Floor::NONE;
        floor.raise(1000, 0);
        floor.follow(0);
        assert_eq!(floor.at_ms, Moment::NO_FLOOR);
        for (now_ms, ahead_ms, at_ms) in [(1000, 500, 1500), (1100, 300, 1500), (1300, 300, 1600)] {
            floor.raise(now_ms, ahead_ms);
            floor.follow(now_ms);
            assert_eq!(floor.at_ms, at_ms, "at {now_ms}");
        }
        floor.follow(2000);
        assert_eq!(floor.at_ms, 1600);
        floor.follow(-10_000);
        assert_eq!(floor.at_ms, -9700);
    }

    #[test]
    fn a_gap_is_longer_than_the_cron_takes_by_more_than_a_second() {
        for (interval_ms, away_ms, found) in [
            (100, 1100, None),
            (100, 1101, Some(1101)),
            (1000, 2000, None),
            (1000, 9000, Some(9000)),
        ] {
            let signs = Signs {
                last_ms: 500,
                interval_ms,
            };
            assert_eq!(signs.away_ms(500 + away_ms), found, "{interval_ms}");
        }
    }

    #[test]
    fn holds_end_by_themselves_and_with_their_setting() {
        let mut holds = Holds::NONE;
        assert!(!holds.follow(0, 0));
        holds.begin(3, 500);
        holds.begin(3, 400);
        assert_eq!((holds.end_ms(3), holds.end_ms(0)), (500, i64::MIN));
        holds.begin(-1, 450);
        assert_eq!((holds.end_ms(3), holds.end_ms(0)), (500, 450));
        assert!(!holds.follow(100, 1100), "they go on");
        assert_eq!(holds.last_end_ms(), 500);
        assert!(holds.follow(200, 300), "they were cut short");
        assert_eq!((holds.end_ms(3), holds.end_ms(0)), (300, 300));
        assert!(!holds.follow(300, 1300), "they are over");
        assert!(holds.databases.is_empty());
    }
}
