//! The state machine against a model that is too simple to be wrong: a list in the order of
//! arrival, searched from end to end.
//!
//! Random histories at two names. Pools are renamed, copied, swapped and deleted between them,
//! while blocked clients stay with their names. What runs is the machine that ships; its host is a
//! plain struct. The model keeps the same state naively, from the effects, and each grant is held
//! against the rule as `docs/design.md` states it. After each step all answers must agree and the
//! promises of the queue must hold: nobody gets past it, no seat is idle while it is somebody's
//! turn, no kept seat is given away, tickets are lost on time, no grant lifts the seats that are
//! taken above its own figure or an owner above its limit, not even once expired sessions are live
//! again, a takeover ends the session that it must and no other, tokens rise, a void one changes
//! nothing, and each client is told once.
//!
//! `SEAT_TRUST=full` tries ten thousand histories.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::{env, fmt};

use proptest::prelude::*;
use seat_pool::{
    AcquireRequest, Acquired, Applied, BlockedQueue, Claim, Conditions, Decoder, Effect, Freed,
    Grant, HeartbeatOutcome, Holder, Host, Import, Lease, MAX_FIGURES, MAX_WEIGHT, Machine,
    Metadata, Moment, Notice, Outcome, Pool, Queue, Refusal, Session, Ticket, Wait, WaitEnd,
    Waiter,
};

/// Sessions, few enough to meet often.
const IDS: usize = 10;

/// Waiters that one step serves at most, and expired sessions that it reclaims for grants; small,
/// so that histories reach it.
const BATCH: usize = 2;

/// The ticket of a blocked client is renewed when it has only so long left, and valid for so long
/// more than its own time.
const SPARE_MS: u64 = 1000;

/// Owners, few enough to reach their limits.
const OWNERS: [&[u8]; 3] = [b"ada", b"bo", b"cy"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Metadata,
    Memory,
    /// Its client cannot be blocked.
    Blocking,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    id: usize,
    seats: i64,
    lease_ms: Option<u64>,
    ticket_ms: Option<u64>,
    blocks: bool,
    claim: Claim<'static>,
    with_token: bool,
    fault: Option<Fault>,
    longest_queue: usize,
}

/// Which token a call states, if it states one.
#[derive(Clone, Copy, Debug)]
enum Stated {
    Nothing,
    /// The session's own, or a void one if it has none.
    Present,
    Void,
}

impl Call {
    fn waits(self) -> bool {
        self.blocks || self.ticket_ms.is_some()
    }

    fn is_blocked(self) -> bool {
        self.blocks && self.fault != Some(Fault::Blocking)
    }
}

impl<'a> Conditions<'a> for Call {
    type Error = Fault;

    fn metadata(&self) -> Result<Metadata<'a>, Fault> {
        self.unless(Fault::Metadata).map(|()| Metadata::NONE)
    }

    fn memory(&self) -> Result<(), Fault> {
        self.unless(Fault::Memory)
    }
}

impl Call {
    fn unless(&self, fault: Fault) -> Result<(), Fault> {
        match self.fault {
            Some(other) if other == fault => Err(fault),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
enum Step {
    Acquire(usize, Call),
    Release(usize, usize, Stated),
    Revoke(usize, usize, usize),
    RevokeOwner(usize, usize),
    Heartbeat(usize, usize, Option<u64>, Stated),
    Resize(usize, i64),
    Cleanup(usize),
    Import(usize, usize),
    /// Others than the pool's sessions take so many seats from now on.
    Elsewhere(usize, u64),
    /// A session comes to hold one of such seats, or gives it back.
    HoldsElsewhere(usize, usize),
    TimeOut(usize, usize),
    /// The client's connection breaks, and the server has not noticed.
    Dies(usize, usize),
    Disconnects(usize, usize),
    Tick,
    ClockMoves(i64),
    /// The clock moves to the next deadline at a name, to the millisecond.
    NextDeadline(usize),
    /// No lease expires and no ticket is lost for so long from now on.
    Floor(i64),
    Hold(bool),
    RenameFrom(usize),
    CopyFrom(usize),
    Swap,
    Delete(usize),
    /// The value moves to where nobody knows of those who wait here. The timer tells them.
    Departs(usize),
}

/// As the command would be typed, one line a step, so that a history can be read and replayed.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Acquire(at, call) => {
                write!(f, "ACQUIRE k{at} s{} {}", call.id, call.seats)?;
                for (option, ms) in [("PX", call.lease_ms), ("QUEUE", call.ticket_ms)] {
                    if let Some(ms) = ms {
                        write!(f, " {option} {ms}")?;
                    }
                }
                f.write_str(if call.blocks { " BLOCK 0" } else { "" })?;
                let claim = call.claim;
                if claim.weight > 1 {
                    write!(f, " WEIGHT {}", claim.weight)?;
                }
                if let Some(owner) = claim.owner {
                    write!(f, " OWNER {}", owner.escape_ascii())?;
                }
                if let Some(max) = claim.max_per_owner {
                    write!(f, " MAX {max}")?;
                }
                f.write_str(if claim.takeover { " TAKEOVER" } else { "" })?;
                f.write_str(if call.with_token { " WITHTOKEN" } else { "" })?;
                if let Some(fault) = call.fault {
                    write!(f, " ({fault:?})")?;
                }
                write!(f, " (longest queue {})", call.longest_queue)
            }
            Step::Release(at, id, token) => write!(f, "RELEASE k{at} s{id} {token:?}"),
            Step::Revoke(at, one, other) => write!(f, "REVOKE k{at} s{one} s{other}"),
            Step::RevokeOwner(at, owner) => {
                write!(f, "REVOKEOWNER k{at} {}", OWNERS[owner].escape_ascii())
            }
            Step::Heartbeat(at, id, ms, token) => {
                write!(f, "HEARTBEAT k{at} s{id} {ms:?} {token:?}")
            }
            Step::Resize(at, seats) => write!(f, "RESIZE k{at} {seats}"),
            Step::Cleanup(at) => write!(f, "CLEANUP k{at}"),
            Step::Import(at, id) => write!(f, "s{id} is adopted at k{at}"),
            Step::Elsewhere(at, taken) => write!(f, "{taken} seats of k{at} are taken elsewhere"),
            Step::HoldsElsewhere(at, id) => {
                write!(f, "s{id} holds a seat of k{at} elsewhere, or no longer")
            }
            Step::TimeOut(at, id) => write!(f, "BLOCK of s{id} at k{at} times out"),
            Step::Dies(at, id) => write!(f, "the client of s{id} at k{at} dies unnoticed"),
            Step::Disconnects(at, id) => write!(f, "the client of s{id} at k{at} disconnects"),
            Step::Tick => f.write_str("the timer comes"),
            Step::ClockMoves(by_ms) => write!(f, "the clock moves by {by_ms} ms"),
            Step::NextDeadline(at) => write!(f, "the clock moves to the next deadline of k{at}"),
            Step::Floor(for_ms) => write!(f, "nothing expires for {for_ms} ms"),
            Step::Hold(holds) => write!(f, "grants are held: {holds}"),
            Step::RenameFrom(from) => write!(f, "RENAME k{from} k{}", 1 - from),
            Step::CopyFrom(from) => write!(f, "COPY k{from} k{} REPLACE", 1 - from),
            Step::Swap => f.write_str("k0 and k1 swap their values"),
            Step::Delete(at) => write!(f, "DEL k{at}"),
            Step::Departs(at) => write!(f, "MIGRATE k{at}"),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let at = || prop_oneof![4 => Just(0usize), 1 => Just(1)];
    let id = || 0..IDS;
    let optional_ms = || prop::option::weighted(0.4, 1..2500u64);
    let figure = || prop_oneof![12 => 0..5i64, 2 => -1..20i64, 1 => Just(i64::MAX)];
    let fault = prop_oneof![
        20 => Just(None),
        1 => Just(Some(Fault::Metadata)),
        1 => Just(Some(Fault::Memory)),
        1 => Just(Some(Fault::Blocking)),
    ];
    let longest = prop_oneof![5 => Just(100usize), 1 => 0..5usize];
    let waits = (optional_ms(), any::<bool>());
    let asks = (claim(), prop::bool::weighted(0.3));
    let call = (id(), figure(), optional_ms(), waits, asks, fault, longest);
    let call = call.prop_map(
        |(id, seats, lease_ms, (ticket_ms, blocks), (claim, with_token), fault, longest_queue)| {
            Call {
                id,
                seats,
                lease_ms,
                ticket_ms,
                blocks,
                claim,
                with_token,
                fault,
                longest_queue,
            }
        },
    );
    let token = || {
        prop_oneof![
            3 => Just(Stated::Nothing),
            2 => Just(Stated::Present),
            1 => Just(Stated::Void),
        ]
    };
    let anywhere = || (at(), id());
    prop_oneof![
        24 => (at(), call).prop_map(|(at, call)| Step::Acquire(at, call)),
        8 => (anywhere(), token()).prop_map(|((at, id), token)| Step::Release(at, id, token)),
        1 => (at(), 0..OWNERS.len()).prop_map(|(at, owner)| Step::RevokeOwner(at, owner)),
        1 => (anywhere(), id()).prop_map(|((at, one), other)| Step::Revoke(at, one, other)),
        3 => (anywhere(), optional_ms(), token())
            .prop_map(|((at, id), ms, token)| Step::Heartbeat(at, id, ms, token)),
        2 => (at(), figure()).prop_map(|(at, seats)| Step::Resize(at, seats)),
        1 => at().prop_map(Step::Cleanup),
        1 => anywhere().prop_map(|(at, id)| Step::Import(at, id)),
        1 => (at(), 0..3u64).prop_map(|(at, taken)| Step::Elsewhere(at, taken)),
        2 => anywhere().prop_map(|(at, id)| Step::HoldsElsewhere(at, id)),
        2 => anywhere().prop_map(|(at, id)| Step::TimeOut(at, id)),
        2 => anywhere().prop_map(|(at, id)| Step::Dies(at, id)),
        2 => anywhere().prop_map(|(at, id)| Step::Disconnects(at, id)),
        6 => Just(Step::Tick),
        5 => (-300..900i64).prop_map(Step::ClockMoves),
        3 => at().prop_map(Step::NextDeadline),
        1 => (1..900i64).prop_map(Step::Floor),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => at().prop_map(Step::RenameFrom),
        1 => at().prop_map(Step::CopyFrom),
        1 => Just(Step::Swap),
        1 => at().prop_map(Step::Delete),
        1 => at().prop_map(Step::Departs),
    ]
}

/// Half of them plain.
fn claim() -> impl Strategy<Value = Claim<'static>> {
    let weight = || prop_oneof![8 => Just(1u32), 8 => 2..4u32, 1 => 4..9u32, 1 => Just(MAX_WEIGHT)];
    let limit = prop::option::weighted(0.8, (1..4u64, any::<bool>()));
    let owned = (0..OWNERS.len(), limit, weight()).prop_map(|(owner, limit, weight)| Claim {
        owner: Some(OWNERS[owner]),
        max_per_owner: limit.map(|(max, _)| max),
        takeover: limit.is_some_and(|(_, takeover)| takeover),
        weight,
    });
    let unowned = weight().prop_map(|weight| Claim {
        weight,
        ..Claim::PLAIN
    });
    prop_oneof![4 => Just(Claim::PLAIN), 2 => unowned, 4 => owned]
}

/// The same claim, of one of [`OWNERS`].
fn known(claim: Claim<'_>) -> Claim<'static> {
    let Claim {
        owner,
        max_per_owner,
        takeover,
        weight,
    } = claim;
    Claim {
        owner: owner.map(known_owner),
        max_per_owner,
        takeover,
        weight,
    }
}

fn known_owner(owner: &[u8]) -> &'static [u8] {
    let mut owners = OWNERS.into_iter();
    owners
        .find(|other| *other == owner)
        .expect("an owner of this test")
}

fn bytes_of(id: usize) -> Vec<u8> {
    format!("s{id}").into_bytes()
}

fn id_of(session: &[u8]) -> usize {
    let text = std::str::from_utf8(session).expect("an id of this test");
    text[1..].parse().expect("an id of this test")
}

/// An entry of the model's queue: a ticket, a blocked client or both.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: usize,
    arrival: u64,
    /// The ticket, the figure that it states, and what it asks for.
    ticket: Option<(Ticket, i64, Claim<'static>)>,
    client: Option<Client>,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    number: u32,
    since_ms: i64,
    figure: i64,
    call: Call,
}

/// A session, live or not.
#[derive(Clone, Copy, Debug)]
struct Held {
    lease: Option<Lease>,
    acquired_at: Option<u32>,
    last_heartbeat: Option<u32>,
    owner: Option<&'static [u8]>,
    weight: u32,
    token: Option<u64>,
    /// The lowest number that no other session had when it came.
    slot: usize,
}

impl Held {
    /// The last sign of life, in milliseconds.
    fn heard_ms(&self) -> Option<i64> {
        let seconds = [self.acquired_at, self.last_heartbeat]
            .into_iter()
            .flatten();
        let renewed = self
            .lease
            .map(|lease| lease.deadline_ms - lease.length_ms as i64);
        seconds
            .map(|seconds| i64::from(seconds) * 1000)
            .chain(renewed)
            .max()
    }
}

/// What a call of a session that holds no seat comes to by the seats and its owner's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    InTurn,
    /// From this session; whether those ahead come first.
    TakesOver(usize, bool),
    Full,
    OwnerLimit,
}

impl Entry {
    fn has_valid_ticket(&self, now: Moment) -> bool {
        self.ticket
            .is_some_and(|(ticket, ..)| now.now_ms < ticket.deadline_ms.max(now.floor_ms))
    }

    fn waits(&self, now: Moment) -> bool {
        self.client.is_some() || self.has_valid_ticket(now)
    }

    /// What its client states, or else its ticket.
    fn figure(&self) -> i64 {
        let client = self.client.map(|client| client.figure);
        let ticket = self.ticket.map(|(_, figure, _)| figure);
        client.or(ticket).expect("it is one or the other")
    }

    /// The same of what it asks for.
    fn claim(&self) -> Claim<'static> {
        let client = self.client.map(|client| client.call.claim);
        let ticket = self.ticket.map(|(.., claim)| claim);
        client.or(ticket).expect("it is one or the other")
    }

    /// What is said of it when it leaves.
    fn wait<'a>(&self, session: &'a [u8]) -> Wait<'a> {
        let client = self.client.map(|client| client.since_ms);
        let ticket = self.ticket.map(|(ticket, ..)| ticket.since_ms);
        Wait {
            session,
            seats: self.figure(),
            since_ms: client.or(ticket).expect("it is one or the other"),
            claim: self.claim(),
        }
    }

    fn since_ms(&self, now: Moment) -> i64 {
        let ticket = self.ticket.filter(|_| self.has_valid_ticket(now));
        let client = self.client.map(|client| client.since_ms);
        ticket
            .map(|(ticket, ..)| ticket.since_ms)
            .or(client)
            .unwrap()
    }
}

/// What there is at a name, in the simplest form.
#[derive(Clone, Debug, Default)]
struct Model {
    seats: i64,
    sessions: BTreeMap<usize, Held>,
    queue: Vec<Entry>,
    /// Entries that have left the queue in this step, or their tickets or clients, as they were.
    left: BTreeMap<usize, Entry>,
    /// Seats that are taken elsewhere by nobody of these sessions.
    elsewhere: u64,
    /// Who holds such a seat.
    holders_elsewhere: BTreeSet<usize>,
}

impl Model {
    fn exists(&self) -> bool {
        !self.sessions.is_empty() || self.queue.iter().any(|entry| entry.ticket.is_some())
    }

    fn is_live(&self, now: Moment, id: usize) -> bool {
        self.sessions.get(&id).is_some_and(|held| {
            let lease = held.lease;
            lease.is_none_or(|lease| now.now_ms < lease.deadline_ms.max(now.floor_ms))
        })
    }

    fn live(&self, now: Moment) -> impl Iterator<Item = (usize, Held)> {
        let sessions = self.sessions.iter().map(|(&id, &held)| (id, held));
        sessions.filter(move |&(id, _)| self.is_live(now, id))
    }

