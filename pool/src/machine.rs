//! The state machine: every rule of acquiring, releasing and queueing, in one place.

use crate::blocked::{Blocked, BlockedQueue, KeptWait, Request, Wait, Waiter};
use crate::claims::{Claim, KeptClaim};
use crate::effect::{Effect, Freed, Grant, Holder, Join, Lease};
use crate::entries::QueueEntry;
use crate::metadata::Metadata;
use crate::moment::Moment;
use crate::pool::{HeartbeatOutcome, Pool};
use crate::queue::Ticket;
use crate::session::Session;
use crate::waiting::Queue;

/// The ticket of a blocked client is renewed when it has only so long left, so that it is still
/// valid in whatever instant its wait ends, and soon lost if this server dies and the client with
/// it.
const SPARE_MS: u64 = 1000;

/// For how long the ticket of a blocked client is valid when it is renewed: each renewal is
/// replicated, so not for too short.
fn renewal_ms(ticket_ms: u64) -> u64 {
    ticket_ms.max(SPARE_MS).saturating_add(SPARE_MS)
}

/// Where the machine works: what it reads, and what follows from its decisions.
///
/// One host is an open key of a server, another the tests' own. The machine decides everything
/// about seats and the queue; a host only carries out. It may put off what is written to others
/// until the machine is done, but [`Host::pool`] must show an effect as soon as it is committed.
pub trait Host {
    /// How the host knows a client that waits. A client that waits anew is another one.
    type Client: Clone + PartialEq;

    /// How many waiters are served, tickets seen to, or expired sessions reclaimed for grants, in
    /// one step at most. What is left is for [`Host::schedule`].
    const BATCH: usize = 64;

    /// The pool, or an empty one where there is none.
    fn pool(&self) -> &Pool;

    /// The clients that are blocked at this name.
    fn blocked(&self) -> &BlockedQueue<Self::Client>;

    /// Both, to change the queue.
    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<Self::Client>);

    /// Seats that are held by others than the pool's sessions, and so cannot be granted.
    fn taken_elsewhere(&self) -> u64 {
        0
    }

    /// Whether one of these seats is held by `session`, which is not live in the pool.
    fn holds_elsewhere(&self, session: &[u8]) -> bool {
        let _ = session;
        false
    }

    /// Whether those who wait may be served here. A newcomer may be granted a seat all the same.
    fn serves_queue(&self) -> bool {
        true
    }

    /// The next number in the order of arrival, higher than all that were given out or seen before.
    fn next_arrival(&mut self) -> u64;

    /// The next token: larger than each that this process gave out and than each in a pool that it
    /// holds, and below [`crate::MAX_TOKEN`].
    fn next_token(&mut self) -> u64;

    /// A session was granted its seats, and so many are taken now. For [`Pool::note_used`].
    fn observe(&mut self, used: u64) {
        let _ = used;
    }

    /// A call was answered that there is no seat for it, or that its owner has reached its limit.
    /// For [`Pool::count_denial`].
    fn count_denial(&mut self) {}

    /// Blocks the client whose call for `session` is decided, until it is woken. That may be before
    /// the call is done. `None` if it cannot be blocked; nothing has changed for the call yet then.
    fn block_client(&mut self, session: &[u8]) -> Option<Self::Client>;

    /// Carries out an effect here and on whoever follows, and notes its deadline as by
    /// [`Host::schedule`]. A grant or a join creates a missing pool.
    fn commit(&mut self, effect: &Effect<'_>);

    /// A session has confirmed a seat that it holds, without an effect.
    fn confirm(&mut self, session: &[u8]);

    /// A client that was blocked is to get its answer. It is in the queue no longer.
    fn wake(&mut self, waiter: Waiter<Self::Client>, outcome: Outcome);

    /// Something happened that no effect shows.
    fn notice(&mut self, notice: Notice<'_>);

    /// A client that was blocked is served: what is committed from now on, until it is woken, is
    /// for its session.
    fn serving(&mut self, waiter: &Waiter<Self::Client>) {
        let _ = waiter;
    }

    /// Something is left to do here at this time, in milliseconds of unix time:
    /// [`Machine::expire`], then [`Machine::serve`].
    fn schedule(&mut self, at_ms: i64);
}

/// What happened, for whoever listens, in addition to what an effect says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A session has joined the queue.
    Joined(Wait<'a>),
    /// A session has left the queue without a seat.
    Left(Wait<'a>),
    /// The same, since its ticket was lost: nobody has taken it out.
    Lost(Wait<'a>),
    /// A session that waited was granted a seat.
    Served,
    /// A session has left the queue without a seat when its turn came, since its owner had reached
    /// its limit.
    OwnerLimit(Wait<'a>),
}

/// A grant, as the session is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Seats that are taken, with this one, at that instant.
    pub used: u64,
    /// The limit that it was granted under, its own figure.
    pub seats: i64,
    /// Its lease, if it asked for one.
    pub lease: Option<Lease>,
    /// Its token, if it asked for one.
    pub token: Option<u64>,
    /// The session of its owner that a takeover has ended for it.
    pub replaced: Option<Box<[u8]>>,
}

/// The answer to a session that holds a seat already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyActive {
    /// Seats that are taken, with this one.
    pub used: u64,
    /// The lease that it has now, if it asked for one.
    pub renewed: Option<Lease>,
    /// The token that it has now, if it asked for one.
    pub token: Option<u64>,
}

/// What became of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The session was granted a seat.
    Granted(Granted),
    /// The session has come to hold a seat otherwise.
    AlreadyActive(AlreadyActive),
    /// The session has come to hold a seat elsewhere, where it cannot have the lease or the token
    /// that it asked for.
    HeldElsewhere,
    /// Its turn came, and its owner had as many live sessions as it may have.
    OwnerLimit {
        /// The owner's live sessions.
        held: u64,
        /// How many there may be, as the session stated.
        max: u64,
    },
    /// It gets none: another client waits for it now, or it was taken out of the queue.
    NoSeats,
}

/// An ACQUIRE, parsed.
#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    /// Who asks.
    pub session: &'a [u8],
    /// The limit that it states: its figure, by which it alone is judged.
    pub seats: i64,
    /// The lease that it asks for, from now on.
    pub lease: Option<Lease>,
    /// How long each poll keeps its ticket, in milliseconds, if it asks for one; never 0.
    pub ticket_ms: Option<u64>,
    /// What it asks for beyond a seat.
    pub claim: Claim<'a>,
    /// Whether it asks for a token.
    pub with_token: bool,
    /// Whether its client is to be blocked until a seat is free, if that is possible.
    pub blocks: bool,
    /// How many may wait here at most.
    pub longest_queue: usize,
}

