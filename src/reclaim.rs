//! Taking back the seats of lapsed leases, on time and without being asked.
//!
//! For each key whose pool has leases there is a hint of its earliest deadline, and one timer is armed for the earliest hint. A hint
//! may be too early, or its key may be gone or renamed: when it comes up, the key is opened and only what the pool itself says
//! counts. It is never too late, because each lease that is granted or renewed, and each pool that arrives under a name by other
//! means, notes its deadline.
//!
//! Only a primary reclaims. A replica keeps the hints up to date and arms the timer on its promotion.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use redis_module::raw;
use seat_pool::{Effect, Freed, Moment, Schedule};

use crate::data_sets::{DataSets, Second};
use crate::error::Error;
use crate::ffi::{Ctx, OwnedStr, Str, TimerId, guard};
use crate::pool_key::PoolKey;
use crate::scripts::{self, Caller};
use crate::{grace, hints, queue, server, stats};

/// How long one tick may hold up the event loop. A tick that ends early goes on at the next turn of the loop.
const TICK_BUDGET: Duration = Duration::from_millis(1);

/// Sessions that are reclaimed between two looks at the clock.
const BATCH: usize = 32;

/// When to try again while the server must not be written to.
const RETRY_MS: i64 = 20;

/// The longest that the timer sleeps. The server's timers cannot hold every wait that 64 bits of milliseconds can state.
const LONGEST_WAIT_MS: i64 = 3_600_000;

/// The deadlines of a data set: database, then key.
type Deadlines = BTreeMap<c_int, Schedule>;

/// In place of a database: deadlines whose databases are not known, so that each is looked for in
/// all of them.
const ANYWHERE: c_int = -1;

/// All of it belongs to the main thread, on which the server runs every callback that comes here.
struct Hints {
    deadlines: DataSets<Deadlines>,
    timer: Option<Timer>,
    /// The name that the timer looks at, whose hint it has taken.
    looked_at: Option<(c_int, Box<[u8]>)>,
    /// The database of the last hint that came up.
    last: c_int,
    module_context: *mut raw::RedisModuleCtx,
}

struct Timer {
    id: TimerId,
    at_ms: i64,
}

thread_local! {
    static HINTS: RefCell<Hints> = const {
        RefCell::new(Hints {
            deadlines: DataSets::new(BTreeMap::new()),
            timer: None,
            looked_at: None,
            last: -1,
            module_context: std::ptr::null_mut(),
        })
    };
}

impl Hints {
    fn earliest_ms(&self) -> Option<i64> {
        self.deadlines
            .shown
            .values()
            .filter_map(Schedule::earliest_ms)
            .min()
    }

    /// Takes out the earliest hint of all databases if it has come up by `now_ms`. Of those that came up in the same moment, the
    /// databases take turns.
    fn take_due(&mut self, now_ms: i64) -> Option<(c_int, Box<[u8]>)> {
        let last = self.last;
        let hints = self
            .deadlines
            .shown
            .iter()
            .filter_map(|(&database, schedule)| {
                let at_ms = schedule.earliest_ms()?;
                Some((at_ms, database <= last, database))
            });
        let (_, _, database) = hints.min()?;
        let name = self.deadlines.shown.get_mut(&database)?.take_due(now_ms)?;
        self.last = database;
        Some((database, name))
    }

    /// Arms the timer for `at_ms`, unless it is armed for an earlier time.
    fn arm(&mut self, ctx: Ctx<'_>, at_ms: i64) {
        if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
            return;
        }
        match &self.timer {
            Some(timer) if timer.at_ms <= at_ms => return,
            Some(timer) => ctx.stop_timer(timer.id),
            None => {}
        }
        let wait_ms = at_ms.saturating_sub(ctx.now_ms());
        let id = ctx.create_timer(wait_ms.clamp(1, LONGEST_WAIT_MS), tick);
        self.timer = Some(Timer { id, at_ms });
    }

    fn arm_for_earliest(&mut self, ctx: Ctx<'_>) {
        if let Some(at_ms) = self.earliest_ms() {
            self.arm(ctx, at_ms);
        }
    }
}