    fn count(&self, now: Moment) -> usize {
        self.live(now).count()
    }

    fn used(&self, now: Moment) -> u64 {
        self.live(now).map(|(_, held)| u64::from(held.weight)).sum()
    }

    fn owned(&self, now: Moment, owner: &[u8]) -> impl Iterator<Item = (usize, Held)> {
        let live = self.live(now);
        live.filter(move |(_, held)| held.owner == Some(owner))
    }

    /// The session of an owner that has been silent for the longest.
    fn most_silent(&self, now: Moment, owner: &[u8]) -> Option<(usize, Held)> {
        let owned = self.owned(now, owner);
        owned.min_by_key(|(_, held)| (held.heard_ms(), held.slot))
    }

    /// The live sessions of an owner and the limit, if it is reached.
    fn limit_reached(&self, now: Moment, claim: Claim<'_>) -> Option<(u64, u64)> {
        let max = claim.max_per_owner?;
        let held = self.owned(now, claim.owner?).count() as u64;
        (held >= max).then_some((held, max))
    }

    /// Whom one with this claim may take over from.
    fn predecessor(&self, now: Moment, claim: Claim<'_>) -> Option<(usize, Held)> {
        let held = self.owned(now, claim.owner?).count() as u64;
        if !claim.takeover || held > claim.max_per_owner? {
            return None;
        }
        self.most_silent(now, claim.owner?)
    }

    fn judge(&self, now: Moment, call: &Call, arrival: Option<u64>) -> Verdict {
        let limit = self.limit_reached(now, call.claim);
        let weight = i64::from(call.claim.weight);
        let in_turn = self.may_have_seats(now, call.seats, weight, arrival);
        if limit.is_none() && in_turn && !now.holds_grants {
            return Verdict::InTurn;
        }
        if let Some((from, held)) = self.predecessor(now, call.claim) {
            let more = weight - i64::from(held.weight);
            if self.taken(now) + more <= call.seats {
                let in_turn = more <= 0 || self.may_have_seats(now, call.seats, more, arrival);
                return match in_turn && !now.holds_grants {
                    true => Verdict::TakesOver(from, more > 0),
                    false => Verdict::Full,
                };
            }
        }
        match limit {
            Some(_) => Verdict::OwnerLimit,
            None => Verdict::Full,
        }
    }

    fn next_deadline_ms(&self, now: Moment) -> Option<i64> {
        let leases = self
            .sessions
            .values()
            .filter_map(|held| held.lease)
            .map(|lease| lease.deadline_ms);
        let tickets = self.queue.iter().filter_map(|entry| entry.ticket);
        let deadlines = leases.chain(tickets.map(|(ticket, ..)| ticket.deadline_ms));
        let effective = deadlines.map(|deadline_ms| deadline_ms.max(now.floor_ms));
        effective
            .filter(|&deadline_ms| deadline_ms > now.now_ms)
            .min()
    }

    fn taken(&self, now: Moment) -> i64 {
        self.used(now) as i64 + self.taken_elsewhere() as i64
    }

    fn taken_elsewhere(&self) -> u64 {
        self.elsewhere + self.holders_elsewhere.len() as u64
    }

    fn holds_elsewhere(&self, now: Moment, id: usize) -> bool {
        self.holders_elsewhere.contains(&id) && !self.is_live(now, id)
    }

    fn waiting(&self, now: Moment) -> Vec<Entry> {
        let entries = self.queue.iter().copied();
        entries.filter(|entry| entry.waits(now)).collect()
    }

    fn index(&self, now: Moment, id: usize) -> Option<usize> {
        self.waiting(now).iter().position(|entry| entry.id == id)
    }

    /// "used + the weights of those ahead that are not shut out + its own weight <= its figure".
    fn may_have_seats(&self, now: Moment, figure: i64, weight: i64, arrival: Option<u64>) -> bool {
        let taken = self.taken(now);
        let is_shut_out = |figure: i64, weight: i64| taken >= figure || weight > figure;
        let mut ahead = 0;
        for entry in self.waiting(now) {
            let its_weight = i64::from(entry.claim().weight);
            if arrival.is_none_or(|arrival| entry.arrival < arrival)
                && !is_shut_out(entry.figure(), its_weight)
            {
                ahead += its_weight;
            }
        }
        !is_shut_out(figure, weight) && taken + ahead + weight <= figure
    }

    fn is_turn_of(&self, now: Moment, entry: &Entry) -> bool {
        let weight = entry.claim().weight.into();
        self.may_have_seats(now, entry.figure(), weight, Some(entry.arrival))
    }

    /// Whether a ticket is to leave the queue: nobody is blocked for its session, it is its turn,
    /// its owner has reached its limit, and it can take over from nobody.
    fn is_over_limit(&self, now: Moment, entry: &Entry) -> bool {
        entry.client.is_none()
            && entry.has_valid_ticket(now)
            && self.limit_reached(now, entry.claim()).is_some()
            && self.predecessor(now, entry.claim()).is_none()
            && self.is_turn_of(now, entry)
    }

    fn over_limit(&self, now: Moment) -> Option<usize> {
        let mut entries = self.queue.iter();
        let entry = entries.find(|entry| self.is_over_limit(now, entry))?;
        Some(entry.id)
    }

    /// The blocked client that is to be served next.
    fn next_turn(&self, now: Moment) -> Option<usize> {
        let waiting = self.waiting(now).into_iter();
        let mut clients = waiting.filter(|entry| entry.client.is_some());
        clients
            .find(|entry| self.is_turn_of(now, entry))
            .map(|entry| entry.id)
    }

    /// The blocked client whose turn it is before that of somebody who has waited since `arrival`,
    /// or who comes now.
    fn next_turn_ahead_of(&self, now: Moment, arrival: Option<u64>) -> Option<usize> {
        let next = self.next_turn(now)?;
        let entry = self.queue.iter().find(|entry| entry.id == next)?;
        arrival
            .is_none_or(|arrival| entry.arrival < arrival)
            .then_some(next)
    }

    /// The expired sessions that would stand above the limits with a session that is granted its
    /// seats, if they were live: those of its owner, and then of all, the earliest deadlines first.
    fn above_limits(
        &self,
        now: Moment,
        id: usize,
        figure: i64,
        claim: Claim<'_>,
        from: Option<usize>,
    ) -> BTreeSet<usize> {
        let sessions = || self.sessions.iter().map(|(&id, &held)| (id, held));
        let mut expired: Vec<_> = sessions()
            .filter(|&(id, _)| !self.is_live(now, id))
            .collect();
        expired.sort_by_key(|(_, held)| (held.lease.unwrap().deadline_ms, held.slot));
        let mut above = BTreeSet::new();
        if let Some((owner, max)) = claim.owner.zip(claim.max_per_owner) {
            let is_owned = |held: &Held| held.owner == Some(owner);
            let all = sessions().filter(|(_, held)| is_owned(held)).count();
            let over = (all + 1 - usize::from(from.is_some())).saturating_sub(max as usize);
            let owned = expired.iter().filter(|(_, held)| is_owned(held));
            above.extend(owned.take(over).map(|&(other, _)| other));
        }
        for (other, _) in expired {
            let stays = |&(other, _): &(usize, Held)| {
                other != id && Some(other) != from && !above.contains(&other)
            };
            let stay = sessions().filter(stays);
            let stay: i64 = stay.map(|(_, held)| i64::from(held.weight)).sum();
            let all = stay + self.taken_elsewhere() as i64 + i64::from(claim.weight);
            if all > figure && other != id {
                above.insert(other);
            }
        }
        above
    }

    /// The same for a blocked client whose turn it is.
    fn above_limits_of_waiter(&self, now: Moment, id: usize) -> BTreeSet<usize> {
        let entry = self.queue.iter().find(|entry| entry.id == id);
        let entry = entry.expect("it waits");
        let claim = entry.claim();
        let is_holder = self.is_live(now, id) || self.holds_elsewhere(now, id);
        let is_limited = self.limit_reached(now, claim).is_some();
        let from = self.predecessor(now, claim).filter(|_| is_limited);
        if is_holder || (is_limited && from.is_none()) {
            return BTreeSet::new();
        }
        self.above_limits(now, id, entry.figure(), claim, from.map(|(from, _)| from))
    }

    /// What is there once as many of them are served as one step can, and whether those are all.
    fn with_those_ahead_served(&self, now: Moment, arrival: Option<u64>) -> (Model, bool) {
        let mut model = self.clone();
        let mut reclaimed = 0;
        for _ in 0..BATCH {
            let Some(next) = model.next_turn_ahead_of(now, arrival) else {
                return (model, true);
            };
            let above = model.above_limits_of_waiter(now, next);
            reclaimed += above.len();
            if reclaimed > BATCH {
                return (model, false);
            }
            model.sessions.retain(|id, _| !above.contains(id));
            model.serve(now, next);
        }
        let left = model.next_turn_ahead_of(now, arrival);
        (model, left.is_none())
    }

    /// Serves a blocked client whose turn it is, as far as it matters to others.
    fn serve(&mut self, now: Moment, id: usize) {
        let client = self.entry(id).and_then(|entry| entry.client);
        let call = client.expect("a blocked client").call;
        self.drop_client(id);
        if self.is_live(now, id) || self.holds_elsewhere(now, id) {
            return;
        }
        self.drop_ticket(id);
        if self.limit_reached(now, call.claim).is_some() {
            let Some((from, _)) = self.predecessor(now, call.claim) else {
                return;
            };
            self.sessions.remove(&from);
        }
        let seconds = Some((now.now_ms / 1000) as u32);
        let lease = call.lease_ms.and_then(|ms| Lease::starting(now.now_ms, ms));
        self.hold(id, lease, [seconds, seconds], call.claim, None);
    }

    /// Has a session hold seats.
    fn hold(
        &mut self,
        id: usize,
        lease: Option<Lease>,
        [acquired_at, last_heartbeat]: [Option<u32>; 2],
        claim: Claim<'static>,
        token: Option<u64>,
    ) {
        let taken: BTreeSet<usize> = self.sessions.values().map(|held| held.slot).collect();
        let slot = (0..).find(|slot| !taken.contains(slot)).expect("a number");
        let held = Held {
            lease,
            acquired_at,
            last_heartbeat,
            owner: claim.owner,
            weight: claim.weight,
            token,
            slot,
        };
        self.sessions.insert(id, held);
    }

    /// The seats that are kept for tickets.
    fn kept(&self, now: Moment) -> u64 {
        let waiting = self.waiting(now).into_iter();
        let tickets = waiting.filter(|entry| entry.client.is_none());
        let in_turn = tickets.filter(|entry| self.is_turn_of(now, entry));
        in_turn.map(|entry| u64::from(entry.claim().weight)).sum()
    }

    /// Whether `id` may state this figure with no more than the most different ones among those who
    /// wait.
    fn has_room_for(&self, now: Moment, id: usize, figure: i64) -> bool {
        let mut others = BTreeSet::new();
        for entry in self.waiting(now) {
            if entry.id != id {
                others.extend(entry.client.map(|client| client.figure));
                others.extend(entry.ticket.map(|(_, figure, _)| figure));
            }
        }
        others.len() < MAX_FIGURES || others.contains(&figure)
    }

    fn entry(&mut self, id: usize) -> Option<&mut Entry> {
        self.queue.iter_mut().find(|entry| entry.id == id)
    }

    /// The entry of `id`, at `arrival`: the one it has, or a new one.
    fn entry_at(&mut self, id: usize, arrival: u64) -> &mut Entry {
        match self.entry(id) {
            Some(entry) => entry.arrival = arrival,
            None => self.queue.push(Entry {
                id,
                arrival,
                ticket: None,
                client: None,
            }),
        }
        self.queue.sort_by_key(|entry| entry.arrival);
        self.entry(id).unwrap()
    }

    fn drop_ticket(&mut self, id: usize) {
        self.reduce(id, |entry| entry.ticket = None);
    }

    fn drop_client(&mut self, id: usize) {
        self.reduce(id, |entry| entry.client = None);
    }

    fn reduce(&mut self, id: usize, reduce: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entry(id) {
            let before = *entry;
            reduce(entry);
            self.left.entry(id).or_insert(before);
        }
        self.forget_empty_entries();
    }

    /// An entry that leaves the queue or has just left it, as it was.
    fn leaving(&self, id: usize) -> Option<Entry> {
        let mut queue = self.queue.iter();
        let waits = || queue.find(|entry| entry.id == id).copied();
        self.left.get(&id).copied().or_else(waits)
    }

    fn forget_empty_entries(&mut self) {
        self.queue
            .retain(|entry| entry.client.is_some() || entry.ticket.is_some());
    }

    fn apply(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Grant(grant) | Effect::Import(grant) => {
                let id = id_of(grant.session);
                let Holder {
                    owner,
                    weight,
                    token,
                } = grant.holder;
                let claim = Claim {
                    owner: owner.map(known_owner),
                    weight,
                    ..Claim::PLAIN
                };
                let times = [grant.acquired_at, grant.last_heartbeat];
                self.hold(id, grant.lease, times, claim, token);
                if let Some(replaced) = grant.replaces {
                    self.sessions.remove(&id_of(replaced));
                }
                self.drop_ticket(id);
                self.seats = grant.seats;
            }
            Effect::Renew { session, lease } => self.held(session).lease = Some(*lease),
            Effect::Token { session, token } => self.held(session).token = Some(*token),
            Effect::Heartbeat(heartbeat) => {
                let held = self.held(heartbeat.session);
                held.lease = heartbeat.lease;
                held.last_heartbeat = Some(heartbeat.last_heartbeat);
            }
            Effect::Free { session, .. } => {
                self.sessions.remove(&id_of(session));
            }
            Effect::Join(join) => {
                let entry = self.entry_at(id_of(join.session), join.arrival);
                entry.ticket = Some((join.ticket, join.seats, known(join.claim)));
            }
            Effect::Leave { session } => self.drop_ticket(id_of(session)),
            Effect::Seats(seats) => self.seats = *seats,
            Effect::Resize(seats) => {
                self.seats = *seats;
                for entry in &mut self.queue {
                    entry.ticket = entry
                        .ticket
                        .map(|(ticket, _, claim)| (ticket, *seats, claim));
                }
            }
        }
    }

    fn held(&mut self, session: &[u8]) -> &mut Held {
        let held = self.sessions.get_mut(&id_of(session));
        held.expect("a session that is there")
    }

    /// The value of `other` comes to this name: its sessions and tickets, while the clients stay.
    fn take_value(&mut self, other: &Model) {
        let clients: Vec<Entry> = self.queue.drain(..).collect();
        self.seats = other.seats;
        self.sessions = other.sessions.clone();
        self.queue = other.queue.clone();
        for entry in &mut self.queue {
            entry.client = None;
        }
        self.forget_empty_entries();
        for entry in clients {
            if entry.client.is_some() {
                let ticket = self.entry(entry.id).map(|entry| entry.arrival);
                let arrival = ticket.unwrap_or(entry.arrival);
                self.entry_at(entry.id, arrival).client = entry.client;
            }
        }
    }
}

/// A blocked client, as the test knows it.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    call: Call,
    is_dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Granted,
    AlreadyActive,
    HeldElsewhere,
    OwnerLimit,
    NoSeats,
    Queued(usize),
    /// It left before it could be told.
    Gone,
}

/// What all names share.
struct Shared {
    now: Moment,
    last_arrival: u64,
    last_token: u64,
    /// Calls that were denied, as the hosts were told.
    denials: usize,
    clients: Vec<Blocked>,
    told: BTreeMap<u32, Told>,
    /// Whether this step's checks read the pools back from their bytes and effects.
    reloads: bool,
}

impl Shared {
    fn tell(&mut self, number: u32, told: Told) {
        let before = self.told.insert(number, told);
        assert_eq!(before, None, "client {number} is told twice");
    }
}

