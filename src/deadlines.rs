//! The deadline registry: which names to look at next, and the one timer that is armed for the
//! earliest of them.
//!
//! For each key whose pool has leases there is its earliest deadline. The registry knows names and
//! times alone. A deadline may be too early, or its key may be gone or renamed: when it comes up,
//! the key is opened and only what the pool itself says counts. It is never too late, because each
//! lease that is granted or renewed, and each pool that arrives under a name by other means, is
//! noted here.
//!
//! What runs when the timer fires is [`crate::timer`]. On a replica the registry is kept up to date
//! and the timer is not armed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;

use redis_module::raw;
use seat_pool::Schedule;

use crate::data_sets::{DataSets, Second};
use crate::ffi::{Ctx, TimerId};
use crate::lazy_free;

/// The longest that the timer sleeps. The server's timers cannot hold every wait that 64 bits of
/// milliseconds can state.
const LONGEST_WAIT_MS: i64 = 3_600_000;

/// The deadlines of a data set: database, then key.
type Deadlines = BTreeMap<c_int, Schedule>;

/// In place of a database: deadlines whose databases are not known, so that each is looked for in
/// all of them.
pub(crate) const ANYWHERE: c_int = -1;

/// All of it belongs to the main thread, on which the server runs every callback that comes here.
struct Registry {
    deadlines: DataSets<Deadlines>,
    timer: Option<Timer>,
    /// What the timer runs; absent until the module is loaded.
    on_timer: Option<fn(Ctx<'_>)>,
    /// The name that the timer looks at, whose deadline it has taken out.
    under_check: Option<(c_int, Box<[u8]>)>,
    /// The database of the last deadline that came up.
    last: c_int,
}

struct Timer {
    id: TimerId,
    at_ms: i64,
}

thread_local! {
    static REGISTRY: RefCell<Registry> = const { RefCell::new(Registry::EMPTY) };
}

impl Registry {
    const EMPTY: Registry = Registry {
        deadlines: DataSets::new(BTreeMap::new()),
        timer: None,
        on_timer: None,
        under_check: None,
        last: -1,
    };

    fn earliest_ms(&self) -> Option<i64> {
        self.deadlines
            .shown
            .values()
            .filter_map(Schedule::earliest_ms)
            .min()
    }

    /// Takes out the earliest deadline of all databases if it has come up by `now_ms`. Of those
    /// that came up in the same moment, the databases take turns.
    fn take_due(&mut self, now_ms: i64) -> Option<(c_int, Box<[u8]>)> {
        let last = self.last;
        let deadlines = self
            .deadlines
            .shown
            .iter()
            .filter_map(|(&database, schedule)| {
                let at_ms = schedule.earliest_ms()?;
                Some((at_ms, database <= last, database))
            });
        let (_, _, database) = deadlines.min()?;
        let name = self.deadlines.shown.get_mut(&database)?.take_due(now_ms)?;
        self.last = database;
        Some((database, name))
    }

    /// Arms the timer for `at_ms`, unless it is armed for an earlier time.
    fn arm(&mut self, ctx: Ctx<'_>, at_ms: i64) {
        if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
            return;
        }
        let Some(on_timer) = self.on_timer else {
            return;
        };
        match &self.timer {
            Some(timer) if timer.at_ms <= at_ms => return,
            Some(timer) => ctx.stop_timer(timer.id),
            None => {}
        }
        let wait_ms = at_ms.saturating_sub(ctx.now_ms());
        let id = ctx.create_timer(wait_ms.clamp(1, LONGEST_WAIT_MS), on_timer);
        self.timer = Some(Timer { id, at_ms });
    }

    fn arm_for_earliest(&mut self, ctx: Ctx<'_>) {
        if let Some(at_ms) = self.earliest_ms() {
            self.arm(ctx, at_ms);
        }
    }
}