impl<'a> AcquireRequest<'a> {
    /// One for a seat, and for nothing else: a denial if there is none.
    pub fn plain(session: &'a [u8], seats: i64) -> AcquireRequest<'a> {
        AcquireRequest {
            session,
            seats,
            lease: None,
            ticket_ms: None,
            claim: Claim::PLAIN,
            with_token: false,
            blocks: false,
            longest_queue: 0,
        }
    }
}

/// What else an ACQUIRE depends on, asked only when it comes to it: an answer that does not need
/// it must not be changed by it.
pub trait Conditions<'a> {
    /// Why not.
    type Error;

    /// The metadata, checked. Asked before a grant and before joining the queue.
    fn metadata(&self) -> Result<Metadata<'a>, Self::Error>;

    /// Whether there is memory for one session more. Asked last before a grant and before a new
    /// entry in the queue.
    fn memory(&self) -> Result<(), Self::Error>;
}

/// Why an ACQUIRE is refused. Nothing has changed then.
///
/// ```
/// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
/// # use memory::{Always, Memory, request};
/// # use seat_pool::{AcquireRequest, Machine, Moment, Refusal};
/// let mut host = Memory::default();
/// let mut machine = Machine::new(&mut host, Moment::at(0));
/// machine.acquire(&request(b"alice"), &Always)?;
/// let polling = AcquireRequest { ticket_ms: Some(500), longest_queue: 1, ..request(b"bob") };
/// machine.acquire(&polling, &Always)?;
/// let third = AcquireRequest { session: b"carol", ..polling };
/// assert_eq!(machine.acquire(&third, &Always), Err(Refusal::QueueFull));
/// assert!(!host.pool.has_ticket(b"carol"));
/// # Ok::<(), Refusal<()>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// The session holds a seat elsewhere, where it cannot have the lease or the token that it asks
    /// for.
    HeldElsewhere,
    /// As many wait as may.
    QueueFull,
    /// Those who wait state [`crate::MAX_FIGURES`] different figures, and this would be one more.
    TooManyFigures,
    /// One of the [`Conditions`] is not met.
    Unmet(E),
}

/// What an ACQUIRE comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired<C> {
    /// The session was granted a seat.
    Granted(Granted),
    /// The session holds a seat already.
    AlreadyActive(AlreadyActive),
    /// All seats are taken, or kept for those who wait, or none is granted at present.
    NoSeats {
        /// Seats that are taken.
        used: u64,
    },
    /// The owner of the session has as many live sessions as it may have.
    OwnerLimit {
        /// The owner's live sessions.
        held: u64,
        /// How many there may be, as the call stated.
        max: u64,
    },
    /// The session waits by its ticket.
    Queued {
        /// Seats that are taken.
        used: u64,
        /// Its position in the queue; 1 is the first.
        position: usize,
    },
    /// The session waits by its client, which is blocked. It learns by [`Host::wake`] what became
    /// of it.
    Blocked(C),
}

/// What a call of a session that holds no seat comes to, before what else it depends on is asked.
#[derive(Clone, Copy)]
enum Verdict {
    /// It may have its seats.
    InTurn,
    /// It may have them if a session of its owner ends.
    TakesOver {
        /// The one in this slot.
        slot: u32,
        /// Whether it is heavier, so that those ahead come first.
        needs_turn: bool,
    },
    /// It may have them once others give theirs back.
    Full,
    /// Its owner has reached its limit.
    OwnerLimit {
        /// The owner's live sessions.
        held: u64,
        /// The limit.
        max: u64,
    },
}

impl Verdict {
    fn needs_turn(&self) -> bool {
        match self {
            Verdict::TakesOver { needs_turn, .. } => *needs_turn,
            _ => true,
        }
    }

    /// If it is a grant: the slot of the session that ends for it, or `None` if none does.
    fn granted(&self) -> Option<Option<u32>> {
        match *self {
            Verdict::InTurn => Some(None),
            Verdict::TakesOver { slot, .. } => Some(Some(slot)),
            Verdict::Full | Verdict::OwnerLimit { .. } => None,
        }
    }
}

/// The answer to a client whose wait has ended without an outcome: its time is over, or somebody
/// else unblocked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The session holds a seat: it has come to it in this very instant.
    AlreadyActive(AlreadyActive),
    /// The session waits on by its ticket. [`Machine::after_wait`] is to follow.
    Queued {
        /// Seats that are taken.
        used: u64,
        /// Its position in the queue; 1 is the first.
        position: usize,
        /// The limit that it stated, or that RESIZE restated for it.
        seats: i64,
        /// How long its ticket is to be kept from now on, in milliseconds.
        ticket_ms: u64,
    },
    /// The session waits no longer.
    NoSeats {
        /// Seats that are taken.
        used: u64,
        /// The limit that it stated, or that RESIZE restated for it.
        seats: i64,
    },
}

/// The state machine over a pool, the clients that are blocked at its name, and a moment.
///
/// It owns every rule of acquiring, releasing and queueing:
///
/// - *No grant lifts the seats that are taken above what its session stated*, nor the live sessions
///   of its owner above the limit that it stated.
/// - *A takeover ends one session, and only if that helps*: of the owner's live ones that which was
///   silent for the longest, in the step of the grant that it is for.
/// - *Nobody gets past the queue.* A newcomer is judged as the last, see [`Queue`].
/// - *No seat is idle while a waiter may have it.* The queue is served after each change that may
///   make it somebody's turn: of the seats that are taken, up or down, of who waits, and of a
///   figure.
/// - *A kept seat is not given away.* Where it is the turn of a ticket, its seat counts as taken
///   for all behind it.
/// - *One entry a session.* A newer client replaces an older one, which is answered that there
///   is no seat.
///
/// No step serves more than [`Host::BATCH`] waiters. The rest keep their order, and
/// [`Host::schedule`] is called to go on.
///
/// A session whose lease has expired is live again if the floor rises before it is reclaimed. So a
/// grant first reclaims those that would then stand above the limits with it. Mostly that is one;
/// after a mass expiry, or under a lower limit, it may be any number. Where more than
/// [`Host::BATCH`] are in the way, nobody is granted a seat and nothing is reclaimed in this step:
/// the pool is as good as full until [`Host::schedule`] has led to [`Machine::expire`].
///
/// ```text
///        ACQUIRE                     RELEASE, REVOKE, CLEANUP, RESIZE, expire, take_back
///           │                                             │
///    holds a seat? ──yes──> AlreadyActive          change what is so
///           │                                             │
///    its turn, or a takeover? ──yes──> grant ───────┐     │
///           │                                       │     │
///    owner at its limit? ──yes──> OwnerLimit        │     │
///           │                                       v     v
///    may wait? ──yes──> join the queue ───────────> serve: tickets that end, then whose turn it is
///           │                                             │
///        NoSeats                                    wake, or schedule
/// ```
///
/// A host that keeps all in memory, and a scene in it. The examples of the methods have the same
/// host.
///
/// ```
#[doc = include_str!("../examples/memory.rs")]
/// ```
pub struct Machine<'h, H: Host> {
    host: &'h mut H,
    now: Moment,
}