/// A name with what a server has there.
#[derive(Default)]
struct Name {
    pool: Option<Pool>,
    /// A pool that only ever saw the effects.
    follower: Option<Pool>,
    blocked: BlockedQueue<u32>,
    model: Model,
    /// Grants whose clients were dead, to be taken back unless their sessions are heard of before.
    unconfirmed: Vec<Waiter<u32>>,
    /// Waits that have ended, with how long their tickets are to be kept.
    ended: Vec<(usize, u64)>,
    /// Whether another value has come whose sessions were not looked for yet.
    has_moved: bool,
    /// Whether the value has departed and those who wait were not told yet.
    has_departed: bool,
    /// When the timer is to look here.
    due_ms: Option<i64>,
}

/// What the step at hand is about, by which its effects are judged.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Nobody,
    Calling(Caller),
    /// The ticket of this session is kept for so long.
    Keeping(usize, u64),
}

/// A call, and what the model knows of its session.
#[derive(Clone, Copy, Debug)]
struct Caller {
    call: Call,
    /// Its arrival, and since when it waits, if it does.
    known: Option<(u64, i64)>,
    /// What it is to state if it joins the queue: its own figure, or the one that it has stated.
    figure: i64,
    /// Whether it is in the queue by now.
    finish_join: bool,
    /// Whether more expired sessions are in the way of its grant than one step reclaims.
    waits_for_reclaim: bool,
}

/// What an ACQUIRE must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Granted,
    AlreadyActive,
    NoSeats,
    OwnerLimit,
    Queued,
    Blocked,
    Refused(Refusal<Fault>),
}

/// A session that a grant ends, and who may take over from it.
#[derive(Clone, Copy, Debug)]
struct Replaced {
    from: usize,
    by_caller: bool,
    by_waiter: Option<usize>,
}

/// An open key, as a server has it.
struct Key<'a> {
    name: &'a mut Name,
    shared: &'a mut Shared,
    subject: Subject,
    /// Who was granted a seat last, and whether out of the queue.
    granted: Option<(usize, bool)>,
    /// The client of the call at hand, once it is blocked.
    blocking: Option<u32>,
    /// The client that this one replaces, until that has its answer.
    replaced: Option<Client>,
    /// What the client stated whose seat is taken back, and since when it had waited.
    taken_back: Option<(i64, Claim<'static>, i64)>,
    /// The session that the grant before has ended.
    ended_for: Option<usize>,
    /// The seats that were taken with each grant.
    used_at_grants: BTreeMap<usize, u64>,
    /// The sessions that were revoked.
    revoked: Vec<usize>,
    /// Whose ticket was removed last, if it was to leave for its owner's limit.
    left_over_limit: Option<usize>,
    /// Those whose tickets have left for it.
    sent_away: Vec<usize>,
    /// Whether anything was changed or told.
    is_touched: bool,
    /// Waiters served since the machine was last asked to serve.
    woken: usize,
    /// Expired sessions reclaimed since then.
    reclaimed: usize,
}

static NO_POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(0));

impl Key<'_> {
    fn machine(&mut self) -> Machine<'_, Self> {
        let now = self.shared.now;
        (self.woken, self.reclaimed) = (0, 0);
        self.name.model.left.clear();
        Machine::new(self, now)
    }

    /// What frees a seat, or makes it somebody's turn, serves the queue itself, unless that is more
    /// than one step does.
    fn is_served(&self) {
        let now = self.shared.now;
        if !now.holds_grants && self.woken < BATCH && self.name.serves_queue() {
            let model = &self.name.model;
            let next = model.next_turn(now);
            let next = next.filter(|&id| !self.is_left_to_reclaim(id));
            assert_eq!(next, None, "left to the timer");
            assert_eq!(model.over_limit(now), None, "left to the timer");
        }
    }

    /// Whether the timer is to reclaim the expired sessions in the way of a client whose turn it
    /// is, since they are more than one step reclaims.
    fn is_left_to_reclaim(&self, id: usize) -> bool {
        let now = self.shared.now;
        let above = self.name.model.above_limits_of_waiter(now, id).len();
        above > 0 && self.reclaimed + above > BATCH && self.name.is_due(now)
    }

    /// The caller, until it has what it called for.
    fn caller(&self) -> Option<Caller> {
        let Subject::Calling(caller) = self.subject else {
            return None;
        };
        let is_granted = self.granted.is_some_and(|(id, _)| id == caller.call.id);
        (self.blocking.is_none() && !is_granted).then_some(caller)
    }

    /// Holds the end of a session for another one of its owner against the rule, before it is
    /// carried out.
    fn judge_end(&self, from: usize) -> Replaced {
        let (now, model) = (self.shared.now, &self.name.model);
        assert!(!now.holds_grants, "a takeover while grants are held");
        let by_caller = self.caller().is_some_and(|caller| {
            let arrival = caller.known.map(|(arrival, _)| arrival);
            let ahead = model.next_turn_ahead_of(now, arrival);
            let ahead = ahead.filter(|_| self.name.serves_queue());
            match model.judge(now, &caller.call, arrival) {
                Verdict::TakesOver(other, needs_turn) => {
                    other == from && (!needs_turn || ahead.is_none())
                }
                _ => false,
            }
        });
        let next = model.next_turn(now).filter(|_| self.name.serves_queue());
        let by_waiter = next.filter(|&id| {
            let entry = model.queue.iter().find(|entry| entry.id == id);
            let claim = entry.and_then(|entry| entry.client).unwrap().call.claim;
            let predecessor = model.predecessor(now, claim).map(|(from, _)| from);
            model.limit_reached(now, claim).is_some() && predecessor == Some(from)
        });
        assert!(
            by_caller || by_waiter.is_some(),
            "s{from} ends, and nobody may take over from it"
        );
        Replaced {
            from,
            by_caller,
            by_waiter,
        }
    }

    /// Holds what is said of who leaves the queue against what was known of it.
    fn judge_leaving(&self, wait: Wait<'_>) {
        let session = wait.session;
        assert!(self.name.blocked.get(session).is_none(), "its client waits");
        assert!(!self.pool().has_ticket(session), "it has a ticket");
        let expected = match (self.name.model.leaving(id_of(session)), self.taken_back) {
            (Some(entry), _) => entry.wait(session),
            (None, Some((seats, claim, since_ms))) => Wait {
                session,
                seats,
                since_ms,
                claim,
            },
            (None, None) => panic!("{wait:?} leaves, and did not wait"),
        };
        assert_eq!(wait, expected);
    }

    /// Holds a grant against the rule, before it is carried out.
    fn judge(&mut self, grant: &Grant<'_>) {
        let (id, seats) = (id_of(grant.session), grant.seats);
        let now = self.shared.now;
        let replaces = grant.replaces.map(|from| self.judge_end(id_of(from)));
        self.ended_for = replaces.map(|replaced| replaced.from);
        let model = &self.name.model;
        let ended = self.ended_for.map(|from| model.sessions[&from]);
        let freed = ended.map_or(0, |held| i64::from(held.weight));
        let weight = i64::from(grant.holder.weight);
        assert!(!now.holds_grants, "a grant while they are held");
        assert!(
            model.taken(now) - freed + weight <= seats,
            "a grant above its own figure"
        );
        assert!(!model.is_live(now, id), "a holder is granted a seat");
        assert!(
            !model.holders_elsewhere.contains(&id),
            "so is one elsewhere"
        );
        // Not even if a floor has the expired ones be live again.
        let others = model.sessions.iter().filter(|(other, _)| **other != id);
        let all: i64 = others.map(|(_, held)| i64::from(held.weight)).sum();
        let all = all + model.taken_elsewhere() as i64 - freed + weight;
        assert!(all <= seats, "expired sessions stand above its figure");
        if let Some(caller) = self.caller().filter(|caller| caller.call.id == id) {
            let arrival = caller.known.map(|(arrival, _)| arrival);
            if let Some(replaced) = replaces {
                assert!(replaced.by_caller, "s{id} takes over");
            } else {
                let is_turn = model.may_have_seats(now, seats, weight, arrival);
                assert!(is_turn, "s{id} barges in");
                let ahead = model.next_turn_ahead_of(now, arrival);
                let ahead = ahead.filter(|_| self.name.serves_queue());
                assert_eq!(ahead, None, "whose turn it was before s{id}'s");
            }
            assert_eq!(seats, caller.call.seats);
            self.judge_holder(grant, &caller.call);
            self.granted = Some((id, caller.known.is_some()));
            return;
        }
        assert!(
            self.name.serves_queue(),
            "s{id} is served at a name without its pool"
        );
        match replaces {
            Some(replaced) => assert_eq!(replaced.by_waiter, Some(id), "who takes over"),
            None => assert_eq!(model.next_turn(now), Some(id), "whose turn it is"),
        }
        let waiting = model.waiting(now);
        let entry = waiting.iter().find(|entry| entry.id == id).unwrap();
        assert_eq!(entry.figure(), seats, "a grant by its own figure");
        let number = entry.client.unwrap().number;
        let call = self.shared.clients[number as usize].call;
        self.judge_holder(grant, &call);
        self.granted = Some((id, true));
    }

    /// Holds what a session gets against what its call asked for, and its owner against its limit.
    fn judge_holder(&self, grant: &Grant<'_>, call: &Call) {
        let length_ms = grant.lease.map(|lease| lease.length_ms);
        assert_eq!(length_ms, call.lease_ms);
        let holder = Holder {
            owner: call.claim.owner,
            weight: call.claim.weight,
            token: call.with_token.then_some(self.shared.last_token),
        };
        assert_eq!(grant.holder, holder);
        // Not even if a floor has the expired ones be live again.
        if let Some((owner, max)) = call.claim.owner.zip(call.claim.max_per_owner) {
            let (id, sessions) = (id_of(grant.session), &self.name.model.sessions);
            let others = sessions
                .iter()
                .filter(|(other, _)| **other != id && Some(**other) != self.ended_for);
            let all = others.filter(|(_, held)| held.owner == Some(owner)).count() as u64;
            assert!(all < max, "a grant above the limit of its owner");
        }
    }

    /// Holds a new ticket, or a renewed one, against the rule.
    fn judge_ticket(&self, id: usize, figure: i64, ticket: Ticket, claim: Claim<'_>) {
        let (now, model) = (self.shared.now, &self.name.model);
        let attended = |ms: u64| ms.max(SPARE_MS) + SPARE_MS;
        let known = model.queue.iter().find(|entry| entry.id == id);
        let stated = known.and_then(|entry| entry.ticket);
        let stated = stated.map(|(_, figure, claim)| (figure, claim));
        let (valid_ms, expected) = match self.subject {
            Subject::Calling(caller) if caller.call.id == id && !caller.finish_join => {
                let ms = caller.call.ticket_ms.expect("it asked for a ticket");
                let is_blocked = caller.call.is_blocked();
                let valid_ms = if is_blocked { attended(ms) } else { ms };
                (valid_ms, (caller.figure, caller.call.claim))
            }
            Subject::Keeping(kept, ms) if kept == id => (
                ms,
                stated
                    .or(self.taken_back.map(|(seats, claim, _)| (seats, claim)))
                    .unwrap_or_else(|| panic!("what it stated")),
            ),
            _ => {
                let client = known.and_then(|entry| entry.client);
                let client = client.expect("only a blocked client's ticket renews itself");
                let call = self.shared.clients[client.number as usize].call;
                let ms = call.ticket_ms.expect("it asked for a ticket");
                (attended(ms), stated.expect("it has a ticket"))
            }
        };
        assert_eq!(ticket.deadline_ms, now.now_ms + valid_ms as i64, "how long");
        assert_eq!((figure, claim), expected, "what a ticket states");
    }

    /// What the model says about a call.
    fn expected(&self, call: Call) -> (Expected, Caller) {
        let (now, model) = (self.shared.now, &self.name.model);
        let waiting = model.waiting(now);
        let known = waiting.iter().find(|entry| entry.id == call.id);
        let arrival = known.map(|entry| entry.arrival);
        let fails = |fault: Fault| call.fault == Some(fault);
        let refused = |fault| Expected::Refused(Refusal::Unmet(fault));
        let at_first = model.judge(now, &call, arrival);
        let (may_have, needs_turn) = match at_first {
            Verdict::InTurn => (true, true),
            Verdict::TakesOver(_, needs_turn) => (true, needs_turn),
            Verdict::Full | Verdict::OwnerLimit => (false, false),
        };
        let (then, verdict) = if needs_turn && self.name.serves_queue() {
            match model.with_those_ahead_served(now, arrival) {
                (then, true) => {
                    let verdict = then.judge(now, &call, arrival);
                    (then, verdict)
                }
                (then, false) => (then, Verdict::Full),
            }
        } else {
            (model.clone(), at_first)
        };
        let above = |from| {
            then.above_limits(now, call.id, call.seats, call.claim, from)
                .len()
        };
        let waits_for_reclaim = match verdict {
            Verdict::InTurn => above(None) > BATCH,
            Verdict::TakesOver(from, _) => above(Some(from)) > BATCH,
            Verdict::Full | Verdict::OwnerLimit => false,
        };
        let verdict = match waits_for_reclaim {
            true => Verdict::Full,
            false => verdict,
        };
        let has_room = then.has_room_for(now, call.id, call.seats);
        let caller = Caller {
            call,
            known: known.map(|entry| (entry.arrival, entry.since_ms(now))),
            figure: match known {
                Some(known) if !has_room => known.figure(),
                _ => call.seats,
            },
            finish_join: false,
            waits_for_reclaim,
        };
        let expected = if model.is_live(now, call.id) {
            Expected::AlreadyActive
        } else if model.holds_elsewhere(now, call.id) {
            match call.lease_ms.is_some() || call.with_token {
                true => Expected::Refused(Refusal::HeldElsewhere),
                false => Expected::AlreadyActive,
            }
        } else if at_first == Verdict::OwnerLimit {
            Expected::OwnerLimit
        } else if !may_have && !call.waits() {
            Expected::NoSeats
        } else if fails(Fault::Metadata) {
            refused(Fault::Metadata)
        } else if fails(Fault::Memory) && (may_have || known.is_none()) {
            refused(Fault::Memory)
        } else if verdict == Verdict::OwnerLimit {
            Expected::OwnerLimit
        } else if verdict != Verdict::Full {
            Expected::Granted
        } else if !call.waits() {
            Expected::NoSeats
        } else if known.is_none() && then.waiting(now).len() >= call.longest_queue {
            Expected::Refused(Refusal::QueueFull)
        } else if known.is_none() && !has_room {
            Expected::Refused(Refusal::TooManyFigures)
        } else if call.is_blocked() {
            Expected::Blocked
        } else if call.ticket_ms.is_some() {
            Expected::Queued
        } else {
            Expected::NoSeats
        };
        (expected, caller)
    }

    /// What comes before each change: clients who wait for sessions that hold seats of a value that
    /// has come are told so.
    fn open(&mut self) {
        if self.name.has_moved {
            self.name.has_moved = self.machine().answer_holders();
            if self.name.has_moved {
                self.schedule(self.shared.now.now_ms);
            }
        }
    }

    fn acquire(&mut self, call: Call) -> Result<Acquired<u32>, Refusal<Fault>> {
        self.open();
        self.is_touched = false;
        let (expected, caller) = self.expected(call);
        self.subject = Subject::Calling(caller);
        let session = bytes_of(call.id);
        let now = self.shared.now;
        let lease = |ms| Lease::starting(now.now_ms, ms).unwrap();
        let request = AcquireRequest {
            lease: call.lease_ms.map(lease),
            ticket_ms: call.ticket_ms,
            claim: call.claim,
            with_token: call.with_token,
            blocks: call.blocks,
            longest_queue: call.longest_queue,
            ..AcquireRequest::plain(&session, call.seats)
        };
        let denials = self.shared.denials;
        self.used_at_grants.clear();
        self.sent_away.clear();
        let answer = self.machine().acquire(&request, &call);
        self.subject = Subject::Nobody;
        // For those ahead of it, for its own grant, and for those behind.
        assert!(self.reclaimed <= 3 * BATCH, "{} at once", self.reclaimed);
        let model = &self.name.model;
        let used = model.taken(now) as u64;
        let came_to = match answer {
            Ok(Acquired::Granted(ref granted)) => {
                // Those who were served after it are in the count of now, and not in its own.
                let at_its_grant = self.used_at_grants.get(&call.id).copied();
                assert_eq!(Some(granted.used), at_its_grant);
                assert!(granted.used <= call.seats as u64);
                assert_eq!((granted.seats, granted.lease), (call.seats, request.lease));
                assert_eq!(granted.token.is_some(), call.with_token);
                assert!(granted.replaced.is_none() || call.claim.takeover);
                Expected::Granted
            }
            Ok(Acquired::AlreadyActive(active)) => {
                assert_eq!((active.used, active.renewed), (used, request.lease));
                let token = call.with_token.then_some(self.shared.last_token);
                assert_eq!(active.token, token, "always a new one");
                Expected::AlreadyActive
            }
            Ok(Acquired::NoSeats { used: told }) => {
                assert_eq!(told, used);
                Expected::NoSeats
            }
            Ok(Acquired::Queued {
                used: told,
                position,
            }) => {
                assert_eq!(told, used);
                assert_eq!(Some(position - 1), model.index(now, call.id), "position");
                Expected::Queued
            }
            Ok(Acquired::OwnerLimit { held, max }) => {
                let limit = model.limit_reached(now, call.claim);
                assert_eq!(limit, Some((held, max)));
                Expected::OwnerLimit
            }
            Ok(Acquired::Blocked(number)) => {
                assert_eq!(number as usize + 1, self.shared.clients.len());
                Expected::Blocked
            }
            Err(refusal) => Expected::Refused(refusal),
        };
        // Its turn may come as soon as it has joined, and its owner's limit with it.
        let expected = match expected {
            Expected::Queued if self.sent_away.contains(&call.id) => Expected::OwnerLimit,
            expected => expected,
        };
        assert_eq!(came_to, expected, "what an ACQUIRE comes to");
        if let Expected::Granted | Expected::Queued | Expected::Blocked = expected {
            self.is_served();
        }
        let is_denied = matches!(expected, Expected::NoSeats | Expected::OwnerLimit);
        assert_eq!(self.shared.denials - denials, usize::from(is_denied));
        if is_denied || matches!(expected, Expected::Refused(_)) {
            let serves_others = self.has_served_others(&caller);
            assert!(
                !self.is_touched || serves_others,
                "a denial changes something"
            );
        }
        answer
    }

    /// Whether a call that is granted nothing has served others: more than one step does, those by
    /// whom its owner has reached its limit, or some before expired sessions were in the way.
    fn has_served_others(&self, caller: &Caller) -> bool {
        let is_limited = caller.call.claim.max_per_owner.is_some();
        let waits = caller.waits_for_reclaim || self.is_next_left_to_reclaim();
        self.woken == BATCH || (self.woken > 0 && (is_limited || waits))
    }

    fn is_next_left_to_reclaim(&self) -> bool {
        let next = self.name.model.next_turn(self.shared.now);
        next.is_some_and(|next| self.is_left_to_reclaim(next))
    }

    /// The token that a call states, and whether it is the present one of a live session.
    fn stated(&self, id: usize, stated: Stated) -> (Option<u64>, bool) {
        let live = self.name.model.is_live(self.shared.now, id);
        let own = self
            .name
            .model
            .sessions
            .get(&id)
            .and_then(|held| held.token);
        match stated {
            Stated::Nothing => (None, true),
            Stated::Present => match own {
                Some(token) => (Some(token), live),
                None => (Some(1), false),
            },
            // Of those that were given out, or that may be one day.
            Stated::Void => match own {
                Some(token) => (Some(token ^ 1), false),
                None => (Some(self.shared.last_token + 1), false),
            },
        }
    }

    fn heartbeat(&mut self, id: usize, length_ms: Option<u64>, token: Stated) {
        self.open();
        let now = self.shared.now;
        let lease = length_ms.map(|ms| Lease::starting(now.now_ms, ms).unwrap());
        let (token, is_present) = self.stated(id, token);
        let was_live = self.name.model.is_live(now, id) && is_present;
        let session = bytes_of(id);
        self.is_touched = false;
        let answer = self.machine().heartbeat(&session, lease, token);
        assert!(
            was_live || !self.is_touched,
            "a void token changes something"
        );
        match answer {
            HeartbeatOutcome::Updated(heartbeat) => {
                assert!(was_live && (lease.is_none() || heartbeat.lease == lease))
            }
            HeartbeatOutcome::NotActive => assert!(!was_live),
            HeartbeatOutcome::NoMetadata => assert!(was_live),
        }
    }

    fn release(&mut self, id: usize, token: Stated) {
        self.open();
        let was_live = self.name.model.is_live(self.shared.now, id);
        let (token, is_present) = self.stated(id, token);
        self.is_touched = false;
        let used = self.machine().release(&bytes_of(id), token);
        if !is_present {
            assert_eq!(used, None);
            assert!(!self.is_touched, "a void token changes something");
            return;
        }
        self.is_served();
        let now = self.name.model.taken(self.shared.now) as u64;
        assert_eq!(used, was_live.then_some(now));
        self.waits_no_longer(&[id]);
    }

    fn revoke(&mut self, ids: [usize; 2]) {
        self.open();
        let now = self.shared.now;
        let distinct = BTreeSet::from(ids);
        let live = distinct
            .iter()
            .filter(|&&id| self.name.model.is_live(now, id));
        let live = live.count();
        let sessions = ids.map(bytes_of);
        let revoked = self.machine().revoke(sessions.iter().map(Vec::as_slice));
        assert_eq!(revoked, live);
        self.is_served();
        self.waits_no_longer(&ids);
    }

    fn revoke_owner(&mut self, owner: &[u8]) {
        self.open();
        let (now, model) = (self.shared.now, &self.name.model);
        let live: Vec<usize> = model.owned(now, owner).map(|(id, _)| id).collect();
        let waits = |entry: &&Entry| {
            let client = entry.client.map(|client| client.call.claim);
            let ticket = entry.ticket.map(|(.., claim)| claim);
            let mut claims = [client, ticket].into_iter().flatten();
            claims.any(|claim| claim.owner == Some(owner))
        };
        let waiting: Vec<_> = model.queue.iter().filter(waits).map(|e| e.id).collect();
        let mut others = model.waiting(now);
        others.retain(|entry| !waiting.contains(&entry.id));
        self.revoked.clear();
        self.sent_away.clear();
        let revoked = self.machine().revoke_owner(owner);
        assert_eq!(revoked, live.len());
        self.revoked.sort_unstable();
        assert_eq!(self.revoked, live, "nobody else's sessions");
        self.is_served();
        self.waits_no_longer(&waiting);
        for Entry { id, client, .. } in others {
            let told = client.and_then(|client| self.shared.told.get(&client.number));
            let is_denied = told == Some(&Told::NoSeats);
            let model = &self.name.model;
            let waits_or_holds = model.index(now, id).is_some() || model.is_live(now, id);
            let is_served = waits_or_holds || told.is_some() || self.sent_away.contains(&id);
            assert!(is_served && !is_denied, "s{id} left with another owner");
        }
    }

    fn waits_no_longer(&self, ids: &[usize]) {
        let waiting = self.name.model.waiting(self.shared.now);
        let still = waiting.iter().find(|entry| ids.contains(&entry.id));
        assert!(still.is_none(), "{still:?} is still in the queue");
    }

    fn resize(&mut self, seats: i64) {
        self.open();
        for entry in &mut self.name.model.queue {
            entry.client = entry.client.map(|client| Client {
                figure: seats,
                ..client
            });
        }
        self.machine().resize(seats);
        self.is_served();
        if self.name.model.exists() {
            // Unless a grant has stated another since, which all who wait state now.
            assert_eq!(self.name.model.seats, seats);
        }
    }

    fn cleanup(&mut self) {
        self.open();
        let now = self.shared.now;
        let expired = self.name.model.sessions.len() - self.name.model.count(now);
        assert_eq!(self.machine().cleanup(None), expired);
        self.is_served();
    }

    fn import(&mut self, id: usize) {
        self.open();
        let session = bytes_of(id);
        let import = Import::read(&session, None).expect("an id that may be imported");
        let seats = self.name.model.seats;
        let now = self.shared.now;
        let pool = self.name.pool.clone().unwrap_or_else(|| Pool::new(0));
        if let Some(effect) = import.effect(&pool, now, seats) {
            self.commit(&effect);
            self.name.model.holders_elsewhere.remove(&id);
            self.machine().became_holder(&session);
            self.machine().serve();
            self.is_served();
        }
    }

    fn holds_elsewhere(&mut self, id: usize) {
        self.open();
        let now = self.shared.now;
        let model = &mut self.name.model;
        if !model.holders_elsewhere.remove(&id) {
            if model.is_live(now, id) {
                return;
            }
            model.holders_elsewhere.insert(id);
            self.machine().became_holder(&bytes_of(id));
            self.waits_no_longer(&[id]);
        }
        self.machine().serve();
        self.is_served();
    }

    fn end_wait(&mut self, id: usize, disconnects: bool) {
        let now = self.shared.now;
        let session = bytes_of(id);
        let Some(client) = self.name.model.entry(id).and_then(|entry| entry.client) else {
            assert_eq!(self.machine().end_wait(&session, &u32::MAX), None);
            return;
        };
        let number = client.number;
        let stranger = self.machine().end_wait(&session, &(number + 1));
        assert_eq!(stranger, None, "an older or a newer client ends the wait");
        let index = self.name.model.index(now, id);
        let ticket_ms = self.shared.clients[number as usize].call.ticket_ms;
        if disconnects {
            let waiter = self.name.blocked.remove_client(&session, &number);
            assert_eq!(
                waiter.map(|waiter| waiter.request.ticket_ms),
                Some(ticket_ms)
            );
            self.name.model.drop_client(id);
            self.shared.tell(number, Told::Gone);
            self.name.ended.extend(ticket_ms.map(|ms| (id, ms)));
            self.schedule(now.now_ms);
            return;
        }
        let end = self.machine().end_wait(&session, &number);
        let model = &mut self.name.model;
        model.drop_client(id);
        let ticket = model.entry(id).filter(|entry| entry.has_valid_ticket(now));
        let survives = ticket_ms.filter(|_| ticket.is_some());
        let is_live = model.is_live(now, id);
        let used = model.taken(now) as u64;
        let told = match end.expect("it was in the queue") {
            WaitEnd::AlreadyActive(active) => {
                assert!(is_live);
                assert_eq!((active.used, active.renewed), (used, None));
                assert_eq!(active.token, None);
                Told::AlreadyActive
            }
            WaitEnd::Queued {
                used: told,
                position,
                seats,
                ticket_ms,
            } => {
                assert!(!is_live);
                assert_eq!((told, seats), (used, client.figure));
                assert_eq!((Some(position - 1), Some(ticket_ms)), (index, survives));
                self.name.ended.push((id, ticket_ms));
                self.schedule(now.now_ms);
                Told::Queued(position)
            }
            WaitEnd::NoSeats { used: told, seats } => {
                assert!(!is_live && survives.is_none());
                assert_eq!((told, seats), (used, client.figure));
                Told::NoSeats
            }
        };
        self.shared.tell(number, told);
    }

    fn dies(&mut self, id: usize) {
        if let Some(entry) = self.name.blocked.get(&bytes_of(id)) {
            self.shared.clients[entry.waiting.client as usize].is_dead = true;
        }
    }

    fn take_back(&mut self) {
        for waiter in std::mem::take(&mut self.name.unconfirmed) {
            let (id, ticket_ms) = (id_of(&waiter.session), waiter.request.ticket_ms);
            let claim = known(waiter.request.claim());
            self.taken_back = Some((waiter.seats, claim, waiter.request.since_ms));
            self.subject = ticket_ms.map_or(Subject::Nobody, |ms| Subject::Keeping(id, ms));
            let is_live = self.name.model.is_live(self.shared.now, id);
            self.machine().take_back(&waiter);
            if is_live {
                self.is_served();
            }
            self.subject = Subject::Nobody;
        }
    }

    /// Whoever waits where the value has departed from hears that it cannot be served there.
    fn tell_those_left_behind(&mut self) {
        if std::mem::take(&mut self.name.has_departed) && self.name.pool.is_none() {
            while let Some(first) = self.name.blocked.first() {
                let session: Box<[u8]> = first.session().into();
                let waiter = self.name.blocked.remove(&session).expect("it waits");
                self.name.model.drop_client(id_of(&session));
                self.shared.tell(waiter.client, Told::Gone);
            }
        }
    }

    /// What the timer does when it is due here.
    fn look(&mut self) {
        let now = self.shared.now;
        if self.name.due_ms.is_none_or(|due_ms| due_ms > now.now_ms) {
            return;
        }
        self.name.due_ms = None;
        self.tell_those_left_behind();
        self.open();
        self.take_back();
        for (id, ticket_ms) in std::mem::take(&mut self.name.ended) {
            self.subject = Subject::Keeping(id, ticket_ms);
            self.machine().after_wait(&bytes_of(id), ticket_ms);
            self.is_served();
            self.subject = Subject::Nobody;
        }
        self.machine().expire(BATCH);
        self.machine().serve();
        self.is_served();
        if let Some(next_ms) = self.machine().next_change_ms() {
            self.schedule(next_ms);
        }
    }

    /// A pool with neither sessions nor tickets does not exist, and its limit is forgotten with it.
    fn close(self) {
        if self.name.pool.as_ref().is_some_and(Pool::is_empty) {
            self.name.pool = None;
            self.name.follower = None;
            self.name.model.seats = 0;
        }
    }
}