/// Has `on_timer` run whenever a deadline has come up, or when [`run_soon`] asks for it.
pub(crate) fn register(on_timer: fn(Ctx<'_>)) {
    REGISTRY.with_borrow_mut(|registry| registry.on_timer = Some(on_timer));
}

/// Notes that time changes something in the pool at `key` at `deadline_ms`, such as a lease that
/// expires.
pub(crate) fn note(ctx: Ctx<'_>, database: c_int, key: &[u8], deadline_ms: i64) {
    REGISTRY.with_borrow_mut(|registry| {
        let schedule = registry.deadlines.shown.entry(database).or_default();
        if schedule.note(key, deadline_ms) {
            registry.arm(ctx, deadline_ms);
        }
    });
}

/// Forgets the deadline of a name whose pool is gone.
pub(crate) fn forget(database: c_int, key: &[u8]) {
    REGISTRY.with_borrow_mut(|registry| {
        if let Some(schedule) = registry.deadlines.shown.get_mut(&database) {
            schedule.forget(key);
        }
    });
}

/// As [`forget`], for a server that does not say from which database the pool has gone: up to 6.2.
/// If the pool had `deadlines`, its database has one here, unless the timer has just taken it.
/// Where that leaves a doubt, the timer looks at once and finds out.
pub(crate) fn forget_somewhere(ctx: Ctx<'_>, key: &[u8], deadlines: bool) {
    let (having, is_under_check): (Vec<c_int>, bool) = REGISTRY.with_borrow(|registry| {
        let schedules = registry.deadlines.shown.iter();
        let having = schedules.filter(|(_, schedule)| schedule.contains(key));
        let under_check = registry.under_check.as_ref();
        (
            having.map(|(&database, _)| database).collect(),
            under_check.is_some_and(|(_, name)| **name == *key),
        )
    });
    match having[..] {
        [only] if deadlines && !is_under_check => forget(only, key),
        _ => {
            for database in having {
                note(ctx, database, key, ctx.now_ms());
            }
        }
    }
}

/// Notes the deadline of a pool in a data set that is loaded and not shown yet.
pub(crate) fn note_loaded(database: c_int, key: &[u8], deadline_ms: i64) {
    REGISTRY.with_borrow_mut(|registry| {
        if let Some(deadlines) = &mut registry.deadlines.loaded {
            let schedule = deadlines.entry(database).or_default();
            schedule.note(key, deadline_ms);
        }
    });
}

/// Forgets all deadlines of a database, or of all if it is -1.
pub(crate) fn flushed(database: c_int) {
    let flushed: Vec<Schedule> = REGISTRY.with_borrow_mut(|registry| {
        let schedules = registry.deadlines.shown.iter_mut();
        let meant = schedules.filter(|(other, _)| database == -1 || **other == database);
        meant
            .map(|(_, schedule)| std::mem::take(schedule))
            .collect()
    });
    let count = flushed.iter().map(Schedule::len).sum();
    lazy_free::free(flushed, count);
}

/// Whether there is a lease or a ticket in any pool.
pub(crate) fn are_any() -> bool {
    REGISTRY.with_borrow(|registry| {
        let mut schedules = registry.deadlines.shown.values();
        schedules.any(|schedule| !schedule.is_empty())
    })
}

/// Two databases have been swapped.
pub(crate) fn databases_swapped(one: c_int, other: c_int) {
    REGISTRY.with_borrow_mut(|registry| {
        if one == other {
            return;
        }
        let first = registry.deadlines.shown.remove(&one).unwrap_or_default();
        let second = registry.deadlines.shown.insert(other, first);
        registry
            .deadlines
            .shown
            .insert(one, second.unwrap_or_default());
    });
}

/// Something has happened to the second data set. O(1).
pub(crate) fn follow(second: Second, are_databases_known: bool) {
    let dropped = REGISTRY.with_borrow_mut(|registry| {
        let dropped = registry.deadlines.follow(second);
        if second == Second::Shown && !are_databases_known {
            let databases = &mut registry.deadlines.shown;
            if let Some(schedule) = databases.remove(&0) {
                databases.insert(ANYWHERE, schedule);
            }
        }
        dropped
    });
    if let Some(dropped) = dropped {
        let count = dropped.values().map(Schedule::len).sum();
        lazy_free::free(dropped, count);
    }
}

/// Has the timer run in time for the earliest deadline. Does nothing on a replica.
pub(crate) fn arm(ctx: Ctx<'_>) {
    REGISTRY.with_borrow_mut(|registry| registry.arm_for_earliest(ctx));
}

/// Has the timer run at `at_ms`, if not earlier. Does nothing on a replica.
pub(crate) fn run_at(ctx: Ctx<'_>, at_ms: i64) {
    REGISTRY.with_borrow_mut(|registry| registry.arm(ctx, at_ms));
}

/// Has the timer run within the next turn of the event loop. Does nothing on a replica.
pub(crate) fn run_soon(ctx: Ctx<'_>) {
    run_at(ctx, ctx.now_ms());
}

/// The timer has fired, and must be armed again to do so once more.
pub(crate) fn has_fired() {
    REGISTRY.with_borrow_mut(|registry| registry.timer = None);
}

/// The timer goes by a clock that never steps, and deadlines by one that may: has it run at once
/// where a step forward has brought one up, or if `is_needed` anyway.
pub(crate) fn follow_clock(ctx: Ctx<'_>, is_needed: impl FnOnce() -> bool) {
    REGISTRY.with_borrow_mut(|registry| {
        let now_ms = ctx.now_ms();
        let is_due = registry.earliest_ms().is_some_and(|at_ms| at_ms <= now_ms);
        if is_due || is_needed() {
            if let Some(timer) = registry.timer.take() {
                ctx.stop_timer(timer.id);
            }
            registry.arm(ctx, now_ms);
        }
    });
}

/// Takes out a name whose deadline has come up, with its database, and notes that the timer looks
/// at it. Databases take turns.
pub(crate) fn take_due(ctx: Ctx<'_>) -> Option<(c_int, Box<[u8]>)> {
    REGISTRY.with_borrow_mut(|registry| {
        registry.under_check = registry.take_due(ctx.now_ms());
        registry.under_check.clone()
    })
}

/// The timer looks at no name any more.
pub(crate) fn finish_check() {
    REGISTRY.with_borrow_mut(|registry| registry.under_check = None);
}

#[cfg(test)]
mod tests {
    use seat_pool::Schedule;

    use super::Registry;

    #[test]
    fn deadlines_come_up_in_order_and_databases_take_turns() {
        let mut registry = Registry::EMPTY;
        let note = |registry: &mut Registry, database, name: &[u8], at_ms| {
            let schedule: &mut Schedule = registry.deadlines.shown.entry(database).or_default();
            schedule.note(name, at_ms);
        };
        for (database, name, at_ms) in [
            (0, b"a", 20),
            (0, b"b", 30),
            (3, b"c", 20),
            (3, b"d", 10),
            (7, b"e", 20),
            (7, b"f", 31),
        ] {
            note(&mut registry, database, name, at_ms);
        }
        let mut taken = Vec::new();
        while let Some((database, name)) = registry.take_due(30) {
            taken.push(name[0]);
            if *name == *b"e" {
                // Not done with, so it comes up again.
                note(&mut registry, database, &name, 20);
            }
            if taken.len() == 6 {
                break;
            }
        }
        // After `d` of the third database it is the turn of those above, then of those from the
        // first on.
        assert_eq!(taken, *b"deacee");
    }
}
