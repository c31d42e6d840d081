// A host that keeps all in memory, and a scene in it: Alice holds the one seat, Bob waits for it.

use seat_pool::{
    AcquireRequest, Acquired, BlockedQueue, Conditions, Effect, Host, Machine, Metadata, Moment,
    Notice, Outcome, Pool, Waiter,
};

pub struct Memory {
    pub pool: Pool,
    pub blocked: BlockedQueue<u32>,
    pub last_arrival: u64,
    pub last_token: u64,
    pub heard: Vec<(Waiter<u32>, Outcome)>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            pool: Pool::new(0),
            blocked: BlockedQueue::new(),
            last_arrival: 0,
            last_token: 0,
            heard: Vec::new(),
        }
    }
}

impl Host for Memory {
    type Client = u32;

    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn blocked(&self) -> &BlockedQueue<u32> {
        &self.blocked
    }
    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<u32>) {
        (&self.pool, &mut self.blocked)
    }
    fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }
    fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }
    fn block_client(&mut self, _session: &[u8]) -> Option<u32> {
        Some(7)
    }
    fn commit(&mut self, effect: &Effect<'_>) {
        self.pool.apply(effect);
    }
    fn confirm(&mut self, _session: &[u8]) {}
    fn wake(&mut self, waiter: Waiter<u32>, outcome: Outcome) {
        self.heard.push((waiter, outcome));
    }
    fn notice(&mut self, _notice: Notice<'_>) {}
    fn schedule(&mut self, _at_ms: i64) {}
}

/// No ACQUIRE fails for its metadata or for want of memory.
pub struct Always;

impl<'a> Conditions<'a> for Always {
    type Error = ();

    fn metadata(&self) -> Result<Metadata<'a>, ()> {
        Ok(Metadata::NONE)
    }
    fn memory(&self) -> Result<(), ()> {
        Ok(())
    }
}

/// A request for the one seat, without a lease and without waiting.
pub fn request(session: &[u8]) -> AcquireRequest<'_> {
    AcquireRequest {
        longest_queue: 100,
        ..AcquireRequest::plain(session, 1)
    }
}

fn main() {
    let mut host = Memory::default();
    let mut machine = Machine::new(&mut host, Moment::at(0));
    let granted = machine.acquire(&request(b"alice"), &Always);
    assert!(matches!(granted, Ok(Acquired::Granted(_))));
    let denied = machine.acquire(&request(b"carol"), &Always);
    assert_eq!(denied, Ok(Acquired::NoSeats { used: 1 }));
    let waiting = AcquireRequest {
        blocks: true,
        ..request(b"bob")
    };
    let blocked = machine.acquire(&waiting, &Always);
    assert_eq!(blocked, Ok(Acquired::Blocked(7)));

    // The seat goes to Bob in the same step in which Alice gives it back.
    assert_eq!(machine.release(b"alice", None), Some(1));
    let (waiter, outcome) = &host.heard[0];
    assert_eq!(waiter.client, 7);
    assert!(matches!(outcome, Outcome::Granted(_)));
}