/// Notes that time changes something in the pool at `key` at `deadline_ms`, such as a lease that
/// expires.
pub(crate) fn note_in(ctx: Ctx<'_>, database: c_int, key: &[u8], deadline_ms: i64) {
    HINTS.with_borrow_mut(|hints| {
        let schedule = hints.deadlines.shown.entry(database).or_default();
        if schedule.note(key, deadline_ms) {
            hints.arm(ctx, deadline_ms);
        }
    });
}

/// Forgets the hint for a name whose pool is gone.
pub(crate) fn forget(database: c_int, key: &[u8]) {
    HINTS.with_borrow_mut(|hints| {
        if let Some(schedule) = hints.deadlines.shown.get_mut(&database) {
            schedule.forget(key);
        }
    });
}

/// As [`forget`], for a server that does not say from which database the pool has gone: up to 6.2. If the pool had `deadlines`, its
/// database has a hint, unless the timer has just taken it. Where that leaves a doubt, the timer looks at once and finds out.
pub(crate) fn forget_somewhere(ctx: Ctx<'_>, key: &[u8], deadlines: bool) {
    let (having, is_looked_at): (Vec<c_int>, bool) = HINTS.with_borrow(|hints| {
        let schedules = hints.deadlines.shown.iter();
        let having = schedules.filter(|(_, schedule)| schedule.contains(key));
        let looked_at = hints.looked_at.as_ref();
        (
            having.map(|(&database, _)| database).collect(),
            looked_at.is_some_and(|(_, name)| **name == *key),
        )
    });
    match having[..] {
        [only] if deadlines && !is_looked_at => forget(only, key),
        _ => {
            for database in having {
                note_in(ctx, database, key, ctx.now_ms());
            }
        }
    }
}

/// Notes the deadline of a pool in a data set that is loaded and not shown yet.
pub(crate) fn note_loaded(database: c_int, key: &[u8], deadline_ms: i64) {
    HINTS.with_borrow_mut(|hints| {
        if let Some(deadlines) = &mut hints.deadlines.loaded {
            let schedule = deadlines.entry(database).or_default();
            schedule.note(key, deadline_ms);
        }
    });
}

/// Forgets all deadlines of a database, or of all if it is -1.
pub(crate) fn flushed(database: c_int) {
    let flushed: Vec<Schedule> = HINTS.with_borrow_mut(|hints| {
        let schedules = hints.deadlines.shown.iter_mut();
        let meant = schedules.filter(|(other, _)| database == -1 || **other == database);
        meant
            .map(|(_, schedule)| std::mem::take(schedule))
            .collect()
    });
    let count = flushed.iter().map(Schedule::len).sum();
    hints::free(flushed, count);
}

/// Whether there is a lease or a ticket in any pool.
pub(crate) fn has_deadlines() -> bool {
    HINTS.with_borrow(|hints| {
        let mut schedules = hints.deadlines.shown.values();
        schedules.any(|schedule| !schedule.is_empty())
    })
}

/// Two databases have changed places.
pub(crate) fn databases_swapped(one: c_int, other: c_int) {
    HINTS.with_borrow_mut(|hints| {
        if one == other {
            return;
        }
        let first = hints.deadlines.shown.remove(&one).unwrap_or_default();
        let second = hints.deadlines.shown.insert(other, first);
        hints
            .deadlines
            .shown
            .insert(one, second.unwrap_or_default());
    });
}

/// Something has happened to the second data set. O(1).
pub(crate) fn follow(second: Second, are_databases_told: bool) {
    let dropped = HINTS.with_borrow_mut(|hints| {
        let dropped = hints.deadlines.follow(second);
        if second == Second::Shown && !are_databases_told {
            let databases = &mut hints.deadlines.shown;
            if let Some(schedule) = databases.remove(&0) {
                databases.insert(ANYWHERE, schedule);
            }
        }
        dropped
    });
    if let Some(dropped) = dropped {
        let count = dropped.values().map(Schedule::len).sum();
        hints::free(dropped, count);
    }
}

