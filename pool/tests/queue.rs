//! The queue against a model that is too simple to be wrong: a list in the order of arrival, searched from end to end.
//!
//! Random histories at two names. Pools are renamed, copied, swapped and deleted between them, while blocked clients stay with
//! their names. A small driver does with the pool's decisions and effects what the commands do; the model keeps the same state
//! naively. After each step both must answer alike and the promises of the queue must hold: first come first served, no barging,
//! no seat idle while a client waits for it, never a grant while used ≥ the limit of that grant, and each client is told once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use proptest::prelude::*;
use seat_pool::{
    Acquire, Applied, Decoder, Effect, Freed, Lease, Limit, Line, Metadata, Moment, Pool, Ticket,
};

/// Sessions, few enough to meet often.
const IDS: usize = 8;

/// Waiters that one command serves at most; small, so that histories reach it.
const BATCH: usize = 2;

/// For how long the ticket of a client that is still blocked is renewed at least.
const LEAST_RENEWAL_MS: u64 = 100;

#[derive(Clone, Copy, Debug)]
struct Call {
    id: usize,
    seats: i64,
    lease_ms: Option<u64>,
    ticket_ms: Option<u64>,
    blocks: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Acquire(usize, Call),
    Release(usize, usize),
    /// A heartbeat, as far as the queue is concerned.
    Renew(usize, usize, u64),
    Resize(usize, i64),
    /// Others than the pool's sessions take so many seats from now on.
    Elsewhere(usize, usize),
    TimeOut(usize, usize),
    /// The client's connection breaks, and the server has not noticed.
    Dies(usize, usize),
    Disconnects(usize, usize),
    Tick,
    ClockMoves(i64),
    /// Until when nothing ends, from the present moment.
    FloorMoves(i64),
    HoldsGrants(bool),
    RenameFrom(usize),
    CopyFrom(usize),
    Swap,
    Delete(usize),
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
                f.write_str(if call.blocks { " BLOCK 0" } else { "" })
            }
            Step::Release(at, id) => write!(f, "RELEASE k{at} s{id}"),
            Step::Renew(at, id, ms) => write!(f, "HEARTBEAT k{at} s{id} PX {ms}"),
            Step::Resize(at, seats) => write!(f, "RESIZE k{at} {seats}"),
            Step::Elsewhere(at, taken) => write!(f, "{taken} seats of k{at} are taken elsewhere"),
            Step::TimeOut(at, id) => write!(f, "BLOCK of s{id} at k{at} times out"),
            Step::Dies(at, id) => write!(f, "the client of s{id} at k{at} dies unnoticed"),
            Step::Disconnects(at, id) => write!(f, "the client of s{id} at k{at} disconnects"),
            Step::Tick => f.write_str("the timer comes"),
            Step::FloorMoves(by_ms) => write!(f, "the floor moves to now {by_ms:+} ms"),
            Step::HoldsGrants(true) => f.write_str("grants are held"),
            Step::HoldsGrants(false) => f.write_str("grants are held no longer"),
            Step::ClockMoves(by_ms) => write!(f, "the clock moves by {by_ms} ms"),
            Step::RenameFrom(from) => write!(f, "RENAME k{from} k{}", 1 - from),
            Step::CopyFrom(from) => write!(f, "COPY k{from} k{} REPLACE", 1 - from),
            Step::Swap => f.write_str("k0 and k1 swap their values"),
            Step::Delete(at) => write!(f, "DEL k{at}"),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let at = || prop_oneof![4 => Just(0usize), 1 => Just(1)];
    let id = || 0..IDS;
    let optional_ms = || prop::option::weighted(0.4, 1..1500u64);
    let call = (id(), 0..5i64, optional_ms(), optional_ms(), any::<bool>());
    let call = call.prop_map(|(id, seats, lease_ms, ticket_ms, blocks)| Call {
        id,
        seats,
        lease_ms,
        ticket_ms,
        blocks,
    });
    prop_oneof![
        20 => (at(), call).prop_map(|(at, call)| Step::Acquire(at, call)),
        8 => (at(), id()).prop_map(|(at, id)| Step::Release(at, id)),
        2 => (at(), id(), 1..1500u64).prop_map(|(at, id, ms)| Step::Renew(at, id, ms)),
        2 => (at(), 0..6i64).prop_map(|(at, seats)| Step::Resize(at, seats)),
        3 => (at(), 0..4usize).prop_map(|(at, taken)| Step::Elsewhere(at, taken)),
        2 => (at(), id()).prop_map(|(at, id)| Step::TimeOut(at, id)),
        2 => (at(), id()).prop_map(|(at, id)| Step::Dies(at, id)),
        2 => (at(), id()).prop_map(|(at, id)| Step::Disconnects(at, id)),
        6 => Just(Step::Tick),
        5 => (-300..900i64).prop_map(Step::ClockMoves),
        2 => (-100..900i64).prop_map(Step::FloorMoves),
        1 => any::<bool>().prop_map(Step::HoldsGrants),
        1 => at().prop_map(Step::RenameFrom),
        1 => at().prop_map(Step::CopyFrom),
        1 => Just(Step::Swap),
        1 => at().prop_map(Step::Delete),
    ]
}