impl Host for Key<'_> {
    type Client = u32;
    const BATCH: usize = BATCH;

    fn pool(&self) -> &Pool {
        self.name.pool.as_ref().unwrap_or(&NO_POOL)
    }

    fn blocked(&self) -> &BlockedQueue<u32> {
        &self.name.blocked
    }

    fn pool_and_blocked(&mut self) -> (&Pool, &mut BlockedQueue<u32>) {
        let pool = self.name.pool.as_ref().unwrap_or(&NO_POOL);
        (pool, &mut self.name.blocked)
    }

    fn taken_elsewhere(&self) -> u64 {
        self.name.model.taken_elsewhere()
    }

    fn holds_elsewhere(&self, session: &[u8]) -> bool {
        let model = &self.name.model;
        model.holds_elsewhere(self.shared.now, id_of(session))
    }

    fn serves_queue(&self) -> bool {
        self.name.serves_queue()
    }

    fn next_arrival(&mut self) -> u64 {
        self.shared.last_arrival += 1;
        self.shared.last_arrival
    }

    fn next_token(&mut self) -> u64 {
        self.shared.last_token += 1;
        self.shared.last_token
    }

    fn observe(&mut self, used: u64) {
        let (id, _) = self.granted.expect("a grant");
        self.used_at_grants.insert(id, used);
        assert_eq!(used, self.name.model.taken(self.shared.now) as u64);
    }

    fn count_denial(&mut self) {
        self.shared.denials += 1;
    }

    fn block_client(&mut self, session: &[u8]) -> Option<u32> {
        let Subject::Calling(caller) = self.subject else {
            panic!("only a call has a client");
        };
        assert!(
            !self.is_touched || self.has_served_others(&caller),
            "a client is blocked after something has changed"
        );
        assert_eq!(session, bytes_of(caller.call.id));
        if !caller.call.is_blocked() {
            return None;
        }
        let number = self.shared.clients.len() as u32;
        self.shared.clients.push(Blocked {
            call: caller.call,
            is_dead: false,
        });
        self.blocking = Some(number);
        let (now_ms, next_arrival) = (self.shared.now.now_ms, self.shared.last_arrival + 1);
        let (arrival, since_ms) = caller.known.unwrap_or((next_arrival, now_ms));
        let entry = self.name.model.entry_at(caller.call.id, arrival);
        self.replaced = entry.client.replace(Client {
            number,
            since_ms,
            figure: caller.figure,
            call: caller.call,
        });
        Some(number)
    }

    fn commit(&mut self, effect: &Effect<'_>) {
        self.is_touched = true;
        match effect {
            Effect::Grant(grant) => self.judge(grant),
            Effect::Free {
                session,
                why: Freed::Revoked,
            } => self.revoked.push(id_of(session)),
            Effect::Free {
                why: Freed::Expired,
                ..
            } => self.reclaimed += 1,
            Effect::Leave { session } => {
                let (now, model) = (self.shared.now, &self.name.model);
                let mut entries = model.queue.iter();
                let entry = entries.find(|entry| entry.id == id_of(session));
                let is_over = entry.is_some_and(|entry| model.is_over_limit(now, entry));
                let is_over = is_over && self.name.serves_queue() && !now.holds_grants;
                self.left_over_limit = is_over.then(|| id_of(session));
            }
            Effect::Join(join) => {
                let id = id_of(join.session);
                self.judge_ticket(id, join.seats, join.ticket, join.claim);
                if let Subject::Calling(caller) = &mut self.subject
                    && caller.call.id == id
                {
                    caller.finish_join = true;
                    self.name.ended.retain(|(other, _)| *other != id);
                }
            }
            _ => {}
        }
        let name = &mut *self.name;
        if name.pool.is_none() {
            let (Effect::Grant(_) | Effect::Import(_) | Effect::Join(_)) = effect else {
                panic!("{effect:?} where there is no pool");
            };
            name.pool = Some(Pool::new(0));
            name.follower = Some(Pool::new(0));
        }
        let applied = name.pool.as_mut().unwrap().apply(effect);
        assert_ne!(applied, Applied::Missed, "{effect:?}");
        assert_eq!(name.follower.as_mut().unwrap().apply(effect), applied);
        name.model.apply(effect);
        if let Effect::Grant(grant) = effect
            && let Some(replaced) = grant.replaces
        {
            self.confirm(replaced);
        }
        if let Effect::Grant(seat_pool::Grant { session, .. })
        | Effect::Import(seat_pool::Grant { session, .. })
        | Effect::Heartbeat(seat_pool::Heartbeat { session, .. })
        | Effect::Token { session, .. }
        | Effect::Renew { session, .. }
        | Effect::Free { session, .. } = effect
        {
            self.confirm(session);
        }
        if let Some(deadline_ms) = effect.deadline_ms() {
            self.schedule(deadline_ms);
        }
    }

    fn confirm(&mut self, session: &[u8]) {
        let unconfirmed = &mut self.name.unconfirmed;
        unconfirmed.retain(|waiter| *waiter.session != *session);
    }

    fn wake(&mut self, waiter: Waiter<u32>, outcome: Outcome) {
        self.is_touched = true;
        let (now, id, number) = (self.shared.now, id_of(&waiter.session), waiter.client);
        let replaced = self.replaced.take_if(|client| client.number == number);
        let waiting = self.name.model.entry(id).and_then(|entry| entry.client);
        let known = replaced.or(waiting);
        let known = known.expect("only blocked clients are woken");
        assert_eq!((known.number, known.figure), (number, waiter.seats));
        let wait = waiter.wait();
        assert_eq!((id_of(wait.session), wait.seats), (id, known.figure));
        assert_eq!(wait.since_ms, known.since_ms);
        assert_eq!(wait.claim, known.call.claim);
        match replaced {
            Some(_) => assert_eq!(outcome, Outcome::NoSeats),
            None => {
                if let Outcome::OwnerLimit { held, max } = outcome {
                    let (model, claim) = (&self.name.model, known.call.claim);
                    assert_eq!(model.next_turn(now), Some(id), "only whose turn it is");
                    assert!(self.name.serves_queue() && !now.holds_grants);
                    assert_eq!(model.limit_reached(now, claim), Some((held, max)));
                    assert!(model.predecessor(now, claim).is_none(), "it may take over");
                    let entry = model.queue.iter().find(|entry| entry.id == id).unwrap();
                    assert!(entry.ticket.is_none(), "its ticket goes, too");
                }
                self.name.model.drop_client(id);
            }
        }
        // What its owner's limit ends is counted by its notice.
        let is_counted = !matches!(outcome, Outcome::NoSeats | Outcome::OwnerLimit { .. });
        self.woken += usize::from(is_counted);
        let used = self.name.model.taken(now) as u64;
        let told = match outcome {
            Outcome::Granted(granted) => {
                assert_eq!(self.granted, Some((id, true)));
                assert_eq!((granted.used, granted.seats), (used, waiter.seats));
                assert!(used <= waiter.seats as u64);
                let token = known.call.with_token.then_some(self.shared.last_token);
                assert_eq!(granted.token, token);
                let replaced = granted.replaced.map(|session| id_of(&session));
                assert_eq!(replaced, self.ended_for);
                if self.shared.clients[number as usize].is_dead {
                    self.name.unconfirmed.push(waiter);
                    self.schedule(now.now_ms);
                    Told::Gone
                } else {
                    Told::Granted
                }
            }
            Outcome::AlreadyActive(active) => {
                let is_live = self.name.model.is_live(now, id);
                assert!(is_live || self.name.model.holds_elsewhere(now, id));
                assert_eq!(active.used, used);
                let length_ms = active.renewed.map(|lease| lease.length_ms);
                assert_eq!(length_ms, waiter.request.lease_ms);
                let token = known.call.with_token.then_some(self.shared.last_token);
                assert_eq!(active.token, token);
                Told::AlreadyActive
            }
            Outcome::HeldElsewhere => {
                assert!(self.name.model.holds_elsewhere(now, id));
                assert!(waiter.request.lease_ms.is_some() || waiter.request.with_token);
                Told::HeldElsewhere
            }
            Outcome::NoSeats => Told::NoSeats,
            Outcome::OwnerLimit { .. } => Told::OwnerLimit,
        };
        self.shared.tell(number, told);
    }

    fn notice(&mut self, notice: Notice<'_>) {
        self.is_touched = true;
        match notice {
            Notice::Joined(wait) => {
                let Subject::Calling(caller) = self.subject else {
                    panic!("nobody calls, and {wait:?} joins");
                };
                assert!(caller.known.is_none(), "only who does not wait yet joins");
                let expected = Wait {
                    session: &bytes_of(caller.call.id),
                    seats: caller.figure,
                    since_ms: self.shared.now.now_ms,
                    claim: caller.call.claim,
                };
                assert_eq!(wait, expected);
            }
            Notice::Served => assert!(matches!(self.granted, Some((_, true)))),
            Notice::OwnerLimit(wait) => {
                self.judge_leaving(wait);
                let has_client = self.name.blocked.iter().count();
                let known = self.name.model.queue.iter();
                let has_one_less =
                    known.filter(|entry| entry.client.is_some()).count() > has_client;
                assert!(
                    self.left_over_limit.is_some() || has_one_less,
                    "neither a ticket nor a client has left"
                );
                self.sent_away.extend(self.left_over_limit.take());
                self.woken += 1;
            }
            Notice::Left(wait) => self.judge_leaving(wait),
            Notice::Lost(wait) => {
                self.judge_leaving(wait);
                let entry = self.name.model.leaving(id_of(wait.session));
                assert!(
                    entry.is_some_and(|entry| !entry.waits(self.shared.now)),
                    "{wait:?} is not lost"
                );
            }
        }
    }

    fn schedule(&mut self, at_ms: i64) {
        let due_ms = self.name.due_ms.map_or(at_ms, |due_ms| due_ms.min(at_ms));
        self.name.due_ms = Some(due_ms);
    }
}