impl<'h, H: Host> Machine<'h, H> {
    /// The machine at a moment. All that it decides holds for this one.
    pub fn new(host: &'h mut H, now: Moment) -> Machine<'h, H> {
        Machine { host, now }
    }

    /// The queue as it is.
    fn queue(&self) -> Queue<'_, H::Client> {
        let host = &*self.host;
        Queue::new(
            host.pool(),
            host.blocked(),
            self.now,
            host.taken_elsewhere(),
        )
    }

    fn used(&self) -> u64 {
        self.queue().taken()
    }

    fn is_live(&self, session: &[u8]) -> bool {
        self.host.pool().get(self.now, session).is_some()
    }

    /// Whether a session holds a seat, in the pool or elsewhere.
    fn is_holder(&self, session: &[u8]) -> bool {
        self.is_live(session) || self.host.holds_elsewhere(session)
    }

    /// Carries out an ACQUIRE. O(1), and O(log n) in the sessions that wait, have expired or have
    /// an owner.
    ///
    /// A [`Refusal`] is an error of the call and changes nothing. That there is no seat is not one.
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Acquired, Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// let polling = |session| AcquireRequest { ticket_ms: Some(500), ..request(session) };
    /// let first = machine.acquire(&polling(b"alice"), &Always);
    /// assert!(matches!(first, Ok(Acquired::Granted(_))));
    /// let again = machine.acquire(&polling(b"alice"), &Always);
    /// assert!(matches!(again, Ok(Acquired::AlreadyActive(_))));
    /// let second = machine.acquire(&polling(b"bob"), &Always);
    /// assert_eq!(second, Ok(Acquired::Queued { used: 1, position: 1 }));
    /// // The seat that Alice gives back is kept for Bob.
    /// machine.release(b"alice", None);
    /// let newcomer = machine.acquire(&request(b"carol"), &Always);
    /// assert_eq!(newcomer, Ok(Acquired::NoSeats { used: 0 }));
    /// ```
    pub fn acquire<'a, C: Conditions<'a>>(
        &mut self,
        request: &AcquireRequest<'a>,
        conditions: &C,
    ) -> Result<Acquired<H::Client>, Refusal<C::Error>> {
        let AcquireRequest {
            session,
            seats,
            lease,
            with_token,
            ..
        } = *request;
        if self.is_live(session) {
            let answer = self.answer_holder(session, lease, with_token);
            return Ok(Acquired::AlreadyActive(answer));
        }
        if self.host.holds_elsewhere(session) {
            if lease.is_some() || with_token {
                return Err(Refusal::HeldElsewhere);
            }
            let answer = self.answer_holder(session, None, false);
            return Ok(Acquired::AlreadyActive(answer));
        }
        let queue = self.queue();
        let arrival = match queue.is_empty() {
            true => None,
            false => queue.arrival_of(session),
        };
        let mut verdict = self.judge(request, arrival);
        if let Verdict::InTurn | Verdict::TakesOver { .. } = verdict {
            let metadata = conditions.metadata().map_err(Refusal::Unmet)?;
            conditions.memory().map_err(Refusal::Unmet)?;
            if verdict.needs_turn() {
                verdict = match self.serve_ahead_of(arrival) {
                    // They may have been of the same owner.
                    Some(served) if served > 0 => self.judge(request, arrival),
                    Some(_) => verdict,
                    None => Verdict::Full,
                };
            }
            if let Some(predecessor) = verdict.granted() {
                match self.to_reclaim(session, seats, &request.claim, predecessor, H::BATCH) {
                    Some(expired) => {
                        self.reclaim(&expired);
                        return Ok(self.grant(request, &metadata, arrival, predecessor));
                    }
                    None => self.host.schedule(self.now.now_ms),
                }
            }
        }
        if let Verdict::OwnerLimit { held, max } = verdict {
            self.host.count_denial();
            return Ok(Acquired::OwnerLimit { held, max });
        }
        if request.blocks || request.ticket_ms.is_some() {
            return self.join(request, conditions, arrival);
        }
        Ok(self.deny())
    }

    fn deny(&mut self) -> Acquired<H::Client> {
        self.host.count_denial();
        Acquired::NoSeats { used: self.used() }
    }

    /// What a call of a session that holds no seat comes to, by its owner's limit and by the seats.
    /// It depends on nothing else, and changes nothing.
    fn judge(&self, request: &AcquireRequest<'_>, arrival: Option<u64>) -> Verdict {
        if request.claim.max_per_owner.is_some() {
            self.judge_limited(request, arrival)
        } else if self.is_turn_of(request, arrival) {
            Verdict::InTurn
        } else {
            Verdict::Full
        }
    }

    fn is_turn_of(&self, request: &AcquireRequest<'_>, arrival: Option<u64>) -> bool {
        let (seats, weight) = (request.seats, request.claim.weight);
        !self.now.holds_grants && self.queue().is_turn_of(seats, weight, arrival)
    }

    #[inline(never)]
    fn judge_limited(&self, request: &AcquireRequest<'_>, arrival: Option<u64>) -> Verdict {
        // Without an owner there is nothing to limit.
        let (held, max) = self.held(&request.claim).unwrap_or((0, u64::MAX));
        if held < max && self.is_turn_of(request, arrival) {
            return Verdict::InTurn;
        }
        if let Some(verdict) = self.judge_takeover(request, arrival, held) {
            return verdict;
        }
        match held < max {
            true => Verdict::Full,
            false => Verdict::OwnerLimit { held, max },
        }
    }

    /// What a call comes to that may take over from another session of its owner, or `None` if
    /// there is none from which it could, whatever the queue.
    fn judge_takeover(
        &self,
        request: &AcquireRequest<'_>,
        arrival: Option<u64>,
        held: u64,
    ) -> Option<Verdict> {
        let slot = self.predecessor(&request.claim, held)?;
        let freed = self.host.pool().weight_at(slot);
        let (seats, weight) = (request.seats, request.claim.weight);
        let is_turn = (self.queue()).is_turn_of_successor(seats, weight, arrival, freed)?;
        Some(if is_turn && !self.now.holds_grants {
            Verdict::TakesOver {
                slot,
                needs_turn: weight > freed,
            }
        } else {
            Verdict::Full
        })
    }

    /// The owner's live sessions and the limit for them, if there is one. O(log n).
    fn held(&self, claim: &Claim<'_>) -> Option<(u64, u64)> {
        let (owner, max) = claim.owner.zip(claim.max_per_owner)?;
        Some((self.host.pool().held(self.now, owner), max))
    }

    /// The same, if they have reached it.
    fn limit_reached(&self, claim: &Claim<'_>) -> Option<(u64, u64)> {
        self.held(claim).filter(|(held, max)| held >= max)
    }