fn bytes_of(id: usize) -> Vec<u8> {
    format!("s{id}").into_bytes()
}

fn id_of(session: &[u8]) -> usize {
    usize::from(session[1] - b'0')
}

/// A place in the model's list: kept by a ticket, by a blocked client or by both.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: usize,
    arrival: u64,
    ticket: Option<Ticket>,
    /// The client's number and since when it waits.
    client: Option<(u32, i64)>,
}

impl Place {
    fn is_valid(&self, moment: Moment) -> bool {
        self.client.is_some() || self.has_valid_ticket(moment)
    }

    fn has_valid_ticket(&self, moment: Moment) -> bool {
        self.ticket
            .is_some_and(|ticket| moment.now_ms < ticket.deadline_ms.max(moment.floor_ms))
    }

    fn since_ms(&self, moment: Moment) -> i64 {
        let ticket = self.ticket.filter(|_| self.has_valid_ticket(moment));
        let blocked = self.client.map(|(_, since_ms)| since_ms);
        ticket.map(|ticket| ticket.since_ms).or(blocked).unwrap()
    }
}

/// What there is at a name, in the simplest form.
#[derive(Clone, Debug, Default)]
struct Model {
    seats: i64,
    /// What others than the sessions take of the seats; that belongs to the name.
    elsewhere: usize,
    rows: BTreeMap<usize, Option<Lease>>,
    queue: Vec<Place>,
}

impl Model {
    fn exists(&self) -> bool {
        !self.rows.is_empty() || self.queue.iter().any(|place| place.ticket.is_some())
    }

    fn is_live(&self, moment: Moment, id: usize) -> bool {
        let row = self.rows.get(&id);
        row.is_some_and(|lease| {
            lease.is_none_or(|lease| moment.now_ms < lease.deadline_ms.max(moment.floor_ms))
        })
    }

    fn used(&self, moment: Moment) -> usize {
        (0..IDS).filter(|&id| self.is_live(moment, id)).count()
    }

    /// The seats that are taken, whoever has them.
    fn taken(&self, moment: Moment) -> i64 {
        (self.used(moment) + self.elsewhere) as i64
    }

    fn waiting(&self, moment: Moment) -> Vec<Place> {
        let places = self.queue.iter().copied();
        places.filter(|place| place.is_valid(moment)).collect()
    }

    fn index(&self, moment: Moment, id: usize) -> Option<usize> {
        self.waiting(moment).iter().position(|place| place.id == id)
    }

    fn ahead(&self, moment: Moment, id: usize) -> usize {
        let index = self.index(moment, id);
        index.unwrap_or_else(|| self.waiting(moment).len())
    }

    fn decide(&self, moment: Moment, id: usize, seats: i64) -> Acquire {
        let ahead = self.ahead(moment, id);
        if self.is_live(moment, id) {
            Acquire::AlreadyActive
        } else if self.taken(moment) + (ahead as i64) < seats && !moment.holds_grants {
            Acquire::Vacant
        } else {
            Acquire::NoSeats {
                position: ahead + 1,
            }
        }
    }

    fn free(&self, moment: Moment) -> usize {
        let free = self.seats - self.taken(moment);
        usize::try_from(free).unwrap_or(0)
    }

    /// The blocked client for whom a seat is free under the limit `seats`.
    fn eligible(&self, moment: Moment, seats: i64) -> Option<usize> {
        if moment.holds_grants {
            return None;
        }
        let free = seats - self.taken(moment);
        let places = self.waiting(moment).into_iter();
        places
            .take(usize::try_from(free).unwrap_or(0))
            .find(|place| place.client.is_some())
            .map(|place| place.id)
    }

    fn place(&mut self, id: usize) -> Option<&mut Place> {
        self.queue.iter_mut().find(|place| place.id == id)
    }

