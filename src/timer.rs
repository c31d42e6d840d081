//! What the timer does: expires leases on time and without being asked, serves the queues, and does
//! what else waits for a moment in which the server can be written to.
//!
//! Which names it looks at, and when it fires, stands in the deadline registry ([`deadlines`]).
//! Only a primary expires leases.

use std::time::{Duration, Instant};

use redis_module::raw;
use seat_pool::Moment;

use crate::deadlines;
use crate::error::Error;
use crate::ffi::{Ctx, OwnedStr, Str};
use crate::migration::{self, Caller};
use crate::pool_key::PoolKey;
use crate::{feed, grace, queue, server};

/// How long one tick may hold up the event loop. A tick that ends early goes on at the next turn of
/// the loop.
const TICK_BUDGET: Duration = Duration::from_millis(1);

/// Sessions that are reclaimed, or entries that are written, between two looks at the clock.
const BATCH: usize = 32;

/// When to try again while the server must not be written to.
const RETRY_MS: i64 = 20;

/// Makes this the timer of the deadline registry.
pub(crate) fn register() {
    deadlines::register(tick);
}

/// Has the timer run in time for the earliest deadline, and soon if something waits to be written.
/// Does nothing on a replica.
pub(crate) fn start(ctx: Ctx<'_>) {
    deadlines::arm(ctx);
    if queue::has_deferred() || feed::has_pending() {
        deadlines::run_soon(ctx);
    }
}

fn tick(ctx: Ctx<'_>) {
    deadlines::has_fired();
    queue::forget_saved();
    if ctx.has_any_flag(raw::REDISMODULE_CTX_FLAGS_SLAVE) {
        return;
    }
    queue::unblock_late();
    let must_ask = queue::blocked_clients() > 0 || grace::is_on();
    let refuses = must_ask && server::refuses_writes(ctx);
    if refuses {
        grace::note_write_refusal(ctx, true);
    }
    if refuses || ctx.must_not_replicate() {
        let retry_ms = ctx.now_ms() + RETRY_MS;
        deadlines::run_at(ctx, retry_ms);
        return;
    }
    let begun = Instant::now();
    let out_of_time = || begun.elapsed() >= TICK_BUDGET;
    write_feed(ctx, out_of_time);
    if feed::has_pending() {
        // What follows has entries, too, which come after these.
        return start(ctx);
    }
    queue::run_deferred(ctx, out_of_time);
    expire_due(ctx, out_of_time);
    start(ctx);
}

/// Writes what was put off for the feeds, until time is over, but something in any case.
fn write_feed(ctx: Ctx<'_>, out_of_time: impl Fn() -> bool) {
    while feed::has_pending() {
        let with_feed = || {
            let all = (0..).take_while(|&database| ctx.select_database(database));
            all.filter(|_| feed::has_stream(ctx)).collect()
        };
        if let Some(database) = feed::next_database(with_feed) {
            ctx.select_database(database);
            let moment = grace::moment(ctx);
            feed::write_pending(ctx, database, BATCH, |pool| {
                let name = OwnedStr::new(pool);
                PoolKey::look(ctx, name.get(), moment).ok()?.seats_taken()
            });
        }
        if out_of_time() {
            return;
        }
    }
}

/// Expires what is due, until time is over, but something in any case.
fn expire_due(ctx: Ctx<'_>, out_of_time: impl Fn() -> bool + Copy) {
    loop {
        let Some((database, name)) = deadlines::take_due(ctx) else {
            return;
        };
        let name = OwnedStr::new(&name);
        if database == deadlines::ANYWHERE {
            note_everywhere(ctx, name.get());
        } else if ctx.select_database(database)
            && let Some(next_ms) = expire_from(ctx, name.get(), grace::moment(ctx), out_of_time)
        {
            // A pool that is not done with comes after those that were due meanwhile, however long
            // ago its own leases expired.
            deadlines::note(ctx, database, name.get().bytes(), next_ms.max(ctx.now_ms()));
        }
        if out_of_time() {
            break;
        }
    }
    deadlines::finish_check();
}

/// Has the pools of this name be looked at, in whichever databases they are.
fn note_everywhere(ctx: Ctx<'_>, name: Str<'_>) {
    let moment = Moment::at(ctx.now_ms());
    for database in (0..).take_while(|&database| ctx.select_database(database)) {
        if PoolKey::look(ctx, name, moment).is_ok_and(|key| key.exists()) {
            deadlines::note(ctx, database, name.bytes(), moment.now_ms);
        }
    }
}

/// Frees the seats of one pool's expired leases, serves its queue, and returns its earliest
/// deadline then; that lies in the past if time was over.
fn expire_from(
    ctx: Ctx<'_>,
    name: Str<'_>,
    moment: Moment,
    out_of_time: impl Fn() -> bool,
) -> Option<i64> {
    let database = ctx.selected_database();
    if !ctx.may_serve(name) {
        let some_left = queue::fail(database, name.bytes(), || Error::TryAgain);
        // The slot may come back, or the cluster may be down only for a while: then the leases are
        // still to be reclaimed.
        let is_pool = PoolKey::look(ctx, name, moment).is_ok_and(|key| key.exists());
        return (some_left || is_pool).then_some(moment.now_ms + queue::SLOT_CHECK_MS);
    }
    let Ok(mut key) = migration::open_for_write(ctx, name, moment, Caller::Module) else {
        // A key of another type has no leases, whatever was noted.
        let some_left = queue::fail(database, name.bytes(), || Error::WrongType);
        return some_left.then_some(moment.now_ms);
    };
    if queue::has_departed(database, name.bytes()) {
        // Another that has replaced it has sessions. One of tickets alone was made by those
        // who have joined since.
        if !key.pool().has_sessions() {
            let is_pool = key.exists();
            drop(key);
            let some_left = queue::fail(database, name.bytes(), || Error::TryAgain);
            if !some_left {
                queue::forget_departed(database, name.bytes());
            }
            return (some_left || is_pool).then_some(moment.now_ms);
        }
        queue::forget_departed(database, name.bytes());
    }
    while key.machine().expire(BATCH) == BATCH && !out_of_time() {}
    // Where grants are suspended, this still removes lost tickets and keeps those whose clients are
    // blocked.
    key.machine().serve();
    // In a cluster the slot may go without an event.
    let slot =
        (key.has_blocked() && ctx.is_in_cluster()).then(|| moment.now_ms + queue::SLOT_CHECK_MS);
    key.machine().next_change_ms().into_iter().chain(slot).min()
}

/// A turn of the server's cron.
pub(crate) fn on_cron(ctx: Ctx<'_>) {
    deadlines::follow_clock(ctx, || queue::has_deferred() || feed::has_pending());
}