    /// The slot of the session that ends if the session of this claim takes over: of the `held`
    /// live ones of its owner, that which has been silent for the longest. `None` if it may not, or
    /// if they would still be more than the limit. O(log n).
    fn predecessor(&self, claim: &Claim<'_>, held: u64) -> Option<u32> {
        let (owner, max) = claim.owner.zip(claim.max_per_owner)?;
        let may_take_over = claim.takeover && held <= max;
        may_take_over.then(|| self.host.pool().most_silent_of(self.now, owner))?
    }

    fn grant(
        &mut self,
        request: &AcquireRequest<'_>,
        metadata: &Metadata<'_>,
        arrival: Option<u64>,
        predecessor: Option<u32>,
    ) -> Acquired<H::Client> {
        self.deny_client(request.session);
        let granted = self.commit_grant(request, metadata, predecessor);
        if arrival.is_some() {
            self.host.notice(Notice::Served);
        }
        // Whoever is shut out now counts no longer, and it may be the turn of those behind. Where a
        // heavier session has ended for this one, there are seats for them.
        self.serve();
        Acquired::Granted(granted)
    }

    /// Ends the sessions in these slots, whose leases have expired.
    fn reclaim(&mut self, slots: &[u32]) {
        for &slot in slots {
            let session: Box<[u8]> = self.host.pool().id_at(slot).into();
            self.commit(&Effect::freeing(&session, Freed::Expired));
        }
    }

    /// Grants a session its seats, for which there is room now, or once the live session in the
    /// slot of its predecessor has ended.
    fn commit_grant(
        &mut self,
        request: &AcquireRequest<'_>,
        metadata: &Metadata<'_>,
        predecessor: Option<u32>,
    ) -> Granted {
        let AcquireRequest {
            session,
            seats,
            lease,
            claim,
            ..
        } = *request;
        let token = request.with_token.then(|| self.host.next_token());
        let replaced: Option<Box<[u8]>> =
            predecessor.map(|slot| self.host.pool().id_at(slot).into());
        let now_ms = self.now.now_ms;
        self.commit(&Effect::Grant(Grant {
            holder: Holder {
                owner: claim.owner,
                weight: claim.weight,
                token,
            },
            replaces: replaced.as_deref(),
            ..Grant::starting(now_ms, session, seats, metadata, lease)
        }));
        let used = self.used();
        self.host.observe(used);
        Granted {
            used,
            seats,
            lease,
            token,
            replaced,
        }
    }

    /// Joins the queue, or keeps the entry that the session has.
    fn join<'a, C: Conditions<'a>>(
        &mut self,
        request: &AcquireRequest<'a>,
        conditions: &C,
        arrival: Option<u64>,
    ) -> Result<Acquired<H::Client>, Refusal<C::Error>> {
        let now_ms = self.now.now_ms;
        let session = request.session;
        let metadata = conditions.metadata().map_err(Refusal::Unmet)?;
        if arrival.is_none() {
            conditions.memory().map_err(Refusal::Unmet)?;
            if self.queue().waiting() >= request.longest_queue {
                return Err(Refusal::QueueFull);
            }
        }
        let stated = self.figure_of(session).filter(|_| arrival.is_some());
        let seats = match stated {
            _ if self.queue().has_room_for(request.seats, session) => request.seats,
            Some(stated) => stated,
            None => return Err(Refusal::TooManyFigures),
        };
        let client = match request.blocks {
            true => self.host.block_client(session),
            false => None,
        };
        if client.is_none() && request.ticket_ms.is_none() {
            return Ok(self.deny());
        }
        if arrival.is_none() {
            self.host.notice(Notice::Joined(Wait {
                session,
                seats,
                since_ms: now_ms,
                claim: request.claim,
            }));
        }
        let arrival = arrival.unwrap_or_else(|| self.host.next_arrival());
        let since_ms = self.since_ms(session).unwrap_or(now_ms);
        self.deny_client(session);
        match request.ticket_ms {
            Some(length_ms) => {
                let valid_ms = match client {
                    Some(_) => renewal_ms(length_ms),
                    None => length_ms,
                };
                let ticket = Ticket {
                    since_ms,
                    length_ms,
                    deadline_ms: now_ms,
                };
                if let Some(ticket) = ticket.kept(now_ms, valid_ms) {
                    self.commit(&Effect::Join(Join {
                        session,
                        seats,
                        arrival,
                        ticket,
                        claim: request.claim,
                    }));
                }
            }
            // The call takes the entry over, and keeps it by waiting alone.
            None => self.drop_ticket(session),
        }
        if let Some(client) = client.clone() {
            let request = Request {
                metadata: metadata.into_owned(),
                lease_ms: request.lease.map(|lease| lease.length_ms),
                ticket_ms: request.ticket_ms,
                since_ms,
                claim: request.claim.kept(),
                with_token: request.with_token,
            };
            let (pool, blocked) = self.host.pool_and_blocked();
            blocked.insert(pool, session, seats, arrival, client, request);
        }
        // It may be the turn of others by the figure or the weight that it states now.
        self.serve();
        if let Some(client) = client {
            return Ok(Acquired::Blocked(client));
        }
        let position = self.queue().position(session);
        let limit = self.limit_reached(&request.claim);
        if let Some((held, max)) = limit.filter(|_| position.is_none()) {
            // Those who were served have made it its turn, and are of its owner.
            self.host.count_denial();
            return Ok(Acquired::OwnerLimit { held, max });
        }
        Ok(Acquired::Queued {
            used: self.used(),
            position: position.unwrap_or(1),
        })
    }

    /// The limit that a session in the queue stated.
    fn figure_of(&self, session: &[u8]) -> Option<i64> {
        let (pool, blocked) = (self.host.pool(), self.host.blocked());
        let client = blocked.get(session).map(|entry| blocked.figure(entry));
        let ticket = || {
            let ticket = pool.any_ticket(session)?;
            Some(pool.figure_of(ticket))
        };
        client.or_else(ticket)
    }

    /// Since when a session waits, if it does.
    fn since_ms(&self, session: &[u8]) -> Option<i64> {
        let ticket = self.host.pool().ticket(self.now, session);
        let blocked = self.host.blocked().get(session);
        ticket
            .map(|ticket| ticket.waiting.since_ms)
            .or_else(|| blocked.map(|entry| entry.waiting.request.since_ms))
    }