    /// The place of `id`, at `arrival`: the one it has, or a new one.
    fn place_at(&mut self, id: usize, arrival: u64) -> &mut Place {
        self.queue
            .retain(|place| place.id != id || place.arrival == arrival);
        if self.place(id).is_none() {
            self.queue.push(Place {
                id,
                arrival,
                ticket: None,
                client: None,
            });
            self.queue.sort_by_key(|place| place.arrival);
        }
        self.place(id).unwrap()
    }

    fn drop_ticket(&mut self, id: usize) {
        if let Some(place) = self.place(id) {
            place.ticket = None;
        }
        self.forget_empty_places();
    }

    fn drop_client(&mut self, id: usize) {
        if let Some(place) = self.place(id) {
            place.client = None;
        }
        self.forget_empty_places();
    }

    fn forget_empty_places(&mut self) {
        self.queue
            .retain(|place| place.client.is_some() || place.ticket.is_some());
    }

    fn apply(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Grant(grant) => {
                let id = id_of(grant.session);
                self.rows.insert(id, grant.lease);
                self.drop_ticket(id);
                self.seats = grant.seats;
            }
            Effect::Renew { session, lease } => {
                self.rows.insert(id_of(session), Some(*lease));
            }
            Effect::Free { session, .. } => {
                self.rows.remove(&id_of(session));
            }
            Effect::Join(join) => {
                self.place_at(id_of(join.session), join.arrival).ticket = Some(join.ticket);
                self.seats = join.seats;
            }
            Effect::Leave { session } => self.drop_ticket(id_of(session)),
            Effect::Seats(seats) => self.seats = *seats,
            Effect::Beat(_) => unreachable!("no step counts heartbeats"),
            Effect::Import(_) => unreachable!("no step imports"),
        }
    }

    /// The value of `other` comes to this name: its rows and tickets, while the clients stay.
    fn take_value(&mut self, other: &Model) {
        let clients: Vec<Place> = self.queue.drain(..).collect();
        self.seats = other.seats;
        self.rows = other.rows.clone();
        self.queue = other.queue.clone();
        for place in &mut self.queue {
            place.client = None;
        }
        self.forget_empty_places();
        for Place {
            id,
            arrival,
            client,
            ..
        } in clients
        {
            if client.is_some() {
                let arrival = self.place(id).map_or(arrival, |place| place.arrival);
                self.place_at(id, arrival).client = client;
            }
        }
    }
}

/// A blocked client.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    call: Call,
    since_ms: i64,
    is_dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Granted,
    AlreadyActive,
    NoSeats,
    Queued(usize),
    /// It left before it could be told.
    Gone,
}

/// What all names share.
struct Shared {
    moment: Moment,
    last_arrival: u64,
    waiters: Vec<Waiter>,
    told: BTreeMap<u32, Told>,
}

impl Shared {
    fn tell(&mut self, number: u32, told: Told) {
        let before = self.told.insert(number, told);
        assert_eq!(before, None, "client {number} is told twice");
    }
}

/// A name with what the module has there.
#[derive(Default)]
struct Name {
    pool: Option<Pool>,
    /// A pool that only ever saw the effects.
    follower: Option<Pool>,
    line: Line<u32>,
    model: Model,
    /// Sessions whose seats are to be taken back unless they are heard of before.
    unconfirmed: BTreeSet<usize>,
    /// Whether the timer is to look here.
    is_due: bool,
}

impl Name {
    fn commit(&mut self, effect: &Effect<'_>) {
        if self.pool.is_none() {
            let (Effect::Grant(_) | Effect::Join(_)) = effect else {
                return;
            };
            self.pool = Some(Pool::new(0));
            self.follower = Some(Pool::new(0));
        }
        let applied = self.pool.as_mut().unwrap().apply(effect);
        assert_eq!(self.follower.as_mut().unwrap().apply(effect), applied);
        if applied != Applied::Missed {
            self.model.apply(effect);
        }
        if let Effect::Grant(_) | Effect::Renew { .. } | Effect::Free { .. } = effect {
            self.unconfirmed.remove(&id_of(session_of(effect)));
        }
    }

    /// The pool, or an empty one.
    fn pool(&self) -> &Pool {
        static EMPTY: LazyLock<Pool> = LazyLock::new(|| Pool::new(0));
        self.pool.as_ref().unwrap_or(&EMPTY)
    }

    /// A pool with neither rows nor tickets does not exist, and its limit is forgotten with it. Then whoever is first in line brings
    /// the limit, so it never rests there.
    fn close(&mut self, shared: &Shared) {
        if self.pool.as_ref().is_some_and(Pool::is_empty) {
            self.pool = None;
            self.follower = None;
            self.model.seats = 0;
        }
        let is_free = self.limit(shared) > self.model.elsewhere as i64;
        self.is_due |= self.pool.is_none() && is_free;
    }

