//! Calls among a hundred thousand sessions: no one of them may stall the server, whatever has
//! expired.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use seat_pool::{
    AcquireRequest, Acquired, BlockedQueue, Claim, Conditions, Effect, Freed, Granted, Host, Lease,
    Machine, Metadata, Moment, Notice, Outcome, Pool, Waiter,
};

const SESSIONS: u32 = 100_000;
const OWNER: &[u8] = b"ada";
const START_MS: i64 = 1_700_000_000_000;

/// A hundred times what the quickest call takes without optimizations, and far less than it would
/// take to visit each session.
const AT_ONCE: Duration = Duration::from_millis(1);

struct World {
    pool: Pool,
    blocked: BlockedQueue<Infallible>,
    /// Why sessions have ended since the last call.
    freed: Vec<Freed>,
    is_due: bool,
}

/// Nobody waits here.
impl Host for World {
    type Client = Infallible;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn blocked(&self) -> &BlockedQueue<Infallible> {
        &self.blocked
    }

    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<Infallible>) {
        (&self.pool, &mut self.blocked)
    }

    fn next_arrival(&mut self) -> u64 {
        panic!("nobody joins the queue")
    }

    fn next_token(&mut self) -> u64 {
        panic!("nobody asks for a token")
    }

    fn block_client(&mut self, _session: &[u8]) -> Option<Infallible> {
        panic!("nobody asks to be blocked")
    }

    fn commit(&mut self, effect: &Effect<'_>) {
        if let Effect::Free { why, .. } = effect {
            self.freed.push(*why);
        }
        self.pool.apply(effect);
    }

    fn confirm(&mut self, _session: &[u8]) {}

    fn wake(&mut self, waiter: Waiter<Infallible>, _outcome: Outcome) {
        match waiter.client {}
    }

    fn notice(&mut self, notice: Notice<'_>) {
        panic!("{notice:?} where nobody waits")
    }

    fn schedule(&mut self, _at_ms: i64) {
        self.is_due = true;
    }
}

struct Sound;

impl<'a> Conditions<'a> for Sound {
    type Error = Infallible;

    fn metadata(&self) -> Result<Metadata<'a>, Infallible> {
        Ok(Metadata::NONE)
    }

    fn memory(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn request(session: &[u8], seats: u32) -> AcquireRequest<'_> {
    AcquireRequest::plain(session, seats.into())
}

fn owned(session: &[u8], seats: u32) -> AcquireRequest<'_> {
    AcquireRequest {
        claim: Claim {
            owner: Some(OWNER),
            max_per_owner: Some(SESSIONS.into()),
            ..Claim::PLAIN
        },
        ..request(session, seats)
    }
}

fn taking_over(session: &[u8], max: u32) -> AcquireRequest<'_> {
    let request = owned(session, 2 * SESSIONS);
    AcquireRequest {
        claim: Claim {
            max_per_owner: Some(max.into()),
            takeover: true,
            ..request.claim
        },
        ..request
    }
}

