//! What `INFO seat` shows: totals since the module was loaded, and how things are at present.
//! Whoever knows a figure sets it here.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use redis_module::raw;

use crate::data_sets::{Second, is_second_loading};
use crate::ffi::{Ctx, guard, server_ms};

/// A total. Only the main thread adds to it; the atomic is there for readers in other threads.
pub(crate) struct Total {
    name: &'static str,
    value: AtomicU64,
}

impl Total {
    const fn new(name: &'static str) -> Total {
        Total {
            name,
            value: AtomicU64::new(0),
        }
    }

    /// Adds one and returns the total with it.
    pub(crate) fn add(&self) -> u64 {
        // No other thread writes, so there is nothing that an atomic addition, several times the
        // price, would guard against.
        let total = self.value.load(Relaxed) + 1;
        self.value.store(total, Relaxed);
        total
    }
}

/// Sessions that were granted their seats.
pub(crate) static ACQUIRED: Total = Total::new("acquired");
/// ACQUIREs by sessions that held a seat already.
pub(crate) static ALREADY_ACTIVE: Total = Total::new("already_active");
/// ACQUIREs that were denied, for want of seats or by the limit of their owner.
pub(crate) static DENIED: Total = Total::new("denied");
/// Heartbeats counted.
pub(crate) static HEARTBEATS: Total = Total::new("heartbeats");
/// Seats given back by their holders, or taken back from clients that were gone before they got
/// their grant.
pub(crate) static RELEASED: Total = Total::new("released");
/// Seats taken away by REVOKE.
pub(crate) static REVOKED: Total = Total::new("revoked");
/// Seats whose lease expired, or whose holder was silent for too long.
pub(crate) static EXPIRED: Total = Total::new("expired");
/// Sessions that joined a queue.
pub(crate) static QUEUED: Total = Total::new("queued");
/// Seats granted from a queue to those who were blocked or came back for a kept one.
pub(crate) static GRANTED: Total = Total::new("granted");
/// Sessions that left a queue without a seat.
pub(crate) static LEFT: Total = Total::new("left");
/// Sessions whose places others of their owners have taken.
pub(crate) static REPLACED: Total = Total::new("replaced");
/// Sessions that were refused by the limit of their owner, at the call or at their turn.
pub(crate) static OWNER_LIMIT: Total = Total::new("owner_limit");
/// Sessions adopted from the legacy keys.
pub(crate) static IMPORTED: Total = Total::new("imported");
/// Sessions given back to the legacy keys.
pub(crate) static EXPORTED: Total = Total::new("exported");
/// Calls of listed scripts that were carried out as commands.
pub(crate) static SCRIPT_CALLS: Total = Total::new("script_calls");
/// Readers of the legacy keys that were answered.
pub(crate) static SCRIPT_READS: Total = Total::new("script_reads");
/// Effects from a primary or an AOF for sessions that are unknown here; anything but 0 means that a
/// node has diverged.
pub(crate) static IGNORED_EFFECTS: Total = Total::new("ignored_effects");

/// Entries appended to the feeds, on every node alike.
pub(crate) static FEED_ENTRIES: Total = Total::new("feed_entries");
/// Entries that could not be appended, since there was no stream at the name, or one that could not
/// take them.
pub(crate) static FEED_ERRORS: Total = Total::new("feed_errors");

/// A number of the present moment.
pub(crate) struct Gauge {
    name: &'static str,
    value: AtomicU64,
}

impl Gauge {
    const fn new(name: &'static str) -> Gauge {
        Gauge {
            name,
            value: AtomicU64::new(0),
        }
    }

    pub(crate) fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }
}

/// Clients that are blocked.
pub(crate) static BLOCKED_CLIENTS: Gauge = Gauge::new("blocked_clients");
/// Pools that are known to have legacy keys.
pub(crate) static LEGACY_KEY_POOLS: Gauge = Gauge::new("script_key_pools");
/// 1 while others may have such keys, as long as the scan has not come by all keys.
pub(crate) static LEGACY_KEY_SCAN: Gauge = Gauge::new("script_key_scan");