    /// Carries out a HEARTBEAT and returns what it came to. It renews the session's lease by its
    /// own length, or by `lease` instead if that is given. O(1), with a lease O(log n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{HeartbeatOutcome, Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// let mut later = Machine::new(&mut host, Moment::at(9_000));
    /// assert!(matches!(later.heartbeat(b"alice", None, None), HeartbeatOutcome::Updated(_)));
    /// assert_eq!(later.heartbeat(b"bob", None, None), HeartbeatOutcome::NotActive);
    /// let alice = host.pool.get(Moment::at(9_000), b"alice");
    /// assert_eq!(alice.and_then(|alice| alice.last_heartbeat()), Some(9));
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn heartbeat<'a>(
        &mut self,
        session: &'a [u8],
        lease: Option<Lease>,
        token: Option<u64>,
    ) -> HeartbeatOutcome<'a> {
        let decision = self.host.pool().heartbeat(self.now, session, lease, token);
        if let HeartbeatOutcome::Updated(heartbeat) = decision {
            self.commit(&Effect::Heartbeat(heartbeat));
        }
        decision
    }

    /// Gives a session's seat back, or its queue entry, and serves the queue. Returns the
    /// seats that are taken then, or `None` if it held none in the pool. O(log n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// assert_eq!(machine.release(b"alice", None), Some(0));
    /// assert_eq!(machine.release(b"alice", None), None);
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn release(&mut self, session: &[u8], token: Option<u64>) -> Option<u64> {
        if token.is_some() && !self.host.pool().has_token(self.now, session, token) {
            return None;
        }
        let was_live = self.end(session, Freed::Released);
        self.serve();
        was_live.then(|| self.used())
    }

    /// Takes seats away, and queue entries, serves the queue, and returns how many seats
    /// those were. O(m log n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// let polling = |session| AcquireRequest { ticket_ms: Some(500), ..request(session) };
    /// machine.acquire(&polling(b"alice"), &Always)?;
    /// machine.acquire(&polling(b"bob"), &Always)?;
    /// let named = [b"alice" as &[u8], b"bob", b"carol"];
    /// assert_eq!(machine.revoke(named.into_iter()), 1, "Bob only waited");
    /// assert!(host.pool.is_empty());
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn revoke<'a>(&mut self, sessions: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut revoked = 0;
        for session in sessions {
            revoked += usize::from(self.end(session, Freed::Revoked));
        }
        self.serve();
        revoked
    }

    /// Ends the live sessions of an owner, takes its sessions out of the queue, serves the queue,
    /// and returns how many live sessions those were. O(m log n), where m is the number of its
    /// sessions and queue entries.
    pub fn revoke_owner(&mut self, owner: &[u8]) -> usize {
        let pool = self.host.pool();
        let holders = pool.owned(self.now, owner).map(Session::id);
        let holders: Vec<Box<[u8]>> = holders.map(Box::from).collect();
        let tickets = pool.ticket_table().into_iter();
        let tickets = tickets.flat_map(|tickets| tickets.owned(owner));
        let waiters = tickets.chain(self.host.blocked().owned(owner));
        let waiters: Vec<Box<[u8]>> = waiters.map(Box::from).collect();
        for session in &waiters {
            self.leave(session);
        }
        for session in &holders {
            self.commit(&Effect::freeing(session, Freed::Revoked));
        }
        self.serve();
        holders.len()
    }

    /// Takes a session out of the queue and ends its hold. Returns whether it held a seat.
    fn end(&mut self, session: &[u8], why: Freed) -> bool {
        self.leave(session);
        let is_live = self.is_live(session);
        if is_live {
            self.commit(&Effect::freeing(session, why));
        }
        is_live
    }

    /// Changes the limit now, for the pool and for all who wait, and returns how many of these were
    /// granted a seat. Nobody is evicted, and nothing is created. O(m log n), where m is the number
    /// of waiters that do not state the commonest figure.
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// let waiting = AcquireRequest { blocks: true, ..request(b"bob") };
    /// machine.acquire(&waiting, &Always)?;
    /// assert_eq!(machine.resize(0), 0, "Alice stays");
    /// assert_eq!(machine.resize(2), 1, "Bob gets the second seat");
    /// assert_eq!((host.pool.seats(), host.heard.len()), (2, 1));
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn resize(&mut self, seats: i64) -> usize {
        if !self.host.blocked().is_empty() {
            self.host.pool_and_blocked().1.restate(seats);
        }
        let pool = self.host.pool();
        let is_stated = |figure: i64| figure == seats;
        let tickets = pool.ticket_table();
        let is_changed = pool.seats() != seats
            || tickets.is_some_and(|table| !table.figures().distinct().all(is_stated));
        if !pool.is_empty() && is_changed {
            self.host.commit(&Effect::Resize(seats));
        }
        self.serve()
    }

    /// Ends the sessions whose leases have expired and, with `idle_seconds`, also those that were
    /// silent for longer, and serves the queue. Returns how many those were. O(their number), with
    /// `idle_seconds` O(n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// let mut later = Machine::new(&mut host, Moment::at(60_000));
    /// assert_eq!(later.cleanup(None), 0, "she has no lease");
    /// assert_eq!(later.cleanup(Some(60)), 0, "silent for 60 seconds, and not for more");
    /// assert_eq!(later.cleanup(Some(59)), 1);
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn cleanup(&mut self, idle_seconds: Option<u64>) -> usize {
        let mut cleaned = self.expire(usize::MAX);
        if let Some(idle_seconds) = idle_seconds {
            let now_ms = self.now.now_ms;
            let sessions = self.host.pool().iter();
            let idle = sessions.filter(|session| session.silent_seconds(now_ms) > idle_seconds);
            let idle: Vec<Box<[u8]>> = idle.map(|session| session.id().into()).collect();
            for session in &idle {
                self.commit(&Effect::freeing(session, Freed::Expired));
            }
            cleaned += idle.len();
        }
        self.serve();
        cleaned
    }

    /// Ends up to `limit` sessions whose leases have expired, and returns how many those were.
    /// [`Machine::serve`] is to follow. O(limit log n).
    pub fn expire(&mut self, limit: usize) -> usize {
        let expired = self.host.pool().expired(self.now, limit);
        let expired: Vec<Box<[u8]>> = expired.map(Box::from).collect();
        for session in &expired {
            self.commit(&Effect::freeing(session, Freed::Expired));
        }
        expired.len()
    }

    /// Sees to the tickets that end, then grants seats to those whose turn it is, takes those out
    /// of the queue whose owners have reached their limits by then, and returns how many were
    /// granted seats. O(m log n), where m is no more than [`Host::BATCH`] and the number of tickets
    /// in turn whose owners are limited, a thousand of these at most; O(1) while nobody waits.
    #[inline]
    pub fn serve(&mut self) -> usize {
        match self.queue().is_empty() {
            true => 0,
            false => self.serve_some(),
        }
    }

    /// Apart, so that a grant for which nobody waits does not call it.
    #[inline(never)]
    fn serve_some(&mut self) -> usize {
        let maintained = self.maintain_tickets();
        let (mut granted, mut served) = (0, 0);
        let mut may_reclaim = H::BATCH;
        while served < H::BATCH {
            if let Some(is_granted) = self.serve_next(&mut may_reclaim) {
                granted += usize::from(is_granted);
                served += 1;
                continue;
            }
            let left = self.drop_over_limit(H::BATCH - served);
            if left == 0 {
                break;
            }
            served += left;
        }
        if served == H::BATCH || maintained == H::BATCH {
            self.host.schedule(self.now.now_ms);
        }
        granted
    }

    /// Serves those ahead of a session whose turn it is as well, since time alone may have made it
    /// theirs, or more than one step serves: its grant must not shut them out. It stays the
    /// session's turn, since each of them counts for it already. Returns how many those were, or
    /// `None` if some are left.
    fn serve_ahead_of(&mut self, arrival: Option<u64>) -> Option<usize> {
        if self.host.blocked().is_empty() {
            return Some(0);
        }
        let mut may_reclaim = H::BATCH;
        for served in 0..H::BATCH {
            if !self.is_turn_ahead_of(arrival) {
                return Some(served);
            }
            self.serve_next(&mut may_reclaim)?;
        }
        if self.is_turn_ahead_of(arrival) {
            self.host.schedule(self.now.now_ms);
            return None;
        }
        Some(H::BATCH)
    }

    fn is_turn_ahead_of(&self, arrival: Option<u64>) -> bool {
        let next = self.next_turn();
        next.is_some_and(|next| arrival.is_none_or(|arrival| next.arrival() < arrival))
    }

    /// Who is to be served next.
    fn next_turn(&self) -> Option<&QueueEntry<Blocked<H::Client>>> {
        if self.host.serves_queue() {
            self.queue().next_turn()
        } else {
            None
        }
    }

    /// Takes the waiter whose turn it is out of the queue, and returns whether it was granted a
    /// seat. It gets none if its owner has reached its limit and it takes over from nobody. `None`
    /// if it is nobody's turn, or if more expired sessions are in its way than `may_reclaim`: then
    /// it waits on, and the host is to go on. What is reclaimed is taken from `may_reclaim`.
    fn serve_next(&mut self, may_reclaim: &mut usize) -> Option<bool> {
        let session: Box<[u8]> = self.next_turn()?.session().into();
        if self.is_holder(&session) {
            self.became_holder(&session);
            return Some(false);
        }
        let blocked = self.host.blocked();
        let entry = blocked.get(&session)?;
        let claim = entry.waiting.request.claim();
        let limit = self.limit_reached(&claim);
        let predecessor = match limit {
            Some((held, _)) => self.predecessor(&claim, held),
            None => None,
        };
        if let Some((held, max)) = limit.filter(|_| predecessor.is_none()) {
            let waiter = self.remove_client(&session)?;
            self.drop_ticket(&session);
            self.host.notice(Notice::OwnerLimit(waiter.wait()));
            self.host.wake(waiter, Outcome::OwnerLimit { held, max });
            return Some(false);
        }
        let seats = blocked.figure(entry);
        let expired = self.to_reclaim(&session, seats, &claim, predecessor, *may_reclaim);
        let Some(expired) = expired else {
            self.host.schedule(self.now.now_ms);
            return None;
        };
        *may_reclaim -= expired.len();
        let waiter = self.remove_client(&session)?;
        self.host.serving(&waiter);
        let lease = self.lease_of(&waiter);
        self.reclaim(&expired);
        let request = AcquireRequest {
            lease,
            claim: waiter.request.claim(),
            with_token: waiter.request.with_token,
            ..AcquireRequest::plain(&session, seats)
        };
        let granted = self.commit_grant(&request, &waiter.request.metadata, predecessor);
        self.host.notice(Notice::Served);
        self.host.wake(waiter, Outcome::Granted(granted));
        Some(true)
    }

    /// Takes those out of the queue who wait by tickets alone and whose turn it is, but whose
    /// owners have reached their limits, up to `limit` of them. Returns how many that were.
    fn drop_over_limit(&mut self, limit: usize) -> usize {
        if self.now.holds_grants || !self.host.serves_queue() {
            return 0;
        }
        let over = self.queue().over_limit(limit);
        let over: Vec<Box<[u8]>> = over.into_iter().map(Box::from).collect();
        for session in &over {
            if let Some(wait) = self.wait_of(session) {
                self.commit(&Effect::Leave { session });
                self.host.notice(Notice::OwnerLimit(wait.of(session)));
            }
        }
        over.len()
    }

    /// Removes tickets that are lost and renews those whose clients are still blocked, a bounded
    /// number of them, and returns how many that were.
    fn maintain_tickets(&mut self) -> usize {
        let soon_ms = self.now.now_ms.saturating_add_unsigned(SPARE_MS);
        let soon = self.now.moved_to(soon_ms);
        let ending = self.host.pool().lost_tickets(soon, H::BATCH);
        let ending: Vec<Box<[u8]>> = ending.map(Box::from).collect();
        let mut maintained = 0;
        for session in &ending {
            let is_lost = self.host.pool().ticket(self.now, session).is_none();
            let blocked = self.host.blocked().get(session);
            match blocked.map(|entry| entry.waiting.request.ticket_ms) {
                // The client is still there, so its position is kept without a poll.
                Some(Some(ticket_ms)) => self.renew_ticket(session, renewal_ms(ticket_ms)),
                // The client never asked for a ticket: it waits on without.
                Some(None) if is_lost => self.drop_ticket(session),
                None if is_lost => {
                    if let Some(wait) = self.wait_of(session) {
                        self.drop_ticket(session);
                        self.host.notice(Notice::Lost(wait.of(session)));
                    }
                }
                _ => continue,
            }
            maintained += 1;
        }
        maintained
    }

    /// When time alone will next change something here: a lease expires, or a ticket is lost or to
    /// be renewed. O(1).
    ///
    /// What a timer does, then:
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Lease, Machine, Moment, Outcome};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// let leased = AcquireRequest { lease: Lease::starting(0, 500), ..request(b"alice") };
    /// machine.acquire(&leased, &Always)?;
    /// let waiting = AcquireRequest { blocks: true, ..request(b"bob") };
    /// machine.acquire(&waiting, &Always)?;
    ///
    /// let next_ms = machine.next_change_ms().expect("there is a lease");
    /// let mut timer = Machine::new(&mut host, Moment::at(next_ms));
    /// assert_eq!((next_ms, timer.expire(64), timer.serve()), (500, 1, 1));
    /// assert!(matches!(host.heard[0], (_, Outcome::Granted(_))));
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn next_change_ms(&self) -> Option<i64> {
        let pool = self.host.pool();
        let ticket = pool.first_lost().map(|ticket| {
            let deadline_ms = self.now.effective(ticket.waiting.deadline_ms);
            let blocked = self.host.blocked().get(ticket.session());
            match blocked.and_then(|entry| entry.waiting.request.ticket_ms) {
                Some(_) => deadline_ms.saturating_sub_unsigned(SPARE_MS),
                None => deadline_ms,
            }
        });
        let lease = pool.earliest_expiry_ms(self.now);
        lease.into_iter().chain(ticket).min()
    }

    /// The wait of a client ends without an outcome. Returns its answer, or `None` if it is
    /// in the queue no longer. Changes the queue of clients only, and commits nothing. O(log n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Machine, Moment, WaitEnd};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// let waiting = AcquireRequest { blocks: true, ..request(b"bob") };
    /// machine.acquire(&waiting, &Always)?;
    /// assert_eq!(machine.end_wait(b"bob", &7), Some(WaitEnd::NoSeats { used: 1, seats: 1 }));
    /// assert_eq!(machine.end_wait(b"bob", &7), None);
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn end_wait(&mut self, session: &[u8], client: &H::Client) -> Option<WaitEnd> {
        let position = self.queue().position(session);
        let (_, blocked) = self.host.pool_and_blocked();
        let waiter = blocked.remove_client(session, client)?;
        self.schedule_serving();
        let used = self.used();
        if self.is_live(session) {
            // Without a lease and a token, since nothing may be written now.
            let answer = self.answer_holder(session, None, false);
            return Some(WaitEnd::AlreadyActive(answer));
        }
        let pool = self.host.pool();
        let has_ticket = pool.ticket(self.now, session).is_some();
        Some(match waiter.request.ticket_ms.filter(|_| has_ticket) {
            Some(ticket_ms) => WaitEnd::Queued {
                used,
                position: position.unwrap_or(1),
                seats: waiter.seats,
                ticket_ms,
            },
            None => {
                // A ticket that is lost leaves when it is removed.
                if !self.host.pool().has_ticket(session) {
                    self.host.notice(Notice::Left(waiter.wait()));
                }
                WaitEnd::NoSeats {
                    used,
                    seats: waiter.seats,
                }
            }
        })
    }

    /// Does what the end of a wait has left, once effects can be committed: a session that asked
    /// for a ticket keeps its position for `ticket_ms` from now on, and the queue is served. A host
    /// forgets this where the session has polled in between. O(log n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Machine, Moment, WaitEnd};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// let both = AcquireRequest { blocks: true, ticket_ms: Some(5_000), ..request(b"bob") };
    /// machine.acquire(&both, &Always)?;
    ///
    /// // Bob's call has waited for as long as it may, and he is to poll from now on.
    /// let mut machine = Machine::new(&mut host, Moment::at(2_000));
    /// let end = machine.end_wait(b"bob", &7);
    /// assert_eq!(end, Some(WaitEnd::Queued { used: 1, position: 1, seats: 1, ticket_ms: 5_000 }));
    /// machine.after_wait(b"bob", 5_000);
    /// let ticket = host.pool.ticket(Moment::at(2_000), b"bob").expect("it is valid");
    /// assert_eq!(ticket.waiting.deadline_ms, 7_000);
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn after_wait(&mut self, session: &[u8], ticket_ms: u64) {
        self.renew_ticket(session, ticket_ms);
        self.serve();
    }

    /// Frees the seat of a client that was gone when it was granted, unless it is free already, and
    /// serves the queue. A session that asked for a ticket as well has its position back. O(log n).
    ///
    /// ```
    /// # mod memory { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/memory.rs")); }
    /// # use memory::{Always, Memory, request};
    /// # use seat_pool::{AcquireRequest, Machine, Moment};
    /// let mut host = Memory::default();
    /// let mut machine = Machine::new(&mut host, Moment::at(0));
    /// machine.acquire(&request(b"alice"), &Always)?;
    /// let both = AcquireRequest { blocks: true, ticket_ms: Some(500), ..request(b"bob") };
    /// machine.acquire(&both, &Always)?;
    /// machine.release(b"alice", None);
    ///
    /// // Bob's client was gone before its answer could reach it.
    /// let (waiter, _) = host.heard.remove(0);
    /// Machine::new(&mut host, Moment::at(0)).take_back(&waiter);
    /// assert!(!host.pool.has_sessions());
    /// assert!(host.pool.ticket(Moment::at(499), b"bob").is_some());
    /// # Ok::<(), seat_pool::Refusal<()>>(())
    /// ```
    pub fn take_back(&mut self, waiter: &Waiter<H::Client>) {
        let session = &waiter.session;
        if !self.is_live(session) {
            return;
        }
        self.commit(&Effect::freeing(session, Freed::Released));
        let now_ms = self.now.now_ms;
        let ticket = waiter.request.ticket_ms.and_then(|ticket_ms| {
            let ticket = Ticket {
                since_ms: waiter.request.since_ms,
                length_ms: ticket_ms,
                deadline_ms: now_ms,
            };
            ticket.kept(now_ms, ticket_ms)
        });
        match ticket {
            Some(ticket) => self.commit(&Effect::Join(Join {
                session,
                seats: waiter.seats,
                arrival: waiter.arrival,
                ticket,
                claim: waiter.request.claim(),
            })),
            None => self.host.notice(Notice::Left(waiter.wait())),
        }
        self.serve();
    }

    /// Another pool is at the name: each blocked client gets the position that the tickets of
    /// this one give it. Commits nothing. O(n log n) in the blocked clients.
    pub fn pool_changed(&mut self) {
        let (pool, blocked) = self.host.pool_and_blocked();
        blocked.match_tickets(pool);
    }

    /// Answers blocked clients whose sessions hold seats of a pool that has come to the name, a
    /// bounded number of them. Returns whether some may be left. O(n) in the blocked clients.
    pub fn answer_holders(&mut self) -> bool {
        let holds = |session: &&[u8]| self.is_holder(session);
        let sessions = self.host.blocked().iter().map(QueueEntry::session);
        let holders: Vec<Box<[u8]>> = sessions
            .filter(holds)
            .take(H::BATCH)
            .map(Box::from)
            .collect();
        for session in &holders {
            self.became_holder(session);
        }
        holders.len() == H::BATCH
    }

    /// A session has come to hold a seat, in the pool or elsewhere, without an ACQUIRE: it leaves
    /// the queue, and its client, if one is blocked here, is answered so. [`Machine::serve`] is to
    /// follow. O(log n).
    pub fn became_holder(&mut self, session: &[u8]) {
        if !self.is_live(session) {
            // No effect has taken its ticket.
            self.drop_ticket(session);
        }
        if let Some(waiter) = self.remove_client(session) {
            self.wake_holder(waiter);
            self.schedule_serving();
        }
    }

    fn wake_holder(&mut self, waiter: Waiter<H::Client>) {
        let lease = self.lease_of(&waiter);
        let with_token = waiter.request.with_token;
        if (lease.is_some() || with_token) && !self.is_live(&waiter.session) {
            return self.host.wake(waiter, Outcome::HeldElsewhere);
        }
        let answer = self.answer_holder(&waiter.session, lease, with_token);
        self.host.wake(waiter, Outcome::AlreadyActive(answer));
    }

    /// Gives a session that holds a seat the lease and the token that it asks for.
    fn answer_holder(
        &mut self,
        session: &[u8],
        lease: Option<Lease>,
        with_token: bool,
    ) -> AlreadyActive {
        if let Some(lease) = lease {
            self.commit(&Effect::Renew { session, lease });
        }
        let token = with_token.then(|| self.host.next_token());
        if let Some(token) = token {
            self.commit(&Effect::Token { session, token });
        }
        if lease.is_none() && token.is_none() {
            self.host.confirm(session);
        }
        AlreadyActive {
            used: self.used(),
            renewed: lease,
            token,
        }
    }

    fn lease_of(&self, waiter: &Waiter<H::Client>) -> Option<Lease> {
        let length_ms = waiter.request.lease_ms?;
        Lease::starting(self.now.now_ms, length_ms)
    }

    /// Takes the client of `session` out of the queue, if one is blocked there, and answers it
    /// that there is no seat for it.
    fn deny_client(&mut self, session: &[u8]) {
        if let Some(waiter) = self.remove_client(session) {
            self.host.wake(waiter, Outcome::NoSeats);
        }
    }

    /// Takes `session` out of the queue, ticket and client.
    fn leave(&mut self, session: &[u8]) {
        if self.host.pool().tickets() == 0 && self.host.blocked().is_empty() {
            return;
        }
        if let Some(wait) = self.wait_of(session) {
            self.deny_client(session);
            self.drop_ticket(session);
            self.host.notice(Notice::Left(wait.of(session)));
        }
    }

    /// The wait of a session, by its client or its ticket, lost or not.
    #[inline(never)]
    fn wait_of(&self, session: &[u8]) -> Option<KeptWait> {
        let (pool, blocked) = (self.host.pool(), self.host.blocked());
        if let Some(entry) = blocked.get(session) {
            let request = &entry.waiting.request;
            return Some(KeptWait {
                seats: blocked.figure(entry),
                since_ms: request.since_ms,
                claim: request.claim.clone(),
            });
        }
        let ticket = pool.any_ticket(session)?;
        Some(KeptWait {
            seats: pool.figure_of(ticket),
            since_ms: ticket.waiting.since_ms,
            claim: pool.claim_of(ticket).kept(),
        })
    }

    /// Takes the ticket of `session`, whose client stays where it is.
    fn drop_ticket(&mut self, session: &[u8]) {
        if self.host.pool().has_ticket(session) {
            self.commit(&Effect::Leave { session });
        }
    }

    /// Has the ticket of `session` be valid for `valid_ms` from now on, lost or not.
    fn renew_ticket(&mut self, session: &[u8], valid_ms: u64) {
        let pool = self.host.pool();
        let kept = pool.any_ticket(session).and_then(|entry| {
            let ticket = entry.waiting.kept(self.now.now_ms, valid_ms)?;
            let claim = pool.claim_of(entry).kept();
            Some((pool.figure_of(entry), entry.arrival(), ticket, claim))
        });
        if let Some((seats, arrival, ticket, claim)) = kept {
            self.commit(&Effect::Join(Join {
                session,
                seats,
                arrival,
                ticket,
                claim: KeptClaim::or_plain(claim.as_deref()),
            }));
        }
    }

    fn remove_client(&mut self, session: &[u8]) -> Option<Waiter<H::Client>> {
        if self.host.blocked().is_empty() {
            return None;
        }
        self.host.pool_and_blocked().1.remove(session)
    }

    /// Somebody has left the queue, so it may be the turn of others.
    fn schedule_serving(&mut self) {
        if !self.queue().is_empty() {
            self.host.schedule(self.now.now_ms);
        }
    }

    /// The slots of the expired sessions to reclaim before a grant: of those that a floor that is
    /// raised later must not have stand above the grant's figure or the limit of its owner, with
    /// it. `None` if they are more than `limit`. O(1) where none has expired, else O(limit + log
    /// n).
    fn to_reclaim(
        &self,
        session: &[u8],
        seats: i64,
        claim: &Claim<'_>,
        predecessor: Option<u32>,
        limit: usize,
    ) -> Option<Vec<u32>> {
        let seats = u64::try_from(seats).unwrap_or(0);
        let pool = self.host.pool();
        let taken = pool
            .used_by_all()
            .saturating_add(self.host.taken_elsewhere());
        let needed = taken.saturating_add(claim.weight.into());
        let excess = needed.saturating_sub(seats);
        if excess == 0 && claim.max_per_owner.is_none() {
            return Some(Vec::new());
        }
        self.expired_above(session, excess, claim, predecessor, limit)
    }

    /// Those who make up `excess` seats, and those above the limit of the owner, the earliest
    /// deadlines first.
    #[inline(never)]
    fn expired_above(
        &self,
        session: &[u8],
        mut excess: u64,
        claim: &Claim<'_>,
        predecessor: Option<u32>,
        limit: usize,
    ) -> Option<Vec<u32>> {
        let pool = self.host.pool();
        let mut above = Vec::new();
        if pool.expired_slots(self.now).next().is_none() {
            return Some(above);
        }
        // What is left of the session there is replaced, too.
        let own = pool.slot_of(session);
        for slot in own.into_iter().chain(predecessor) {
            excess = excess.saturating_sub(pool.weight_at(slot).into());
        }
        if let Some((owner, max)) = claim.owner.zip(claim.max_per_owner) {
            let held = pool.held_by_all(owner) + 1 - u64::from(predecessor.is_some());
            let over = held.saturating_sub(max);
            let expired = pool.expired_of(self.now, owner);
            let over = usize::try_from(over).unwrap_or(usize::MAX);
            above.extend(expired.take(over.min(limit.saturating_add(1))));
            if above.len() > limit {
                return None;
            }
            // Its own is accounted for.
            let others = above.iter().filter(|&&slot| Some(slot) != own);
            let freed: u64 = others.map(|&slot| u64::from(pool.weight_at(slot))).sum();
            excess = excess.saturating_sub(freed);
        }
        let of_owner = above.len();
        for slot in pool.expired_slots(self.now) {
            if excess == 0 {
                break;
            }
            if Some(slot) == own || above[..of_owner].contains(&slot) {
                continue;
            }
            if above.len() == limit {
                return None;
            }
            above.push(slot);
            excess = excess.saturating_sub(pool.weight_at(slot).into());
        }
        Some(above)
    }

    /// Carries out an effect, and has the blocked queue know the ticket that a session has by it.
    fn commit(&mut self, effect: &Effect<'_>) {
        self.host.commit(effect);
        let (Effect::Join(Join { session, .. }) | Effect::Leave { session }) = effect else {
            return;
        };
        if !self.host.blocked().is_empty() {
            let (pool, blocked) = self.host.pool_and_blocked();
            blocked.match_ticket(session, pool);
        }
    }
}