/// Has the timer run in time for the earliest deadline, and soon if something waits to be written.
/// Does nothing on a replica.
pub(crate) fn start_timer(ctx: Ctx<'_>) {
    HINTS.with_borrow_mut(|hints| hints.arm_for_earliest(ctx));
    if queue::has_deferred() {
        wake_soon(ctx);
    }
}

/// Has the timer run within the next turn of the event loop.
pub(crate) fn wake_soon(ctx: Ctx<'_>) {
    HINTS.with_borrow_mut(|hints| hints.arm(ctx, ctx.now_ms()));
}

/// Runs `body` with a context of the module's own, for callbacks that come without one.
pub(crate) fn with_module_context(body: impl FnOnce(Ctx<'_>)) {
    let context = HINTS.with_borrow(|hints| hints.module_context);
    if !context.is_null() {
        // SAFETY: the context was made at load and lasts as long as the module.
        body(unsafe { Ctx::new(context) });
    }
}

/// Makes the module's own context.
pub(crate) fn register(ctx: Ctx<'_>) {
    let module_context = ctx.detached();
    HINTS.with_borrow_mut(|hints| hints.module_context = module_context);
}

unsafe extern "C" fn tick(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    // SAFETY: the server passes the context of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    guard("the timer", || {
        HINTS.with_borrow_mut(|hints| hints.timer = None);
        queue::forget_saved();
        if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
            return;
        }
        queue::unblock_late();
        let must_ask = queue::blocked_clients() > 0 || grace::is_on();
        let refuses = must_ask && server::refuses_writes(ctx);
        if refuses {
            grace::saw_whether_it_refuses(ctx, true);
        }
        if refuses || ctx.must_not_replicate() {
            let retry_ms = ctx.now_ms() + RETRY_MS;
            HINTS.with_borrow_mut(|hints| hints.arm(ctx, retry_ms));
            return;
        }
        let start = Instant::now();
        let out_of_time = || start.elapsed() >= TICK_BUDGET;
        queue::run_deferred(ctx, out_of_time);
        reclaim_due(ctx, out_of_time);
        start_timer(ctx);
    });
}

/// Reclaims what has lapsed, until time is over, but something in any case.
fn reclaim_due(ctx: Ctx<'_>, out_of_time: impl Fn() -> bool + Copy) {
    loop {
        let due = HINTS.with_borrow_mut(|hints| {
            hints.looked_at = hints.take_due(ctx.now_ms());
            hints.looked_at.clone()
        });
        let Some((database, name)) = due else {
            return;
        };
        let name = OwnedStr::new(&name);
        if database == ANYWHERE {
            note_everywhere(ctx, name.get());
        } else if ctx.select_database(database)
            && let Some(next_ms) = reclaim_from(ctx, name.get(), grace::moment(ctx), out_of_time)
        {
            // A pool that is not done with comes after those that were due meanwhile, however long ago its own leases lapsed.
            note_in(ctx, database, name.get().bytes(), next_ms.max(ctx.now_ms()));
        }
        if out_of_time() {
            break;
        }
    }
    HINTS.with_borrow_mut(|hints| hints.looked_at = None);
}

/// Has the pools of this name be looked at, in whichever databases they are.
fn note_everywhere(ctx: Ctx<'_>, name: Str<'_>) {
    let moment = Moment::at(ctx.now_ms());
    for database in (0..).take_while(|&database| ctx.select_database(database)) {
        if PoolKey::look(ctx, name, moment).is_ok_and(|key| key.exists()) {
            note_in(ctx, database, name.bytes(), moment.now_ms);
        }
    }
}