/// Something that ends at a known time, shown as the milliseconds until then.
pub(crate) struct Remaining {
    name: &'static str,
    end_ms: AtomicI64,
}

impl Remaining {
    const fn new(name: &'static str) -> Remaining {
        Remaining {
            name,
            end_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// States when it ends, or ended, by the server's clock.
    pub(crate) fn set_end(&self, end_ms: i64) {
        self.end_ms.store(end_ms, Relaxed);
    }

    fn left_ms(&self, now_ms: i64) -> i64 {
        self.end_ms.load(Relaxed).saturating_sub(now_ms).max(0)
    }
}

/// The floor below which no deadline counts.
pub(crate) static LEASE_FLOOR: Remaining = Remaining::new("lease_floor_ms");
/// The last of all holds of grants.
pub(crate) static GRANT_HOLD: Remaining = Remaining::new("grant_hold_ms");

/// Tickets in all pools at present, lost and not yet removed ones included. Pools are freed in
/// background threads, too.
static TICKETS: AtomicI64 = AtomicI64::new(0);

/// Those of them that are in a data set that is not shown.
static TICKETS_NOT_SHOWN: AtomicI64 = AtomicI64::new(0);

/// Notes that there are `more` tickets than before, or fewer.
pub(crate) fn add_tickets(more: i64) {
    if more != 0 {
        TICKETS.fetch_add(more, Relaxed);
    }
}

/// Notes the tickets of a pool that is loaded.
pub(crate) fn add_loaded_tickets(tickets: i64) {
    add_tickets(tickets);
    if is_second_loading() {
        TICKETS_NOT_SHOWN.fetch_add(tickets, Relaxed);
    }
}

/// Something has happened to the second data set. The tickets of the one that goes are counted
/// until its pools are freed.
pub(crate) fn follow(second: Second) {
    let not_shown = match second {
        Second::SetAside => TICKETS.load(Relaxed),
        Second::Made | Second::Shown | Second::Dropped => 0,
    };
    TICKETS_NOT_SHOWN.store(not_shown, Relaxed);
}

static ALL: [&Total; 19] = [
    &ACQUIRED,
    &ALREADY_ACTIVE,
    &DENIED,
    &HEARTBEATS,
    &RELEASED,
    &REVOKED,
    &EXPIRED,
    &QUEUED,
    &GRANTED,
    &LEFT,
    &REPLACED,
    &OWNER_LIMIT,
    &IMPORTED,
    &EXPORTED,
    &SCRIPT_CALLS,
    &SCRIPT_READS,
    &IGNORED_EFFECTS,
    &FEED_ENTRIES,
    &FEED_ERRORS,
];

/// Has INFO show the totals, in a section of the module's name.
pub(crate) fn register(ctx: Ctx<'_>) {
    raw::register_info_function(ctx.as_ptr(), Some(info));
}

extern "C" fn info(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    guard("info", || {
        raw::add_info_section(info, None);
        for total in ALL {
            let value = total.value.load(Relaxed);
            raw::add_info_field_unsigned_long_long(info, total.name, value);
        }
        let show_gauge = |gauge: &Gauge| {
            let value = gauge.value.load(Relaxed);
            raw::add_info_field_unsigned_long_long(info, gauge.name, value);
        };
        show_gauge(&BLOCKED_CLIENTS);
        let tickets = TICKETS.load(Relaxed) - TICKETS_NOT_SHOWN.load(Relaxed);
        raw::add_info_field_long_long(info, "tickets", tickets.max(0));
        let now_ms = server_ms();
        for remaining in [&LEASE_FLOOR, &GRANT_HOLD] {
            raw::add_info_field_long_long(info, remaining.name, remaining.left_ms(now_ms));
        }
        show_gauge(&LEGACY_KEY_POOLS);
        show_gauge(&LEGACY_KEY_SCAN);
    });
}
