//! Which of the legacy keys may exist: a list, so that a command whose pool has none pays nothing
//! to find that out.
//!
//! A keyspace event adds each such key that comes to be. What was there before is found by one
//! walk through all keys, in small steps; until it is over, every command looks for itself. So the
//! list misses none that is there. It may name keys that were moved or flushed away without an
//! event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_module::raw;

use super::invalid_entries::InvalidEntries;
use super::names::{LegacyKeys, pool_of};
use crate::data_sets::{DataSets, Second, is_second_loading};
use crate::ffi::{Ctx, Kind, OwnedStr, Str, Walk, guard};
use crate::{config, lazy_free, server, stats};

/// How long one step of the walk may take, and how long the event loop has for others until the
/// next.
const STEP: Duration = Duration::from_micros(500);
const PAUSE_MS: i64 = 5;

/// By name, with what is known of the entries that are there, if all of them are invalid and
/// nothing has changed since.
type Pools = BTreeMap<Box<[u8]>, Option<KnownInvalid>>;

/// What is known of legacy keys that have invalid entries alone.
#[derive(Clone)]
pub(super) struct KnownInvalid {
    /// What was at the two keys. SET and a time to live that ends change that without an event that
    /// is asked for.
    pub(super) kinds: [Kind; 2],
    /// Which value was at the pool's own name: another one may have the sessions.
    pub(super) value: usize,
    pub(super) invalid: Arc<InvalidEntries>,
}

impl KnownInvalid {
    /// Whether it is of what is there now.
    pub(super) fn is_of(&self, kinds: [Kind; 2], value: usize) -> bool {
        self.kinds == kinds && self.value == value
    }
}

/// What is known of a data set.
#[derive(Default)]
struct Known {
    /// The pools, by database, of whose legacy keys at least one was there when it was last heard
    /// of.
    pools: BTreeMap<c_int, Pools>,
    /// Of a data set that is not shown: whether no others are possible, so that no walk is needed
    /// once it is shown.
    is_whole: bool,
}

/// All of it belongs to the main thread, on which the server runs every callback that comes here.
struct State {
    is_on: bool,
    is_subscribed: bool,
    known: DataSets<Known>,
    /// The walk, while it is not over: where it is, in which database.
    walk: Option<(c_int, Walk)>,
    has_timer: bool,
}

impl State {
    /// How many pools are known to have legacy keys.
    fn pools(&self) -> usize {
        self.known.shown.pools.values().map(Pools::len).sum()
    }
}

thread_local! {
    static STATE: RefCell<State> = const {
        RefCell::new(State {
            is_on: false,
            is_subscribed: false,
            known: DataSets::new(Known {
                pools: BTreeMap::new(),
                is_whole: false,
            }),
            walk: None,
            has_timer: false,
        })
    };
}

/// Whether the legacy keys of this pool may exist, so that it is worth a look.
pub(super) fn may_exist(database: c_int, pool: &[u8]) -> bool {
    STATE.with_borrow(|state| {
        state.is_on
            && (state.walk.is_some()
                || state
                    .known
                    .shown
                    .pools
                    .get(&database)
                    .is_some_and(|pools| pools.contains_key(pool)))
    })
}

/// Changes what is known, and has `INFO` show it.
fn update<T>(change: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|state| {
        let result = change(state);
        stats::LEGACY_KEY_POOLS.set(state.pools() as u64);
        stats::LEGACY_KEY_SCAN.set(state.walk.is_some().into());
        result
    })
}

/// Notes that the keys of this pool are gone.
pub(super) fn forget(database: c_int, pool: &[u8]) {
    update(|state| {
        if let Some(pools) = state.known.shown.pools.get_mut(&database) {
            pools.remove(pool);
        }
    });
}

fn note(database: c_int, pool: &[u8]) {
    update(|state| {
        let pools = state.known.shown.pools.entry(database).or_default();
        pools.insert(pool.into(), None);
    });
}

/// As [`note`], of the data set that is loaded and not shown yet.
fn note_loaded(database: c_int, pool: &[u8]) {
    update(|state| {
        if let Some(known) = &mut state.known.loaded {
            let pools = known.pools.entry(database).or_default();
            pools.insert(pool.into(), None);
        }
    });
}