    fn limit(&self, shared: &Shared) -> i64 {
        let first = || self.line.first().map(|place| place.waiting);
        let stated = |number: u32| shared.waiters[number as usize].call.seats;
        match &self.pool {
            Some(pool) => pool.seats(),
            None => first().map_or(0, stated),
        }
    }

    /// What the decisions go by where `seats` is stated.
    fn of(&self, seats: i64) -> Limit {
        Limit {
            seats,
            taken_elsewhere: self.model.elsewhere,
        }
    }

    fn decide(&self, moment: Moment, id: usize, seats: i64) -> Acquire {
        let limit = self.of(seats);
        let decision = self
            .pool()
            .acquire(moment, &bytes_of(id), limit, &self.line);
        assert_eq!(decision, self.model.decide(moment, id, seats), "decision");
        decision
    }

    /// What comes before each change: clients who wait for sessions that hold seats of a value that has come are told so, and
    /// have the leases that they asked for.
    fn open(&mut self, shared: &mut Shared) {
        let moment = shared.moment;
        for id in 0..IDS {
            let session = bytes_of(id);
            if !self.model.is_live(moment, id) {
                continue;
            }
            let Some(place) = self.line.leave(&session) else {
                continue;
            };
            self.model.drop_client(id);
            let lease_ms = shared.waiters[place.waiting as usize].call.lease_ms;
            if let Some(lease) = starting(moment.now_ms, lease_ms) {
                let session = &session;
                self.commit(&Effect::Renew { session, lease });
            }
            self.unconfirmed.remove(&id);
            shared.tell(place.waiting, Told::AlreadyActive);
        }
    }

    fn acquire(&mut self, shared: &mut Shared, call: Call) {
        self.open(shared);
        let moment = shared.moment;
        let mut decision = self.decide(moment, call.id, call.seats);
        if decision != Acquire::AlreadyActive && self.lets_waiters_in(moment, call.seats) {
            self.commit(&Effect::Seats(call.seats));
            self.serve(shared);
            decision = self.decide(moment, call.id, call.seats);
        }
        let session = bytes_of(call.id);
        match decision {
            Acquire::AlreadyActive => {
                if let Some(lease) = starting(moment.now_ms, call.lease_ms) {
                    let session = &session;
                    self.commit(&Effect::Renew { session, lease });
                }
                self.unconfirmed.remove(&call.id);
            }
            Acquire::Vacant => {
                let taken = self.model.taken(moment) + self.model.ahead(moment, call.id) as i64;
                assert!(taken < call.seats, "a newcomer barges in");
                self.dismiss(shared, call.id);
                let lease = starting(moment.now_ms, call.lease_ms);
                let none = Metadata::NONE;
                self.commit(&Effect::granting(
                    moment.now_ms,
                    &session,
                    call.seats,
                    &none,
                    lease,
                ));
                // The grant's limit may be the first that lets those in who wait at a missing key.
                self.serve(shared);
            }
            Acquire::NoSeats { .. } if call.blocks || call.ticket_ms.is_some() => {
                self.join(shared, call);
            }
            Acquire::NoSeats { .. } => {}
        }
    }

    fn lets_waiters_in(&self, moment: Moment, seats: i64) -> bool {
        self.pool.as_ref().is_some_and(|pool| {
            seats > pool.seats()
                && seats > self.model.taken(moment)
                && pool.waiting(moment, &self.line) > 0
        })
    }

    fn join(&mut self, shared: &mut Shared, call: Call) {
        let (moment, id, session) = (shared.moment, call.id, bytes_of(call.id));
        let pool = self.pool();
        let arrival = pool
            .arrival_of(moment, &session, &self.line)
            .unwrap_or_else(|| {
                shared.last_arrival += 1;
                shared.last_arrival
            });
        let known = self
            .model
            .place(id)
            .filter(|place| place.is_valid(moment))
            .map(|place| (place.arrival, place.since_ms(moment)));
        if let Some((known, _)) = known {
            assert_eq!(arrival, known, "a place that is known is kept");
        }
        let since_ms = known.map_or(moment.now_ms, |(_, since_ms)| since_ms);
        self.dismiss(shared, id);
        if let Some(length_ms) = call.ticket_ms {
            let ticket = Ticket {
                since_ms,
                length_ms,
                deadline_ms: moment.now_ms,
            };
            let ticket = ticket.kept(moment.now_ms, length_ms).unwrap();
            self.commit(&Effect::joining(&session, call.seats, arrival, ticket));
        } else {
            self.commit(&Effect::Seats(call.seats));
            // The place is the client's from now on, and ends with it.
            self.commit(&Effect::Leave { session: &session });
        }
        // The call's limit may be the first that lets those in who wait at a missing key.
        self.serve(shared);
        if call.blocks {
            let number = shared.waiters.len() as u32;
            shared.waiters.push(Waiter {
                call,
                since_ms,
                is_dead: false,
            });
            let ticketed = call.ticket_ms.is_some();
            self.line.join(&session, arrival, ticketed, number);
            self.model.place_at(id, arrival).client = Some((number, since_ms));
        }
    }

