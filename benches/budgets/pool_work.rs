//! What the commands ask of the pool, without a server around it.

use seat_pool::{Acquire, Applied, Effect, Freed, Heartbeat, Lease, Line, Metadata, Moment, Pool};

/// The moment at which everything happens, in milliseconds of unix time.
pub const NOW_MS: i64 = 1_795_959_394_000;

const NOW: Moment = Moment::at(NOW_MS);

const LEASE_MS: u64 = 360_000;

const MAX_METADATA: usize = 16_384;

/// The rows that the timer takes back between two looks at the clock.
pub const BATCH: usize = 32;

/// 150 bytes, of the kind that the scripts' documents show.
pub const METADATA: &str = r#"{"user_email":"developer@example.com","hardware_id":"hw-5f0c8e21a97d","project_root":"/home/developer/projects/simulation","coditect_version":"1.0.0"}"#;

/// The id of a session: a UUID, the same for the same number.
pub fn session(number: u64) -> String {
    let mut random = fastrand::Rng::with_seed(number);
    let (first, second, third, fourth) = (
        random.u32(..),
        random.u16(..),
        random.u16(..),
        random.u16(..),
    );
    let last = random.u64(..) >> 16;
    format!("{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{last:012x}")
}

fn lease() -> Option<Lease> {
    Lease::starting(NOW_MS, LEASE_MS)
}

/// A pool with the sessions of these ids.
pub fn pool_of(ids: &[String], leased: bool) -> Pool {
    let line = Line::<()>::default();
    let mut pool = Pool::new(i64::MAX);
    for id in ids {
        acquire(&mut pool, id, &line, leased);
    }
    pool
}

pub fn acquire(pool: &mut Pool, id: &str, line: &Line<()>, leased: bool) {
    let id = id.as_bytes();
    let decision = pool.acquire(NOW, id, i64::MAX, line);
    assert_eq!(decision, Acquire::Vacant);
    let metadata = Metadata::parse(METADATA.as_bytes(), MAX_METADATA).expect("metadata");
    let lease = if leased { lease() } else { None };
    pool.apply(&Effect::granting(NOW_MS, id, i64::MAX, &metadata, lease));
}

/// An ACQUIRE of a session that holds a seat.
pub fn already_active(pool: &Pool, id: &str, line: &Line<()>) {
    let decision = pool.acquire(NOW, id.as_bytes(), i64::MAX, line);
    assert_eq!(decision, Acquire::AlreadyActive);
}

/// An ACQUIRE when all seats are taken.
pub fn denied(pool: &Pool, id: &str, line: &Line<()>) {
    let decision = pool.acquire(NOW, id.as_bytes(), pool.len() as i64, line);
    assert!(matches!(decision, Acquire::NoSeats { .. }));
}

/// A HEARTBEAT, which renews the session's lease if it has one.
pub fn heartbeat(pool: &mut Pool, id: &str) {
    let Heartbeat::Beat(beat) = pool.heartbeat(NOW.moved_to(NOW_MS + 1), id.as_bytes(), None)
    else {
        panic!("the session is active")
    };
    assert_eq!(pool.apply(&Effect::Beat(beat)), Applied::Done);
}

pub fn release(pool: &mut Pool, id: &str) {
    assert!(pool.get(NOW, id.as_bytes()).is_some());
    let freed = pool.apply(&Effect::freeing(id.as_bytes(), Freed::Released));
    assert_eq!(freed, Applied::Done);
}

/// Takes back one batch of lapsed sessions, as the timer does.
pub fn reclaim(pool: &mut Pool) {
    let long_after = NOW.moved_to(NOW_MS + 2 * LEASE_MS as i64);
    let lapsed: Vec<Box<[u8]>> = pool.lapsed(long_after, BATCH).map(Box::from).collect();
    assert_eq!(lapsed.len(), BATCH);
    for id in &lapsed {
        pool.apply(&Effect::freeing(id, Freed::Expired));
    }
}