/// Notes that all entries in the keys of this pool are invalid.
pub(super) fn note_invalid(database: c_int, pool: &[u8], invalid: KnownInvalid) {
    update(|state| {
        // Without events nobody would report the entries that come.
        if state.is_subscribed {
            let pools = state.known.shown.pools.entry(database).or_default();
            pools.insert(pool.into(), Some(invalid));
        }
    });
}

/// Has the keys of this pool be looked at anew, if they are known: what was invalid there may be a
/// session of the pool now.
pub(crate) fn forget_invalid(database: c_int, pool: &[u8]) {
    update(|state| {
        let pools = state.known.shown.pools.get_mut(&database);
        if let Some(known) = pools.and_then(|pools| pools.get_mut(pool)) {
            *known = None;
        }
    });
}

/// What [`note_invalid`] has noted, if no event has reported a change since.
pub(super) fn known_invalid(database: c_int, pool: &[u8]) -> Option<KnownInvalid> {
    STATE.with_borrow(|state| state.known.shown.pools.get(&database)?.get(pool)?.clone())
}

pub(super) fn settings_changed(ctx: Ctx<'_>) {
    let is_on = config::SCRIPT_KEYS.get();
    let was_on = update(|state| std::mem::replace(&mut state.is_on, is_on));
    if is_on == was_on {
        return;
    }
    if !is_on {
        let known = update(|state| {
            state.walk = None;
            let none = DataSets::new(Known::default());
            let DataSets {
                shown,
                loaded,
                set_aside,
            } = std::mem::replace(&mut state.known, none);
            // Of the other data set, nothing is known until it is shown.
            state.known.loaded = loaded.is_some().then(Known::default);
            state.known.set_aside = set_aside.is_some().then(Known::default);
            [Some(shown), loaded, set_aside]
        });
        known.into_iter().flatten().for_each(Known::drop_later);
        return;
    }
    // The events of sets and hashes are many, so they are asked for only now.
    if !STATE.with_borrow(|state| state.is_subscribed) {
        let classes = raw::REDISMODULE_NOTIFY_SET
            | raw::REDISMODULE_NOTIFY_HASH
            | raw::REDISMODULE_NOTIFY_GENERIC
            | raw::REDISMODULE_NOTIFY_LOADED;
        match ctx.subscribe_to_key_events(classes as u32, on_event) {
            Ok(()) => update(|state| state.is_subscribed = true),
            // Without events the walk never ends, and every command looks for itself.
            Err(error) => ctx.log_warning(error),
        }
    }
    start_walk(ctx);
}

/// Whether this file has a callback of its own for the events of all keys. It is called after that
/// of [`crate::events`].
pub(crate) fn is_subscribed_to_keys() -> bool {
    STATE.with_borrow(|state| state.is_subscribed)
}

fn start_walk(ctx: Ctx<'_>) {
    let is_armed = update(|state| {
        state.walk = Some((0, Walk::new()));
        std::mem::replace(&mut state.has_timer, true)
    });
    if !is_armed {
        ctx.create_timer(PAUSE_MS, on_timer);
    }
}

fn on_timer(ctx: Ctx<'_>) {
    // Taken out meanwhile, since the server calls back for each key.
    let walk = update(|state| {
        state.has_timer = false;
        state.walk.take()
    });
    let Some((database, walk)) = walk else { return };
    let walk = step(ctx, database, walk);
    let is_over = walk.is_none() && STATE.with_borrow(|state| state.is_subscribed);
    update(|state| {
        state.walk = if is_over {
            None
        } else {
            walk.or(Some((0, Walk::new())))
        };
        state.has_timer = !is_over;
    });
    if is_over {
        let pools = STATE.with_borrow(State::pools);
        ctx.log_notice(&format!(
            "all keys have been scanned: {pools} pools have sessions in legacy keys"
        ));
    } else {
        ctx.create_timer(PAUSE_MS, on_timer);
    }
}