    fn dismiss(&mut self, shared: &mut Shared, id: usize) {
        if let Some(place) = self.line.leave(&bytes_of(id)) {
            self.model.drop_client(id);
            shared.tell(place.waiting, Told::NoSeats);
        }
    }

    fn leave(&mut self, shared: &mut Shared, id: usize) {
        self.dismiss(shared, id);
        self.commit(&Effect::Leave {
            session: &bytes_of(id),
        });
    }

    fn serve(&mut self, shared: &mut Shared) -> usize {
        let lost = self.remove_lost_tickets(shared);
        let mut granted = 0;
        while granted < BATCH && self.serve_one(shared) {
            granted += 1;
        }
        self.is_due |= granted == BATCH || lost == BATCH;
        granted
    }

    fn remove_lost_tickets(&mut self, shared: &mut Shared) -> usize {
        let moment = shared.moment;
        let pool = self.pool().clone();
        let mut lost = 0;
        for session in pool.lost_tickets(moment, BATCH) {
            lost += 1;
            let id = id_of(session);
            let place = self.model.place(id).expect("a lost ticket has been one");
            assert!(!place.has_valid_ticket(moment), "{place:?} is not lost");
            let blocked = self.line.get(session).map(|place| place.waiting);
            match blocked.map(|number| shared.waiters[number as usize].call.ticket_ms) {
                Some(Some(ms)) => self.keep_place(moment, id, ms.max(LEAST_RENEWAL_MS)),
                Some(None) => {
                    // The ticket came with another value; the client never asked for it.
                    self.commit(&Effect::Leave { session });
                    self.mark(id);
                }
                None => self.leave(shared, id),
            }
        }
        lost
    }

    fn keep_place(&mut self, moment: Moment, id: usize, valid_ms: u64) {
        let pool = self.pool().clone();
        let session = bytes_of(id);
        if let Some(place) = pool.any_ticket(&session) {
            let ticket = Ticket {
                deadline_ms: moment.now_ms + valid_ms as i64,
                ..place.waiting
            };
            let seats = pool.seats();
            self.commit(&Effect::joining(&session, seats, place.arrival(), ticket));
        }
    }

    /// Has the line know whether the client of `id` has a ticket, and take its place in the order.
    fn mark(&mut self, id: usize) {
        let session = bytes_of(id);
        let ticket = self
            .pool()
            .any_ticket(&session)
            .map(|place| place.arrival());
        if let Some(place) = self.line.leave(&session) {
            let arrival = ticket.unwrap_or(place.arrival());
            self.line
                .join(&session, arrival, ticket.is_some(), place.waiting);
        }
    }

    fn serve_one(&mut self, shared: &mut Shared) -> bool {
        let moment = shared.moment;
        let seats = self.limit(shared);
        let pool = self.pool().clone();
        let next = pool.next_in_line(moment, self.of(seats), &self.line);
        let next = next.map(|place| (place.waiting, id_of(place.session())));
        let eligible = self.model.eligible(moment, seats);
        assert_eq!(next.map(|(_, id)| id), eligible, "whose turn it is");
        let Some((number, id)) = next else {
            return false;
        };
        let waiting = self.model.waiting(moment);
        let index = self.model.index(moment, id).unwrap();
        for ahead in &waiting[..index] {
            let is_kept_for = ahead.client.is_none() && ahead.has_valid_ticket(moment);
            assert!(is_kept_for, "{ahead:?} is passed over");
        }
        let taken = self.model.taken(moment) + index as i64;
        assert!(taken < seats, "a grant above the limit");
        let session = bytes_of(id);
        assert!(pool.get(moment, &session).is_none(), "a holder waits");
        self.line.leave(&session);
        self.model.drop_client(id);
        let waiter = shared.waiters[number as usize];
        let lease = starting(moment.now_ms, waiter.call.lease_ms);
        let none = Metadata::NONE;
        self.commit(&Effect::granting(
            moment.now_ms,
            &session,
            seats,
            &none,
            lease,
        ));
        if waiter.is_dead {
            self.unconfirmed.insert(id);
            shared.tell(number, Told::Gone);
        } else {
            shared.tell(number, Told::Granted);
        }
        true
    }