impl World {
    /// A pool of so many sessions. Each second has a lease, which has ended at [`LATER`].
    fn filled(request: impl Fn(&[u8]) -> AcquireRequest<'_>) -> World {
        let mut world = World {
            pool: Pool::new(0),
            blocked: BlockedQueue::new(),
            freed: Vec::new(),
            is_due: false,
        };
        for number in 0..SESSIONS {
            let now_ms = START_MS + i64::from(number);
            let now = Moment::at(now_ms);
            let id = number.to_le_bytes();
            let lease = Lease::starting(now_ms, 3 * u64::from(SESSIONS));
            let request = AcquireRequest {
                lease: lease.filter(|_| number % 2 == 0),
                ..request(&id)
            };
            let answer = Machine::new(&mut world, now).acquire(&request, &Sound);
            assert!(matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
        }
        world.freed.clear();
        world.is_due = false;
        world
    }

    /// Acquires, and returns the answer and how long it took.
    fn acquire(&mut self, request: &AcquireRequest<'_>) -> (Acquired<Infallible>, Duration) {
        self.freed.clear();
        let mut machine = Machine::new(self, LATER);
        let start = Instant::now();
        let answer = machine.acquire(request, &Sound);
        (answer.expect("nothing is refused"), start.elapsed())
    }

    /// The quickest of the same denials.
    fn quickest_denial(&mut self, request: &AcquireRequest<'_>) -> Duration {
        let denials = (0..50).map(|_| {
            let used = self.pool.used(LATER);
            let (answer, took) = self.acquire(request);
            assert_eq!(answer, Acquired::NoSeats { used });
            assert_eq!(self.freed, [], "a denial changes nothing");
            assert!(std::mem::take(&mut self.is_due), "the rest is put off");
            took
        });
        denials.min().expect("fifty denials")
    }

    /// What the timer does until all are reclaimed.
    fn reclaim(&mut self) {
        while Machine::new(self, LATER).expire(World::BATCH) == World::BATCH {}
    }
}

/// When all leases have expired.
const LATER: Moment = Moment::at(START_MS + 10 * SESSIONS as i64);

/// The live session that was silent for the longest, by its timestamps alone, as those with leases
/// have expired; of several, that in the lowest slot.
fn most_silent(pool: &Pool) -> Vec<u8> {
    let heard = pool.live(LATER).map(|session| session.last_heartbeat());
    let earliest = heard.min().expect("a live session");
    // In the order of their slots.
    let mut oldest = pool.live(LATER);
    let first = oldest.find(|session| session.last_heartbeat() == earliest);
    first.expect("it is there").id().to_vec()
}

#[test]
fn a_takeover_among_a_hundred_thousand_visits_few_of_them() {
    let mut world = World::filled(|id| owned(id, SESSIONS));
    let half = SESSIONS / 2;
    assert_eq!(world.pool.held(LATER, OWNER), u64::from(half));
    let took = world.quickest_denial(&taking_over(b"bob", half));

    assert!(took < AT_ONCE, "{took:?} with half of them expired");

    // As many are left as one step reclaims.
    let batch = World::BATCH as u32;
    Machine::new(&mut world, LATER).expire((half - batch) as usize);
    let mut quickest = Duration::MAX;
    for number in 0..50u32 {
        let id = (SESSIONS + number).to_le_bytes();
        let expected = most_silent(&world.pool).into_boxed_slice();
        let (answer, took) = world.acquire(&taking_over(&id, half));
        let Acquired::Granted(Granted { replaced, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(replaced, Some(expected));
        assert_eq!(world.pool.held(LATER, OWNER), u64::from(half));
        let expired = world.freed.iter().filter(|&&why| why == Freed::Expired);
        assert_eq!(expired.count(), if number == 0 { World::BATCH } else { 0 });
        quickest = quickest.min(took);
    }

    assert!(quickest < AT_ONCE, "{quickest:?}");
}

#[test]
fn a_lowered_limit_reclaims_a_batch_at_most_for_one_grant() {
    let mut world = World::filled(|id| request(id, SESSIONS));
    let half = SESSIONS / 2;
    let took = world.quickest_denial(&request(b"bob", half + 1));

    assert!(took < AT_ONCE, "{took:?}");
    let (answer, _) = world.acquire(&request(b"bob", SESSIONS - World::BATCH as u32 + 1));
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
    assert_eq!(world.freed, [Freed::Expired; World::BATCH]);
    world.reclaim();
    let (answer, _) = world.acquire(&request(b"carol", half + 2));
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
    assert_eq!(world.freed, []);
}

#[test]
fn a_heavy_session_reclaims_a_batch_at_most_for_its_grant() {
    let mut world = World::filled(|id| request(id, SESSIONS));
    let heavy = AcquireRequest {
        claim: Claim {
            weight: SESSIONS / 2,
            ..Claim::PLAIN
        },
        ..request(b"bob", SESSIONS)
    };
    let took = world.quickest_denial(&heavy);

    assert!(took < AT_ONCE, "{took:?}");
    world.reclaim();
    let (answer, _) = world.acquire(&heavy);
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
}