/// Goes on for a moment, and returns where to go on from, if the walk is not over.
fn step(ctx: Ctx<'_>, mut database: c_int, mut walk: Walk) -> Option<(c_int, Walk)> {
    let start = Instant::now();
    while start.elapsed() < STEP {
        if !ctx.select_database(database) {
            return None;
        }
        WALKED.set(database);
        if !walk.go_on(ctx, on_key) {
            database += 1;
            walk = Walk::new();
        }
    }
    Some((database, walk))
}

thread_local! {
    /// The database of the walk's present step.
    static WALKED: std::cell::Cell<c_int> = const { std::cell::Cell::new(0) };
}

fn on_key(key: Str<'_>) {
    if let Some(pool) = pool_of(key.bytes()) {
        update(|state| {
            let pools = state.known.shown.pools.entry(WALKED.get()).or_default();
            // Nothing has changed at a key that the walk comes by: what is known of it stays.
            pools.entry(pool.into()).or_default();
        });
    }
}

/// A key has come to be, has changed, or is gone.
fn on_event(ctx: Ctx<'_>, event: &CStr, key: Str<'_>) {
    if let Some(pool) = pool_of(key.bytes()) {
        guard("an event of a script's key", || {
            if !STATE.with_borrow(|state| state.is_on) {
                return;
            }
            if is_second_loading() && event == c"loaded" {
                note_loaded(ctx.selected_database(), pool);
                return;
            }
            // The key may be an object on the server's stack, which 6.2 cannot open.
            let name = OwnedStr::new(key.bytes());
            let (kind, database) = ctx.kind_and_database_of(name.get());
            let ends: [&[u8]; 3] = [b"del", b"rename_from", b"move_from"];
            if kind == Kind::Nothing && ends.contains(&event.to_bytes()) {
                // Without a value it is not certain which database the event is about, so where it
                // is forgotten is where it is looked for.
                ctx.select_database(database);
                if ctx.kinds_of(LegacyKeys::of(pool).both()) == [Kind::Nothing; 2] {
                    forget(database, pool);
                }
            } else {
                note(database, pool);
            }
        });
    }
    server::restore_client_database(ctx, event, true);
}

/// Two databases have been swapped.
pub(crate) fn databases_swapped(ctx: Ctx<'_>, one: c_int, other: c_int) {
    if one == other {
        return;
    }
    let is_walking = update(|state| {
        let first = state.known.shown.pools.remove(&one).unwrap_or_default();
        let second = state
            .known
            .shown
            .pools
            .insert(other, first)
            .unwrap_or_default();
        state.known.shown.pools.insert(one, second);
        state.walk.is_some()
    });
    if is_walking {
        // It may have passed the one and not yet come to the other.
        start_walk(ctx);
    }
}

/// A database was emptied, or all of them if it is -1.
pub(crate) fn flushed(database: c_int) {
    drop_later(update(|state| {
        let all = state.known.shown.pools.iter_mut();
        let meant = all.filter(|(other, _)| database == -1 || **other == database);
        meant.map(|(_, pools)| std::mem::take(pools)).collect()
    }));
}

/// Something has happened to the second data set.
pub(crate) fn follow(ctx: Ctx<'_>, second: Second, are_databases_known: bool) {
    let (dropped, must_walk) = update(|state| {
        state.known.shown.is_whole = state.is_on && state.walk.is_none();
        let dropped = state.known.follow(second);
        if let (Second::Made, Some(loaded)) = (second, &mut state.known.loaded) {
            // From here on each key of it is heard of.
            loaded.is_whole = state.is_on && state.is_subscribed;
        }
        let is_other = second == Second::Shown && state.is_on;
        let mut misplaced = None;
        if is_other && !are_databases_known {
            misplaced = Some(std::mem::take(&mut state.known.shown));
        }
        if is_other && state.known.shown.is_whole {
            state.walk = None;
        }
        let must_walk = is_other && !state.known.shown.is_whole;
        ([dropped, misplaced], must_walk)
    });
    dropped.into_iter().flatten().for_each(Known::drop_later);
    if must_walk {
        start_walk(ctx);
    }
}

impl Known {
    fn drop_later(self) {
        drop_later(self.pools.into_values().collect());
    }
}

fn drop_later(pools: Vec<Pools>) {
    let count = pools.iter().map(Pools::len).sum();
    lazy_free::free(pools, count);
}