    fn release(&mut self, shared: &mut Shared, id: usize) {
        self.open(shared);
        self.leave(shared, id);
        let session = bytes_of(id);
        if self.pool().get(shared.moment, &session).is_some() {
            self.commit(&Effect::freeing(&session, Freed::Released));
        }
        self.serve(shared);
    }

    fn renew(&mut self, shared: &mut Shared, id: usize, length_ms: u64) {
        self.open(shared);
        let moment = shared.moment;
        let session = bytes_of(id);
        if self.pool().get(moment, &session).is_some() {
            let lease = Lease::starting(moment.now_ms, length_ms).unwrap();
            let session = &session;
            self.commit(&Effect::Renew { session, lease });
        }
    }

    fn resize(&mut self, shared: &mut Shared, seats: i64) {
        self.open(shared);
        if self.pool.as_ref().is_some_and(|pool| pool.seats() != seats) {
            self.commit(&Effect::Seats(seats));
            self.serve(shared);
        }
    }

    fn take_elsewhere(&mut self, taken: usize) {
        self.is_due |= taken < self.model.elsewhere;
        self.model.elsewhere = taken;
    }

    fn end_wait(&mut self, shared: &mut Shared, id: usize, disconnected: bool) {
        let moment = shared.moment;
        let session = bytes_of(id);
        let position = self.pool().position(moment, &session, &self.line);
        let Some(place) = self.line.leave(&session) else {
            return;
        };
        let index = self.model.index(moment, id);
        assert_eq!(position, index.map(|index| index + 1), "position");
        self.model.drop_client(id);
        let number = place.waiting;
        let ticket_ms = shared.waiters[number as usize].call.ticket_ms;
        let survives = ticket_ms.filter(|_| self.pool().has_ticket(&session));
        if let Some(ticket_ms) = survives {
            self.keep_place(moment, id, ticket_ms);
        }
        let told = match survives.and(position) {
            _ if disconnected => Told::Gone,
            _ if self.model.is_live(moment, id) => Told::AlreadyActive,
            Some(position) => Told::Queued(position),
            None => Told::NoSeats,
        };
        shared.tell(number, told);
    }

    fn dies(&mut self, shared: &mut Shared, id: usize) {
        if let Some(place) = self.line.get(&bytes_of(id)) {
            shared.waiters[place.waiting as usize].is_dead = true;
        }
    }

    fn take_back(&mut self, shared: &mut Shared) {
        for id in std::mem::take(&mut self.unconfirmed) {
            let session = bytes_of(id);
            if self.pool().get(shared.moment, &session).is_some() {
                self.commit(&Effect::freeing(&session, Freed::Released));
            }
            self.serve(shared);
        }
    }

    fn tick(&mut self, shared: &mut Shared) {
        self.open(shared);
        self.is_due = false;
        self.take_back(shared);
        let pool = self.pool().clone();
        for session in pool.lapsed(shared.moment, BATCH) {
            self.commit(&Effect::freeing(session, Freed::Expired));
        }
        self.serve(shared);
    }

    /// Another value, or none, comes to this name. Whoever is blocked here is served by the timer.
    fn replace(&mut self, pool: Option<Pool>, follower: Option<Pool>, model: &Model) {
        self.pool = pool;
        self.follower = follower;
        self.model.take_value(model);
        for id in 0..IDS {
            self.mark(id);
        }
        self.is_due = true;
    }

    /// Whether the timer has nothing to do here.
    fn is_quiet(&self, moment: Moment) -> bool {
        let lapsed =
            (0..IDS).any(|id| self.model.rows.contains_key(&id) && !self.model.is_live(moment, id));
        let is_lost = |place: &Place| place.ticket.is_some() && !place.has_valid_ticket(moment);
        let lost = self.model.queue.iter().any(is_lost);
        !self.is_due && !lapsed && !lost && self.unconfirmed.is_empty()
    }