impl Name {
    fn key<'a>(&'a mut self, shared: &'a mut Shared) -> Key<'a> {
        Key {
            name: self,
            shared,
            subject: Subject::Nobody,
            granted: None,
            blocking: None,
            replaced: None,
            taken_back: None,
            ended_for: None,
            used_at_grants: BTreeMap::new(),
            revoked: Vec::new(),
            left_over_limit: None,
            sent_away: Vec::new(),
            is_touched: false,
            woken: 0,
            reclaimed: 0,
        }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap_or(&NO_POOL)
    }

    fn serves_queue(&self) -> bool {
        self.pool.is_some() || !self.has_departed
    }

    /// Another value, or none, comes to this name. Whoever is blocked here is served by the timer.
    fn replace(
        &mut self,
        pool: Option<Pool>,
        follower: Option<Pool>,
        model: &Model,
        shared: &mut Shared,
    ) {
        self.pool = pool;
        self.follower = follower;
        self.model.take_value(model);
        self.has_moved = true;
        let mut key = self.key(shared);
        key.machine().pool_changed();
        key.schedule(key.shared.now.now_ms);
    }

    fn is_due(&self, now: Moment) -> bool {
        self.due_ms.is_some_and(|due_ms| due_ms <= now.now_ms)
    }

    fn check(&self, shared: &Shared) {
        let (now, model) = (shared.now, &self.model);
        assert_eq!(self.pool.is_some(), model.exists(), "the key exists");
        let pool = self.pool();
        assert_eq!(pool.seats(), model.seats, "seats");
        assert_eq!(pool.len(), model.sessions.len(), "sessions");
        assert_eq!(pool.used(now), model.used(now), "used");
        assert_eq!(pool.count(now), model.count(now), "live sessions");
        self.check_holders(now, pool);
        let tickets = model.queue.iter().filter_map(|entry| entry.ticket);
        assert_eq!(pool.tickets(), tickets.count(), "tickets");
        self.check_queue(shared, pool);
        if !self.is_due(now) {
            self.check_that_nothing_is_due(now);
        }
        let follower = self.follower.as_ref().map(contents);
        assert_eq!(follower, self.pool.as_ref().map(contents), "follower");
        if let Some(pool) = self.pool.as_ref().filter(|_| shared.reloads) {
            let again = reload(pool);
            assert_eq!(contents(&again), contents(pool), "reload");
            self.check_queue(shared, &again);
            let mut rebuilt = Pool::new(0);
            for effect in pool.rebuilding() {
                assert_ne!(rebuilt.apply(&effect), Applied::Missed);
            }
            assert_eq!(contents(&rebuilt), contents(pool), "rebuilt");
        }
    }

    /// The timer is not to come yet, so nothing must wait for it.
    fn check_that_nothing_is_due(&self, now: Moment) {
        let model = &self.model;
        if !now.holds_grants {
            let idle = model.next_turn(now);
            assert_eq!(idle, None, "a seat is idle while it is this client's turn");
            let over = model.over_limit(now);
            assert_eq!(over, None, "a seat is kept for whom it must not be given");
        }
        assert_eq!(
            model.sessions.len(),
            model.count(now),
            "expired, not reclaimed"
        );
        let has_lost = |entry: &&Entry| entry.ticket.is_some() && !entry.has_valid_ticket(now);
        let lost = model.queue.iter().find(has_lost);
        assert!(
            lost.is_none(),
            "{lost:?} is lost, and neither removed nor renewed"
        );
        assert!(self.unconfirmed.is_empty() && self.ended.is_empty() && !self.has_moved);
    }

    /// What is known of owners, weights and tokens.
    fn check_holders(&self, now: Moment, pool: &Pool) {
        let model = &self.model;
        for (&id, held) in &model.sessions {
            let session = pool.iter().find(|session| session.id() == bytes_of(id));
            let holder = pool.holder_of(session.expect("it is there"));
            let Held {
                owner,
                weight,
                token,
                ..
            } = *held;
            let expected = Holder {
                owner,
                weight,
                token,
            };
            assert_eq!(holder, expected, "s{id}");
            let has_token = |token| pool.has_token(now, &bytes_of(id), token);
            assert_eq!(has_token(token), model.is_live(now, id));
            assert!(!has_token(Some(token.unwrap_or(0) + 1)));
            assert!(token.unwrap_or(0) <= pool.last_token());
        }
        let mut owners = Vec::new();
        for owner in OWNERS {
            let (held, seats) = model
                .owned(now, owner)
                .fold((0, 0), |(held, seats), (_, one)| {
                    (held + 1, seats + u64::from(one.weight))
                });
            assert_eq!(pool.held(now, owner), held, "{owner:?}");
            let mut owned: Vec<usize> =
                pool.owned(now, owner).map(Session::id).map(id_of).collect();
            owned.sort_unstable();
            let expected: Vec<usize> = model.owned(now, owner).map(|(id, _)| id).collect();
            assert_eq!(owned, expected, "{owner:?}");
            if held > 0 {
                owners.push((owner, held, seats));
            }
        }
        let mut listed: Vec<_> = pool.owners(now).collect();
        listed.sort_unstable();
        assert_eq!(listed, owners);
        assert_eq!(pool.count_owners(now), owners.len());
    }

    fn check_queue(&self, shared: &Shared, pool: &Pool) {
        let (now, model) = (shared.now, &self.model);
        let waiting = model.waiting(now);
        let queue = Queue::new(pool, &self.blocked, now, model.taken_elsewhere());
        let list = queue.list();
        let list: Vec<_> = list
            .iter()
            .map(|waiting| (id_of(waiting.session), waiting.since_ms))
            .collect();
        let expected: Vec<_> = waiting
            .iter()
            .map(|entry| (entry.id, entry.since_ms(now)))
            .collect();
        assert_eq!(list, expected, "the queue in its order");
        assert_eq!(queue.waiting(), waiting.len(), "waiting");
        assert_eq!(queue.kept(), model.kept(now), "kept");
        for id in 0..IDS {
            let session = bytes_of(id);
            let index = model.index(now, id);
            let position = queue.position(&session);
            assert_eq!(position, index.map(|index| index + 1), "position of s{id}");
            let arrival = index.map(|index| waiting[index].arrival);
            assert_eq!(queue.arrival_of(&session), arrival, "arrival of s{id}");
            let entry = model.queue.iter().find(|entry| entry.id == id);
            let ticket = pool.any_ticket(&session);
            let ticket = ticket.map(|ticket| {
                let claim = known(pool.claim_of(ticket));
                (ticket.waiting, pool.figure_of(ticket), claim)
            });
            assert_eq!(ticket, entry.and_then(|entry| entry.ticket), "of s{id}");
            let client = self.blocked.get(&session);
            let client = client.map(|client| (client.waiting.client, self.blocked.figure(client)));
            let known = entry.and_then(|entry| entry.client);
            let known = known.map(|client| (client.number, client.figure));
            assert_eq!(client, known, "client of s{id}");
        }
    }
}

/// All that a pool keeps and its digest covers, as the effects that would make it.
fn contents(pool: &Pool) -> Vec<Effect<'_>> {
    let seats = Effect::Seats(pool.seats());
    pool.rebuilding().chain([seats]).collect()
}

fn reload(pool: &Pool) -> Pool {
    let mut blobs = pool.encode();
    let header = blobs.next().expect("a header");
    let mut decoder = Decoder::new(&header).expect("a sound header");
    for blob in blobs {
        decoder.batch(&blob).expect("a sound batch");
    }
    decoder.finish().expect("a sound pool")
}

struct World {
    shared: Shared,
    names: [Name; 2],
}

impl World {
    fn new() -> World {
        World {
            shared: Shared {
                now: Moment::at(1_700_000_000_000),
                last_arrival: 0,
                last_token: 0,
                denials: 0,
                clients: Vec::new(),
                told: BTreeMap::new(),
                reloads: true,
            },
            names: <[Name; 2]>::default(),
        }
    }