/// Reclaims the lapsed seats of one pool, serves its queue, and returns its earliest deadline then; that lies in the past if
/// time was over.
fn reclaim_from(
    ctx: Ctx<'_>,
    name: Str<'_>,
    moment: Moment,
    out_of_time: impl Fn() -> bool,
) -> Option<i64> {
    let database = ctx.selected_database();
    if !ctx.may_serve(name) {
        let some_left = queue::fail(database, name.bytes(), || Error::TryAgain);
        // The slot may come back, or the cluster may be down only for a while: then the leases are still to be reclaimed.
        let is_pool = PoolKey::look(ctx, name, moment).is_ok_and(|key| key.exists());
        return (some_left || is_pool).then_some(moment.now_ms + queue::SLOT_LOOK_MS);
    }
    let Ok(mut key) = scripts::open(ctx, name, moment, Caller::Module) else {
        // A key of another type has no leases, whatever the hint was.
        let some_left = queue::fail(database, name.bytes(), || Error::WrongType);
        return some_left.then_some(moment.now_ms);
    };
    if queue::has_departed(database, name.bytes()) {
        if !key.exists() {
            drop(key);
            let some_left = queue::fail(database, name.bytes(), || Error::TryAgain);
            if !some_left {
                queue::forget_departed(database, name.bytes());
            }
            return some_left.then_some(moment.now_ms);
        }
        queue::forget_departed(database, name.bytes());
    }
    while key.reclaim(BATCH) == BATCH && !out_of_time() {}
    // Where grants are withheld, this still removes lost tickets and keeps those whose clients are blocked.
    key.serve();
    key.next_look_ms()
}

impl PoolKey<'_> {
    /// Frees up to `limit` seats whose leases have lapsed and returns how many those were.
    pub(crate) fn reclaim(&mut self, limit: usize) -> usize {
        let lapsed = self.pool().lapsed(self.moment, limit);
        let lapsed: Vec<Box<[u8]>> = lapsed.map(Box::from).collect();
        for session in &lapsed {
            self.expire(session);
        }
        lapsed.len()
    }

    /// Frees the seat of a session that was silent for too long.
    pub(crate) fn expire(&mut self, session: &[u8]) {
        self.commit(&Effect::freeing(session, Freed::Expired));
        stats::EXPIRED.add();
    }
}

/// The timer goes by a clock that never steps, and leases by one that may: what a step forward has made due is found here.
pub(crate) unsafe extern "C" fn on_cron(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    cron: *mut c_void,
) {
    // SAFETY: the server passes the context of this call, and this event comes with this structure.
    let (ctx, cron) = unsafe { (Ctx::new(ctx), &*cron.cast::<raw::RedisModuleCronLoopInfo>()) };
    guard("cron", || {
        grace::on_cron(ctx, cron.hz);
        HINTS.with_borrow_mut(|hints| {
            let now_ms = ctx.now_ms();
            let is_due = hints.earliest_ms().is_some_and(|at_ms| at_ms <= now_ms);
            if is_due || queue::has_deferred() {
                if let Some(timer) = hints.timer.take() {
                    ctx.stop_timer(timer.id);
                }
                hints.arm(ctx, now_ms);
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ptr;

    use seat_pool::Schedule;

    use super::Hints;
    use crate::data_sets::DataSets;

    #[test]
    fn hints_come_up_by_their_time_and_the_databases_take_turns_at_the_same_time() {
        let mut hints = Hints {
            deadlines: DataSets::new(BTreeMap::new()),
            timer: None,
            looked_at: None,
            last: -1,
            module_context: ptr::null_mut(),
        };
        let note = |hints: &mut Hints, database, name: &[u8], at_ms| {
            let schedule: &mut Schedule = hints.deadlines.shown.entry(database).or_default();
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
            note(&mut hints, database, name, at_ms);
        }
        let mut taken = Vec::new();
        while let Some((database, name)) = hints.take_due(30) {
            taken.push(name[0]);
            if *name == *b"e" {
                // Not done with, so it comes up again.
                note(&mut hints, database, &name, 20);
            }
            if taken.len() == 6 {
                break;
            }
        }
        // After `d` of the third database it is the turn of those above, then of those from the first on.
        assert_eq!(taken, *b"deacee");
    }
}