    fn check(&self, shared: &Shared) {
        let moment = shared.moment;
        let model = &self.model;
        assert_eq!(self.pool.is_some(), model.exists(), "the key exists");
        let pool = self.pool();
        let waiting = model.waiting(moment);
        assert_eq!(pool.seats(), model.seats, "seats");
        assert_eq!(pool.len(), model.rows.len(), "rows");
        assert_eq!(pool.used(moment), model.used(moment), "used");
        let tickets = model.queue.iter().filter_map(|place| place.ticket);
        assert_eq!(pool.tickets(), tickets.clone().count(), "tickets");
        let leases = model.rows.values().flatten().map(|lease| lease.deadline_ms);
        let deadlines = leases.chain(tickets.map(|ticket| ticket.deadline_ms));
        let effective = deadlines.map(|deadline_ms| deadline_ms.max(moment.floor_ms));
        let earliest = pool.earliest_deadline_ms(moment);
        assert_eq!(earliest, effective.min(), "deadline");
        self.check_queue(shared, pool);
        for id in 0..IDS {
            let session = bytes_of(id);
            let place = waiting.iter().find(|place| place.id == id);
            let arrival = pool.arrival_of(moment, &session, &self.line);
            assert_eq!(arrival, place.map(|place| place.arrival), "arrival of {id}");
            let ticket = place.filter(|place| place.has_valid_ticket(moment));
            assert_eq!(
                pool.ticket(moment, &session).map(|place| place.waiting),
                ticket.and_then(|place| place.ticket),
                "ticket of {id}"
            );
            self.decide(moment, id, model.seats);
        }
        if self.is_quiet(moment) {
            let idle = model.eligible(moment, self.limit(shared));
            assert_eq!(idle, None, "a seat is idle while this client waits");
            // While grants are held, blocked clients stand before free seats as well.
            if !moment.holds_grants {
                let kept = waiting.iter().take(model.free(moment)).count();
                assert_eq!(pool.kept(moment, model.elsewhere), kept, "kept");
            }
        }
        let follower = self.follower.as_ref().map(contents);
        assert_eq!(follower, self.pool.as_ref().map(contents), "follower");
        if let Some(pool) = &self.pool {
            let again = reload(pool);
            assert_eq!(contents(&again), contents(pool), "reload");
            self.check_queue(shared, &again);
        }
    }

    fn check_queue(&self, shared: &Shared, pool: &Pool) {
        let moment = shared.moment;
        let waiting = self.model.waiting(moment);
        let since_ms = |&number: &u32| shared.waiters[number as usize].since_ms;
        let queue = pool.queue(moment, &self.line, since_ms);
        let queue: Vec<_> = queue
            .iter()
            .map(|waiting| (id_of(waiting.session), waiting.since_ms))
            .collect();
        let expected: Vec<_> = waiting
            .iter()
            .map(|place| (place.id, place.since_ms(moment)))
            .collect();
        assert_eq!(queue, expected, "the queue in its order");
        assert_eq!(pool.waiting(moment, &self.line), waiting.len(), "waiting");
        for id in 0..IDS {
            let index = self.model.index(moment, id);
            assert_eq!(
                pool.position(moment, &bytes_of(id), &self.line),
                index.map(|index| index + 1),
                "position of {id}"
            );
        }
        for seats in 0..6 {
            let next = pool.next_in_line(moment, self.of(seats), &self.line);
            assert_eq!(
                next.map(|place| id_of(place.session())),
                self.model.eligible(moment, seats),
                "whose turn it is under {seats} seats"
            );
        }
    }
}

fn session_of<'a>(effect: &Effect<'a>) -> &'a [u8] {
    match *effect {
        Effect::Grant(grant) => grant.session,
        Effect::Renew { session, .. } | Effect::Free { session, .. } => session,
        _ => unreachable!("only those that a seat belongs to"),
    }
}

fn starting(now_ms: i64, lease_ms: Option<u64>) -> Option<Lease> {
    lease_ms.and_then(|length_ms| Lease::starting(now_ms, length_ms))
}