    /// Does something with an open key.
    fn at<T>(&mut self, at: usize, body: impl FnOnce(&mut Key<'_>) -> T) -> T {
        let mut key = self.names[at].key(&mut self.shared);
        let done = body(&mut key);
        key.close();
        done
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Acquire(at, call) => {
                let _ = self.at(at, |key| key.acquire(call));
            }
            Step::Release(at, id, token) => self.at(at, |key| key.release(id, token)),
            Step::RevokeOwner(at, owner) => self.at(at, |key| key.revoke_owner(OWNERS[owner])),
            Step::Revoke(at, one, other) => self.at(at, |key| key.revoke([one, other])),
            Step::Heartbeat(at, id, ms, token) => self.at(at, |key| key.heartbeat(id, ms, token)),
            Step::Resize(at, seats) => self.at(at, |key| key.resize(seats)),
            Step::Cleanup(at) => self.at(at, |key| key.cleanup()),
            Step::Import(at, id) => self.at(at, |key| key.import(id)),
            Step::Elsewhere(at, taken) => self.at(at, |key| {
                key.name.model.elsewhere = taken;
                key.schedule(key.shared.now.now_ms);
            }),
            Step::HoldsElsewhere(at, id) => self.at(at, |key| key.holds_elsewhere(id)),
            Step::TimeOut(at, id) => self.at(at, |key| key.end_wait(id, false)),
            Step::Disconnects(at, id) => self.at(at, |key| key.end_wait(id, true)),
            Step::Dies(at, id) => self.at(at, |key| key.dies(id)),
            Step::Tick => (0..2).for_each(|at| self.at(at, |key| key.look())),
            Step::ClockMoves(by_ms) => self.move_clock(by_ms),
            Step::NextDeadline(at) => {
                let now = self.shared.now;
                if let Some(next_ms) = self.names[at].model.next_deadline_ms(now) {
                    self.move_clock(next_ms - now.now_ms);
                }
            }
            Step::Floor(for_ms) => {
                let floor_ms = self.shared.now.now_ms + for_ms;
                self.shared.now.floor_ms = self.shared.now.floor_ms.max(floor_ms);
            }
            Step::Hold(holds) => {
                self.shared.now.holds_grants = holds;
                (0..2).for_each(|at| self.at(at, |key| key.schedule(key.shared.now.now_ms)));
            }
            Step::RenameFrom(from) => self.move_value(from, true),
            Step::CopyFrom(from) => self.move_value(from, false),
            Step::Swap => self.swap(),
            Step::Delete(at) => {
                let World { shared, names } = self;
                names[at].replace(None, None, &Model::default(), shared);
            }
            Step::Departs(at) => {
                let World { shared, names } = self;
                if names[at].pool.is_some() {
                    names[at].replace(None, None, &Model::default(), shared);
                    names[at].has_departed = true;
                }
            }
        }
    }

    fn move_clock(&mut self, by_ms: i64) {
        let was = self.shared.now;
        self.shared.now.now_ms += by_ms;
        for at in 0..2 {
            // The timer does not go by the clock: what was due stays due.
            if self.names[at].is_due(was) {
                self.at(at, |key| key.schedule(key.shared.now.now_ms));
            }
        }
    }

    /// Seats are taken back in the turn of the event loop in which they were granted, so before the
    /// value can move.
    fn take_back(&mut self) {
        (0..2).for_each(|at| self.at(at, |key| key.take_back()));
    }

    fn move_value(&mut self, from: usize, leaves: bool) {
        self.take_back();
        let World { shared, names } = self;
        let name = &mut names[from];
        if name.pool.is_none() {
            return;
        }
        let (pool, follower, model) =
            (name.pool.clone(), name.follower.clone(), name.model.clone());
        if leaves {
            name.replace(None, None, &Model::default(), shared);
        }
        names[1 - from].replace(pool, follower, &model, shared);
    }

    fn swap(&mut self) {
        self.take_back();
        let World { shared, names } = self;
        let [one, other] = names;
        let (pool, follower, model) = (one.pool.take(), one.follower.take(), one.model.clone());
        one.replace(
            other.pool.take(),
            other.follower.take(),
            &other.model,
            shared,
        );
        other.replace(pool, follower, &model, shared);
    }

    fn check(&self) {
        for name in &self.names {
            name.check(&self.shared);
        }
        let queues = self.names.iter().flat_map(|name| name.blocked.iter());
        let blocked: BTreeSet<u32> = queues.map(|entry| entry.waiting.client).collect();
        for number in 0..self.shared.clients.len() as u32 {
            assert!(
                blocked.contains(&number) != self.shared.told.contains_key(&number),
                "client {number} is either blocked or told"
            );
        }
    }

    /// The timer comes until it has nothing left to do.
    fn settle(&mut self) {
        self.take(Step::Hold(false));
        for _ in 0..20 * IDS {
            self.take(Step::Tick);
            self.check();
            let now = self.shared.now;
            if !self.names.iter().any(|name| name.is_due(now)) {
                return;
            }
        }
        panic!("the timer never comes to an end");
    }
}

/// A call of a scene: who asks, and the limit that it states.
fn call(id: usize, seats: i64) -> Call {
    Call {
        id,
        seats,
        lease_ms: None,
        ticket_ms: None,
        blocks: false,
        claim: Claim::PLAIN,
        with_token: false,
        fault: None,
        longest_queue: usize::MAX,
    }
}

impl Call {
    fn blocking(self) -> Call {
        Call {
            blocks: true,
            ..self
        }
    }

    fn polling(self, ticket_ms: u64) -> Call {
        Call {
            ticket_ms: Some(ticket_ms),
            ..self
        }
    }

    fn weighing(mut self, weight: u32) -> Call {
        self.claim.weight = weight;
        self
    }

    /// Of the first owner, which may have so many sessions.
    fn limited(mut self, max: u64) -> Call {
        self.claim.owner = Some(OWNERS[0]);
        self.claim.max_per_owner = Some(max);
        self
    }

    /// The same, and one of these may end for it.
    fn taking_over(self, max: u64) -> Call {
        let mut call = self.limited(max);
        call.claim.takeover = true;
        call
    }

    fn with_token(self) -> Call {
        Call {
            with_token: true,
            ..self
        }
    }

    fn leased(self, lease_ms: u64) -> Call {
        Call {
            lease_ms: Some(lease_ms),
            ..self
        }
    }
}

const A: usize = 0;
const BOB: usize = 2;
const CAROL: usize = 3;
const DAVE: usize = 4;

/// Scenes at the first name.
impl World {
    /// A pool whose `used` seats are held by the first sessions.
    fn full(used: usize) -> World {
        let mut world = World::new();
        for id in 0..used {
            world.acquires(call(id, used as i64));
        }
        world
    }

    fn try_acquire(&mut self, call: Call) -> Result<Acquired<u32>, Refusal<Fault>> {
        let answer = self.at(0, |key| key.acquire(call));
        self.check();
        answer
    }

