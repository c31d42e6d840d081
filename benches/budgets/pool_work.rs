//! What the commands ask of the pool, without a server around it.

use std::convert::Infallible;
use std::hint::black_box;

use seat_pool::{
    AcquireRequest, Acquired, BlockedQueue, Claim, Conditions, Effect, HeartbeatOutcome, Host,
    Lease, Machine, Metadata, MetadataError, Moment, Notice, Outcome, Pool, Waiter,
};

/// The moment at which everything happens, in milliseconds of unix time.
pub const NOW_MS: i64 = 1_795_959_394_000;

const NOW: Moment = Moment::at(NOW_MS);

const LEASE_MS: u64 = 360_000;

const MAX_METADATA: usize = 16_384;

/// The sessions that the timer takes back between two looks at the clock.
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

/// A pool for which nobody waits.
pub struct Alone {
    pub pool: Pool,
    nobody: BlockedQueue<Infallible>,
}

impl Host for Alone {
    type Client = Infallible;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn blocked(&self) -> &BlockedQueue<Infallible> {
        &self.nobody
    }

    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<Infallible>) {
        (&self.pool, &mut self.nobody)
    }

    fn next_arrival(&mut self) -> u64 {
        unreachable!("nobody joins the queue")
    }

    fn next_token(&mut self) -> u64 {
        unreachable!("nobody asks for a token")
    }

    fn block_client(&mut self, _session: &[u8]) -> Option<Infallible> {
        None
    }

    fn commit(&mut self, effect: &Effect<'_>) {
        self.pool.apply(effect);
    }

    fn confirm(&mut self, _session: &[u8]) {}

    fn wake(&mut self, waiter: Waiter<Infallible>, _outcome: Outcome) {
        match waiter.client {}
    }

    fn notice(&mut self, _notice: Notice<'_>) {}

    fn schedule(&mut self, _at_ms: i64) {}
}

impl Alone {
    fn machine(&mut self, now: Moment) -> Machine<'_, Alone> {
        Machine::new(self, now)
    }
}

/// The metadata of each call.
struct Call;

impl<'a> Conditions<'a> for Call {
    type Error = MetadataError;

    fn metadata(&self) -> Result<Metadata<'a>, MetadataError> {
        Metadata::parse(METADATA.as_bytes(), MAX_METADATA)
    }

    fn memory(&self) -> Result<(), MetadataError> {
        Ok(())
    }
}

/// A pool with the sessions of these ids.
pub fn pool_of(ids: &[String], leased: bool) -> Alone {
    let mut pool = Alone {
        pool: Pool::new(i64::MAX),
        nobody: BlockedQueue::new(),
    };
    for id in ids {
        acquire(&mut pool, id, leased);
    }
    pool
}

/// The same, each session of an owner of its own.
pub fn pool_of_owned(ids: &[String]) -> Alone {
    let mut pool = pool_of(&[], false);
    for id in ids {
        acquire_owned(&mut pool, id);
    }
    pool
}

/// A session's owner: one of another name for each, but the same for its [`twin`].
fn owner(id: &str) -> &[u8] {
    &id.as_bytes()[..18]
}

/// The id of another session of the same owner.
pub fn twin(id: &str) -> String {
    format!("{}twin", &id[..id.len() - 4])
}

/// The one place that asks, as the command is in the module. It knows nothing of what a caller
/// wants, or the compiler would leave out what that does not need.
#[inline(never)]
fn ask(pool: &mut Alone, request: &AcquireRequest<'_>) -> Acquired<Infallible> {
    let answer = pool.machine(NOW).acquire(black_box(request), &Call);
    answer.expect("nothing is refused")
}

pub fn acquire(pool: &mut Alone, id: &str, leased: bool) {
    let request = AcquireRequest {
        lease: if leased { lease() } else { None },
        ..AcquireRequest::plain(id.as_bytes(), i64::MAX)
    };
    let answer = ask(pool, &request);
    assert!(matches!(answer, Acquired::Granted(_)));
}

/// An ACQUIRE with an owner that may have two sessions, and with a weight.
pub fn acquire_owned(pool: &mut Alone, id: &str) {
    let request = AcquireRequest {
        claim: Claim {
            owner: Some(owner(id)),
            max_per_owner: Some(2),
            weight: 3,
            ..Claim::PLAIN
        },
        ..AcquireRequest::plain(id.as_bytes(), i64::MAX)
    };
    let answer = ask(pool, &request);
    assert!(matches!(answer, Acquired::Granted(_)));
}

/// An ACQUIRE that ends the session of the same owner, which may have one.
pub fn take_over(pool: &mut Alone, id: &str) {
    let request = AcquireRequest {
        claim: Claim {
            owner: Some(owner(id)),
            max_per_owner: Some(1),
            takeover: true,
            weight: 3,
        },
        ..AcquireRequest::plain(id.as_bytes(), i64::MAX)
    };
    let Acquired::Granted(granted) = ask(pool, &request) else {
        panic!("{id} takes over from nobody");
    };
    assert!(granted.replaced.is_some());
}

/// An ACQUIRE of a session that holds a seat.
pub fn already_active(pool: &mut Alone, id: &str) {
    let answer = ask(pool, &AcquireRequest::plain(id.as_bytes(), i64::MAX));
    assert!(matches!(answer, Acquired::AlreadyActive(_)));
}

/// An ACQUIRE when all seats are taken.
pub fn denied(pool: &mut Alone, id: &str) {
    let seats = pool.pool.len() as i64;
    let answer = ask(pool, &AcquireRequest::plain(id.as_bytes(), seats));
    assert!(matches!(answer, Acquired::NoSeats { .. }));
}

/// A HEARTBEAT, which renews the session's lease if it has one.
pub fn heartbeat(pool: &mut Alone, id: &str) {
    let later = NOW.moved_to(NOW_MS + 1);
    let answer = pool
        .machine(later)
        .heartbeat(id.as_bytes(), black_box(None), black_box(None));
    assert!(matches!(answer, HeartbeatOutcome::Updated(_)));
}

pub fn release(pool: &mut Alone, id: &str) {
    let used = pool.machine(NOW).release(id.as_bytes(), black_box(None));
    assert!(used.is_some());
}

/// Takes back one batch of expired sessions, as the timer does.
pub fn reclaim(pool: &mut Alone) {
    let long_after = NOW.moved_to(NOW_MS + 2 * LEASE_MS as i64);
    assert_eq!(pool.machine(long_after).expire(BATCH), BATCH);
}