/// All that a pool keeps and its digest covers, as the effects that would make it.
fn contents(pool: &Pool) -> Vec<Effect<'_>> {
    let grants = pool.iter().map(|session| pool.grant_of(session));
    let tickets = pool.all_tickets().map(|ticket| pool.join_of(ticket));
    let seats = Effect::Seats(pool.seats());
    grants.chain(tickets).chain([seats]).collect()
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
                moment: Moment::at(1_700_000_000_000),
                last_arrival: 0,
                waiters: Vec::new(),
                told: BTreeMap::new(),
            },
            names: <[Name; 2]>::default(),
        }
    }

    fn take(&mut self, step: Step) {
        let World { shared, names } = self;
        match step {
            Step::Acquire(at, call) => names[at].acquire(shared, call),
            Step::Release(at, id) => names[at].release(shared, id),
            Step::Renew(at, id, ms) => names[at].renew(shared, id, ms),
            Step::Resize(at, seats) => names[at].resize(shared, seats),
            Step::Elsewhere(at, taken) => names[at].take_elsewhere(taken),
            Step::TimeOut(at, id) => names[at].end_wait(shared, id, false),
            Step::Disconnects(at, id) => names[at].end_wait(shared, id, true),
            Step::Dies(at, id) => names[at].dies(shared, id),
            Step::Tick => names.iter_mut().for_each(|name| name.tick(shared)),
            Step::ClockMoves(by_ms) => shared.moment.now_ms += by_ms,
            Step::FloorMoves(by_ms) => shared.moment.floor_ms = shared.moment.now_ms + by_ms,
            Step::HoldsGrants(holds) => {
                shared.moment.holds_grants = holds;
                // The timer looks everywhere at the end of a hold.
                names.iter_mut().for_each(|name| name.is_due |= !holds);
            }
            Step::RenameFrom(from) => self.move_value(from, true),
            Step::CopyFrom(from) => self.move_value(from, false),
            Step::Swap => self.swap(),
            Step::Delete(at) => names[at].replace(None, None, &Model::default()),
        }
        for name in &mut self.names {
            name.close(&self.shared);
        }
    }

    /// Seats are taken back in the turn of the event loop in which they were granted, so before the value can move.
    fn take_back(&mut self) {
        for name in &mut self.names {
            name.take_back(&mut self.shared);
            name.close(&self.shared);
        }
    }

    fn move_value(&mut self, from: usize, leaves: bool) {
        self.take_back();
        let name = &mut self.names[from];
        if name.pool.is_none() {
            return;
        }
        let (pool, follower, model) =
            (name.pool.clone(), name.follower.clone(), name.model.clone());
        if leaves {
            name.replace(None, None, &Model::default());
        }
        self.names[1 - from].replace(pool, follower, &model);
    }

    fn swap(&mut self) {
        self.take_back();
        let [one, other] = &mut self.names;
        let (pool, follower, model) = (one.pool.take(), one.follower.take(), one.model.clone());
        one.replace(other.pool.take(), other.follower.take(), &other.model);
        other.replace(pool, follower, &model);
    }

    fn check(&self) {
        for name in &self.names {
            name.check(&self.shared);
        }
        let lines = self.names.iter().flat_map(|name| name.line.iter());
        let blocked: BTreeSet<u32> = lines.map(|place| place.waiting).collect();
        for number in 0..self.shared.waiters.len() as u32 {
            assert!(
                blocked.contains(&number) != self.shared.told.contains_key(&number),
                "client {number} is either blocked or told"
            );
        }
    }

    /// The timer comes until it has nothing left to do.
    fn settle(&mut self) {
        self.take(Step::HoldsGrants(false));
        let moment = self.shared.moment;
        for _ in 0..10 * IDS {
            self.take(Step::Tick);
            self.check();
            if self.names.iter().all(|name| name.is_quiet(moment)) {
                return;
            }
        }
        panic!("the timer never comes to an end");
    }
}

/// A pool of two seats, one of them held and the other kept for a poller.
fn with_a_poller_first() -> (Pool, i64) {
    let now_ms = 1_700_000_000_000;
    let mut pool = Pool::new(2);
    let none = Metadata::NONE;
    let lease = Lease::starting(now_ms, 500);
    pool.apply(&Effect::granting(now_ms, b"holder", 2, &none, lease));
    pool.apply(&Effect::joining(b"poller", 2, 1, ticket(now_ms, 60_000)));
    (pool, now_ms)
}

fn ticket(now_ms: i64, length_ms: u64) -> Ticket {
    let joined = Ticket {
        since_ms: now_ms,
        length_ms,
        deadline_ms: now_ms,
    };
    joined.kept(now_ms, length_ms).expect("within time")
}

#[test]
fn a_blocked_client_waits_on_when_its_ticket_is_lost_and_not_yet_renewed() {
    let (mut pool, now_ms) = with_a_poller_first();
    pool.apply(&Effect::joining(b"blocked", 2, 2, ticket(now_ms, 500)));
    let mut line = Line::default();
    line.join(b"blocked", 2, true, ());
    assert_eq!(pool.waiting(Moment::at(now_ms), &line), 2);

    // Its ticket and the holder's lease end in one instant, before the timer comes.
    let now_ms = now_ms + 500;
    assert_eq!(pool.queue(Moment::at(now_ms), &line, |()| now_ms).len(), 2);
    assert_eq!(pool.waiting(Moment::at(now_ms), &line), 2);
    assert_eq!(
        pool.position(Moment::at(now_ms), b"blocked", &line),
        Some(2)
    );
    let newcomer = pool.acquire(Moment::at(now_ms), b"newcomer", 2, &line);
    assert_eq!(newcomer, Acquire::NoSeats { position: 3 }, "barging");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 50_000, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_answers_as_a_naive_model_does(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
        world.settle();
    }
}