    fn acquires(&mut self, call: Call) {
        let answer = self.try_acquire(call);
        assert!(matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
    }

    /// Blocks a client, and returns its number.
    fn blocks(&mut self, call: Call) -> u32 {
        match self.try_acquire(call.blocking()) {
            Ok(Acquired::Blocked(number)) => number,
            answer => panic!("{answer:?}"),
        }
    }

    /// Polls with a ticket, and returns the position.
    fn queues(&mut self, call: Call) -> usize {
        match self.try_acquire(call.polling(60_000)) {
            Ok(Acquired::Queued { position, .. }) => position,
            answer => panic!("{answer:?}"),
        }
    }

    fn is_denied(&mut self, call: Call) {
        let answer = self.try_acquire(call);
        assert!(matches!(answer, Ok(Acquired::NoSeats { .. })), "{answer:?}");
    }

    fn does(&mut self, step: Step) {
        self.take(step);
        self.check();
    }

    fn told(&self, number: u32) -> Option<Told> {
        self.shared.told.get(&number).copied()
    }

    fn used(&self) -> u64 {
        self.names[0].pool().used(self.shared.now)
    }

    fn position(&self, id: usize) -> Option<usize> {
        let name = &self.names[0];
        let queue = Queue::new(name.pool(), &name.blocked, self.shared.now, 0);
        queue.position(&bytes_of(id))
    }

    /// Bob waits for one of two seats while others are about to state a wrong figure.
    fn with_bob_waiting() -> (World, u32) {
        let mut world = World::full(2);
        let bob = world.blocks(call(BOB, 2));
        (world, bob)
    }

    /// A seat falls free, and Bob is served in the same step.
    fn bob_is_served(&mut self, bob: u32) {
        self.does(Step::Release(0, A, Stated::Nothing));
        assert_eq!(self.told(bob), Some(Told::Granted));
        assert_eq!(self.used(), 2);
        self.settle();
    }
}

#[test]
fn a_wrong_figure_of_a_client_that_left_holds_nobody_up() {
    let (mut world, bob) = World::with_bob_waiting();
    let carol = world.blocks(call(CAROL, 1));
    world.does(Step::TimeOut(0, CAROL));
    assert_eq!(world.told(carol), Some(Told::NoSeats));
    world.bob_is_served(bob);
}

#[test]
fn a_wrong_figure_of_a_client_that_was_killed_holds_nobody_up() {
    let (mut world, bob) = World::with_bob_waiting();
    world.blocks(call(CAROL, 1));
    world.does(Step::Disconnects(0, CAROL));
    world.bob_is_served(bob);
}

#[test]
fn a_wrong_figure_of_a_client_that_waits_on_holds_nobody_up() {
    let (mut world, bob) = World::with_bob_waiting();
    let carol = world.blocks(call(CAROL, 1));
    world.bob_is_served(bob);
    assert_eq!(world.told(carol), None);
    assert_eq!(world.position(CAROL), Some(1));
}

#[test]
fn a_wrong_figure_ahead_is_shut_out_and_keeps_its_position() {
    let mut world = World::full(2);
    for figure in [1, 0, -1] {
        let wrong = world.blocks(call(CAROL, figure));
        let bob = world.blocks(call(BOB, 2));
        assert_eq!(world.position(BOB), Some(2));
        world.bob_is_served(bob);
        assert_eq!((world.told(wrong), world.position(CAROL)), (None, Some(1)));
        world.does(Step::Release(0, CAROL, Stated::Nothing));
        world.does(Step::Release(0, BOB, Stated::Nothing));
        world.acquires(call(A, 2));
    }
}

#[test]
fn a_ticket_with_a_wrong_figure_keeps_no_seat() {
    for figure in [1, 0] {
        let mut world = World::full(2);
        assert_eq!(world.queues(call(CAROL, figure)), 1);
        let bob = world.blocks(call(BOB, 2));
        world.bob_is_served(bob);
        assert_eq!(world.position(CAROL), Some(1));
    }
}

#[test]
fn a_join_with_a_wrong_figure_does_not_change_the_pools_seats() {
    let mut world = World::full(2);
    world.queues(call(CAROL, 1));
    world.blocks(call(DAVE, 0));
    assert_eq!(world.names[0].pool().seats(), 2);
    assert_eq!(
        world.names[0]
            .pool()
            .figure_of(world.names[0].pool().any_ticket(b"s3").expect("a ticket")),
        1
    );
}

#[test]
fn a_kept_seat_is_given_to_nobody_else() {
    let mut world = World::full(1);
    assert_eq!(world.queues(call(BOB, 1)), 1);
    let carol = world.blocks(call(CAROL, 1));
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!((world.told(carol), world.used()), (None, 0));
    world.is_denied(call(A, 1));
    assert_eq!(world.queues(call(DAVE, 1)), 3);
    world.acquires(call(BOB, 1));
}

#[test]
fn a_ticket_is_lost_in_its_last_millisecond_and_the_next_is_served() {
    let mut world = World::full(1);
    world.queues(call(BOB, 1));
    let carol = world.blocks(call(CAROL, 1));
    world.does(Step::Release(0, A, Stated::Nothing));
    world.does(Step::ClockMoves(59_999));
    world.does(Step::Tick);
    assert_eq!((world.told(carol), world.position(BOB)), (None, Some(1)));
    world.does(Step::ClockMoves(1));
    assert_eq!(
        (world.position(BOB), world.position(CAROL)),
        (None, Some(1))
    );
    world.does(Step::Tick);
    assert_eq!(world.told(carol), Some(Told::Granted));
    assert_eq!(world.names[0].pool().tickets(), 0, "it is removed, too");
}

#[test]
fn nobody_gets_past_those_who_wait_not_even_the_releaser() {
    let mut world = World::full(1);
    let bob = world.blocks(call(BOB, 1).leased(500));
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(world.told(bob), Some(Told::Granted));
    world.is_denied(call(A, 1));
    // The lease of Bob ends, and the timer has not come: Carol is the first of all the same.
    let carol = world.blocks(call(CAROL, 1));
    world.take(Step::ClockMoves(500));
    world.is_denied(call(A, 1));
    world.does(Step::Tick);
    assert_eq!(world.told(carol), Some(Told::Granted));
}

#[test]
fn a_higher_figure_takes_no_seat_that_is_due_to_another() {
    let mut world = World::new();
    world.acquires(call(A, 1).leased(500));
    let bob = world.blocks(call(BOB, 1));
    // The lease ends, and the timer has not come. Carol's grant would shut Bob out.
    world.take(Step::ClockMoves(500));
    world.acquires(call(CAROL, 2));
    assert_eq!((world.told(bob), world.used()), (Some(Told::Granted), 2));
}

#[test]
fn a_newcomer_waits_for_those_whom_one_step_leaves_to_the_next() {
    let mut world = World::new();
    for id in 6..9 {
        world.acquires(call(id, 3).leased(500));
    }
    let clients = [2, 3, 4].map(|id| world.blocks(call(id, 3)));
    world.take(Step::ClockMoves(500));
    // Time has made it the turn of three at once, and one step serves two.
    world.is_denied(call(A, 4));
    let told = clients.map(|number| world.told(number));
    let granted = Some(Told::Granted);
    assert_eq!(told, [granted, granted, None]);
    world.does(Step::Tick);
    assert_eq!(world.told(clients[2]), granted);
    world.acquires(call(A, 4));
}

#[test]
fn a_grant_that_shuts_somebody_out_lets_those_behind_have_their_turn() {
    let mut world = World::new();
    // Bob's kept seat is the first of two; Carol states three, and two are ahead of her.
    world.acquires(call(A, 1));
    world.queues(call(BOB, 1));
    let wrong = world.blocks(call(DAVE, 1));
    world.does(Step::Release(0, A, Stated::Nothing));
    let carol = world.blocks(call(CAROL, 2));
    assert_eq!((world.told(wrong), world.told(carol)), (None, None));
    // With Bob's grant Dave is shut out, and it is Carol's turn.
    world.acquires(call(BOB, 1));
    assert_eq!(
        (world.told(wrong), world.told(carol)),
        (None, Some(Told::Granted))
    );
    assert_eq!(world.used(), 2);
}

#[test]
fn a_client_whose_time_is_over_lets_those_behind_have_their_turn() {
    for disconnects in [false, true] {
        let mut world = World::new();
        world.acquires(call(A, 1));
        world.queues(call(BOB, 1));
        world.does(Step::Release(0, A, Stated::Nothing));
        world.blocks(call(DAVE, 1));
        let carol = world.blocks(call(CAROL, 2));
        assert_eq!(world.told(carol), None);
        world.does(match disconnects {
            true => Step::Disconnects(0, DAVE),
            false => Step::TimeOut(0, DAVE),
        });
        world.does(Step::Tick);
        assert_eq!(world.told(carol), Some(Told::Granted));
        assert_eq!(world.used(), 1, "the other seat is Bob's");
    }
}

#[test]
fn those_who_wait_are_served_in_the_order_of_their_arrival() {
    let mut world = World::full(2);
    let waiters = [(5, 1), (4, 2), (6, 1), (3, 2)];
    let clients = waiters.map(|(id, figure)| world.blocks(call(id, figure)));
    world.does(Step::Revoke(0, 0, 1));
    // The second has the seat that the first leaves; the third is shut out by then.
    let told = clients.map(|number| world.told(number));
    let granted = Some(Told::Granted);
    assert_eq!(told, [granted, granted, None, None]);
    world.settle();
    assert_eq!((world.position(6), world.position(3)), (Some(1), Some(2)));
}

#[test]
fn a_poll_with_another_figure_serves_whose_turn_it_is_by_it() {
    let mut world = World::new();
    world.acquires(call(A, 1));
    world.queues(call(BOB, 1));
    world.does(Step::Release(0, A, Stated::Nothing));
    let carol = world.blocks(call(CAROL, 1));
    // Bob's kept seat is no longer his by the figure that he states now.
    world.queues(call(BOB, 0));
    assert_eq!(world.told(carol), Some(Told::Granted));
    assert_eq!(world.position(BOB), Some(1));
}

#[test]
fn resize_restates_the_figures_of_all_who_wait() {
    let mut world = World::full(2);
    world.queues(call(BOB, 2));
    let carol = world.blocks(call(CAROL, 1));
    let dave = world.blocks(call(DAVE, 0));
    let granted = world.at(0, |key| {
        for entry in &mut key.name.model.queue {
            entry.client = entry.client.map(|client| Client {
                figure: 4,
                ..client
            });
        }
        key.machine().resize(4)
    });
    world.check();
    // One of the two seats more is kept for Bob.
    assert_eq!(
        (granted, world.told(carol), world.told(dave)),
        (1, Some(Told::Granted), None)
    );
    world.acquires(call(BOB, 4));
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(world.told(dave), Some(Told::Granted));
}

#[test]
fn resize_of_a_missing_pool_serves_those_who_wait_there() {
    let mut world = World::new();
    let bob = world.blocks(call(BOB, 0));
    let carol = world.blocks(call(CAROL, -5));
    assert!(world.names[0].pool.is_none());
    world.does(Step::Resize(0, 1));
    assert_eq!(
        (world.told(bob), world.told(carol)),
        (Some(Told::Granted), None)
    );
}

#[test]
fn a_ninth_figure_is_refused_and_a_poll_keeps_the_one_it_has() {
    let mut world = World::full(1);
    let figures = [1, 0, -1, -2, -3, -4, -5, -6];
    assert_eq!(figures.len(), MAX_FIGURES);
    for (id, figure) in (1..).zip(figures) {
        if id % 2 == 0 {
            world.queues(call(id, figure));
        } else {
            world.blocks(call(id, figure));
        }
    }
    let ninth = call(9, -7);
    assert_eq!(
        world.try_acquire(ninth.blocking()),
        Err(Refusal::TooManyFigures)
    );
    assert_eq!(
        world.try_acquire(ninth.polling(500)),
        Err(Refusal::TooManyFigures)
    );
    world.blocks(call(9, -6));
    // The last one shares its figure with the ninth session now, so its own would be one more.
    world.queues(call(8, -7));
    let pool = world.names[0].pool();
    let ticket = pool.any_ticket(b"s8").expect("a ticket");
    assert_eq!(pool.figure_of(ticket), -6);
    // The fourth is the only one with its figure, so it may state another.
    world.queues(call(4, -7));
    let pool = world.names[0].pool();
    let ticket = pool.any_ticket(b"s4").expect("a ticket");
    assert_eq!(pool.figure_of(ticket), -7);
}

#[test]
fn no_more_than_a_batch_is_served_in_one_step() {
    let mut world = World::full(1);
    let clients: Vec<u32> = (1..=4).map(|id| world.blocks(call(id, 1))).collect();
    world.does(Step::Resize(0, 5));
    let served = |world: &World| {
        let told = clients.iter().map(|&number| world.told(number));
        told.take_while(|told| *told == Some(Told::Granted)).count()
    };
    assert_eq!(served(&world), BATCH);
    world.does(Step::Tick);
    assert_eq!(served(&world), 2 * BATCH);
    world.settle();
}

#[test]
fn a_client_gone_at_its_grant_gives_the_seat_to_the_next() {
    let mut world = World::full(1);
    world.blocks(call(BOB, 1).polling(500));
    let carol = world.blocks(call(CAROL, 1));
    world.does(Step::Dies(0, BOB));
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!((world.used(), world.told(carol)), (1, None));
    world.does(Step::Tick);
    // Bob asked for a ticket as well, so his position is kept, and with it the seat.
    assert_eq!(
        (world.used(), world.position(BOB), world.told(carol)),
        (0, Some(1), None)
    );
    world.does(Step::ClockMoves(500));
    world.does(Step::Tick);
    assert_eq!(world.told(carol), Some(Told::Granted));
}

#[test]
fn seats_taken_elsewhere_are_granted_to_nobody() {
    let mut world = World::new();
    world.does(Step::Elsewhere(0, 2));
    world.is_denied(call(A, 2));
    let bob = world.blocks(call(BOB, 2));
    world.acquires(call(A, 3));
    world.does(Step::Elsewhere(0, 0));
    world.does(Step::Tick);
    assert_eq!(world.told(bob), Some(Told::Granted));
}

#[test]
fn a_session_that_holds_a_seat_elsewhere_leaves_the_queue() {
    let mut world = World::full(1);
    let leased = world.blocks(call(BOB, 1).leased(500));
    let ticketed = world.blocks(call(CAROL, 1).polling(500));
    world.queues(call(DAVE, 1));
    for id in [BOB, CAROL, DAVE] {
        world.does(Step::HoldsElsewhere(0, id));
        assert_eq!(world.position(id), None);
    }
    assert_eq!(world.told(leased), Some(Told::HeldElsewhere));
    assert_eq!(world.told(ticketed), Some(Told::AlreadyActive));
    assert_eq!(world.names[0].pool().tickets(), 0);
    let answer = world.try_acquire(call(BOB, 9).leased(500));
    assert_eq!(answer, Err(Refusal::HeldElsewhere));
    let answer = world.try_acquire(call(BOB, 9));
    let Ok(Acquired::AlreadyActive(active)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((active.used, active.renewed), (4, None));
}

#[test]
fn a_client_that_cannot_be_blocked_is_denied_or_has_a_ticket_alone() {
    let mut world = World::full(1);
    let older = world.blocks(call(BOB, 1));
    let unblockable = Call {
        fault: Some(Fault::Blocking),
        ..call(BOB, 1).blocking()
    };
    world.is_denied(unblockable);
    assert_eq!((world.told(older), world.position(BOB)), (None, Some(1)));
    let answer = world.try_acquire(unblockable.polling(500));
    assert!(matches!(answer, Ok(Acquired::Queued { position: 1, .. })));
    assert_eq!(world.told(older), Some(Told::NoSeats));
    world.does(Step::ClockMoves(500));
    world.does(Step::Tick);
    assert_eq!(world.position(BOB), None, "nobody attends to its ticket");
}

#[test]
fn while_grants_are_held_sessions_join_and_nobody_is_served() {
    let mut world = World::new();
    world.does(Step::Hold(true));
    world.is_denied(call(A, 1));
    let bob = world.blocks(call(BOB, 1));
    world.queues(call(CAROL, 1));
    world.does(Step::Tick);
    assert_eq!(world.told(bob), None);
    world.does(Step::Hold(false));
    world.does(Step::Tick);
    assert_eq!(world.told(bob), Some(Told::Granted));
}

#[test]
fn the_ticket_of_a_blocked_client_never_ends_before_its_wait() {
    let mut world = World::full(1);
    world.blocks(call(BOB, 1).polling(1));
    for _ in 0..20 {
        world.does(Step::ClockMoves(250));
        world.does(Step::Tick);
        let ticket = world.names[0].pool().ticket(world.shared.now, b"s2");
        assert!(
            ticket.is_some(),
            "it is valid in whatever instant the wait ends"
        );
    }
    world.does(Step::TimeOut(0, BOB));
    world.does(Step::Tick);
    world.does(Step::ClockMoves(1));
    assert_eq!(world.position(BOB), None);
}

#[test]
fn a_blocked_client_waits_on_when_its_ticket_is_lost_and_not_yet_renewed() {
    let mut world = World::new();
    world.acquires(call(A, 2).leased(2 * SPARE_MS));
    world.acquires(call(1, 2));
    world.queues(call(BOB, 2));
    let carol = world.blocks(call(CAROL, 2).polling(1));
    world.does(Step::Release(0, 1, Stated::Nothing));
    // Her ticket and the holder's lease end in one instant, before the timer comes.
    world.does(Step::ClockMoves(2 * SPARE_MS as i64));
    let ticket = world.names[0].pool().ticket(world.shared.now, b"s3");
    assert_eq!((ticket.is_none(), world.position(CAROL)), (true, Some(2)));
    world.is_denied(call(DAVE, 2));
    world.does(Step::Tick);
    assert_eq!(world.told(carol), Some(Told::Granted));
    assert_eq!(world.position(BOB), Some(1));
}

#[test]
fn a_client_whose_session_comes_with_another_value_hears_so() {
    let mut world = World::new();
    world.take(Step::Acquire(1, call(BOB, 1)));
    world.acquires(call(A, 1));
    let bob = world.blocks(call(BOB, 1).leased(700));
    let carol = world.blocks(call(CAROL, 1));
    world.does(Step::RenameFrom(1));
    world.does(Step::Tick);
    assert_eq!(
        (world.told(bob), world.told(carol)),
        (Some(Told::AlreadyActive), None)
    );
    world.does(Step::ClockMoves(700));
    world.does(Step::Tick);
    assert_eq!(
        world.told(carol),
        Some(Told::Granted),
        "the lease is that of the call"
    );
}

#[test]
fn a_client_takes_the_place_of_the_ticket_that_comes_with_another_value() {
    let mut world = World::full(1);
    let bob = world.blocks(call(BOB, 1));
    // At the other name, Carol has waited for longer than Bob does here.
    world.take(Step::Acquire(1, call(A, 1)));
    world.take(Step::Acquire(1, call(CAROL, 1).polling(60_000)));
    world.take(Step::Acquire(1, call(BOB, 1).polling(60_000)));
    world.does(Step::RenameFrom(1));
    assert_eq!(
        (world.position(CAROL), world.position(BOB)),
        (Some(1), Some(2))
    );
    world.does(Step::Release(0, CAROL, Stated::Nothing));
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(world.told(bob), Some(Told::Granted));
}

#[test]
fn a_client_whose_session_holds_a_seat_is_never_granted_another() {
    let mut world = World::new();
    world.does(Step::Hold(true));
    let clients = [BOB, CAROL, DAVE].map(|id| world.blocks(call(id, 9)));
    world.does(Step::Hold(false));
    for id in [BOB, CAROL, DAVE] {
        world.take(Step::Acquire(1, call(id, 3)));
    }
    // More than one step answers, so the last is found when it is its turn.
    world.does(Step::RenameFrom(1));
    world.does(Step::Tick);
    let told = clients.map(|number| world.told(number));
    assert_eq!(told, [Some(Told::AlreadyActive); 3]);
    assert_eq!(world.used(), 3);
}

#[test]
fn a_seat_that_its_session_has_confirmed_is_not_taken_back() {
    for by_heartbeat in [false, true] {
        let mut world = World::full(1);
        world.blocks(call(BOB, 1));
        world.does(Step::Dies(0, BOB));
        world.does(Step::Release(0, A, Stated::Nothing));
        if by_heartbeat {
            world.does(Step::Heartbeat(0, BOB, None, Stated::Nothing));
        } else {
            let answer = world.try_acquire(call(BOB, 1));
            assert!(
                matches!(answer, Ok(Acquired::AlreadyActive(_))),
                "{answer:?}"
            );
        }
        world.settle();
        assert_eq!(world.used(), 1);
    }
}

/// Scenes with owners, weights and tokens, at the first name.
impl World {
    fn is_limited(&mut self, call: Call) -> (u64, u64) {
        match self.try_acquire(call) {
            Ok(Acquired::OwnerLimit { held, max }) => (held, max),
            answer => panic!("{answer:?}"),
        }
    }

    /// Acquires by a takeover, and returns whose session has ended.
    fn takes_over(&mut self, call: Call) -> usize {
        match self.try_acquire(call) {
            Ok(Acquired::Granted(granted)) => id_of(&granted.replaced.expect("a takeover")),
            answer => panic!("{answer:?}"),
        }
    }

    fn token(&mut self, call: Call) -> u64 {
        let token = match self.try_acquire(call) {
            Ok(Acquired::Granted(granted)) => granted.token,
            Ok(Acquired::AlreadyActive(active)) => active.token,
            answer => panic!("{answer:?}"),
        };
        token.expect("it asked for one")
    }

    fn holds(&self, id: usize) -> bool {
        let pool = self.names[0].pool();
        pool.get(self.shared.now, &bytes_of(id)).is_some()
    }
}

#[test]
fn a_session_takes_as_many_seats_as_it_weighs() {
    let mut world = World::new();
    world.acquires(call(A, 5).weighing(3));
    assert_eq!(world.used(), 3);
    world.is_denied(call(BOB, 5).weighing(3));
    world.acquires(call(BOB, 5).weighing(2));
    assert_eq!(world.used(), 5);
    world.is_denied(call(CAROL, 5));
    // What it weighs is fixed by its grant.
    let answer = world.try_acquire(call(A, 9).weighing(1));
    assert!(matches!(answer, Ok(Acquired::AlreadyActive(_))));
    assert_eq!(world.used(), 5);
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(world.used(), 2);
}

#[test]
fn an_expired_session_frees_all_its_seats_at_once() {
    let mut world = World::new();
    world.acquires(call(A, 5).weighing(4).leased(500));
    world.acquires(call(BOB, 5));
    world.take(Step::ClockMoves(499));
    assert_eq!(world.used(), 5);
    world.take(Step::ClockMoves(1));
    assert_eq!(world.used(), 1);
    world.acquires(call(CAROL, 5).weighing(4));
}

#[test]
fn nobody_gets_past_a_heavier_waiter() {
    let mut world = World::full(2);
    let bob = world.blocks(call(BOB, 2).weighing(2));
    let carol = world.blocks(call(CAROL, 2));
    world.does(Step::Release(0, A, Stated::Nothing));
    // One seat is free, and it is no one's: Bob needs two, and Carol is behind him.
    assert_eq!((world.told(bob), world.told(carol)), (None, None));
    world.is_denied(call(DAVE, 2));
    world.does(Step::Release(0, 1, Stated::Nothing));
    assert_eq!(world.told(bob), Some(Told::Granted));
    assert_eq!(world.told(carol), None);
}

#[test]
fn a_waiter_heavier_than_its_figure_holds_nobody_up() {
    let mut world = World::full(2);
    let bob = world.blocks(call(BOB, 2).weighing(3));
    assert_eq!(world.queues(call(5, 2).weighing(MAX_WEIGHT)), 2);
    let carol = world.blocks(call(CAROL, 2));
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(
        (world.told(bob), world.told(carol)),
        (None, Some(Told::Granted))
    );
    assert_eq!((world.position(BOB), world.position(5)), (Some(1), Some(2)));
    // RESIZE lets it count, and then it is ahead.
    world.does(Step::Resize(0, 3));
    world.is_denied(call(DAVE, 3));
    world.does(Step::Release(0, CAROL, Stated::Nothing));
    world.does(Step::Release(0, 1, Stated::Nothing));
    assert_eq!(world.told(bob), Some(Told::Granted));
}

#[test]
fn a_poll_with_a_lighter_weight_serves_whose_turn_it_is_then() {
    let mut world = World::full(2);
    world.queues(call(BOB, 2).weighing(2));
    let carol = world.blocks(call(CAROL, 2));
    world.does(Step::Release(0, A, Stated::Nothing));
    world.does(Step::Release(0, 1, Stated::Nothing));
    assert_eq!(world.told(carol), None);
    // While grants are held, Bob joins anew instead of being granted what he asks for.
    world.does(Step::Hold(true));
    world.queues(call(BOB, 2));
    world.does(Step::Hold(false));
    world.does(Step::Tick);
    assert_eq!(world.told(carol), Some(Told::Granted));
    world.acquires(call(BOB, 2));
}

#[test]
fn the_limit_of_an_owner_comes_before_a_full_pool() {
    let mut world = World::new();
    world.acquires(call(A, 2).limited(2));
    world.acquires(call(1, 2).limited(2));
    for waits in [
        call(BOB, 2).limited(2),
        call(BOB, 9).limited(2).blocking(),
        call(BOB, 2).limited(2).polling(500),
    ] {
        assert_eq!(world.is_limited(waits), (2, 2));
        assert_eq!(world.position(BOB), None);
    }
    assert_eq!(world.is_limited(call(BOB, 2).limited(1)), (2, 1));
    // A higher limit, no limit, or another owner is none of its business.
    world.is_denied(call(BOB, 2).limited(3));
    world.is_denied(call(BOB, 2));
    world.acquires(call(BOB, 3).limited(3));
    world.does(Step::Release(0, A, Stated::Nothing));
    world.does(Step::Release(0, BOB, Stated::Nothing));
    world.acquires(call(BOB, 2).limited(2));
}

#[test]
fn a_session_that_holds_a_seat_is_never_above_the_limit() {
    let mut world = World::new();
    world.acquires(call(A, 2).limited(1));
    let answer = world.try_acquire(call(A, 2).limited(1));
    assert!(matches!(answer, Ok(Acquired::AlreadyActive(_))));
}

#[test]
fn an_expired_session_counts_for_its_owner_no_longer() {
    let mut world = World::new();
    world.acquires(call(A, 5).limited(1).leased(500));
    world.take(Step::ClockMoves(499));
    assert_eq!(world.is_limited(call(BOB, 5).limited(1)), (1, 1));
    world.take(Step::ClockMoves(1));
    world.acquires(call(BOB, 5).limited(1));
    // Nor does it come back when a floor rises or the clock steps back.
    world.does(Step::Floor(900));
    assert!(!world.holds(A));
}

#[test]
fn a_grant_that_needs_more_reclaimed_than_a_batch_is_put_off() {
    let mut world = World::new();
    for id in 1..=BATCH + 2 {
        world.acquires(call(id, 9).leased(500));
    }
    world.take(Step::ClockMoves(500));
    // Only one of them may stay next to it, so the others are in its way.
    world.is_denied(call(A, 2));
    assert_eq!(world.names[0].pool().len(), BATCH + 2, "changes nothing");
    assert_eq!(world.used(), 0);
    let bob = world.blocks(call(8, 2));
    assert_eq!(world.told(bob), None);
    world.is_denied(call(A, 9));
    world.does(Step::Tick);
    assert_eq!(world.told(bob), Some(Told::Granted));
    world.does(Step::Floor(900));
    assert_eq!(world.names[0].pool().len(), 2);
    assert_eq!(world.used(), 2);
    world.settle();
}

#[test]
fn so_is_one_for_an_owner_with_more_expired_than_a_batch() {
    let mut world = World::new();
    for id in 1..=BATCH + 2 {
        world.acquires(call(id, 9).limited(9).leased(500));
    }
    world.acquires(call(8, 9).limited(9));
    world.take(Step::ClockMoves(500));
    world.is_denied(call(A, 9).taking_over(1));
    assert!(world.holds(8), "changes nothing");
    world.does(Step::Tick);
    assert_eq!(world.takes_over(call(A, 9).taking_over(1)), 8);
    world.settle();
}

#[test]
fn a_takeover_ends_the_session_that_was_silent_for_the_longest() {
    let mut world = World::new();
    for id in 1..4 {
        world.acquires(call(id, 9).limited(3));
        world.does(Step::ClockMoves(1000));
    }
    world.does(Step::Heartbeat(0, 1, None, Stated::Nothing));
    world.does(Step::ClockMoves(1000));
    assert_eq!(world.takes_over(call(A, 9).taking_over(3)), 2);
    assert_eq!(world.used(), 3);
    // A lease that was renewed is a sign of life as well.
    world.does(Step::ClockMoves(1000));
    let answer = world.try_acquire(call(3, 9).leased(60_000));
    assert!(matches!(answer, Ok(Acquired::AlreadyActive(_))));
    world.does(Step::ClockMoves(1000));
    assert_eq!(world.takes_over(call(5, 9).taking_over(3)), 1);
}

#[test]
fn of_sessions_equally_silent_that_in_the_lowest_slot_ends() {
    let mut world = World::new();
    for id in [3, 1, 2] {
        world.acquires(call(id, 9).limited(3));
    }
    assert_eq!(world.takes_over(call(A, 9).taking_over(3)), 3);
    // Its slot was free only once the grant had taken another, and goes to the next session.
    world.does(Step::Release(0, 1, Stated::Nothing));
    world.acquires(call(3, 9).limited(3));
    assert_eq!(world.takes_over(call(5, 9).taking_over(3)), 3);
}

#[test]
fn a_takeover_is_refused_where_it_would_not_help() {
    let mut world = World::new();
    for id in 1..4 {
        world.acquires(call(id, 4).limited(3));
    }
    // One would end, and two be left with it.
    assert_eq!(world.is_limited(call(A, 9).taking_over(2)), (3, 2));
    // One seat comes free, and it needs three.
    assert_eq!(
        world.is_limited(call(A, 4).taking_over(3).weighing(3)),
        (3, 3)
    );
    assert_eq!(world.used(), 3);
    // Nobody of another owner ends for it.
    world.acquires(call(5, 4));
    let mut stranger = call(A, 4).taking_over(3);
    stranger.claim.owner = Some(OWNERS[1]);
    world.is_denied(stranger);
    assert_eq!(world.used(), 4);
}

#[test]
fn a_takeover_in_a_full_pool_passes_nobody_and_needs_no_turn() {
    let mut world = World::new();
    world.acquires(call(1, 2).limited(3));
    world.acquires(call(5, 2));
    let bob = world.blocks(call(BOB, 2));
    assert_eq!(world.takes_over(call(A, 2).taking_over(3)), 1);
    assert_eq!((world.used(), world.told(bob)), (2, None));
    // A heavier one would take what is due to Bob.
    world.does(Step::Resize(0, 3));
    assert_eq!(world.told(bob), Some(Told::Granted));
    world.does(Step::Hold(true));
    assert_eq!(world.queues(call(CAROL, 4)), 1);
    world.does(Step::Hold(false));
    world.is_denied(call(6, 4).taking_over(3).weighing(2));
    world.does(Step::Release(0, CAROL, Stated::Nothing));
    assert_eq!(world.takes_over(call(6, 4).taking_over(3).weighing(2)), A);
    assert_eq!(world.used(), 4);
}

#[test]
fn a_heavier_successor_takes_no_seat_that_is_due_to_another() {
    let mut world = World::new();
    world.acquires(call(1, 3).limited(1));
    world.acquires(call(5, 3).weighing(2).leased(500));
    let bob = world.blocks(call(BOB, 3));
    // The lease ends, and the timer has not come. The takeover would shut Bob out.
    world.take(Step::ClockMoves(500));
    let heavier = call(A, 9).taking_over(1).weighing(3);
    assert_eq!(world.takes_over(heavier), 1);
    assert_eq!((world.told(bob), world.used()), (Some(Told::Granted), 4));
}

#[test]
fn a_lighter_successor_lets_the_queue_be_served() {
    let mut world = World::new();
    world.acquires(call(1, 3).limited(1).weighing(3));
    let bob = world.blocks(call(BOB, 3).weighing(2));
    assert_eq!(world.takes_over(call(A, 3).taking_over(1)), 1);
    assert_eq!((world.told(bob), world.used()), (Some(Told::Granted), 3));
}

#[test]
fn a_failed_condition_ends_nobody_for_a_takeover() {
    let mut world = World::new();
    world.acquires(call(1, 3).limited(1));
    for fault in [Fault::Metadata, Fault::Memory] {
        let faulty = Call {
            fault: Some(fault),
            ..call(A, 3).taking_over(1)
        };
        assert_eq!(world.try_acquire(faulty), Err(Refusal::Unmet(fault)));
        assert!(world.holds(1));
    }
}

#[test]
fn a_client_at_its_turn_hears_that_its_owner_is_at_its_limit() {
    let mut world = World::full(2);
    let first = world.blocks(call(5, 2).limited(1));
    let second = world.blocks(call(6, 2).limited(1).polling(60_000));
    let last = world.blocks(call(BOB, 2));
    world.does(Step::Revoke(0, 0, 1));
    assert_eq!(world.told(first), Some(Told::Granted));
    assert_eq!(world.told(second), Some(Told::OwnerLimit));
    assert_eq!(world.names[0].pool().tickets(), 0, "its ticket goes, too");
    world.settle();
    assert_eq!(world.told(last), Some(Told::Granted));
}

#[test]
fn a_client_at_its_turn_takes_over_if_it_said_so() {
    let mut world = World::full(2);
    let first = world.blocks(call(5, 2).limited(1));
    let second = world.blocks(call(6, 2).taking_over(1));
    world.does(Step::Revoke(0, 0, 1));
    assert_eq!(world.told(first), Some(Told::Granted));
    assert_eq!(world.told(second), Some(Told::Granted));
    assert_eq!(
        (world.holds(5), world.holds(6), world.used()),
        (false, true, 1)
    );
}

#[test]
fn no_seat_is_kept_for_a_ticket_whose_owner_is_at_its_limit() {
    let mut world = World::full(2);
    world.queues(call(5, 2).limited(1));
    world.queues(call(6, 2).taking_over(1));
    let bob = world.blocks(call(BOB, 2));
    world.acquires(call(7, 3).limited(1));
    // Not its turn yet: it may be in time.
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(world.position(5), Some(1));
    world.does(Step::Release(0, 1, Stated::Nothing));
    assert_eq!(world.position(5), None);
    // The one that may take over keeps its seat until it polls.
    assert_eq!((world.position(6), world.told(bob)), (Some(1), None));
    assert_eq!(world.takes_over(call(6, 2).taking_over(1)), 7);
    assert_eq!(world.told(bob), Some(Told::Granted));
}

#[test]
fn no_seat_is_kept_for_a_takeover_that_would_not_help() {
    let mut world = World::full(3);
    world.queues(call(6, 3).taking_over(1));
    let dave = world.blocks(call(DAVE, 3));
    for id in [5, 7] {
        world.acquires(call(id, 5).limited(2));
    }
    for id in [A, 1, BOB] {
        assert_eq!(world.position(6), Some(1));
        world.does(Step::Release(0, id, Stated::Nothing));
    }
    // With one session less, its owner would still be at the limit.
    assert_eq!(world.position(6), None);
    assert_eq!(world.told(dave), Some(Told::Granted));
}

#[test]
fn a_poll_at_the_limit_is_refused_and_keeps_its_position() {
    let mut world = World::full(2);
    world.queues(call(5, 2).limited(1));
    world.acquires(call(6, 3).limited(1));
    assert_eq!(world.is_limited(call(5, 2).limited(1).polling(500)), (1, 1));
    assert_eq!(world.position(5), Some(1));
    world.does(Step::Release(0, 6, Stated::Nothing));
    assert_eq!(world.queues(call(5, 2).limited(1)), 1);
}

#[test]
fn a_ticket_that_leaves_as_soon_as_it_joins_gets_the_reason() {
    let mut world = World::full(2);
    let first = world.blocks(call(6, 2).weighing(2).limited(1));
    world.blocks(call(5, 2).weighing(2));
    // The pool goes, and the timer has not come. So the call serves the first, which shuts the
    // second out.
    world.take(Step::Delete(0));
    let poll = call(BOB, 3).limited(1).polling(500);
    assert_eq!(world.is_limited(poll), (1, 1));
    assert_eq!(world.told(first), Some(Told::Granted));
    assert_eq!(world.position(BOB), None);
}

#[test]
fn no_more_than_a_batch_leaves_for_its_owner_in_one_step() {
    let mut world = World::full(1);
    world.does(Step::Hold(true));
    for id in 1..6 {
        world.queues(call(id, 9).limited(1));
    }
    world.does(Step::Hold(false));
    world.does(Step::Release(0, A, Stated::Nothing));
    world.acquires(call(1, 9).limited(1));
    let left = |world: &World| 4 - world.names[0].pool().tickets();
    assert_eq!(left(&world), BATCH);
    world.does(Step::Tick);
    assert_eq!(left(&world), 4);
    world.settle();
}

#[test]
fn revoking_an_owner_ends_its_sessions_and_its_waits() {
    let mut world = World::new();
    world.acquires(call(1, 3).limited(5).leased(500));
    world.acquires(call(5, 3).limited(5).weighing(2));
    world.queues(call(6, 3).limited(5));
    let client = world.blocks(call(7, 3).limited(5));
    let bob = world.blocks(call(BOB, 3));
    world.does(Step::RevokeOwner(0, 1));
    assert_eq!(world.used(), 3);
    world.does(Step::RevokeOwner(0, 0));
    assert_eq!(world.told(client), Some(Told::NoSeats));
    assert_eq!((world.told(bob), world.used()), (Some(Told::Granted), 1));
    assert_eq!(world.names[0].pool().tickets(), 0);
}

#[test]
fn a_predecessor_of_the_same_id_neither_keeps_nor_frees_it() {
    let mut world = World::new();
    let first = world.token(call(A, 1).with_token().leased(500));
    world.take(Step::ClockMoves(500));
    let second = world.token(call(A, 1).with_token());
    let third = world.token(call(A, 1).with_token());
    assert!(first < second && second < third);
    for void in [first, second, third + 1] {
        world.at(0, |key| {
            let beat = key.machine().heartbeat(b"s0", None, Some(void));
            assert_eq!(beat, HeartbeatOutcome::NotActive);
            assert_eq!(key.machine().release(b"s0", Some(void)), None);
        });
        world.check();
    }
    world.at(0, |key| {
        let beat = key.machine().heartbeat(b"s0", None, Some(third));
        assert!(matches!(beat, HeartbeatOutcome::Updated(_)));
        assert_eq!(key.machine().release(b"s0", Some(third)), Some(0));
    });
    world.check();
}

#[test]
fn a_void_token_takes_nobody_out_of_the_queue() {
    let mut world = World::full(1);
    world.queues(call(BOB, 1));
    world.does(Step::Release(0, BOB, Stated::Void));
    assert_eq!(world.position(BOB), Some(1));
}

#[test]
fn a_blocked_client_has_its_token_with_its_grant() {
    let mut world = World::full(1);
    let bob = world.blocks(call(BOB, 1).with_token());
    world.does(Step::Release(0, A, Stated::Nothing));
    assert_eq!(world.told(bob), Some(Told::Granted));
    let session = world.names[0].pool().iter().next().expect("Bob's");
    let holder = world.names[0].pool().holder_of(session);
    assert_eq!(holder.token, Some(world.shared.last_token));
}

#[test]
fn a_grant_taken_back_leaves_its_claim_with_the_ticket() {
    let mut world = World::full(2);
    let heavy = call(BOB, 2).limited(1).weighing(2).polling(500);
    world.blocks(heavy);
    world.does(Step::Dies(0, BOB));
    world.does(Step::Revoke(0, 0, 1));
    world.does(Step::Tick);
    let pool = world.names[0].pool();
    let ticket = pool.any_ticket(b"s2").expect("his position is kept");
    assert_eq!(pool.claim_of(ticket), heavy.claim);
}

/// Notes what is asked of it, and in which order.
#[derive(Default)]
struct Asked {
    what: RefCell<Vec<Fault>>,
}

impl Conditions<'static> for Asked {
    type Error = Fault;

    fn metadata(&self) -> Result<Metadata<'static>, Fault> {
        self.what.borrow_mut().push(Fault::Metadata);
        Ok(Metadata::NONE)
    }

    fn memory(&self) -> Result<(), Fault> {
        self.what.borrow_mut().push(Fault::Memory);
        Ok(())
    }
}

#[test]
fn an_acquire_asks_only_for_what_its_answer_needs() {
    use Fault::{Memory, Metadata};
    let mut world = World::new();
    let mut asks = |call: Call| {
        world.at(0, |key| {
            key.subject = Subject::Calling(key.expected(call).1);
            let asked = Asked::default();
            let session: &[u8] = if call.id == A { b"s0" } else { b"s2" };
            let request = AcquireRequest {
                ticket_ms: call.ticket_ms,
                longest_queue: 100,
                ..AcquireRequest::plain(session, call.seats)
            };
            key.machine().acquire(&request, &asked).expect("it is met");
            asked.what.into_inner()
        })
    };
    assert_eq!(asks(call(A, 1)), [Metadata, Memory], "a grant");
    assert_eq!(asks(call(A, 1)), [], "already active");
    assert_eq!(asks(call(BOB, 1)), [], "a denial");
    let poll = call(BOB, 1).polling(500);
    assert_eq!(asks(poll), [Metadata, Memory], "a join");
    assert_eq!(asks(poll), [Metadata], "a poll");
}

fn histories() -> u32 {
    match env::var("SEAT_TRUST").as_deref() {
        Ok("full") => 10_000,
        Ok(other) => panic!("SEAT_TRUST is {other:?}, but can only be \"full\""),
        Err(_) => 300,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), max_shrink_iters: 50_000, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_answers_as_a_naive_model_does(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for (number, step) in steps.into_iter().enumerate() {
            world.take(step);
            world.shared.reloads = number % 4 == 0;
            world.check();
        }
        world.settle();
    }
}
